#include "daemon/core/judge.h"
#include "schema/record/layout.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *cause_name(enum cause cause)
{
    static const char *const names[CAUSES] = {"none", "failed", "timed_out", "out_of_memory", "lost", "node_failed", "preempted"};
    assert((int)cause < CAUSES);
    return names[cause];
}

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

static bool is_said(const char *text)
{
    return text && text[0];
}

static const char *words_or(const char *text, const char *otherwise)
{
    return is_said(text) ? text : otherwise;
}

static const char *last_words(const struct witnesses *w)
{
    return words_or(w->last_words, "no output on stderr");
}

// What a scheduler adds in its own words, or what we say in its place.
static const char *words_of(const struct witnesses *w, const char *otherwise)
{
    return words_or(w->phase_reason, otherwise);
}

static enum job_phase phase_of(const struct witnesses *w)
{
    return w->stale ? JOB_UNKNOWN : w->phase;
}

// ---- how an attempt ended ----

// However often a run is stopped or put back into a queue, it may go on as long as it gets anywhere.
static bool is_stuck(const struct witnesses *w)
{
    return w->idle >= IDLE_MAX;
}

static void judge_stuck(struct judgement *judgement, const struct witnesses *w, const char *witness)
{
    decide(judgement, RUN_FAILED, witness, "%lld attempts in a row made no new step, given up", (long long)w->idle);
    judgement->cause = CAUSE_FAILED;
}

// Stopped after saving, by whom does not matter here: the run goes on, unless it should not or goes in circles.
static void judge_stopped(struct judgement *judgement, const struct witnesses *w, const char *witness)
{
    if (is_stuck(w)) {
        judge_stuck(judgement, w, witness);
        return;
    }
    decide(judgement, RUN_QUEUED, witness, "stopped after saving (exit 75), to be continued as attempt %lld", (long long)w->attempt + 1);
    judgement->requeue = true;
}

// The ends that only a scheduler knows of. False where the exit code tells the story.
static bool judge_by_scheduler(struct judgement *judgement, const struct witnesses *w, const char *how, bool saved)
{
    const char *nodes = words_or(w->nodes, "unknown"), *after = saved ? ", stopped after saving" : "";
    switch (phase_of(w) == JOB_ENDED ? w->end : END_FAILED) {
    case END_CANCELLED:
        if (is_stuck(w)) { // by us, who would not see it started again
            judge_stuck(judgement, w, "scheduler");
            return true;
        }
        if (w->killed && !w->exit_cancelled)
            return false; // what was left after its own end
        decide(judgement, RUN_CANCELLED, "scheduler", "%s, not by this daemon%s", words_of(w, "cancelled"), after);
        return true;
    case END_OUT_OF_MEMORY:
        decide(judgement, RUN_OUT_OF_MEMORY, "scheduler", "killed by the scheduler: %s (%s)", words_of(w, "out of memory"), how);
        judgement->cause = CAUSE_OUT_OF_MEMORY;
        return true;
    case END_TIME_LIMIT:
        decide(judgement, RUN_TIMED_OUT, "scheduler", "%s (%s)", words_of(w, "the scheduler's time limit is reached"), how);
        judgement->cause = CAUSE_TIMED_OUT;
        return !saved;
    case END_NODE_FAILED:
        decide(judgement, RUN_LOST, "scheduler", "%s (nodes: %s)", words_of(w, "a node failed"), nodes);
        judgement->cause = CAUSE_NODE_FAILED;
        return !saved;
    case END_PREEMPTED:
        decide(judgement, RUN_LOST, "scheduler", "%s, before it could save (%s)", words_of(w, "preempted"), how);
        judgement->cause = CAUSE_PREEMPTED;
        return !saved;
    case END_REFUSED:
        decide(judgement, RUN_FAILED, "scheduler", "never started: %s", words_of(w, "the scheduler gave it up"));
        judgement->cause = CAUSE_FAILED;
        return true;
    case END_COMPLETED:
    case END_FAILED:
        break;
    }
    return false;
}

