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
enum { OUTCOMES = sizeof outcomes / sizeof outcomes[0], ENDS = END_REFUSED + 1 };

static enum job_phase phase_that_counts(const struct witnesses *w)
{
    return w->stale ? JOB_UNKNOWN : w->phase;
}

static bool everybody_silent(const struct witnesses *w)
{
    return !w->exit_present && phase_that_counts(w) == JOB_GONE && w->heartbeat_age >= SILENCE_LOST && w->unseen_for >= SILENCE_LOST;
}

static bool stopped_by_us(const struct witnesses *w)
{
    return (w->cancel_requested || w->over_time) && w->phase == JOB_GONE && w->gone_for >= END_RECORD_WAIT &&
           !(w->queues && w->heartbeat_age < SILENCE_LOST);
}

// A scheduler that has said once that a job ended is believed, but not against a heart that beats.
static bool told(const struct witnesses *w)
{
    bool began = w->started || (w->nodes && w->nodes[0]) || (w->end != END_CANCELLED && w->end != END_REFUSED);
    return !w->exit_present && phase_that_counts(w) == JOB_ENDED && (!began || w->gone_for >= TOLD_WAIT) &&
           (!w->started || w->heartbeat_age >= (w->end == END_NODE_FAILED ? SILENCE_LOST : TOLD_WAIT));
}

static bool forgotten(const struct witnesses *w)
{
    return w->queues && !w->started && !w->exit_present && phase_that_counts(w) == JOB_GONE && w->heartbeat_age >= SILENCE_LOST &&
           (w->unseen_for >= SILENCE_LOST || w->cancel_requested);
}

// The worker's own end says that all was done: it is so, however its launcher ended.
static bool said_done(const struct witnesses *w)
{
    return w->end_present && w->end_code == 0;
}

// The job came to a good end and claimed no attempt: it did nothing.
static bool unbegun(const struct witnesses *w)
{
    return told(w) && w->end == END_COMPLETED && !w->started && !w->cancel_requested && w->unbegun < UNBEGUN_MAX;
}

// The exit record, where nothing of the job is left and nobody will start it again.
static bool record_stands(const struct witnesses *w)
{
    enum job_phase phase = phase_that_counts(w);
    bool done = said_done(w) || (w->exit_code == 0 && w->exit_signal == 0);
    if (!w->queues)
        return w->exit_present && phase != JOB_RUNNING;
    return w->exit_present && (phase == JOB_ENDED || phase == JOB_GONE || (done && phase != JOB_PENDING && w->exit_seen_for >= SETTLE_WAIT));
}

static bool worker_said(const struct witnesses *w)
{
    enum job_phase phase = phase_that_counts(w);
    return !w->exit_present && w->end_present && (phase == JOB_GONE || phase == JOB_ENDED) && w->gone_for >= END_RECORD_WAIT;
}

static bool done_before(const struct witnesses *w)
{
    return w->done_before && (phase_that_counts(w) == JOB_GONE || phase_that_counts(w) == JOB_ENDED);
}

static void check_end(const struct witnesses *w, const struct judgement *j)
{
    enum job_phase phase = phase_that_counts(w);
    bool scheduler_ended = phase == JOB_ENDED;
    bool code_0 = w->exit_present ? w->exit_code == 0 && !w->exit_signal : (worker_said(w) && w->end_code == 0) || (told(w) && w->end == END_COMPLETED);
    assert_true(w->records_complete || forgotten(w));
    assert_true(done_before(w) || record_stands(w) || worker_said(w) || told(w) || stopped_by_us(w) || everybody_silent(w) || forgotten(w));
    if (phase == JOB_UNKNOWN && w->queues) // silence ends nothing: only a job that says itself that it is done is believed, after a while
        assert_true(w->exit_present && j->to == RUN_SUCCEEDED);
    if (phase == JOB_PENDING)
        assert_true(!w->queues && w->exit_present);
    if (j->to == RUN_SUCCEEDED)
        assert_true(done_before(w) || code_0 || said_done(w));
    if (j->to == RUN_LOST)
        assert_true(!w->memory_reason && !w->cancel_requested && !w->over_time &&
                    ((everybody_silent(w) && j->kill) || (scheduler_ended && (w->end == END_NODE_FAILED || w->end == END_PREEMPTED))));
    if (j->to == RUN_CANCELLED)
        assert_true(w->cancel_requested || (scheduler_ended && w->end == END_CANCELLED && !w->killed));
    if (j->to == RUN_TIMED_OUT)
        assert_true(!w->cancel_requested && (w->over_time || (scheduler_ended && w->end == END_TIME_LIMIT)));
    if (j->to == RUN_OUT_OF_MEMORY)
        assert_true((scheduler_ended && w->end == END_OUT_OF_MEMORY) || (w->memory_evidence && (w->exit_signal == 9 || w->job_signal == 9 || w->memory_reason)));
    bool saved = (w->exit_present ? w->exit_code == EXIT_STOPPED : worker_said(w) ? w->end_code == EXIT_STOPPED : w->job_code == EXIT_STOPPED);
    if (j->requeue)
        assert_true(!w->cancel_requested && (forgotten(w) || unbegun(w) || (!w->over_time && saved && w->idle < IDLE_MAX)));
    assert_true(!w->before_alive || done_before(w) || worker_said(w));
}

