// Where documents begin in a row of tokens, and which token ends them.
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "worker/data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { END = 9 };

static void test_starts(void **state)
{
    static const struct { int32_t tokens[6], starts[6]; } cases[] = {
        {{1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 0}},
        {{1, 2, END, 4, 5, 6}, {0, 0, 0, 3, 3, 3}}, // the token that ends a document is its last
        {{END, END, 3, END, END, 6}, {0, 1, 2, 2, 4, 5}},
        {{1, 2, 3, 4, 5, END}, {0, 0, 0, 0, 0, 0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t starts[6];
        document_starts(starts, cases[i].tokens, 6, END);
        assert_memory_equal(starts, cases[i].starts, sizeof starts);
    }
}

static int end_in(int32_t *id, const char *file, const char *text, struct error *err)
{
    char path[] = "/tmp/switchyard-tokenizer-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0 && !close(descriptor));
    assert_int_equal(file_write_atomic(path, file, strlen(file), 0644, err), 0);
    int status = document_end_token(id, path, text, err);
    unlink(path);
    return status;
}

static void test_end_token(void **state)
{
    static const char file[] = "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\"}, {\"id\": 128001, \"content\": \"<|end_of_text|>\"}], "
                               "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<s>\": 7, \"</s>\": 2}}}";
    struct error err = {{0}};
    int32_t id;
    (void)state;
    assert_int_equal(document_end_token(&id, "byte", NULL, &err), 0);
    assert_int_equal(id, BYTE_TOKEN_EOD);
    assert_int_equal(end_in(&id, file, "<|end_of_text|>", &err), 0);
    assert_int_equal(id, 128001);
    assert_int_equal(end_in(&id, file, "</s>", &err), 0);
    assert_int_equal(id, 2);
    assert_int_equal(end_in(&id, file, "<s>", &err), 0);
    assert_int_equal(id, 1); // what was added comes first
    assert_int_equal(end_in(&id, file, "<stop>", &err), -1);
    assert_non_null(strstr(err.text, "has no token \"<stop>\""));
    assert_int_equal(end_in(&id, "{\"model\": ", "a", &err), -1);
    assert_non_null(strstr(err.text, "data.tokenizer: "));
    assert_int_equal(end_in(&id, "[]", "a", &err), -1);
    assert_int_equal(end_in(&id, "{\"model\": {\"vocab\": {\"a\": 4294967296}}}", "a", &err), -1);
    assert_int_equal(document_end_token(&id, "/nowhere/tokenizer.json", "a", &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_starts), cmocka_unit_test(test_end_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
