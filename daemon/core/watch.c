// One run that has a job: has what its witnesses say (look.c) judged, and acts on the judgement. A stop goes in three steps: the stop file (and
// a signal), a time to save, then the end of every process of the run.
#include "daemon/core/look.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The run's own witness, else, of a job on this machine: the kernel has killed somebody for want of memory since it was handed over.
static bool memory_evidence(const struct view *view, int64_t attempt, char *why, size_t size)
{
    enum memory_verdict verdict = memory_verdict(view->directory, attempt, why, size);
    if (verdict != MEMORY_UNKNOWN || view->executor->queues)
        return verdict == MEMORY_ENDED;
    char *path = run_attempt_file(view->directory, attempt, JOB_FILE);
    struct json *job = js_read_file(path, JOB_FILE_MAX, NULL);
    free(path);
    int64_t before = js_integer_of(js_get(job, "memory_kills_before"), -1);
    js_free(job);
    return before >= 0 && memory_kills() > before;
}

// ---- stopping ----

static void kill_run(const struct view *view, struct job *job)
{
    struct error err = {0};
    view->watch->killed |= !view->cancel_requested;
    if (view->executor->calls->kill(view->executor->context, job, &err) < 0)
        log_run(view, &err);
}

// Asks once, kills after the grace. The judgement sees the rest: the exit record, or that everybody is gone.
static void stop_and_kill(struct daemon *daemon, const struct view *view, struct job *job)
{
    struct watch *watch = view->watch;
    double now = clock_steady();
    double grace = view->executor->queues ? watch->facts.grace : view->cancel_requested ? CANCEL_GRACE : TIME_LIMIT_GRACE;
    if (watch->stop_asked > 0) {
        if (now - watch->stop_asked >= grace)
            kill_run(view, job);
        return;
    }
    watch->stop_asked = now;
    struct error err = {0};
    char text[200];
    snprintf(
        text, sizeof text, "%s: asked to save and stop, killed after %.0f s", view->cancel_requested ? "cancel" : "time limit reached", grace);
    if (view->executor->calls->stop(view->executor->context, job, &err) != 0)
        log_run(view, &err);
    change_event(daemon, view, "stopping", text, view->cancel_requested ? "user" : "daemon");
}

// An attempt that no scheduler reaches any more: its stop file does, if anything.
static void stop_before(struct daemon *daemon, const struct view *view, struct job *job)
{
    struct watch *watch = view->watch;
    struct error err = {0};
    if (watch->stop_asked > 0)
        return;
    watch->stop_asked = clock_steady();
    if (view->executor->calls->stop(view->executor->context, job, &err) != 0)
        log_run(view, &err);
    change_event(daemon, view, "stopping", "an earlier attempt that the scheduler has given up is asked to save and stop", "daemon");
}

// What waits in a scheduler's queue has nothing to save. A job that a scheduler says nothing of, or does not know, may run all the same: the
// stop file reaches it.
static void stop_if_wanted(struct daemon *daemon, const struct view *view, const struct witnesses *w, struct job *job)
{
    bool may_run = w->phase == JOB_RUNNING || (w->queues && (w->phase != JOB_ENDED || w->heartbeat_age < SILENCE_LOST));
    if (w->exit_present || !(w->cancel_requested || w->over_time))
        return;
    if (w->queues && w->phase == JOB_PENDING && !w->stale)
        kill_run(view, job);
    else if (may_run)
        stop_and_kill(daemon, view, job);
}

// ---- what the judgement changes ----

// A scheduler shows code 0 where there is none: of a job that was cancelled before it began, say.
static int64_t code_told(const struct witnesses *w)
{
    if (w->phase != JOB_ENDED || w->stale)
        return -1;
    return w->end == END_COMPLETED ? EXIT_DONE : w->job_code > 0 ? w->job_code : -1;
}

static void close_attempt(
    struct attempt_row *attempt, const struct judgement *judgement, const struct witnesses *w, const struct exit_record *end)
{
    bool over = judgement->requeue || judgement->again;
    free(attempt->state);
    attempt->state = string_copy(over ? "requeued" : run_state_name(judgement->to));
    if (!over && !run_state_ended(judgement->to))
        return;
    attempt->ended = w->exit_present && isfinite(end->ended) ? end->ended : clock_wall();
    attempt->code = w->exit_present ? w->exit_code : w->end_present ? w->end_code : code_told(w);
    attempt->ended_by_signal = w->exit_present ? w->exit_signal : w->phase == JOB_ENDED && !w->stale ? w->job_signal : 0;
    if (attempt->code == EXIT_DONE && !w->exit_signal && w->says_end && !w->end_present)
        attempt->code = -1; // its launcher's code, not its own
    if (w->end_present && w->end_code == EXIT_DONE) { // its own code counts, not what its launcher made of it
        attempt->code = EXIT_DONE;
        attempt->ended_by_signal = 0;
    }
}

// The attempt that the scheduler will start under the same id. Its job claims it by itself.
static int add_next_attempt(struct daemon *daemon, const struct attempt_row *attempt, struct error *err)
{
    struct attempt_row next = {.run = attempt->run,
        .number = attempt->number + 1,
        .job = attempt->job,
        .job_started = attempt->job_started,
        .state = (char *)(uintptr_t)run_state_name(RUN_PENDING),
        .started = clock_wall(),
        .code = -1};
    return state_put_attempt(daemon->state, &next, err);
}