static void judge_code(struct judgement *judgement, const struct witnesses *w, int64_t code, int signal_number, const char *how, const char *witness)
{
    if (w->memory_evidence && (signal_number == SIGKILL || w->memory_reason)) {
        decide(judgement, RUN_OUT_OF_MEMORY, witness, "%s", w->memory_reason ? w->memory_reason : "killed by the kernel: out of memory");
        judgement->cause = CAUSE_OUT_OF_MEMORY;
        return;
    }
    if (code == EXIT_BAD_INPUT && !signal_number && !is_said(w->last_words))
        decide(judgement, RUN_FAILED, witness, "exit code 2 without a word on stderr: it could not write down what was wrong; is the disk full?");
    else if (code == EXIT_BAD_INPUT && !signal_number)
        decide(judgement, RUN_FAILED, witness, "bad run description or data: %s", last_words(w));
    else
        decide(judgement, RUN_FAILED, witness, "%s: %s", how, last_words(w));
    judgement->cause = CAUSE_FAILED;
}

// A launcher may end with code 0 although it launched nothing: srun does, where a node aborts the step.
static bool is_unproven(const struct witnesses *w)
{
    return w->says_end && !w->end_present;
}

// All of the work was done and saved before the end, of whatever kind that was.
static bool is_done_by_worker(const struct witnesses *w)
{
    return w->end_present && w->end_code == EXIT_DONE;
}

// A run whose loss is lost comes to its end as any other; that it came to nothing is said in the same breath.
static void say_diverged(struct judgement *judgement, const struct witnesses *w)
{
    size_t said = strlen(judgement->reason);
    if (judgement->to == RUN_SUCCEEDED && w->diverged > 0)
        snprintf(judgement->reason + said, sizeof judgement->reason - said, ", but diverged at step %lld: its loss is not finite from there on",
            (long long)w->diverged);
}

// What was killed between its last checkpoint and its last word has done its work: the next attempt has nothing to train, and says so. One that
// ended by itself with a fault has something to say.
static void judge_all_saved(struct judgement *judgement, const struct witnesses *w)
{
    bool by_itself = judgement->cause == CAUSE_FAILED && w->exit_present && w->exit_signal == 0;
    if (judgement->cause == CAUSE_NONE || !w->all_saved || w->cancel_requested || by_itself || is_stuck(w))
        return;
    char how[300];
    snprintf(how, sizeof how, "%.290s", judgement->reason);
    decide(judgement, RUN_QUEUED, judgement->witness, "all steps are done and saved, but attempt %lld ended before it said so (%s): attempt %lld will say it",
        (long long)w->attempt, how, (long long)w->attempt + 1);
    judgement->requeue = true;
    judgement->cause = CAUSE_NONE;
}

// The job is over with this code, everything is ingested and nobody is left.
static void judge_end(struct judgement *judgement, const struct witnesses *w, int64_t code, int signal_number, const char *witness)
{
    const char *name = signal_number > 0 ? sigabbrev_np(signal_number) : NULL;
    char how[64];
    if (signal_number)
        snprintf(how, sizeof how, "killed by signal %d%s%s", signal_number, name ? ", SIG" : "", name ? name : "");
    else if (code == EXIT_DONE)
        snprintf(how, sizeof how, "exit code 0, but the worker did not say that it is done");
    else
        snprintf(how, sizeof how, code < 0 ? "no exit code" : "exit code %lld", (long long)code);
    bool saved = code == EXIT_STOPPED && !signal_number;
    if (code == EXIT_DONE && !signal_number && !is_unproven(w)) {
        decide(judgement, RUN_SUCCEEDED, witness, "finished with exit code 0");
    } else if (is_done_by_worker(w)) {
        decide(judgement, RUN_SUCCEEDED, "heartbeat", "finished: the worker said that all was done; what was left of the job then ended otherwise (%s)", how);
    } else if (w->cancel_requested) {
        decide(judgement, RUN_CANCELLED, witness, saved ? "cancelled, stopped after saving" : "cancelled (%s)", how);
    } else if (judge_by_scheduler(judgement, w, how, saved)) {
        return;
    } else if (w->exit_cancelled && phase_of(w) == JOB_GONE && !is_stuck(w)) {
        decide(judgement, RUN_CANCELLED, witness, saved ? "cancelled, not by this daemon, stopped after saving" : "cancelled, not by this daemon (%s)", how);
    } else if (w->over_time) {
        decide(judgement, RUN_TIMED_OUT, witness, saved ? "time limit reached, stopped after saving" : "time limit reached (%s)", how);
        judgement->cause = CAUSE_TIMED_OUT;
    } else if (saved) {
        judgement->cause = CAUSE_NONE;
        judge_stopped(judgement, w, witness);
    } else {
        judge_code(judgement, w, code, signal_number, how, witness);
    }
}

// ---- the exit record ----