// What must be true of any judgement, whatever the witnesses say.
static void check(const struct witnesses *given)
{
    struct judgement j;
    struct witnesses settled = *given;
    const struct witnesses *w = &settled;
    judge(&j, given);
    witnesses_settle(&settled);
    if (j.to == RUN_SUCCEEDED && given->says_end && given->end_present && !given->done_before && !run_state_ended(given->state))
        assert_int_equal(given->end_code, EXIT_DONE);
    enum job_phase phase = phase_that_counts(w);
    bool without_success = run_state_ended(j.to) && j.to != RUN_SUCCEEDED && j.to != RUN_CANCELLED;
    assert_non_null(j.witness);
    if (run_state_ended(w->state)) {
        assert_int_equal(j.to, w->state);
        assert_false(j.kill || j.requeue || j.again);
        return;
    }
    if (j.to != w->state)
        assert_true(j.reason[0] != 0);
    if (run_state_ended(j.to) || j.requeue)
        check_end(w, &j);
    assert_int_equal(j.requeue, j.to == RUN_QUEUED);
    assert_int_equal(j.cause != CAUSE_NONE, without_success);
    if (record_stands(w) && ((w->exit_code == 0 && !w->exit_signal) || said_done(w)) && w->records_complete && !w->done_before)
        assert_int_equal(j.to, RUN_SUCCEEDED);
    if (j.again)
        assert_true(w->queues && phase == JOB_PENDING && (w->started || w->exit_present) && !w->cancel_requested && !w->done_before && j.to == RUN_PENDING && !j.kill);
    if (phase == JOB_PENDING && w->queues && w->started && !w->cancel_requested && !w->done_before && !(w->exit_present && (w->exit_code == 0 || said_done(w))))
        assert_true(w->idle < IDLE_MAX ? j.again : j.kill && j.to == RUN_FINISHING);
    if (j.stop)
        assert_true(w->before_alive && !run_state_ended(j.to) && !j.requeue && !j.again);
    if (phase == JOB_RUNNING && !w->exit_present && !w->done_before)
        assert_false(run_state_ended(j.to) || j.kill || j.requeue);
    if (j.kill && phase == JOB_UNKNOWN)
        fail_msg("killed without knowing anything");
    if (w->stale && !w->exit_present)
        assert_false(run_state_ended(j.to) || j.requeue || j.again || j.kill);
}

static void combine_flags(struct witnesses *w)
{
    for (int flags = 0; flags < 256; flags++) {
        w->records_complete = flags & 1;
        w->cancel_requested = flags & 2;
        w->started = flags & 4;
        w->end_present = flags & 8;
        w->done_before = flags & 16;
        w->killed = flags & 32;
        w->over_time = !w->queues && flags & 64;
        w->memory_evidence = !w->queues && flags & 128;
        w->before_alive = w->queues && !w->started && !w->exit_present && flags & 64;
        w->idle = w->queues && flags & 128 ? IDLE_MAX : IDLE_MAX - 1;
        w->says_end = w->queues && w->end_present; // without an end of the worker's, its launcher's code proves nothing: in the table
        w->memory_reason = !w->queues && w->memory_evidence && w->killed ? "its limit" : NULL;
        check(w);
    }
}

static void combine_times(struct witnesses *w)
{
    static const double ages[] = {0, 16, 59.9, 60, INFINITY}, spans[] = {0, 2, 5, 16, 61};
    enum { MOMENTS = 5 };
    for (size_t i = 0; i < MOMENTS; i++)
        for (size_t j = 0; j < MOMENTS; j++)
            for (size_t k = 0; k < MOMENTS; k++) {
                w->heartbeat_age = ages[i];
                w->gone_for = w->phase == JOB_GONE || w->phase == JOB_ENDED ? spans[j] : 0;
                w->unseen_for = spans[k];
                w->exit_seen_for = spans[j];
                combine_flags(w);
            }
}

static void combine_outcomes(const struct witnesses *like)
{
    for (size_t outcome = 0; outcome <= OUTCOMES; outcome++) {
        struct witnesses w = *like;
        w.exit_present = outcome < OUTCOMES;
        w.exit_code = w.exit_present ? outcomes[outcome].code : 0;
        w.exit_signal = w.exit_present ? outcomes[outcome].signal : 0;
        w.end_code = outcome % 2 ? 75 : 0;
        combine_times(&w);
    }
}

static void test_process_table(void **state)
{
    (void)state;
    for (int from = RUN_SUBMITTED; from <= RUN_LOST; from++)
        for (int phase = JOB_UNKNOWN; phase <= JOB_GONE; phase++)
            if (phase != JOB_ENDED && (from <= RUN_SUCCEEDED || from == RUN_LOST))
                combine_outcomes(&(struct witnesses){.state = (enum run_state)from, .phase = (enum job_phase)phase, .attempt = 1, .job_code = -1});
}

static void test_scheduler(void **state)
{
    (void)state;
    static const enum run_state states[] = {RUN_SUBMITTED, RUN_PENDING, RUN_RUNNING, RUN_FINISHING, RUN_FAILED};
    for (size_t from = 0; from < sizeof states / sizeof states[0]; from++)
        for (int phase = JOB_UNKNOWN; phase <= JOB_GONE; phase++)
            for (int stale = 0; stale < 2; stale++)
                for (int end = 0; end < (phase == JOB_ENDED ? ENDS : 1); end++)
                    combine_outcomes(&(struct witnesses){.state = states[from],
                        .phase = (enum job_phase)phase,
                        .queues = true,
                        .stale = stale,
                        .end = (enum job_end)end,
                        .job_code = end == END_FAILED ? 1 : end == END_PREEMPTED ? EXIT_STOPPED : end == END_CANCELLED ? 0 : -1,
                        .nodes = end % 2 ? "n1" : "",
                        .attempt = 1});
}

struct row {
    const char *what;
    struct witnesses w;
    enum run_state to;
    bool kill, requeue;
    const char *reason; // part of it
    bool again;
    enum cause cause;
    const char *witness; // NULL: any
};