// An end without success that the run's spec wants tried again: back into the queue instead, after a pause, with what there is left.
static int try_again(struct daemon *daemon, const struct view *view, struct judgement *judgement, const struct witnesses *w, struct error *err)
{
    const struct retry_policy *policy = &view->watch->facts.retry;
    char *excluded = judgement->cause == CAUSE_NODE_FAILED ? retry_exclude(view->excluded, w->nodes, w->last_words) : string_copy(view->excluded);
    double delay = retry_delay(policy, view->retries);
    char *text = string_format("attempt %lld ended (%s): retry %lld of %lld in %.0f s%s%s", (long long)w->attempt, cause_name(judgement->cause),
        (long long)view->retries + 1, (long long)policy->limit, delay, excluded ? ", without nodes " : "", excluded ? excluded : "");
    char *reason = string_format("%s; retry %lld of %lld", judgement->reason, (long long)view->retries + 1, (long long)policy->limit);
    core_event(daemon, view->id, "retry", text, "daemon", clock_wall());
    int status = state_set_retry(daemon->state, view->id, view->retries + 1, clock_wall() + delay, excluded, err);
    if (status == 0)
        status = core_change(daemon, view->id, RUN_QUEUED, reason, judgement->witness, err);
    free(reason);
    free(text);
    free(excluded);
    return status;
}

static int change_run(struct daemon *daemon, const struct view *view, struct judgement *judgement, const struct witnesses *w, struct error *err)
{
    const struct retry_policy *policy = &view->watch->facts.retry;
    if (retry_wanted(policy, view->retries, judgement->cause))
        return try_again(daemon, view, judgement, w, err);
    size_t said = strlen(judgement->reason);
    if (judgement->cause != CAUSE_NONE && view->retries > 0)
        snprintf(judgement->reason + said, sizeof judgement->reason - said, " (after %lld %s)", (long long)view->retries,
            view->retries == 1 ? "retry" : "retries");
    return core_change(daemon, view->id, judgement->to, judgement->reason, judgement->witness, err);
}

static void apply(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, struct judgement *judgement,
    const struct witnesses *w, const struct exit_record *end)
{
    struct error err = {0};
    close_attempt(attempt, judgement, w, end);
    if (!change_begin_of(daemon, view, &err))
        return;
    int status = state_put_attempt(daemon->state, attempt, &err);
    // A job that was over before we looked did run: its story has that step too.
    if (status == 0 && w->started && view->state < RUN_RUNNING && judgement->to != RUN_RUNNING)
        status = core_change(daemon, view->id, RUN_RUNNING, "began", "exit record", &err);
    if (status == 0 && judgement->again)
        status = add_next_attempt(daemon, attempt, &err);
    if (status == 0)
        status = change_run(daemon, view, judgement, w, &err);
    change_end_of(daemon, view, status, &err);
}

static void note_expected_start(struct daemon *daemon, struct watch *watch, const struct job *job)
{
    double expected = job->phase == JOB_PENDING ? job->starts : job->phase == JOB_UNKNOWN ? watch->expected_start : 0;
    if (expected == watch->expected_start)
        return;
    pthread_mutex_lock(&daemon->lock);
    watch->expected_start = expected;
    pthread_mutex_unlock(&daemon->lock);
}

// A run that was taken in, or whose attempt a job claimed by itself: which job that is, the scheduler has found out by its mark.
static void note_job_id(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, const struct job *job)
{
    struct attempt_row stored;
    struct error err = {0};
    bool unknown = !attempt->job || strcmp(attempt->job, "0") == 0;
    if (!view->executor->queues || !unknown || !job->id[0])
        return;
    if (!change_begin_of(daemon, view, &err))
        return;
    int status = state_get_attempt(daemon->state, view->id, attempt->number, &stored, &err);
    if (status == 0) {
        free(stored.job);
        stored.job = string_copy(job->id);
        status = state_put_attempt(daemon->state, &stored, &err);
        attempt_row_release(&stored);
    }
    if (change_end_of(daemon, view, status, &err) != 0)
        return;
    free(attempt->job);
    attempt->job = string_copy(job->id);
}

void watch_run(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, struct job *job)
{
    struct witnesses w;
    struct exit_record end = {0};
    struct judgement judgement;
    watch_look(daemon, view, attempt, job, &w, &end);
    note_expected_start(daemon, view->watch, job);
    note_job_id(daemon, view, attempt, job);
    stop_if_wanted(daemon, view, &w, job);
    char *words = w.exit_present || w.phase == JOB_GONE || w.phase == JOB_ENDED ? last_words(view->directory, attempt->number) : NULL;
    w.last_words = words;
    char memory_reason[256] = "";
    if (w.exit_present ? w.exit_code != 0 : w.phase == JOB_GONE)
        w.memory_evidence = memory_evidence(view, attempt->number, memory_reason, sizeof memory_reason);
    w.memory_reason = memory_reason[0] ? memory_reason : NULL;
    judge(&judgement, &w);
    if (judgement.kill)
        kill_run(view, job);
    if (judgement.stop)
        stop_before(daemon, view, job);
    if (w.started)
        view->watch->unbegun = 0;
    else if (judgement.requeue && (w.phase == JOB_ENDED || w.unlaunched))
        view->watch->unbegun++;
    if (judgement.to != view->state || judgement.again) {
        // The cursor may have moved since this row was read: what is stored is the newer one.
        struct attempt_row stored;
        pthread_mutex_lock(&daemon->lock);
        int found = state_get_attempt(daemon->state, view->id, attempt->number, &stored, NULL);
        pthread_mutex_unlock(&daemon->lock);
        if (found == 0) {
            attempt->ingest_offset = stored.ingest_offset;
            attempt->ingest_sequence = stored.ingest_sequence;
            attempt_row_release(&stored);
        }
        apply(daemon, view, attempt, &judgement, &w, &end);
        view->watch->reason_said = clock_steady();
    } else {
        reason_say(daemon, view, &judgement);
    }
    free(words);
}