// The scheduler has put the job back into its queue: the next attempt waits there.
static void judge_again(struct judgement *judgement, const struct witnesses *w)
{
    if (is_stuck(w)) {
        decide(judgement, RUN_FINISHING, "scheduler", "%lld attempts in a row made no new step; the scheduler would start it again, which is being cancelled",
            (long long)w->idle);
        judgement->kill = true;
        return;
    }
    decide(judgement, RUN_PENDING, "scheduler", "attempt %lld will be started again by the scheduler, as attempt %lld: %s", (long long)w->attempt,
        (long long)w->attempt + 1, words_of(w, "waits in its queue"));
    judgement->again = true;
}

// True where a scheduler must be waited for. Success is believed after a while; anything else might be started again by it.
static bool waits_for_scheduler(struct judgement *judgement, const struct witnesses *w)
{
    bool done = is_done_by_worker(w) || (w->exit_code == EXIT_DONE && !w->exit_signal && !(is_unproven(w) && w->records_complete));
    enum job_phase phase = phase_of(w);
    bool again = phase == JOB_PENDING;
    if (again && done && is_unproven(w)) {
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, its records are being read");
        return true;
    }
    if (phase == JOB_ENDED || phase == JOB_GONE)
        return false;
    judgement->kill = (phase == JOB_RUNNING && w->exit_seen_for >= SETTLE_WAIT) || (again && (done || w->cancel_requested));
    if (again && !judgement->kill)
        judge_again(judgement, w);
    else if (again)
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended; the scheduler would start it again, which is being cancelled");
    else if (done && w->exit_seen_for >= SETTLE_WAIT)
        return false;
    else if (phase == JOB_RUNNING)
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, the scheduler is not done with it");
    else
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, what the scheduler says of it is awaited");
    return true;
}

// The job says that it is over. Shown as ended only when its records are in the store and its processes are gone.
static void judge_exited(struct judgement *judgement, const struct witnesses *w)
{
    bool left = !w->queues && w->phase == JOB_RUNNING;
    if (w->queues && waits_for_scheduler(judgement, w))
        return;
    judgement->kill = judgement->kill || (left && w->exit_seen_for >= LEFTOVER_WAIT);
    if (!w->records_complete)
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, its records are being read");
    else if (left)
        decide(judgement, RUN_FINISHING, "exit record", "the job has ended, some of its processes have not");
    else
        judge_end(judgement, w, w->exit_code, w->exit_signal, "exit record");
}

// ---- without one ----

// Its scheduler calls it running, and may for a long time yet: of a node that lost its power, say, or of ranks that hang.
static const char *silence_of(const struct witnesses *w)
{
    return w->started && isfinite(w->heartbeat_age) && w->heartbeat_age >= SILENCE_LOST ? "; its heartbeat has been silent for more than a minute" : "";
}

// It trains on, for a process needs no name of its directory: what it writes goes where nobody looks.
static const char *blindness_of(const struct witnesses *w)
{
    return w->vanished ? "; its directory is not there any more (removed, renamed, or its disk is away): nothing of what it does is seen" : "";
}

static void judge_alive(struct judgement *judgement, const struct witnesses *w)
{
    if (w->phase == JOB_PENDING && !w->started)
        decide(judgement, RUN_PENDING, "scheduler", "%s", words_of(w, "waits in the scheduler's queue"));
    else if (w->phase == JOB_PENDING && w->queues && w->cancel_requested)
        decide(judgement, w->state, "scheduler", "being cancelled");
    else if (w->phase == JOB_PENDING && w->queues)
        judge_again(judgement, w);
    else if (w->before_alive)
        decide(judgement, RUN_RUNNING, "heartbeat", "attempt %lld has its nodes (%s) and waits there: attempt %lld is asked to stop, and goes on until it "
            "ends or has been silent for %.0f s", (long long)w->attempt, words_or(w->nodes, "unknown"), (long long)w->attempt - 1, SILENCE_LOST);
    else if (w->queues && is_said(w->nodes))
        decide(judgement, RUN_RUNNING, "scheduler", "attempt %lld is running on %s%s%s%s%s", (long long)w->attempt, w->nodes,
            is_said(w->phase_reason) ? ": " : "", is_said(w->phase_reason) ? w->phase_reason : "", silence_of(w), blindness_of(w));
    else if (w->started || w->phase == JOB_RUNNING)
        decide(judgement, RUN_RUNNING, "scheduler", "attempt %lld is running%s", (long long)w->attempt, blindness_of(w));
}

