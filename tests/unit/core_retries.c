// Retries by cause: which ends count, the pause that doubles, and the nodes that are left out.
#include "daemon/core/retries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct retry_policy policy_of(const char *text)
{
    struct error err;
    struct json *spec = js_parse(text, strlen(text), &err);
    assert_non_null(spec);
    struct retry_policy policy = retry_policy_of(spec);
    js_free(spec);
    return policy;
}

static void test_causes(void **state)
{
    (void)state;
    struct retry_policy policy = policy_of("{\"retry\": {\"limit\": 2, \"on\": [\"failed\", \"node_failed\"], \"delay\": 30}}");
    for (int cause = CAUSE_NONE; cause < CAUSES; cause++)
        for (int used = 0; used < 4; used++)
            assert_int_equal(retry_wanted(&policy, used, (enum cause)cause), (cause == CAUSE_FAILED || cause == CAUSE_NODE_FAILED) && used < 2);
    policy = policy_of("{}");
    for (int cause = CAUSE_NONE; cause < CAUSES; cause++)
        assert_false(retry_wanted(&policy, 0, (enum cause)cause));
    policy = policy_of("{\"retry\": {\"limit\": 1, \"on\": [\"timed_out\", \"out_of_memory\", \"lost\", \"preempted\"]}}");
    for (int cause = CAUSE_FAILED; cause < CAUSES; cause++)
        assert_int_equal(retry_wanted(&policy, 0, (enum cause)cause), cause != CAUSE_FAILED && cause != CAUSE_NODE_FAILED);
}

static void test_pause(void **state)
{
    (void)state;
    struct retry_policy policy = {.delay = 30};
    static const double expected[] = {30, 60, 120, 240, 480, 960, 1920, 3600, 3600};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_true(retry_delay(&policy, (int64_t)i) == expected[i]);
    policy.delay = 0;
    assert_true(retry_delay(&policy, INT64_MAX / 2) == 0);
}

static void check_excluded(const char *excluded, const char *nodes, const char *words, const char *expected)
{
    char *list = retry_exclude(excluded, nodes, words);
    if (expected)
        assert_string_equal(list ? list : "nothing", expected);
    else
        assert_null(list);
    free(list);
}

static void test_nodes(void **state)
{
    (void)state;
    check_excluded(NULL, "", NULL, NULL);
    check_excluded(NULL, "n1", NULL, "n1");
    check_excluded("n1", "n1", NULL, "n1");
    check_excluded("n1", "n2", "", "n1,n2");
    check_excluded(NULL, "n[1-4]", "no word of it", NULL);
    check_excluded("n7", "n[1-4]", "srun: error: Node failure on n2 | slurmstepd: error: x", "n7,n2");
    check_excluded("n2", "n[1-4]", "srun: error: Node failure on n2", "n2");
    check_excluded("n1", "n[1-4]", "Node failure on -x | Node failure on ../a", "n1");
    check_excluded(NULL, "n[1-4]", "Node failure on a-node.example.org, Node failure on b", "a-node.example.org,b");
    char *long_name = malloc(100);
    memset(long_name, 'n', 99);
    long_name[99] = 0;
    check_excluded("n1", long_name, NULL, "n1");
    free(long_name);
    char *list = NULL;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "node%d", i);
        char *longer = retry_exclude(list, name, NULL);
        free(list);
        list = longer;
    }
    assert_true(strlen(list) <= RETRY_EXCLUDED_MAX && strncmp(list, "node0,node1,", 12) == 0);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_causes), cmocka_unit_test(test_pause), cmocka_unit_test(test_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
