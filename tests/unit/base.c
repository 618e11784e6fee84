// The floor: text, JSON, files, hashes, time, near names.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/base/json.h"
#include "schema/base/near.h"
#include "schema/base/text.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char here[] = "/tmp/base-XXXXXX";

static int enter_folder(void **state)
{
    (void)state;
    return mkdtemp(here) && chdir(here) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 ? directory_remove(here, NULL) : -1;
}

// ---- error ----

static void test_errors(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(error_set(&err, "%d apples", 3), -1);
    assert_int_equal(error_context(&err, "basket %s", "a"), -1);
    assert_string_equal(err.text, "basket a: 3 apples");
    assert_int_equal(error_set(NULL, "nobody listens"), -1);
    char *large = allocate(2 * ERROR_TEXT_MAX, 1);
    memset(large, 'x', 2 * ERROR_TEXT_MAX - 1);
    error_set(&err, "%s", large);
    assert_int_equal(strlen(err.text), ERROR_TEXT_MAX - 1);
    error_context(&err, "front");
    assert_int_equal(strncmp(err.text, "front: xxx", 10), 0);
    assert_int_equal(strlen(err.text), ERROR_TEXT_MAX - 1);
    free(large);
}

// ---- text ----

static void test_text_keeps_its_limit(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 10);
    text_add(&text, "12345");
    text_addf(&text, "%d", 678);
    assert_false(text.overflowed);
    text_add(&text, "90abc");
    assert_true(text.overflowed);
    assert_string_equal(text.at, "1234567890");
    text_clear(&text);
    assert_false(text.overflowed);
    text_add_bytes(&text, "a\0b", 3);
    assert_int_equal(text.length, 3);
    assert_memory_equal(text.at, "a\0b", 4);
    text_release(&text);
    text_init(&text, 100000);
    char *large = allocate(5000, 1);
    memset(large, 'y', 4999);
    text_addf(&text, "<%s>", large);
    assert_int_equal(text.length, 5001);
    char *taken = text_take(&text);
    assert_int_equal(taken[0], '<');
    assert_int_equal(taken[5000], '>');
    free(taken);
    free(large);
}

// ---- JSON ----

static char *rewritten(const char *source)
{
    struct error err = {0};
    struct json *value = js_parse(source, strlen(source), &err);
    if (!value)
        return string_format("! %s", err.text);
    struct text text;
    text_init(&text, 1 << 16);
    js_write(&text, value);
    js_free(value);
    return text_take(&text);
}

static void test_json_text(void **state)
{
    (void)state;
    static const struct { const char *in, *out; } cases[] = {
        {"{\"b\": 1, \"a\": [true, false, null, -7, 2.5]}", "{\"b\":1,\"a\":[true,false,null,-7,2.5]}"},
        {"\"\\u00e9\\n\\\"\\\\\\u0001\"", "\"é\\n\\\"\\\\\\u0001\""},
        {"1.0", "1.0"}, {"1e3", "1000.0"}, {"1e300", "1e+300"}, {"0.1", "0.1"}, {"1e-8", "1e-08"}, {"9007199254740993", "9007199254740993"},
        {"{}", "{}"}, {"[]", "[]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *out = rewritten(cases[i].in);
        assert_string_equal(out, cases[i].out);
        free(out);
    }
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "1 2", "NaN", "'a'", "{\"a\":\xff}", "\"\xC3\"", "01"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *out = rewritten(bad[i]);
        if (out[0] != '!')
            fail_msg("`%s` was taken as %s", bad[i], out);
        assert_true(out[2] >= '0' && out[2] <= '9');
        free(out);
    }
}

static void test_json_doubles_come_back(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double number;
        memcpy(&number, &bits, sizeof number);
        if (!isfinite(number))
            continue;
        struct text text;
        text_init(&text, 64);
        js_write_real(&text, number);
        assert_true(strtod(text.at, NULL) == number);
        assert_non_null(strpbrk(text.at, ".e"));
        text_release(&text);
    }
}