// An attempt that its scheduler has given up, and its node with it, may live on there: nothing is over, and nothing new begins, while it beats.
static void judge_before_alive(struct judgement *judgement, const struct witnesses *w, const char *what)
{
    bool unwanted = w->cancel_requested || (w->phase == JOB_ENDED && (w->end == END_CANCELLED || w->end == END_REFUSED));
    judgement->stop = unwanted;
    decide(judgement, w->state, "heartbeat", "%s, but an earlier attempt may live on, on a node that the scheduler has given up: %s until it ends or has been "
        "silent for %.0f s", what, unwanted ? "asked to stop, and waited for" : "waited for", SILENCE_LOST);
}

// A node that cannot set a job up (its log, its directory, its user) leaves no words but the scheduler's.
static bool is_launch_failure(const struct witnesses *w)
{
    return w->end == END_FAILED && !w->started && !w->cancel_requested && !is_said(w->last_words) && is_said(w->phase_reason);
}

static void judge_launch_failure(struct judgement *judgement, const struct witnesses *w)
{
    decide(judgement, RUN_FAILED, "scheduler", "ended before an attempt began: %s", w->phase_reason);
    judgement->cause = CAUSE_FAILED;
}

// Somebody has removed or renamed what the job wrote, or would have: whether an attempt had begun cannot be said, and none can begin.
static void judge_removed(struct judgement *judgement, const struct witnesses *w)
{
    decide(judgement, RUN_FAILED, "scheduler", "its run directory is not there any more, and the job is over: %s", words_of(w, "the scheduler does not know it"));
    judgement->cause = CAUSE_FAILED;
}

// What the job wrote may be there for others: it comes back with its disk.
static bool waits_for_disk(struct judgement *judgement, const struct witnesses *w)
{
    if (!w->away || w->cancel_requested)
        return false;
    decide(judgement, w->state, "disk", "its run directory cannot be seen from here (is its disk mounted?): nothing is concluded until it can");
    return true;
}

// job.sh does nothing where its submission had been given up: the job was taken back too late, or saw an old file on a shared disk.
static void judge_unbegun(struct judgement *judgement, const struct witnesses *w)
{
    if (w->unbegun >= UNBEGUN_MAX) {
        judge_code(judgement, w, w->job_code, w->job_signal, "ended without an attempt having begun", "scheduler");
        return;
    }
    decide(judgement, RUN_QUEUED, "scheduler", "the job ended without having begun an attempt: it will be handed over again");
    judgement->requeue = true;
}

// A script that runs an attempt to its end writes down how that was. What ended with code 0 was the job's next start, which came while the
// submission was not decided and did nothing, or that the scheduler could not make at all; the attempt itself went with its node, or by Slurm's hand.
static void judge_left_behind(struct judgement *judgement, const struct witnesses *w)
{
    decide(judgement, RUN_QUEUED, "scheduler", "attempt %lld left no exit record, and the job was started again and did nothing: it will be handed over again",
        (long long)w->attempt);
    judgement->requeue = true;
}

// The scheduler says that the job is over, how, and the job did not. A node that failed for the scheduler alone may still run it.
static void judge_told(struct judgement *judgement, const struct witnesses *w)
{
    bool never_began = !w->started && !is_said(w->nodes) && (w->end == END_CANCELLED || w->end == END_REFUSED);
    double wait = never_began ? 0 : (w->end == END_NODE_FAILED || w->unlaunched) && w->started ? SILENCE_LOST : TOLD_WAIT;
    bool own_end = w->end_present && w->gone_for >= END_RECORD_WAIT;
    char what[300];
    snprintf(what, sizeof what, "ended for the scheduler (%.250s)", words_of(w, "it does not say how"));
    if (w->before_alive && !own_end)
        judge_before_alive(judgement, w, what);
    else if (!own_end && (w->gone_for < wait || (w->started && w->heartbeat_age < wait)))
        decide(judgement, w->started ? RUN_FINISHING : w->state, "scheduler", "%s; its exit record is awaited", what);
    else if (!w->records_complete)
        decide(judgement, RUN_FINISHING, "scheduler", "ended for the scheduler, its records are being read");
    else if (own_end)
        judge_end(judgement, w, w->end_code, 0, "heartbeat");
    else if (w->removed && !w->cancel_requested && (w->end == END_COMPLETED || w->end == END_FAILED))
        judge_removed(judgement, w);
    else if (w->end == END_COMPLETED && !w->started && w->cancel_requested)
        decide(judgement, RUN_CANCELLED, "scheduler", "cancelled before it began");
    else if (w->end == END_COMPLETED && !w->started)
        judge_unbegun(judgement, w);
    else if (w->end == END_COMPLETED && is_stuck(w) && is_unproven(w) && !w->cancel_requested)
        judge_stuck(judgement, w, "scheduler"); // its next start found that it was given up, and ended at once
    else if (w->end == END_COMPLETED && is_unproven(w) && !w->cancel_requested)
        judge_left_behind(judgement, w);
    else if (w->end == END_COMPLETED)
        judge_end(judgement, w, EXIT_DONE, 0, "scheduler");
    else if (w->unlaunched && w->started && !is_stuck(w) && !w->cancel_requested)
        judge_left_behind(judgement, w);
    else if (w->unlaunched && !w->started && !w->cancel_requested) // its next start, after an attempt that went with its node
        judge_unbegun(judgement, w);
    else if (is_launch_failure(w))
        judge_launch_failure(judgement, w);
    else // a scheduler shows code 0 where there is none
        judge_end(judgement, w, w->job_code > 0 ? w->job_code : -1, w->job_signal, "scheduler");
}

