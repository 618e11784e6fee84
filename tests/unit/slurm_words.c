// Slurm's words: every one of them, what may follow it, and that a word which is not known ends nothing.
#include "daemon/exec/slurm/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// Slurm's documentation of job states, 22.05 to 25.11, and what each must mean to us.
static const struct expected {
    const char *word;
    enum job_phase phase;
    enum job_end end;
} expected[] = {
    {"BOOT_FAIL", JOB_ENDED, END_REFUSED},
    {"CANCELLED", JOB_ENDED, END_CANCELLED},
    {"COMPLETED", JOB_ENDED, END_COMPLETED},
    {"DEADLINE", JOB_ENDED, END_REFUSED},
    {"FAILED", JOB_ENDED, END_FAILED},
    {"NODE_FAIL", JOB_ENDED, END_NODE_FAILED},
    {"OUT_OF_MEMORY", JOB_ENDED, END_OUT_OF_MEMORY},
    {"PENDING", JOB_PENDING, 0},
    {"PREEMPTED", JOB_ENDED, END_PREEMPTED},
    {"RUNNING", JOB_RUNNING, 0},
    {"SUSPENDED", JOB_RUNNING, 0},
    {"TIMEOUT", JOB_ENDED, END_TIME_LIMIT},
    {"COMPLETING", JOB_RUNNING, 0},
    {"CONFIGURING", JOB_PENDING, 0},
    {"EXPEDITING", JOB_PENDING, 0},
    {"LAUNCH_FAILED", JOB_PENDING, 0},
    {"POWER_UP_NODE", JOB_PENDING, 0},
    {"RECONFIG_FAIL", JOB_PENDING, 0},
    {"REQUEUED", JOB_PENDING, 0},
    {"REQUEUE_FED", JOB_PENDING, 0},
    {"REQUEUE_HOLD", JOB_PENDING, 0},
    {"RESIZING", JOB_RUNNING, 0},
    {"RESV_DEL_HOLD", JOB_PENDING, 0},
    {"REVOKED", JOB_ENDED, END_REFUSED},
    {"SIGNALING", JOB_RUNNING, 0},
    {"SPECIAL_EXIT", JOB_PENDING, 0},
    {"STAGE_OUT", JOB_RUNNING, 0},
    {"STOPPED", JOB_RUNNING, 0},
    {"UPDATE_DB", JOB_RUNNING, 0},
};

static void test_every_word(void **state)
{
    (void)state;
    size_t known = 0;
    for (const struct state_word *word = state_words; word->word; word++)
        known++;
    assert_int_equal(known, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < known; i++) {
        long long by = 0;
        const struct state_word *word = state_word_of(expected[i].word, &by);
        assert_non_null(word);
        assert_string_equal(word->word, expected[i].word);
        assert_int_equal(word->phase, expected[i].phase);
        if (word->phase == JOB_ENDED)
            assert_int_equal(word->end, expected[i].end);
        assert_int_equal(by, -1);
        assert_true(word->meaning[0] != 0);
        assert_ptr_equal(state_word_of(word->compact, NULL), word);
    }
}

static void test_no_two_alike(void **state)
{
    (void)state;
    for (const struct state_word *a = state_words; a->word; a++)
        for (const struct state_word *b = a + 1; b->word; b++) {
            assert_string_not_equal(a->word, b->word);
            assert_string_not_equal(a->compact, b->compact);
        }
}