// One line a case.
// clang-format off
static const struct row table[] = {
    {"a job that was handed over begins", {.state = RUN_SUBMITTED, .phase = JOB_RUNNING, .started = true, .heartbeat_age = INFINITY}, RUN_RUNNING, 0, 0, "running", 0, 0, NULL},
    {"a job waits in a queue", {.state = RUN_SUBMITTED, .phase = JOB_PENDING, .phase_reason = "Priority", .heartbeat_age = INFINITY}, RUN_PENDING, 0, 0, "Priority", 0, 0, NULL},
    {"done", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .records_complete = true, .heartbeat_age = 1}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, NULL},
    {"done, records not yet read", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .heartbeat_age = 1}, RUN_FINISHING, 0, 0, "records", 0, 0, NULL},
    {"done, a rank hangs on", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .exit_present = true, .exit_seen_for = 5, .records_complete = true}, RUN_FINISHING, 1, 0, "have not", 0, 0, NULL},
    {"could not begin, on this machine", {.state = RUN_SUBMITTED, .phase = JOB_GONE, .gone_for = 2, .heartbeat_age = INFINITY, .last_words = "job.sh: cannot make attempt-1", .attempt = 1}, RUN_FAILED, 0, 0, "ended before an attempt began: job.sh: cannot make", 0, 0, "scheduler"},
    {"gone on this machine without a word", {.state = RUN_SUBMITTED, .phase = JOB_GONE, .gone_for = 2, .heartbeat_age = INFINITY, .attempt = 1}, RUN_SUBMITTED, 0, 0, "called lost", 0, 0, "scheduler"},
    {"failed", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 1, .records_complete = true, .last_words = "rank 1: no"}, RUN_FAILED, 0, 0, "rank 1: no", 0, 0, NULL},
    {"bad data", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 2, .records_complete = true, .last_words = "x.idx: corrupt"}, RUN_FAILED, 0, 0, "x.idx: corrupt", 0, 0, NULL},
    {"no room to say what is bad", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 2, .records_complete = true}, RUN_FAILED, 0, 0, "without a word on stderr: it could not write down what was wrong; is the disk full?", 0, CAUSE_FAILED, NULL},
    {"stopped after saving", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .attempt = 1}, RUN_QUEUED, 0, 1, "attempt 2", 0, 0, NULL},
    {"stopped in circles", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .attempt = 12, .idle = IDLE_MAX}, RUN_FAILED, 0, 0, "10 attempts in a row made no new step, given up", 0, CAUSE_FAILED, NULL},
    {"stopped often, but getting on", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .attempt = 200, .idle = IDLE_MAX - 1}, RUN_QUEUED, 0, 1, "attempt 201", 0, 0, NULL},
    {"cancelled, saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .cancel_requested = true}, RUN_CANCELLED, 0, 0, "after saving", 0, 0, NULL},
    {"cancelled too late", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .records_complete = true, .cancel_requested = true}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, NULL},
    {"killed after the grace", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 4, .records_complete = true, .cancel_requested = true, .heartbeat_age = 9}, RUN_CANCELLED, 1, 0, "cancelled", 0, 0, NULL},
    {"time is up, saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 75, .records_complete = true, .over_time = true}, RUN_TIMED_OUT, 0, 0, "time limit", 0, 0, NULL},
    {"a rank was killed", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true}, RUN_FAILED, 0, 0, "SIGKILL", 0, 0, NULL},
    {"a rank was killed, all was saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .attempt = 1, .all_saved = true}, RUN_QUEUED, 0, 1, "all steps are done and saved, but attempt 1 ended before it said so (killed by signal 9, SIGKILL: no output on stderr): attempt 2 will say it", 0, 0, NULL},
    {"ended with a fault, all was saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 1, .records_complete = true, .all_saved = true}, RUN_FAILED, 0, 0, "exit code 1", 0, CAUSE_FAILED, NULL},
    {"cancelled by a kill, all was saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .cancel_requested = true, .all_saved = true}, RUN_CANCELLED, 0, 0, "cancelled", 0, 0, NULL},
    {"all killed, all was saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, .started = true, .records_complete = true, .heartbeat_age = 63, .all_saved = true}, RUN_QUEUED, 1, 1, "all steps are done and saved", 0, 0, NULL},
    {"killed again and again, all was saved", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .idle = IDLE_MAX, .all_saved = true}, RUN_FAILED, 0, 0, "SIGKILL", 0, CAUSE_FAILED, NULL},
    {"the kernel killed it", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .memory_evidence = true}, RUN_OUT_OF_MEMORY, 0, 0, "memory", 0, 0, NULL},
    {"job.sh was killed, the worker goes on", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .started = true, .heartbeat_age = 3}, RUN_RUNNING, 0, 0, "", 0, 0, NULL},
    {"job.sh was killed, the worker has ended", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 4, .started = true, .records_complete = true, .end_present = true, .heartbeat_age = 5}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, NULL},
    {"all killed, a moment ago", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 20, .unseen_for = 20, .started = true, .records_complete = true, .heartbeat_age = 22}, RUN_RUNNING, 0, 0, "no process of attempt 0 is left", 0, 0, NULL},
    {"all killed", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, .started = true, .records_complete = true, .heartbeat_age = 63}, RUN_LOST, 1, 0, "no process", 0, 0, NULL},
    {"the scheduler is deaf, the heart beats", {.state = RUN_RUNNING, .phase = JOB_UNKNOWN, .unseen_for = 500, .started = true, .records_complete = true, .heartbeat_age = 5}, RUN_RUNNING, 0, 0, "", 0, 0, NULL},
    {"done, and its loss is lost", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .records_complete = true, .diverged = 12}, RUN_SUCCEEDED, 0, 0, "finished with exit code 0, but diverged at step 12: ", 0, 0, NULL},
    {"a rank was killed after the worker's end", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .end_present = true}, RUN_SUCCEEDED, 0, 0, "then ended otherwise (killed by signal 9", 0, 0, NULL},
    {"a rank was killed after the worker's end, which is not read yet", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9}, RUN_FINISHING, 0, 0, "records", 0, 0, NULL},
    {"mpirun made a code of its own of it", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 1, .records_complete = true, .end_present = true}, RUN_SUCCEEDED, 0, 0, "(exit code 1)", 0, 0, NULL},
    {"cancelled and killed after the worker's end", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .end_present = true, .cancel_requested = true}, RUN_SUCCEEDED, 0, 0, "all was done", 0, 0, NULL},
    {"the worker's own end is a failure, mpirun was killed", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 137, .exit_signal = 9, .records_complete = true, .end_present = true, .end_code = 1}, RUN_FAILED, 0, 0, "SIGKILL", 0, 0, NULL},
    {"its directory was removed, and it ended", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, .vanished = true, .records_complete = true, .heartbeat_age = INFINITY}, RUN_LOST, 1, 0, "for 61 s; its directory is not there any more", 0, CAUSE_LOST, NULL},
    {"ended stays ended", {.state = RUN_LOST, .phase = JOB_RUNNING, .started = true, .heartbeat_age = 1}, RUN_LOST, 0, 0, "", 0, 0, NULL},
};
// clang-format on

