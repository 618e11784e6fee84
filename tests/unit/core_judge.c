// The judgement over every combination of its witnesses: what must hold for all of them, and a table of what single ones mean.
#include "daemon/core/judge.h"
#include "schema/record/layout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct outcome {
    int64_t code;
    int signal;
};
static const struct outcome outcomes[] = {{0, 0}, {1, 0}, {2, 0}, {75, 0}, {137, 9}, {139, 11}, {143, 15}};
enum { OUTCOMES = sizeof outcomes / sizeof outcomes[0] };

static bool everybody_silent(const struct witnesses *w)
{
    return !w->exit_present && w->phase != JOB_RUNNING && w->phase != JOB_PENDING && w->heartbeat_age >= SILENCE_LOST &&
           w->unseen_for >= SILENCE_LOST;
}

static bool stopped_by_us(const struct witnesses *w)
{
    return (w->cancel_requested || w->over_time) && w->phase == JOB_GONE && w->gone_for >= END_RECORD_WAIT;
}

// What must be true of any judgement, whatever the witnesses say.
static void check(const struct witnesses *w)
{
    struct judgement j;
    judge(&j, w);
    bool worker_said = w->end_present && w->phase == JOB_GONE && w->gone_for >= END_RECORD_WAIT;
    assert_non_null(j.witness);
    if (run_state_ended(w->state)) {
        assert_int_equal(j.to, w->state);
        assert_false(j.kill || j.requeue);
        return;
    }
    if (j.to != w->state)
        assert_true(j.reason[0] != 0);
    if (run_state_ended(j.to) || j.requeue) {
        assert_true(w->records_complete);
        assert_true((w->exit_present && w->phase != JOB_RUNNING) || worker_said || stopped_by_us(w) || everybody_silent(w));
    }
    if (j.to == RUN_SUCCEEDED) {
        assert_true(w->exit_present ? w->exit_code == 0 : worker_said && w->end_code == 0);
        assert_true(!w->exit_present || w->exit_signal == 0);
    }
    if (w->exit_present && w->exit_code == 0 && !w->exit_signal && w->records_complete && w->phase != JOB_RUNNING)
        assert_int_equal(j.to, RUN_SUCCEEDED);
    if (j.to == RUN_LOST) {
        assert_true(everybody_silent(w) && j.kill);
        assert_false(w->cancel_requested || w->over_time);
    }
    if (j.to == RUN_CANCELLED)
        assert_true(w->cancel_requested);
    if (j.to == RUN_TIMED_OUT)
        assert_true(w->over_time && !w->cancel_requested);
    if (j.to == RUN_OUT_OF_MEMORY)
        assert_true(w->memory_evidence && w->exit_signal == 9);
    assert_int_equal(j.requeue, j.to == RUN_QUEUED && w->state != RUN_QUEUED);
    if (j.requeue)
        assert_true(!w->cancel_requested && !w->over_time && (w->exit_present ? w->exit_code : w->end_code) == EXIT_STOPPED);
    if (w->phase == JOB_RUNNING && !w->exit_present)
        assert_false(run_state_ended(j.to) || j.kill);
}

static void combine_flags(struct witnesses *w)
{
    for (int flags = 0; flags < 64; flags++) {
        w->records_complete = flags & 1;
        w->cancel_requested = flags & 2;
        w->over_time = flags & 4;
        w->memory_evidence = flags & 8;
        w->started = flags & 16;
        w->end_present = flags & 32;
        check(w);
    }
}

static void combine_times(struct witnesses *w)
{
    static const double ages[] = {0, 30, 59.9, 60, 1000, INFINITY}, spans[] = {0, 2, 5, 59, 61, 1000};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++)
            for (size_t k = 0; k < 6; k++) {
                w->heartbeat_age = ages[i];
                w->gone_for = w->phase == JOB_GONE ? spans[j] : 0;
                w->unseen_for = spans[k];
                w->exit_seen_for = spans[j];
                combine_flags(w);
            }
}

static void test_all_combinations(void **state)
{
    (void)state;
    for (int from = RUN_SUBMITTED; from <= RUN_LOST; from++)
        for (int phase = JOB_UNKNOWN; phase <= JOB_GONE; phase++)
            for (size_t outcome = 0; outcome <= OUTCOMES; outcome++) {
                struct witnesses w = {.state = (enum run_state)from, .phase = (enum job_phase)phase, .attempt = 1};
                w.exit_present = outcome < OUTCOMES;
                w.exit_code = w.exit_present ? outcomes[outcome].code : 0;
                w.exit_signal = w.exit_present ? outcomes[outcome].signal : 0;
                w.end_code = outcome % 2 ? 75 : 0;
                combine_times(&w);
            }
}