static void test_suffixes(void **state)
{
    (void)state;
    long long by;
    const struct state_word *word = state_word_of("CANCELLED by 1000", &by);
    assert_non_null(word);
    assert_string_equal(word->word, "CANCELLED");
    assert_int_equal(by, 1000);
    word = state_word_of("CANCELLED by 0", &by);
    assert_non_null(word);
    assert_int_equal(by, 0);
    // What a narrow column has cut off.
    assert_string_equal(state_word_of("CANCELLED+", &by)->word, "CANCELLED");
    assert_int_equal(by, -1);
    assert_string_equal(state_word_of("OUT_OF_ME+", NULL)->word, "OUT_OF_MEMORY");
    assert_string_equal(state_word_of("COMPLETI+", NULL)->word, "COMPLETING");
    assert_string_equal(state_word_of("NODE_F+", NULL)->word, "NODE_FAIL");
    assert_null(state_word_of("COMPLET+", NULL)); // COMPLETED or COMPLETING: one is an end, the other is not
    assert_null(state_word_of("REQUEUE_+", NULL));
}

static void test_unknown_words(void **state)
{
    (void)state;
    static const char *const unknown[] = {"", " ", "RUNNING ", "running", "Running", "TELEPORTED", "RUNNINGS", "COMPLETED by", "CANCELLED by ",
        "CANCELLED by bob", "CANCELLED by 1 2", "CANCELLED by -1", "+", "++", "COMPLETED++", "X", "COMPLETED,CANCELLED", "_", "42", "\xff\xfe"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (state_word_of(unknown[i], NULL))
            fail_msg("'%s' was taken for %s", unknown[i], state_word_of(unknown[i], NULL)->word);
}

static void assert_waits(const char *raw, const char *words)
{
    char out[256];
    reason_waiting(out, sizeof out, raw);
    assert_string_equal(out, words);
}

static void test_reasons_for_waiting(void **state)
{
    (void)state;
    assert_waits("Resources", "waits for resources (Resources)");
    assert_waits("JobHeldUser", "held by a user (JobHeldUser)");
    assert_waits("Priority", "jobs of higher priority are before it (Priority)");
    assert_waits("ReqNodeNotAvail, UnavailableNodes:n1", "a node that it needs is not available (ReqNodeNotAvail, UnavailableNodes:n1)");
    static const char down[] = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions";
    assert_waits(down, "nodes that it needs are down, drained, or reserved for jobs of higher priority"); // a sentence already: not said twice
    assert_waits("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", "nodes that it needs are down, drained, or reserved for jobs of higher priority");
    assert_waits("launch failed requeued held", "its launch failed; held until somebody releases it (launch failed requeued held)");
    assert_waits("launch_failed_requeued_held", "its launch failed; held until somebody releases it (launch_failed_requeued_held)");
    assert_waits("QOSMaxCpuPerUserLimit", "a limit of its QOS is reached (QOSMaxCpuPerUserLimit)");
    assert_waits("AssocGrpGRES", "a limit of its account is reached (AssocGrpGRES)");
    assert_waits("SomethingNew", "SomethingNew");
    assert_waits("None", "");
    assert_waits("", "");
    assert_waits("(null)", "");
}

static void test_reasons_for_ending(void **state)
{
    (void)state;
    char out[256];
    reason_ended(out, sizeof out, "Prolog");
    assert_string_equal(out, "its prolog failed (Prolog)");
    reason_ended(out, sizeof out, "NodeDown");
    assert_string_equal(out, "(NodeDown)");
    reason_ended(out, sizeof out, "TimeLimit");
    assert_string_equal(out, "(TimeLimit)");
    reason_ended(out, sizeof out, "None");
    assert_string_equal(out, "");
    reason_ended(out, sizeof out, "Whatever");
    assert_string_equal(out, "(Whatever)");
}

static void test_room(void **state)
{
    (void)state;
    char small[8];
    reason_waiting(small, sizeof small, "Resources");
    assert_string_equal(small, "waits f");
    reason_ended(small, sizeof small, "Prolog");
    assert_string_equal(small, "its pro");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_word),
        cmocka_unit_test(test_no_two_alike),
        cmocka_unit_test(test_suffixes),
        cmocka_unit_test(test_unknown_words),
        cmocka_unit_test(test_reasons_for_waiting),
        cmocka_unit_test(test_reasons_for_ending),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