static void check_row(const struct row *row)
{
    struct judgement j;
    judge(&j, &row->w);
    if (j.to != row->to || j.kill != row->kill || j.requeue != row->requeue || !strstr(j.reason, row->reason))
        fail_msg("%s: %s (kill %d, requeue %d, \"%s\"), expected %s (%d, %d, \"…%s…\")", row->what, run_state_name(j.to), j.kill, j.requeue, j.reason,
            run_state_name(row->to), row->kill, row->requeue, row->reason);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        check_row(&table[i]);
}

// What a scheduler says, one line a case: S is a witness who has a queue. All records are in the store.
#define S .queues = true, .heartbeat_age = INFINITY
#define BEGAN .queues = true, .started = true
#define EXIT(code_, signal_) .exit_present = true, .exit_code = code_, .exit_signal = signal_
#define TOLD(end_) .phase = JOB_ENDED, .end = end_, .gone_for = 20
// clang-format off
static const struct row scheduler[] = {
    {"waits", {.state = RUN_SUBMITTED, .phase = JOB_PENDING, S, .phase_reason = "waits for its turn (Priority)"}, RUN_PENDING, 0, 0, "(Priority)", 0, 0, "scheduler"},
    {"begins", {.state = RUN_PENDING, .phase = JOB_RUNNING, BEGAN, .nodes = "n[1-2]", .attempt = 1}, RUN_RUNNING, 0, 0, "running on n[1-2]", 0, 0, "scheduler"},
    {"begins, and the answer is older than its directory", {.state = RUN_PENDING, .phase = JOB_PENDING, .stale = true, BEGAN, .heartbeat_age = INFINITY}, RUN_RUNNING, 0, 0, "has begun", 0, 0, "heartbeat"},
    {"runs, and the answer is older than its directory", {.state = RUN_RUNNING, .phase = JOB_PENDING, .stale = true, BEGAN, .heartbeat_age = 1}, RUN_RUNNING, 0, 0, "", 0, 0, NULL},
    {"no answer for hours, never begun", {.state = RUN_PENDING, .phase = JOB_UNKNOWN, S, .unseen_for = 9000}, RUN_PENDING, 0, 0, "", 0, 0, NULL},
    {"no answer for hours, heart silent too", {.state = RUN_RUNNING, .phase = JOB_UNKNOWN, BEGAN, .unseen_for = 9000, .heartbeat_age = 9000}, RUN_RUNNING, 0, 0, "does not answer", 0, 0, NULL},
    {"runs, in a state that nobody knows", {.state = RUN_RUNNING, .phase = JOB_UNKNOWN, .strange = true, BEGAN, .phase_reason = "Slurm calls its state 'NEW'", .heartbeat_age = 1, .attempt = 1}, RUN_RUNNING, 0, 0, "attempt 1 is running; Slurm calls its state 'NEW'", 0, 0, "scheduler"},
    {"waits, in a state that nobody knows", {.state = RUN_SUBMITTED, .phase = JOB_UNKNOWN, .strange = true, S, .phase_reason = "Slurm calls its state 'NEW'"}, RUN_SUBMITTED, 0, 0, "Slurm calls its state 'NEW'", 0, 0, "scheduler"},
    {"in a state that nobody knows, and its heart is silent", {.state = RUN_RUNNING, .phase = JOB_UNKNOWN, .strange = true, BEGAN, .unseen_for = 9000, .phase_reason = "Slurm calls its state 'NEW'", .heartbeat_age = 9000}, RUN_RUNNING, 0, 0, "last heard of, Slurm calls its state 'NEW'", 0, 0, NULL},
    {"done, and the scheduler too", {.state = RUN_RUNNING, TOLD(END_COMPLETED), BEGAN, EXIT(0, 0)}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, "exit record"},
    {"done, an old answer says running", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .stale = true, BEGAN, EXIT(0, 0)}, RUN_FINISHING, 0, 0, "awaited", 0, 0, "exit record"},
    {"done, still completing", {.state = RUN_RUNNING, .phase = JOB_RUNNING, BEGAN, EXIT(0, 0), .exit_seen_for = 5}, RUN_FINISHING, 0, 0, "not done with it", 0, 0, "exit record"},
    {"done, completing without end", {.state = RUN_FINISHING, .phase = JOB_RUNNING, BEGAN, EXIT(0, 0), .exit_seen_for = 70}, RUN_SUCCEEDED, 1, 0, "0", 0, 0, "exit record"},
    {"done, and the scheduler is silent", {.state = RUN_FINISHING, .phase = JOB_UNKNOWN, BEGAN, EXIT(0, 0), .exit_seen_for = 70}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, "exit record"},
    {"done, then requeued", {.state = RUN_FINISHING, .phase = JOB_PENDING, BEGAN, EXIT(0, 0), .exit_seen_for = 70}, RUN_FINISHING, 1, 0, "being cancelled", 0, 0, NULL},
    {"done, requeued and that cancelled", {.state = RUN_FINISHING, TOLD(END_CANCELLED), BEGAN, EXIT(0, 0), .killed = true}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, NULL},
    {"done, requeued and begun once more", {.state = RUN_RUNNING, .phase = JOB_RUNNING, BEGAN, .done_before = true, .heartbeat_age = 1}, RUN_FINISHING, 1, 0, "once more", 0, 0, NULL},
    {"done, begun once more and that ended", {.state = RUN_FINISHING, TOLD(END_CANCELLED), BEGAN, .done_before = true}, RUN_SUCCEEDED, 0, 0, "exit code 0", 0, 0, "exit record"},
    {"failed, an old answer says running", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .stale = true, BEGAN, EXIT(1, 0)}, RUN_FINISHING, 0, 0, "awaited", 0, 0, NULL},
    {"failed, and the scheduler is silent", {.state = RUN_FINISHING, .phase = JOB_UNKNOWN, BEGAN, EXIT(1, 0), .exit_seen_for = 9000}, RUN_FINISHING, 0, 0, "awaited", 0, 0, NULL},
    {"failed", {.state = RUN_FINISHING, TOLD(END_FAILED), BEGAN, EXIT(1, 0), .last_words = "rank 1: no"}, RUN_FAILED, 0, 0, "rank 1: no", 0, CAUSE_FAILED, "exit record"},
    {"failed, and forgotten since", {.state = RUN_FINISHING, .phase = JOB_GONE, BEGAN, EXIT(1, 0)}, RUN_FAILED, 0, 0, "exit code 1", 0, CAUSE_FAILED, "exit record"},
    {"failed without a record", {.state = RUN_RUNNING, TOLD(END_FAILED), .job_code = 127, S, .started = true}, RUN_FAILED, 0, 0, "exit code 127", 0, CAUSE_FAILED, "scheduler"},
    {"failed before it began", {.state = RUN_PENDING, TOLD(END_FAILED), .job_code = 1, S, .last_words = "cannot make"}, RUN_FAILED, 0, 0, "cannot make", 0, CAUSE_FAILED, "scheduler"},
    {"could not be launched", {.state = RUN_PENDING, TOLD(END_FAILED), .job_code = -1, .job_signal = 53, S, .phase_reason = "failed: ended by signal 53 (JobLaunchFailure)"}, RUN_FAILED, 0, 0, "before an attempt began: failed: ended by signal 53 (JobLaunchFailure)", 0, CAUSE_FAILED, "scheduler"},
    {"exit code 0, and its disk is away", {.state = RUN_RUNNING, TOLD(END_COMPLETED), S, .nodes = "n1", .away = true}, RUN_RUNNING, 0, 0, "its disk mounted", 0, 0, "disk"},
    {"failed, and its disk is away", {.state = RUN_RUNNING, TOLD(END_FAILED), .job_code = 75, S, .phase_reason = "failed with exit code 75", .away = true}, RUN_RUNNING, 0, 0, "its disk mounted", 0, 0, "disk"},
    {"forgotten, and its disk is away", {.state = RUN_RUNNING, .phase = JOB_GONE, S, .unseen_for = 9000, .gone_for = 9000, .away = true}, RUN_RUNNING, 0, 0, "its disk mounted", 0, 0, "disk"},
    {"suspended", {.state = RUN_RUNNING, .phase = JOB_RUNNING, BEGAN, .nodes = "n1", .attempt = 1, .phase_reason = "suspended by the scheduler"}, RUN_RUNNING, 0, 0, "attempt 1 is running on n1: suspended", 0, 0, "scheduler"},
    {"its node has lost its power, or its ranks hang", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .queues = true, .started = true, .nodes = "n1", .attempt = 1, .heartbeat_age = 61}, RUN_RUNNING, 0, 0, "attempt 1 is running on n1; its heartbeat has been silent for more than a minute", 0, 0, "scheduler"},
    {"runs, and its directory was renamed", {.state = RUN_RUNNING, .phase = JOB_RUNNING, .queues = true, .nodes = "n1", .attempt = 1, .vanished = true, .heartbeat_age = INFINITY}, RUN_RUNNING, 0, 0, "attempt 1 is running on n1; its directory is not there any more", 0, 0, "scheduler"},
    {"runs, and its disk is away", {.state = RUN_RUNNING, .phase = JOB_RUNNING, S, .nodes = "n1", .attempt = 1, .away = true}, RUN_RUNNING, 0, 0, "attempt 1 is running on n1", 0, 0, "scheduler"},
    {"cancelled, and its disk is away", {.state = RUN_RUNNING, TOLD(END_CANCELLED), .job_code = -1, S, .cancel_requested = true, .away = true}, RUN_CANCELLED, 0, 0, "cancelled", 0, 0, "scheduler"},
    {"exit code 0, and somebody has removed its directory", {.state = RUN_RUNNING, TOLD(END_COMPLETED), S, .nodes = "n1", .removed = true, .phase_reason = "completed"}, RUN_FAILED, 0, 0, "its run directory is not there any more, and the job is over: completed", 0, CAUSE_FAILED, "scheduler"},
    {"failed, and somebody has removed its directory", {.state = RUN_RUNNING, TOLD(END_FAILED), .job_code = 1, S, .removed = true, .phase_reason = "failed with exit code 1"}, RUN_FAILED, 0, 0, "not there any more, and the job is over: failed with exit code 1", 0, CAUSE_FAILED, "scheduler"},
    {"forgotten, and somebody has removed its directory", {.state = RUN_PENDING, .phase = JOB_GONE, S, .unseen_for = 9000, .gone_for = 9000, .removed = true}, RUN_FAILED, 1, 0, "the job is over: the scheduler does not know it", 0, CAUSE_FAILED, "scheduler"},
    {"ended for the scheduler, the heart beats", {.state = RUN_RUNNING, TOLD(END_FAILED), .job_code = 1, BEGAN, .heartbeat_age = 3}, RUN_FINISHING, 0, 0, "awaited", 0, 0, NULL},
    {"exit code 0, and the worker never began", {.state = RUN_RUNNING, TOLD(END_COMPLETED), BEGAN, EXIT(0, 0), .says_end = true, .last_words = "task 0 launch failed"}, RUN_FAILED, 0, 0, "did not say that it is done: task 0 launch failed", 0, CAUSE_FAILED, "exit record"},
    {"exit code 0, and the worker says so too", {.state = RUN_RUNNING, TOLD(END_COMPLETED), BEGAN, EXIT(0, 0), .says_end = true, .end_present = true}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, "exit record"},
    {"killed after the worker's end, and about to be started again", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, EXIT(137, 9), .says_end = true, .end_present = true, .attempt = 1}, RUN_FINISHING, 1, 0, "being cancelled", 0, 0, "exit record"},
    {"its node failed after the worker's end", {.state = RUN_RUNNING, .phase = JOB_ENDED, .end = END_NODE_FAILED, .gone_for = 61, BEGAN, EXIT(137, 9), .says_end = true, .end_present = true}, RUN_SUCCEEDED, 0, 0, "all was done", 0, 0, "heartbeat"},
    {"saved, its launcher says 0, to be started again", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, EXIT(0, 0), .says_end = true, .end_present = true, .end_code = 75, .attempt = 1}, RUN_PENDING, 0, 0, "as attempt 2", 1, 0, "scheduler"},
    {"saved, its launcher says 0", {.state = RUN_RUNNING, TOLD(END_COMPLETED), BEGAN, EXIT(0, 0), .says_end = true, .end_present = true, .end_code = 75, .attempt = 1}, RUN_QUEUED, 0, 1, "as attempt 2", 0, 0, "exit record"},
    {"saved, and killed at the time limit after that", {.state = RUN_RUNNING, TOLD(END_TIME_LIMIT), BEGAN, EXIT(137, 9), .says_end = true, .end_present = true, .end_code = 75, .attempt = 1}, RUN_QUEUED, 0, 1, "as attempt 2", 0, 0, "exit record"},
    {"failed, its launcher says 0", {.state = RUN_RUNNING, TOLD(END_COMPLETED), BEGAN, EXIT(0, 0), .says_end = true, .end_present = true, .end_code = 1}, RUN_FAILED, 0, 0, "exit code 1", 0, CAUSE_FAILED, "exit record"},
    {"exit code 0 without a word of the worker, to be started again", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, EXIT(0, 0), .says_end = true, .attempt = 1}, RUN_PENDING, 0, 0, "as attempt 2", 1, 0, "scheduler"},
    {"cancelled, and its last start ended at once", {.state = RUN_RUNNING, TOLD(END_COMPLETED), .queues = true, .started = true, .heartbeat_age = INFINITY, .says_end = true, .cancel_requested = true}, RUN_CANCELLED, 0, 0, "cancelled", 0, 0, "scheduler"},
    {"its node took it, and its next start did nothing", {.state = RUN_RUNNING, TOLD(END_COMPLETED), .queues = true, .started = true, .heartbeat_age = INFINITY, .says_end = true, .attempt = 1}, RUN_QUEUED, 0, 1, "attempt 1 left no exit record", 0, 0, "scheduler"},
    {"completed without a record", {.state = RUN_RUNNING, TOLD(END_COMPLETED), S, .started = true}, RUN_SUCCEEDED, 0, 0, "0", 0, 0, "scheduler"},
    {"cancelled as it was about to begin: it ended at once", {.state = RUN_PENDING, TOLD(END_COMPLETED), S, .cancel_requested = true}, RUN_CANCELLED, 0, 0, "before it began", 0, 0, "scheduler"},
    {"refused by its node", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, S, .unlaunched = true, .unbegun = UNBEGUN_MAX - 1, .phase_reason = "n1 refused job 7"}, RUN_QUEUED, 1, 1, "n1 refused job 7: it will be handed over again", 0, 0, NULL},
    {"refused by its node, a moment ago", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 1, .unseen_for = 1, S, .unlaunched = true, .phase_reason = "n1 refused job 7"}, RUN_RUNNING, 0, 0, "n1 refused job 7; it is handed over again if no sign of it comes", 0, 0, NULL},
    {"refused by its node, again and again", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, S, .unlaunched = true, .unbegun = UNBEGUN_MAX, .phase_reason = "n1 refused job 7"}, RUN_FAILED, 1, 0, "n1 refused job 7; 6 jobs in a row came to nothing, given up", 0, CAUSE_FAILED, NULL},
    {"put back with its node, and not started again", {.state = RUN_PENDING, TOLD(END_FAILED), .nodes = "n8", .attempt = 2, S, .job_code = 1, .unlaunched = true, .records_complete = true, .phase_reason = "Slurm could not start job 7 on n8"}, RUN_QUEUED, 0, 1, "it will be handed over again", 0, 0, "scheduler"},
    {"… again and again", {.state = RUN_PENDING, TOLD(END_FAILED), .nodes = "n8", .attempt = 2, S, .job_code = 1, .unlaunched = true, .unbegun = UNBEGUN_MAX, .records_complete = true}, RUN_FAILED, 0, 0, "without an attempt", 0, CAUSE_FAILED, "scheduler"},
    {"… and cancelled", {.state = RUN_PENDING, TOLD(END_FAILED), .nodes = "n8", .attempt = 2, S, .job_code = 1, .unlaunched = true, .records_complete = true, .cancel_requested = true}, RUN_CANCELLED, 0, 0, "cancelled", 0, 0, "scheduler"},
    {"killed by its scheduler, which could not start it again", {.state = RUN_RUNNING, .phase = JOB_ENDED, .end = END_FAILED, .gone_for = 61, .queues = true, .started = true, .heartbeat_age = INFINITY, .attempt = 1, .job_code = 1, .unlaunched = true}, RUN_QUEUED, 0, 1, "attempt 1 left no exit record", 0, 0, NULL},
    {"completed without an attempt", {.state = RUN_PENDING, TOLD(END_COMPLETED), S, .unbegun = UNBEGUN_MAX - 1}, RUN_QUEUED, 0, 1, "handed over again", 0, 0, NULL},
    {"completed without an attempt, again and again", {.state = RUN_PENDING, TOLD(END_COMPLETED), S, .unbegun = UNBEGUN_MAX, .last_words = "another submission"}, RUN_FAILED, 0, 0, "without an attempt", 0, CAUSE_FAILED, NULL},
    {"has its nodes, an earlier attempt lives on", {.state = RUN_PENDING, .phase = JOB_RUNNING, S, .attempt = 2, .nodes = "n2", .before_alive = true}, RUN_RUNNING, 0, 0, "attempt 2 has its nodes (n2) and waits there: attempt 1 is asked to stop", 0, 0, "heartbeat"},
    {"cancelled in the queue, an earlier attempt lives on", {.state = RUN_PENDING, TOLD(END_CANCELLED), S, .phase_reason = "cancelled by user 12", .before_alive = true}, RUN_PENDING, 0, 0, "(cancelled by user 12), but an earlier attempt may live on, on a node that the scheduler has given up: asked to stop", 0, 0, "heartbeat"},
    {"forgotten before it began, an earlier attempt lives on", {.state = RUN_PENDING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, S, .before_alive = true}, RUN_PENDING, 0, 0, "waited for until it ends or has been silent for 60 s", 0, 0, "heartbeat"},
    {"cancelled by a person, forgotten, an earlier attempt lives on", {.state = RUN_PENDING, .phase = JOB_GONE, S, .cancel_requested = true, .before_alive = true}, RUN_PENDING, 0, 0, "asked to stop", 0, 0, "heartbeat"},
    {"requeued without end", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, EXIT(143, 15), .idle = IDLE_MAX}, RUN_FINISHING, 1, 0, "10 attempts in a row made no new step; the scheduler would start it again", 0, 0, "scheduler"},
    {"requeued without end, and that cancelled", {.state = RUN_FINISHING, TOLD(END_CANCELLED), BEGAN, EXIT(143, 15), .idle = IDLE_MAX}, RUN_FAILED, 0, 0, "10 attempts in a row made no new step, given up", 0, CAUSE_FAILED, "scheduler"},
    {"requeued without end, and forgotten since", {.state = RUN_FINISHING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, BEGAN, .heartbeat_age = 90, .idle = IDLE_MAX}, RUN_FAILED, 1, 0, "10 attempts in a row made no new step, given up", 0, CAUSE_FAILED, "scheduler"},
    {"requeued without end, and its last start ended at once", {.state = RUN_FINISHING, TOLD(END_COMPLETED), BEGAN, .heartbeat_age = 90, .says_end = true, .idle = IDLE_MAX}, RUN_FAILED, 0, 0, "10 attempts in a row made no new step, given up", 0, CAUSE_FAILED, "scheduler"},
    {"requeued without a step, not without end", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, .idle = IDLE_MAX - 1, .attempt = 9}, RUN_PENDING, 0, 0, "as attempt 10", 1, 0, NULL},
    {"preempted, saved, requeued", {.state = RUN_RUNNING, .phase = JOB_PENDING, .phase_reason = "begins later (BeginTime)", BEGAN, EXIT(75, 0), .attempt = 1}, RUN_PENDING, 0, 0, "as attempt 2: begins later", 1, 0, "scheduler"},
    {"preempted, not saved, requeued", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, EXIT(143, 15)}, RUN_PENDING, 0, 0, "again", 1, 0, NULL},
    {"power lost, requeued", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, .heartbeat_age = 300}, RUN_PENDING, 0, 0, "again", 1, 0, NULL},
    {"requeued and held", {.state = RUN_RUNNING, .phase = JOB_PENDING, .phase_reason = "held (JobHeldUser)", BEGAN, .heartbeat_age = 30}, RUN_PENDING, 0, 0, "(JobHeldUser)", 1, 0, NULL},
    {"requeued after a cancel", {.state = RUN_RUNNING, .phase = JOB_PENDING, BEGAN, EXIT(75, 0), .cancel_requested = true}, RUN_FINISHING, 1, 0, "being cancelled", 0, 0, NULL},
    {"preempted for good, saved", {.state = RUN_RUNNING, TOLD(END_PREEMPTED), BEGAN, EXIT(75, 0)}, RUN_QUEUED, 0, 1, "to be continued", 0, 0, NULL},
    {"preempted for good, not saved", {.state = RUN_RUNNING, TOLD(END_PREEMPTED), BEGAN, EXIT(143, 15)}, RUN_LOST, 0, 0, "preempted", 0, CAUSE_PREEMPTED, "scheduler"},
    {"warned of the time limit, saved", {.state = RUN_RUNNING, TOLD(END_FAILED), .job_code = 75, BEGAN, EXIT(75, 0)}, RUN_QUEUED, 0, 1, "to be continued", 0, 0, NULL},
    {"time limit, saved", {.state = RUN_RUNNING, TOLD(END_TIME_LIMIT), BEGAN, EXIT(75, 0)}, RUN_QUEUED, 0, 1, "to be continued", 0, 0, NULL},
    {"time limit", {.state = RUN_RUNNING, TOLD(END_TIME_LIMIT), BEGAN, .heartbeat_age = 30}, RUN_TIMED_OUT, 0, 0, "time limit", 0, CAUSE_TIMED_OUT, "scheduler"},
    {"its own witness says so, whatever mpirun made of it", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 1, .records_complete = true, .memory_evidence = true, .memory_reason = "its limit is 1 GiB"}, RUN_OUT_OF_MEMORY, 0, 0, "its limit is 1", 0, CAUSE_OUT_OF_MEMORY, "exit record"},
    {"somebody on the machine was, and this one failed otherwise", {.state = RUN_RUNNING, .phase = JOB_GONE, .exit_present = true, .exit_code = 1, .records_complete = true, .memory_evidence = true}, RUN_FAILED, 0, 0, "exit code 1", 0, CAUSE_FAILED, NULL},
    {"its own witness, and job.sh is gone too", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, .started = true, .records_complete = true, .heartbeat_age = 63, .memory_evidence = true, .memory_reason = "its limit is 1 GiB"}, RUN_OUT_OF_MEMORY, 1, 0, "its limit is 1", 0, CAUSE_OUT_OF_MEMORY, "scheduler"},
    {"out of memory", {.state = RUN_RUNNING, TOLD(END_OUT_OF_MEMORY), BEGAN, EXIT(137, 9)}, RUN_OUT_OF_MEMORY, 0, 0, "out of memory", 0, CAUSE_OUT_OF_MEMORY, "scheduler"},
    {"node failed", {.state = RUN_RUNNING, .phase = JOB_ENDED, .end = END_NODE_FAILED, .gone_for = 61, BEGAN, .heartbeat_age = 90, .nodes = "n1"}, RUN_LOST, 0, 0, "n1", 0, CAUSE_NODE_FAILED, "scheduler"},
    {"node failed for the scheduler alone", {.state = RUN_RUNNING, TOLD(END_NODE_FAILED), BEGAN, .heartbeat_age = 20}, RUN_FINISHING, 0, 0, "awaited", 0, 0, NULL},
    {"cancelled by somebody", {.state = RUN_RUNNING, TOLD(END_CANCELLED), .phase_reason = "cancelled by user 12", BEGAN, EXIT(75, 0)}, RUN_CANCELLED, 0, 0, "by user 12", 0, 0, "scheduler"},
    {"cancelled by somebody in the queue", {.state = RUN_PENDING, .phase = JOB_ENDED, .end = END_CANCELLED, .phase_reason = "cancelled by user 12", S}, RUN_CANCELLED, 0, 0, "by user 12", 0, 0, "scheduler"},
    {"cancelled and forgotten", {.state = RUN_RUNNING, .phase = JOB_GONE, BEGAN, EXIT(75, 0), .exit_cancelled = true}, RUN_CANCELLED, 0, 0, "not by this daemon, stopped after saving", 0, 0, "exit record"},
    {"cancelled, killed and forgotten", {.state = RUN_RUNNING, .phase = JOB_GONE, BEGAN, EXIT(143, 15), .exit_cancelled = true}, RUN_CANCELLED, 0, 0, "not by this daemon (killed by signal 15", 0, 0, "exit record"},
    {"cancelled, and ended by us before that was heard", {.state = RUN_FINISHING, TOLD(END_CANCELLED), .phase_reason = "cancelled by user 12", .killed = true, BEGAN, EXIT(75, 0), .exit_cancelled = true}, RUN_CANCELLED, 0, 0, "by user 12", 0, 0, "scheduler"},
    {"cancelled by us", {.state = RUN_RUNNING, TOLD(END_CANCELLED), .cancel_requested = true, BEGAN, EXIT(75, 0)}, RUN_CANCELLED, 0, 0, "after saving", 0, 0, "exit record"},
    {"what was left of a failure is killed by us", {.state = RUN_FINISHING, TOLD(END_CANCELLED), .killed = true, BEGAN, EXIT(1, 0)}, RUN_FAILED, 0, 0, "exit code 1", 0, CAUSE_FAILED, "exit record"},
    {"never started", {.state = RUN_PENDING, .phase = JOB_ENDED, .end = END_REFUSED, .phase_reason = "its deadline passed", S}, RUN_FAILED, 0, 0, "never started: its deadline", 0, CAUSE_FAILED, NULL},
    {"forgotten, the heart beats", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 900, .unseen_for = 4, BEGAN, .heartbeat_age = 4}, RUN_RUNNING, 0, 0, "does not know", 0, 0, "heartbeat"},
    {"forgotten, cancelled, the heart beats", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 900, .cancel_requested = true, BEGAN, .heartbeat_age = 4}, RUN_RUNNING, 0, 0, "", 0, 0, NULL},
    {"forgotten, and silent", {.state = RUN_RUNNING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, BEGAN, .heartbeat_age = 90}, RUN_LOST, 1, 0, "does not know", 0, CAUSE_LOST, NULL},
    {"forgotten before it began, a moment ago", {.state = RUN_PENDING, .phase = JOB_GONE, .gone_for = 10, .unseen_for = 10, S}, RUN_PENDING, 0, 0, "", 0, 0, NULL},
    {"forgotten before it began", {.state = RUN_PENDING, .phase = JOB_GONE, .gone_for = 61, .unseen_for = 61, S}, RUN_QUEUED, 1, 1, "forgotten", 0, 0, NULL},
};
// clang-format on