static void judge_silent(struct judgement *judgement, const struct witnesses *w)
{
    judgement->kill = true;
    if (w->cancel_requested) {
        decide(judgement, RUN_CANCELLED, "scheduler", "cancelled; the job is gone without an exit record");
    } else if (w->over_time) {
        decide(judgement, RUN_TIMED_OUT, "scheduler", "time limit reached; the job is gone without an exit record");
        judgement->cause = CAUSE_TIMED_OUT;
    } else if (w->queues && is_stuck(w)) { // its last job was ended by us, most likely
        judge_stuck(judgement, w, "scheduler");
    } else if (w->memory_evidence && w->memory_reason) {
        decide(judgement, RUN_OUT_OF_MEMORY, "scheduler", "%s", w->memory_reason);
        judgement->cause = CAUSE_OUT_OF_MEMORY;
    } else {
        decide(judgement, RUN_LOST, "scheduler", "%s no exit record and no heartbeat for %.0f s%s",
            w->queues ? "the scheduler does not know the job any more, and there is" : "no process,", w->unseen_for,
            w->vanished ? "; its directory is not there any more" : w->queues ? "" : " (all of the job was killed?)");
        judgement->cause = CAUSE_LOST;
    }
}

// A scheduler that has forgotten a job before it began: it is handed over anew, and what it may yet start of the old one ends by itself.
static void judge_forgotten(struct judgement *judgement, const struct witnesses *w)
{
    judgement->kill = true;
    if (w->cancel_requested) {
        decide(judgement, RUN_CANCELLED, "scheduler", "cancelled before it began");
        return;
    }
    if (w->removed) {
        judge_removed(judgement, w);
        return;
    }
    if (w->unlaunched && w->unbegun >= UNBEGUN_MAX) {
        decide(judgement, RUN_FAILED, "scheduler", "%s; %lld jobs in a row came to nothing, given up", words_of(w, "not started"), (long long)w->unbegun + 1);
        judgement->cause = CAUSE_FAILED;
        return;
    }
    decide(judgement, RUN_QUEUED, "scheduler", "%s: it will be handed over again",
        w->unlaunched ? words_of(w, "the scheduler could not start the job") : "the scheduler has forgotten the job before it began");
    judgement->requeue = true;
}

// job.sh on this machine could not begin an attempt (a directory that it may not write, say), said so and ended.
static bool is_unbegun_here(const struct witnesses *w)
{
    return !w->queues && !w->started && !w->vanished && !w->cancel_requested && w->gone_for >= DESERTED_WAIT && is_said(w->last_words);
}