static void test_json_values(void **state)
{
    (void)state;
    struct json *object = js_object();
    js_set(object, "nan", js_real(NAN));
    js_set(object, "inf", js_real(-INFINITY));
    js_set(object, "x", js_real(0.5));
    js_set(object, "n", js_integer(-3));
    js_set(object, "s", js_string("a\xFFz"));
    js_set(object, "none", js_string(NULL));
    assert_string_equal(js_string_of(js_get(object, "nan"), ""), "NaN");
    assert_true(isnan(js_real_of(js_get(object, "nan"), 0)));
    assert_true(js_real_of(js_get(object, "inf"), 0) == -INFINITY);
    assert_true(js_real_of(js_get(object, "n"), 0) == -3);
    assert_int_equal(js_integer_of(js_get(object, "x"), 9), 9);
    assert_string_equal(js_string_of(js_get(object, "s"), ""), "a\xEF\xBF\xBDz");
    assert_int_equal(js_kind(js_get(object, "none")), JSON_KIND_NULL);
    assert_int_equal(js_kind(js_get(object, "absent")), JSON_KIND_NULL);
    assert_int_equal(js_count(object), 6);
    js_set(object, "n", js_integer(4)); // keeps its place
    js_remove(object, "x");
    const char *names[8];
    size_t count = 0;
    for (void *i = js_first(object); i; i = js_next(object, i))
        names[count++] = js_key(i);
    assert_int_equal(count, 5);
    assert_string_equal(names[0], "nan");
    assert_string_equal(names[2], "n");
    struct json *copy = js_copy(object);
    assert_true(js_equal(copy, object));
    js_set(copy, "n", js_integer(5));
    assert_false(js_equal(copy, object));
    js_free(copy);
    js_free(object);
    js_free(NULL);
}

static void test_json_files(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(file_write_atomic("a.json", "{\"a\": }", 7, 0600, &err), 0);
    assert_null(js_read_file("a.json", 100, &err));
    assert_int_equal(strncmp(err.text, "a.json: 1:", 10), 0);
    assert_null(js_read_file("a.json", 3, &err));
    assert_non_null(strstr(err.text, "larger than 3 bytes"));
    assert_null(js_read_file("absent.json", 100, &err));
    assert_string_equal(err.text, "absent.json: No such file or directory");
}

// ---- files ----

