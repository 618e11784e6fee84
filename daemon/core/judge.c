#include "daemon/core/judge.h"
#include "schema/record/layout.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void decide(struct judgement *judgement, enum run_state to, const char *witness, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void decide(struct judgement *judgement, enum run_state to, const char *witness, const char *format, ...)
{
    judgement->to = to;
    judgement->witness = witness;
    va_list args;
    va_start(args, format);
    vsnprintf(judgement->reason, sizeof judgement->reason, format, args);
    va_end(args);
}

static const char *last_words(const struct witnesses *w)
{
    return w->last_words && w->last_words[0] ? w->last_words : "no output on stderr";
}

// Stopped after saving, by whom does not matter here: the run goes on, unless it should not or goes in circles.
static void judge_stopped(struct judgement *judgement, const struct witnesses *w, const char *witness)
{
    if (w->attempt >= REQUEUES_MAX) {
        decide(judgement, RUN_FAILED, witness, "stopped to be continued %lld times, given up", (long long)w->attempt);
        return;
    }
    decide(judgement, RUN_QUEUED, witness, "stopped after saving (exit 75), to be continued as attempt %lld", (long long)w->attempt + 1);
    judgement->requeue = true;
}

// The job is over with this code, everything is ingested and nobody is left.
static void judge_end(struct judgement *judgement, const struct witnesses *w, int64_t code, int signal_number, const char *witness)
{
    const char *name = signal_number > 0 ? sigabbrev_np(signal_number) : NULL;
    char how[64];
    if (signal_number)
        snprintf(how, sizeof how, "killed by signal %d%s%s", signal_number, name ? ", SIG" : "", name ? name : "");
    else
        snprintf(how, sizeof how, "exit code %lld", (long long)code);
    if (code == EXIT_DONE && !signal_number)
        decide(judgement, RUN_SUCCEEDED, witness, "finished with exit code 0");
    else if (w->cancel_requested)
        decide(judgement, RUN_CANCELLED, witness, code == EXIT_STOPPED ? "cancelled, stopped after saving" : "cancelled (%s)", how);
    else if (w->over_time)
        decide(judgement, RUN_TIMED_OUT, witness,
            code == EXIT_STOPPED ? "time limit reached, stopped after saving" : "time limit reached (%s)", how);
    else if (code == EXIT_STOPPED && !signal_number)
        judge_stopped(judgement, w, witness);
    else if (signal_number == SIGKILL && w->memory_evidence)
        decide(judgement, RUN_OUT_OF_MEMORY, witness, "killed by the kernel: out of memory");
    else if (code == EXIT_BAD_INPUT && !signal_number)
        decide(judgement, RUN_FAILED, witness, "bad run description or data: %s", last_words(w));
    else
        decide(judgement, RUN_FAILED, witness, "%s: %s", how, last_words(w));
}

// The job says that it is over. Shown as ended only when its records are in the store and its processes are gone.
static void judge_exited(struct judgement *judgement, const struct witnesses *w)
{
    bool left = w->phase == JOB_RUNNING;
    judgement->kill = left && w->exit_seen_for >= LEFTOVER_WAIT;
    if (!w->records_complete)
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, its records are being read");
    else if (left)
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, some of its processes have not");
    else
        judge_end(judgement, w, w->exit_code, w->exit_signal, "exit record");
}

static void judge_alive(struct judgement *judgement, const struct witnesses *w)
{
    if (w->phase == JOB_PENDING && !w->started)
        decide(judgement, RUN_PENDING, "scheduler", "%s", w->phase_reason ? w->phase_reason : "waits in the scheduler's queue");
    else if (w->started || w->phase == JOB_RUNNING)
        decide(judgement, RUN_RUNNING, "scheduler", "attempt %lld is running", (long long)w->attempt);
}

static void judge_silent(struct judgement *judgement, const struct witnesses *w)
{
    judgement->kill = true;
    if (w->cancel_requested)
        decide(judgement, RUN_CANCELLED, "scheduler", "cancelled; the job is gone without an exit record");
    else if (w->over_time)
        decide(judgement, RUN_TIMED_OUT, "scheduler", "time limit reached; the job is gone without an exit record");
    else
        decide(judgement, RUN_LOST, "scheduler", "no process, no exit record and no heartbeat for %.0f s (all of the job was killed?)",
            w->unseen_for);
}

void judge(struct judgement *judgement, const struct witnesses *w)
{
    *judgement = (struct judgement){.to = w->state, .witness = "scheduler"};
    if (run_state_ended(w->state))
        return;
    bool beating = w->heartbeat_age < SILENCE_LOST;
    bool stopped_by_us = (w->cancel_requested || w->over_time) && w->phase == JOB_GONE && w->gone_for >= END_RECORD_WAIT;
    if (w->exit_present)
        judge_exited(judgement, w);
    else if (w->phase == JOB_PENDING || w->phase == JOB_RUNNING)
        judge_alive(judgement, w);
    else if (w->phase == JOB_GONE && w->end_present && w->records_complete && w->gone_for >= END_RECORD_WAIT)
        judge_end(judgement, w, w->end_code, 0, "heartbeat");
    else if (stopped_by_us && w->records_complete)
        judge_silent(judgement, w);
    else if (w->phase == JOB_UNKNOWN && beating && w->started)
        decide(judgement, RUN_RUNNING, "heartbeat", "attempt %lld is running (the scheduler does not answer)", (long long)w->attempt);
    else if (!beating && w->unseen_for >= SILENCE_LOST && w->records_complete)
        judge_silent(judgement, w);
    if (judgement->to == w->state)
        judgement->requeue = false;
}