static void test_scheduler_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scheduler / sizeof scheduler[0]; i++) {
        struct row complete = scheduler[i];
        const struct row *row = &complete;
        struct judgement j;
        complete.w.records_complete = true;
        check_row(row);
        judge(&j, &row->w);
        if (j.again != row->again || j.cause != row->cause || (row->witness && strcmp(j.witness, row->witness) != 0))
            fail_msg("%s: again %d, cause %s, witness %s; expected %d, %s, %s", row->what, j.again, cause_name(j.cause), j.witness, row->again,
                cause_name(row->cause), row->witness ? row->witness : "any");
    }
}

// One heartbeat ages by the steady clock alone, however the wall clock is read or set meanwhile; a new one starts anew.
static void test_pulse(void **state)
{
    (void)state;
    struct pulse pulse = {0};
    assert_true(pulse_age(&pulse, NAN, 1000, 50) == INFINITY);
    assert_true(pulse_age(&pulse, 990, 1000, 50) == 10);
    for (int i = 1; i <= 60; i++) // read late each time, as on a busy machine, or after the clock was set
        assert_true(pulse_age(&pulse, 990, 1000 + i + (i % 7) * 0.01 - (i == 30) * 3600, 50 + i) == 10 + i);
    assert_true(pulse_age(&pulse, 995, 1060, 111) == 0);
    struct pulse ahead = {0};
    assert_true(pulse_age(&ahead, 2000, 1000, 50) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_process_table), cmocka_unit_test(test_scheduler), cmocka_unit_test(test_table),
        cmocka_unit_test(test_scheduler_table), cmocka_unit_test(test_pulse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
