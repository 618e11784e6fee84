// GPUs: found, declared, given out, and read back.
#include "daemon/exec/gpus.h"
#include "schema/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/switchyard-gpus-XXXXXX";
#include "tests/unit/folder.h"

static void expect(const struct gpus *gpus, const char *words)
{
    char *text = gpus_text(gpus);
    assert_string_equal(text, words);
    free(text);
}

static void test_found(void **state)
{
    (void)state;
    const char *const names[] = {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "nvidia1x", "null"};
    struct gpus gpus;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = path_join(folder, names[i]);
        assert_int_equal(file_write_atomic(path, "", 0, 0600, NULL), 0);
        free(path);
    }
    gpus_look(&gpus, folder, NULL);
    expect(&gpus, "0,1,2");
    gpus_look(&gpus, "/nowhere", NULL);
    expect(&gpus, "");
}

static void test_visible(void **state)
{
    (void)state;
    struct gpus gpus;
    gpus_look(&gpus, folder, "3,1");
    expect(&gpus, "3,1");
    gpus_look(&gpus, folder, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-a/1/0");
    expect(&gpus, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-a/1/0");
    gpus_look(&gpus, folder, "0,-1,2"); // CUDA's own way to say: no more
    expect(&gpus, "0");
    gpus_look(&gpus, folder, "0,0,1"); // no GPU twice
    expect(&gpus, "0");
    gpus_look(&gpus, folder, "");
    expect(&gpus, "");
    gpus_look(&gpus, folder, "0,$(x)");
    expect(&gpus, "0");
}

static void test_given_out(void **state)
{
    (void)state;
    struct gpus all, first, second, left;
    gpus_declare(&all, 4);
    expect(&all, "0,1,2,3");
    gpus_take(&first, &all, 2);
    left = all;
    gpus_remove(&left, &first);
    expect(&left, "2,3");
    gpus_take(&second, &left, 1);
    gpus_remove(&left, &second);
    expect(&first, "0,1");
    expect(&second, "2");
    expect(&left, "3");
    left = all;
    gpus_remove(&left, &second); // the first has ended: what it held is free again, the second's is not
    expect(&left, "0,1,3");
}

static void test_json(void **state)
{
    (void)state;
    struct gpus all, back;
    gpus_declare(&all, 3);
    struct json *list = gpus_to_json(&all);
    assert_int_equal(gpus_from_json(&back, list, NULL), 0);
    expect(&back, "0,1,2");
    js_append(list, js_string("a\nb"));
    assert_int_equal(gpus_from_json(&back, list, NULL), -1);
    js_free(list);
    assert_int_equal(gpus_from_json(&back, NULL, NULL), 0);
    assert_int_equal(back.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_visible),
        cmocka_unit_test(test_given_out),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