static void test_atomic_writes(void **state)
{
    (void)state;
    struct error err;
    struct stat info;
    assert_int_equal(file_write_atomic("one", "first", 5, 0600, &err), 0);
    assert_int_equal(file_write_atomic("one", "second", 6, 0640, &err), 0);
    assert_int_equal(stat("one", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(file_size("one"), 6);
    assert_int_equal(file_write_atomic("no/such/place", "x", 1, 0600, &err), -1);
    assert_non_null(strstr(err.text, "no/such/place: No such file"));
    // A target that cannot be replaced leaves no temporary file behind.
    assert_int_equal(directory_make("folder", &err), 0);
    assert_int_equal(file_write_atomic("folder", "x", 1, 0600, &err), -1);
    char command[128];
    snprintf(command, sizeof command, "test -z \"$(ls -d %s/*.tmp-* 2>/dev/null)\"", here);
    assert_int_equal(system(command), 0);
    struct text text;
    text_init(&text, 6);
    assert_int_equal(file_read("one", &text, &err), 0);
    assert_string_equal(text.at, "second");
    text_clear(&text);
    text.limit = 5;
    assert_int_equal(file_read("one", &text, &err), -1);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(file_read("pipe", &text, &err), -1); // at once: nobody ever writes into it
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(file_read(".", &text, &err), -1);
    assert_int_equal(unlink("pipe"), 0);
    text_release(&text);
}

static void test_directories(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(directory_make("a/b/c", &err), 0);
    assert_int_equal(directory_make("a/b/c", &err), 0);
    assert_int_equal(directory_make("a/b/c/", &err), 0);
    assert_int_equal(file_write_atomic("a/file", "x", 1, 0600, &err), 0);
    assert_int_equal(directory_make("a/file/d", &err), -1);
    assert_non_null(strstr(err.text, "a/file"));
    assert_int_equal(file_size("a"), -1);
    assert_int_equal(file_write_atomic("kept", "x", 1, 0600, &err), 0);
    assert_int_equal(symlink("../kept", "a/link"), 0);
    assert_int_equal(directory_remove("a", &err), 0);
    assert_false(file_exists("a"));
    assert_true(file_exists("kept"));
    assert_int_equal(directory_remove("a", &err), 0);
}

static void test_paths(void **state)
{
    (void)state;
    static const struct { const char *path, *base, *expected; } cases[] = {
        {"x", "/a/b", "/a/b/x"}, {"../x", "/a/b", "/a/x"}, {"../../../x", "/a/b", "/x"}, {"./x/./y//z", "/a", "/a/x/y/z"}, {"/x/../y", "/a", "/y"},
        {"/", "/a", "/"}, {"..", "/a", "/"}, {"x/..", "/a", "/a"}, {"/a/b/", "/", "/a/b"}, {"...", "/a", "/a/..."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = path_absolute(cases[i].path, cases[i].base);
        assert_string_equal(path, cases[i].expected);
        free(path);
    }
    char *path = path_absolute("x", NULL);
    assert_int_equal(strncmp(path, "/", 1), 0);
    free(path);
    path = path_join("/a/", "b");
    assert_string_equal(path, "/a/b");
    free(path);
    path = path_join("/a", "/b");
    assert_string_equal(path, "/b");
    free(path);
    assert_null(file_network_system("/proc/self/status"));
}

// ---- hash, time, near names ----

static void test_hashes(void **state)
{
    (void)state;
    char hex[HASH_HEX], again[HASH_HEX];
    struct error err;
    hash_bytes(hex, "abc", 3); // FIPS 180-4's example
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_bytes(hex, "", 0);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    struct hash *hash = hash_new();
    hash_add(hash, "a", 1);
    hash_add(hash, "bc", 2);
    hash_end(hash, hex);
    assert_int_equal(file_write_atomic("abc", "abc", 3, 0600, &err), 0);
    assert_int_equal(hash_file(again, "abc", &err), 0);
    assert_string_equal(hex, again);
    assert_int_equal(hash_file(again, "absent", &err), -1);
    char one[33], two[33];
    random_hex(one, 32);
    random_hex(two, 32);
    assert_int_equal(strspn(one, "0123456789abcdef"), 32);
    assert_int_equal(strlen(one), 32);
    assert_string_not_equal(one, two);
}

static void test_time(void **state)
{
    (void)state;
    char text[CLOCK_TEXT];
    clock_text(text, 1796000121.123456);
    assert_string_equal(text, "2026-11-30T00:55:21.123456+00:00");
    assert_true(fabs(clock_parse(text) - 1796000121.123456) < 1e-6);
    for (int micros = 0; micros < 1000000; micros += 997) {
        char again[CLOCK_TEXT], given[64];
        snprintf(given, sizeof given, "2026-11-29T23:59:59.%06d+00:00", micros);
        clock_text(again, clock_parse(given));
        assert_string_equal(again, given);
    }
    clock_text(text, 1796000121.9999999);
    assert_non_null(strstr(text, ":22.000000+00:00"));
    clock_text(text, 0);
    assert_string_equal(text, "1970-01-01T00:00:00.000000+00:00");
    static const char *const odd[] = {"", "yesterday", "2026-11-30", "2026-11-30T02:15:21.123456Z"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        assert_true(isnan(clock_parse(odd[i])));
    double before = clock_steady();
    assert_true(clock_steady() >= before);
    assert_true(clock_wall() > 1.7e9);
}

static void test_near_names(void **state)
{
    (void)state;
    static const char *const names[] = {"top_k", "experts", "expert", "hidden_size", "hidden_dropout", "runs", "beta1", "beta2"};
    static const struct { const char *name, *near; } cases[] = {
        {"topk", "top_k"}, {"top-k", "top_k"}, {"Top_K", "top_k"}, {"exprets", "experts"}, {"hiden_size", "hidden_size"}, {"rusn", "runs"},
        {"expert", "expert"}, {"beta", "beta1"}, {"zebra", NULL}, {"", NULL}, {"x", NULL}, {"hidden", NULL},
        {"a_name_that_is_far_longer_than_any_that_is_compared_with_others_in_here", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *near = near_name(cases[i].name, names, sizeof names / sizeof names[0]);
        if (!near != !cases[i].near || (near && strcmp(near, cases[i].near) != 0))
            fail_msg("%s: expected %s, got %s", cases[i].name, cases[i].near ? cases[i].near : "none", near ? near : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_text_keeps_its_limit),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_json_doubles_come_back),
        cmocka_unit_test(test_json_values),
        cmocka_unit_test(test_json_files),
        cmocka_unit_test(test_atomic_writes),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_near_names),
    };
    return cmocka_run_group_tests_name("base", tests, enter_folder, leave_folder);
}