struct row {
    const char *what;
    struct witnesses w;
    enum run_state to;
    bool kill, requeue;
    const char *reason; // part of it
};

// One line a case.
// clang-format off
static const struct row table[] = {
    {"a job that was handed over begins", {.state = RUN_SUBMITTED, .phase = JOB_RUNNING, .started = true, .heartbeat_age = INFINITY}, RUN_RUNNING, 0, 0, "running"},
    {"a job waits in a queue", {.state = RUN_SUBMITTED, .phase = JOB_PENDING, .phase_reason = "Priority", .heartbeat_age = INFINITY}, RUN_PENDING, 0, 0, "Priority"},
    {"done", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .records_complete = true, .heartbeat_age = 1}, RUN_SUCCEEDED, 0, 0, "0"},
    {"done, records not yet read", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .heartbeat_age = 1}, RUN_FINISHING, 0, 0, "records"},
    {"done, a rank hangs on", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .exit_present = true, .exit_seen_for = 5, .records_complete = true}, RUN_FINISHING, 1, 0, "have not"},
    {"failed", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 1, .records_complete = true, .last_words = "rank 1: no"}, RUN_FAILED, 0, 0, "rank 1: no"},
    {"bad data", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 2, .records_complete = true, .last_words = "x.idx: corrupt"}, RUN_FAILED, 0, 0, "x.idx: corrupt"},
    {"stopped after saving", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .attempt = 1}, RUN_QUEUED, 0, 1, "attempt 2"},
    {"stopped in circles", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .attempt = REQUEUES_MAX}, RUN_FAILED, 0, 0, "given up"},
    {"cancelled, saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .cancel_requested = true}, RUN_CANCELLED, 0, 0, "after saving"},
    {"cancelled too late", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .records_complete = true, .cancel_requested = true}, RUN_SUCCEEDED, 0, 0, "0"},
    {"killed after the grace", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 4, .records_complete = true, .cancel_requested = true, .heartbeat_age = 9}, RUN_CANCELLED, 1, 0, "cancelled"},
    {"time is up, saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .over_time = true}, RUN_TIMED_OUT, 0, 0, "time limit"},
    {"a rank was killed", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true}, RUN_FAILED, 0, 0, "SIGKILL"},
    {"the kernel killed it", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .memory_evidence = true}, RUN_OUT_OF_MEMORY, 0, 0, "memory"},
    {"job.sh was killed, the worker goes on", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .started = true, .heartbeat_age = 3}, RUN_RUNNING, 0, 0, ""},
    {"job.sh was killed, the worker has ended", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 4, .started = true, .records_complete = true, .end_present = true, .heartbeat_age = 5}, RUN_SUCCEEDED, 0, 0, "0"},
    {"all killed, a moment ago", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 20, .unseen_for = 20, .started = true, .records_complete = true, .heartbeat_age = 22}, RUN_RUNNING, 0, 0, ""},
    {"all killed", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, .started = true, .records_complete = true, .heartbeat_age = 63}, RUN_LOST, 1, 0, "no process"},
    {"the scheduler is deaf, the heart beats", {.state = RUN_RUNNING, .phase = JOB_UNKNOWN, .unseen_for = 500, .started = true, .records_complete = true, .heartbeat_age = 5}, RUN_RUNNING, 0, 0, ""},
    {"ended stays ended", {.state = RUN_LOST, .phase = JOB_RUNNING, .started = true, .heartbeat_age = 1}, RUN_LOST, 0, 0, ""},
};
// clang-format on

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct judgement j;
        judge(&j, &table[i].w);
        if (j.to != table[i].to || j.kill != table[i].kill || j.requeue != table[i].requeue || !strstr(j.reason, table[i].reason))
            fail_msg("%s: %s (kill %d, requeue %d, \"%s\"), expected %s (%d, %d, \"…%s…\")", table[i].what, run_state_name(j.to), j.kill,
                j.requeue, j.reason, run_state_name(table[i].to), table[i].kill, table[i].requeue, table[i].reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_combinations), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
