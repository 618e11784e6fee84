// Targets: what is taken apart, and every way out of the tree that the path attacks of other servers used.
#include "daemon/serve/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void parts(void **state)
{
    (void)state;
    struct target target;
    struct error err = {0};
    assert_int_equal(target_parse(&target, "/api/v1/runs/p-1/moe_2?names=loss,moe%2Flayer_00%2Fx&after=12&flag&x=a+b%20c&&", &err), 0);
    assert_string_equal(target.path, "/api/v1/runs/p-1/moe_2");
    assert_int_equal(target.segment_count, 5);
    assert_string_equal(target.segments[4], "moe_2");
    assert_string_equal(target_argument(&target, "names"), "loss,moe/layer_00/x");
    assert_string_equal(target_argument(&target, "flag"), "");
    assert_string_equal(target_argument(&target, "x"), "a b c");
    assert_null(target_argument(&target, "absent"));
    target_release(&target);
    assert_int_equal(target_parse(&target, "/", &err), 0);
    assert_int_equal(target.segment_count, 0);
    target_release(&target);
}

static void attacks_end_here(void **state)
{
    (void)state;
    static const char *const attacks[] = {
        "/..", "/../etc/passwd", "/assets/..", "/assets/../../etc/passwd", "/assets/%2e%2e/x", "/assets/%2E%2E%2Fx", "/assets/%252e%252e/x",
        "/assets/..%2f..%2fetc%2fpasswd", "/assets/..;/x", "/assets/.", "/assets/./app.js", "/assets/.git", "/assets//app.js",
        "//etc/passwd", "///", "/assets/", "/assets/\\..\\x", "/assets/..\\x", "/assets/app.js%00.png", "/assets/app.js%", "/a b",
        "/assets/\x01", "/assets/\xC0\xAE\xC0\xAE", "/assets/\xE2\x80\xAE", "/api/v1/runs/a%2fb/c", "/api/v1/runs/a/b?x=%00",
        "/api/v1/runs/a/b?x=%0", "/api/v1/runs/a/b?x=%zz", "/api/v1/runs/a/b?%=1", "etc/passwd", "", "*", "http://evil.example/",
        "/a/b/c/d/e/f/g/h/i", "/~root", "/a:b", "/a@b", "/a;b", "/a'b", "/a\"b", "/<img>", "/a#b", "/a/b/..", "/...",
    };
    for (size_t i = 0; i < COUNT(attacks); i++) {
        struct target target;
        struct error err = {0};
        if (target_parse(&target, attacks[i], &err) == 0)
            fail_msg("\"%s\" was taken", attacks[i]);
        assert_true(strlen(err.text) > 0);
        target_release(&target);
    }
}

static void decoded_once(void **state)
{
    (void)state;
    struct target target;
    assert_int_equal(target_parse(&target, "/x?a=%252e%252e", NULL), 0);
    assert_string_equal(target_argument(&target, "a"), "%2e%2e");
    target_release(&target);
}

static void bounded(void **state)
{
    (void)state;
    struct target target;
    struct error err = {0};
    char *raw = malloc(TARGET_BYTES_MAX + 2);
    memset(raw, 'a', TARGET_BYTES_MAX + 1);
    raw[0] = '/';
    raw[TARGET_BYTES_MAX + 1] = '\0';
    assert_int_equal(target_parse(&target, raw, &err), -1);
    target_release(&target);
    strcpy(raw, "/x?");
    for (int i = 0; i <= TARGET_ARGUMENTS_MAX; i++)
        strcat(raw, "a=1&");
    assert_int_equal(target_parse(&target, raw, &err), -1);
    target_release(&target);
    free(raw);
}

static void integers(void **state)
{
    (void)state;
    struct target target;
    struct error err = {0};
    int64_t value;
    assert_int_equal(target_parse(&target, "/x?a=12&b=-3&c=&d=1x&e=99999999999999999999&f=%201&g=0x10", &err), 0);
    assert_int_equal(target_integer(&value, &target, "a", 0, 0, 100, &err), 0);
    assert_int_equal(value, 12);
    assert_int_equal(target_integer(&value, &target, "b", 0, -10, 100, &err), 0);
    assert_int_equal(value, -3);
    assert_int_equal(target_integer(&value, &target, "absent", 7, 0, 100, &err), 0);
    assert_int_equal(value, 7);
    static const char *const bad[] = {"c", "d", "e", "f", "g"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(target_integer(&value, &target, bad[i], 0, INT64_MIN, INT64_MAX, &err), -1);
    assert_int_equal(target_integer(&value, &target, "a", 0, 0, 11, &err), -1);
    assert_string_equal(err.text, "a must be an integer from 0 to 11");
    target_release(&target);
}

static void names(void **state)
{
    (void)state;
    char longest[66];
    memset(longest, 'x', 65);
    longest[65] = '\0';
    assert_false(target_is_name(longest));
    longest[64] = '\0';
    assert_true(target_is_name(longest));
    assert_true(target_is_name("moe-1"));
    static const char *const bad[] = {"", "a.b", "a/b", "a b", "ü", "-1\n"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(target_is_name(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts), cmocka_unit_test(attacks_end_here), cmocka_unit_test(decoded_once),
        cmocka_unit_test(bounded), cmocka_unit_test(integers), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