// Nobody there, for all that the executor can see.
static void judge_gone(struct judgement *judgement, const struct witnesses *w)
{
    bool beating = w->heartbeat_age < SILENCE_LOST, silent = !beating && w->unseen_for >= SILENCE_LOST;
    bool stopped_by_us = (w->cancel_requested || w->over_time) && w->gone_for >= END_RECORD_WAIT && !(w->queues && beating);
    if (w->end_present && w->records_complete && w->gone_for >= END_RECORD_WAIT)
        judge_end(judgement, w, w->end_code, 0, "heartbeat");
    else if (w->before_alive)
        judge_before_alive(judgement, w, "the scheduler does not know the job any more");
    else if (w->queues && !w->started && !beating && (silent || w->cancel_requested))
        judge_forgotten(judgement, w);
    else if (is_unbegun_here(w))
        judge_code(judgement, w, -1, 0, "ended before an attempt began", "scheduler");
    else if ((stopped_by_us || silent) && w->records_complete)
        judge_silent(judgement, w);
    else if (w->queues && beating && w->started)
        decide(judgement, RUN_RUNNING, "heartbeat", "attempt %lld is running, though the scheduler does not know the job any more",
            (long long)w->attempt);
    else if (w->unlaunched && !w->started)
        decide(judgement, w->state, "scheduler", "%s; it is handed over again if no sign of it comes", words_of(w, "not started"));
    else if (!w->queues && w->gone_for >= DESERTED_WAIT)
        decide(judgement, w->state, "scheduler", "no process of attempt %lld is left on this machine, and no exit record: its cores are free; "
            "called lost after %.0f s of silence", (long long)w->attempt, SILENCE_LOST);
}

// The executor says nothing (that counts): its silence ends no run, and neither does a state that we do not know, which is shown as it came.
static void judge_deaf(struct judgement *judgement, const struct witnesses *w)
{
    bool beating = w->heartbeat_age < SILENCE_LOST;
    if (w->strange && !w->stale && w->started && beating)
        decide(judgement, RUN_RUNNING, "scheduler", "attempt %lld is running; %s", (long long)w->attempt, words_of(w, "its scheduler's state is not known"));
    else if (w->strange && !w->stale && !w->started)
        decide(judgement, w->state, "scheduler", "%s", words_of(w, "its scheduler's state is not known"));
    else if (w->started && (beating || w->stale) && w->state < RUN_RUNNING)
        decide(judgement, RUN_RUNNING, "heartbeat", "attempt %lld has begun", (long long)w->attempt);
    else if (!w->stale && w->started && w->state == RUN_RUNNING && w->unseen_for >= DEAF_SAID)
        decide(judgement, RUN_RUNNING, "heartbeat", "attempt %lld was running when it was last heard of, %s", (long long)w->attempt,
            words_of(w, "and the scheduler does not answer"));
}

// Done already: what started it once more is ended, and changes nothing.
static void judge_done_before(struct judgement *judgement, const struct witnesses *w)
{
    enum job_phase phase = phase_of(w);
    judgement->kill = phase == JOB_PENDING || phase == JOB_RUNNING;
    if ((phase == JOB_ENDED || phase == JOB_GONE) && w->records_complete)
        decide(judgement, RUN_SUCCEEDED, "exit record", "finished with exit code 0, and started once more for nothing");
    else
        decide(judgement, RUN_FINISHING, "exit record", "finished with exit code 0; it was started once more, which is being ended");
}

double pulse_age(struct pulse *pulse, double time, double wall, double steady)
{
    if (!isfinite(time))
        return INFINITY;
    if (pulse->time == 0)
        pulse->seen = wall > time ? steady - (wall - time) : steady;
    else if (time != pulse->time)
        pulse->seen = steady;
    pulse->time = time;
    return steady - pulse->seen;
}

void witnesses_settle(struct witnesses *w)
{
    bool bare = w->says_end && w->exit_code == EXIT_DONE && !w->exit_signal, saved = w->queues && w->end_code == EXIT_STOPPED;
    if (!w->exit_present || !w->end_present || !(bare || saved))
        return;
    w->exit_code = w->end_code;
    w->exit_signal = 0;
}

void judge(struct judgement *judgement, const struct witnesses *witnesses)
{
    struct witnesses settled = *witnesses;
    const struct witnesses *w = &settled;
    witnesses_settle(&settled);
    *judgement = (struct judgement){.to = w->state, .witness = "scheduler"};
    if (run_state_ended(w->state))
        return;
    enum job_phase phase = phase_of(w);
    if (w->done_before)
        judge_done_before(judgement, w);
    else if (w->exit_present)
        judge_exited(judgement, w);
    else if (phase == JOB_PENDING || phase == JOB_RUNNING)
        judge_alive(judgement, w);
    else if (waits_for_disk(judgement, w))
        return;
    else if (phase == JOB_ENDED)
        judge_told(judgement, w);
    else if (phase == JOB_GONE)
        judge_gone(judgement, w);
    else
        judge_deaf(judgement, w);
    judge_all_saved(judgement, w);
    say_diverged(judgement, w);
}
