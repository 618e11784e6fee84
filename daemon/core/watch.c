// One run that has a job: gathers what the witnesses say, has it judged, and acts on the judgement. A stop goes in three steps: the stop
// file (and a signal), a time to save, then the end of every process of the run.
#include "daemon/core/core.h"
#include "daemon/core/dataset.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

// A scheduler is asked now and then: what it said before the attempt, or its exit record, was there says nothing about them. That a job
// is over stays true.
static bool is_stale(const struct watch *watch, const struct witnesses *w, double asked)
{
    bool before_attempt = w->started && asked <= watch->directory_seen;
    bool before_exit = w->exit_present && asked <= watch->exit_seen_since && w->phase != JOB_ENDED && w->phase != JOB_GONE;
    return w->queues && (before_attempt || before_exit);
}

// The attempt before this one was put back into its scheduler's queue, because its node did not answer, say; but it lived on, and came to a
// good end before its successor began. Its worker's own word, which proves that end, may be read only after the successor was first seen.
static void look_for_done_before(const struct view *view, const struct witnesses *w)
{
    struct watch *watch = view->watch;
    struct exit_record end;
    if (!w->queues || w->attempt <= 1 || watch->done_before)
        return;
    if (watch->directory_seen == 0)
        watch->left_before = attempt_left(view, w->attempt - 1, &end);
    if (watch->directory_seen == 0 && watch->left_before && !w->says_end)
        watch->done_before = end.code == EXIT_DONE && end.signal == 0;
    watch->done_before |= watch->left_before && watch->end_attempt == w->attempt - 1 && watch->end_code == EXIT_DONE;
}

static void note_times(struct daemon *daemon, const struct view *view, struct witnesses *w, const char *beat_path, double now, double asked)
{
    struct watch *watch = view->watch;
    if (watch->attempt != w->attempt) {
        pthread_mutex_lock(&daemon->lock);
        watch->done_before = w->queues && w->attempt > 1 && state_done_before(daemon->state, view->id, w->attempt, NULL) == 1;
        pthread_mutex_unlock(&daemon->lock);
        watch->attempt = w->attempt;
        watch->gone_since = watch->exit_seen_since = watch->stop_asked = watch->ran = watch->directory_seen = 0;
        watch->killed = watch->left_before = false;
        watch->furthest = watch->idle_before = 0;
        watch->before = watch->pulse;
        watch->pulse = (struct pulse){0};
        watch->seen = now;
        if (w->attempt > 1)
            attempts_progress(daemon, view, w->attempt, &watch->furthest, &watch->idle_before);
    }
    if (w->exit_present && watch->exit_seen_since == 0)
        watch->exit_seen_since = now;
    look_for_done_before(view, w);
    if (w->started && watch->directory_seen == 0)
        watch->directory_seen = now;
    w->stale = is_stale(watch, w, asked);
    w->heartbeat_age = pulse_age(&watch->pulse, heartbeat_time(beat_path), clock_wall(), now);
    if (isfinite(w->heartbeat_age) && now - w->heartbeat_age > watch->seen)
        watch->seen = now - w->heartbeat_age;
    if (w->stale || w->phase == JOB_UNKNOWN)
        return;
    bool alive = w->phase == JOB_RUNNING || w->phase == JOB_PENDING;
    watch->seen = alive ? now : watch->seen;
    watch->gone_since = alive ? 0 : watch->gone_since == 0 ? now : watch->gone_since;
}

// When an attempt last beat; before its first beat, when it began. NAN: it has ended, by its own word.
static double last_beat(const struct view *view, int64_t attempt)
{
    char *end = run_attempt_file(view->directory, attempt, EXIT_FILE), *beat = run_attempt_file(view->directory, attempt, HEARTBEAT_FILE);
    char *directory = run_attempt_directory(view->directory, attempt);
    struct stat status;
    double time = NAN;
    if (!file_exists(end))
        time = heartbeat_time(beat);
    if (isnan(time) && !file_exists(end) && stat(directory, &status) == 0)
        time = (double)status.st_mtime;
    free(directory);
    free(beat);
    free(end);
    return time;
}

// What the attempts before this one have left: one that may live on, and how far they came.
static void look_before(const struct view *view, struct witnesses *w, const char *beat_path, double now)
{
    struct watch *watch = view->watch;
    int64_t before = w->queues && !w->started && w->attempt > 1 ? run_last_attempt(view->directory) : 0;
    w->before_alive = before > 0 && before < w->attempt && pulse_age(&watch->before, last_beat(view, before), clock_wall(), now) < SILENCE_LOST;
    if (w->started && (w->exit_present || w->phase != JOB_RUNNING))
        w->idle = heartbeat_step(beat_path) > watch->furthest ? 0 : watch->idle_before + 1;
    w->unbegun = watch->unbegun;
}

// How long the attempt has run, if possible by clocks that nobody sets; of one that is gone, as long as it was seen to.
static double ran_for(
    struct watch *watch, const struct attempt_row *attempt, const struct job *job, const struct witnesses *w, const struct exit_record *end)
{
    if (isfinite(job->ran))
        watch->ran = job->ran;
    if (w->exit_present)
        return isfinite(end->ran) ? end->ran : end->ended - end->started;
    return watch->ran > 0 ? watch->ran : clock_wall() - attempt->started;
}

// Nothing will be written any more, for all that is known.
static bool is_over(const struct witnesses *w)
{
    bool gone = (w->phase == JOB_GONE || w->phase == JOB_ENDED) && !w->stale;
    if (w->queues)
        return w->exit_present || (gone && w->heartbeat_age >= TOLD_WAIT);
    return w->phase != JOB_RUNNING && (w->exit_present || gone);
}

static int64_t diverged(struct daemon *daemon, const struct view *view)
{
    pthread_mutex_lock(&daemon->lock);
    int64_t step = run_diverged(daemon, view->id, view->run_id);
    pthread_mutex_unlock(&daemon->lock);
    return step;
}

static void look(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, const struct job *job, struct witnesses *w,
    struct exit_record *end)
{
    struct watch *watch = view->watch;
    char *beat_path = run_attempt_file(view->directory, attempt->number, HEARTBEAT_FILE);
    char *attempt_path = run_attempt_directory(view->directory, attempt->number);
    *w = (struct witnesses){
        .state = view->state,
        .phase = job->phase,
        .queues = view->executor->queues,
        .says_end = view->executor->queues && strcmp(view->kind, "check") != 0,
        .end = job->end,
        .job_code = job->code,
        .job_signal = job->signal,
        .phase_reason = job->reason,
        .strange = job->strange,
        .nodes = job->nodes,
        .started = file_exists(attempt_path),
        .cancel_requested = view->cancel_requested,
        .attempt = attempt->number,
    };
    if (w->started && job->phase == JOB_ENDED && job->if_unbegun)
        w->phase = JOB_GONE;
    w->exit_present = w->started && attempt_left(view, attempt->number, end);
    double now = clock_steady();
    note_times(daemon, view, w, beat_path, now, job->asked);
    look_before(view, w, beat_path, now);
    free(beat_path);
    free(attempt_path);
    w->done_before = watch->done_before;
    w->killed = watch->killed;
    w->gone_for = watch->gone_since > 0 ? now - watch->gone_since : 0;
    w->unseen_for = now - watch->seen;
    w->exit_code = w->exit_present ? end->code : 0;
    w->exit_signal = w->exit_present ? end->signal : 0;
    w->exit_seen_for = w->exit_present ? now - watch->exit_seen_since : 0;
    double limit = w->queues ? 0 : watch->facts.time_limit; // a scheduler keeps it itself
    w->over_time = limit > 0 && ran_for(watch, attempt, job, w, end) >= limit;
    bool runs_on = w->phase == JOB_RUNNING && !w->exit_present;
    w->records_complete = !(watch->shared && runs_on) && ingest_run(daemon, view, is_over(w)); // read with the others: more can wait
    w->end_present = watch->end_attempt == attempt->number;
    w->end_code = watch->end_code;
    w->diverged = w->records_complete ? diverged(daemon, view) : 0;
    if (view->dataset_key && dataset_is_complete(daemon->home, view->dataset_key)) {
        w->end_present = true;
        w->end_code = EXIT_DONE;
    }
    witnesses_settle(w);
}

static void kill_run(const struct view *view, struct job *job)
{
    struct error err = {0};
    view->watch->killed |= !view->cancel_requested;
    if (view->executor->calls->kill(view->executor->context, job, &err) < 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
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
        core_log("%s/%s: %s", view->project, view->name, err.text);
    pthread_mutex_lock(&daemon->lock);
    core_event(daemon, view->id, "stopping", text, view->cancel_requested ? "user" : "daemon", clock_wall());
    pthread_mutex_unlock(&daemon->lock);
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
        core_log("%s/%s: %s", view->project, view->name, err.text);
    pthread_mutex_lock(&daemon->lock);
    core_event(daemon, view->id, "stopping", "an earlier attempt that the scheduler has given up is asked to save and stop", "daemon", clock_wall());
    pthread_mutex_unlock(&daemon->lock);
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
        snprintf(judgement->reason + said, sizeof judgement->reason - said, " (after %lld retries)", (long long)view->retries);
    return core_change(daemon, view->id, judgement->to, judgement->reason, judgement->witness, err);
}

static void apply(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, struct judgement *judgement,
    const struct witnesses *w, const struct exit_record *end)
{
    struct error err = {0};
    close_attempt(attempt, judgement, w, end);
    pthread_mutex_lock(&daemon->lock);
    int status = state_begin(daemon->state, &err);
    if (status == 0) {
        status = state_put_attempt(daemon->state, attempt, &err);
        // A job that was over before we looked did run: its story has that step too.
        if (status == 0 && w->started && view->state < RUN_RUNNING && judgement->to != RUN_RUNNING)
            status = core_change(daemon, view->id, RUN_RUNNING, "began", "exit record", &err);
        if (status == 0 && judgement->again)
            status = add_next_attempt(daemon, attempt, &err);
        if (status == 0)
            status = change_run(daemon, view, judgement, w, &err);
        if (status == 0)
            status = state_commit(daemon->state, &err);
        else
            state_rollback(daemon->state);
    }
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
}

// The same state for another reason. A queue changes its mind every few seconds: it is shown, but told as an event only now and then.
static void say_reason(struct daemon *daemon, const struct view *view, const struct judgement *judgement)
{
    struct watch *watch = view->watch;
    struct error err = {0};
    double now = clock_steady();
    if (!judgement->reason[0] || (view->reason && strcmp(view->reason, judgement->reason) == 0))
        return;
    pthread_mutex_lock(&daemon->lock);
    bool told = watch->reason_said == 0 || now - watch->reason_said >= REASON_PAUSE;
    int status = told ? core_change(daemon, view->id, judgement->to, judgement->reason, judgement->witness, &err)
                      : state_set_reason(daemon->state, view->id, judgement->reason, &err);
    pthread_mutex_unlock(&daemon->lock);
    if (told)
        watch->reason_said = now;
    if (status != 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
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
    pthread_mutex_lock(&daemon->lock);
    int status = state_get_attempt(daemon->state, view->id, attempt->number, &stored, &err);
    if (status == 0) {
        free(stored.job);
        stored.job = string_copy(job->id);
        status = state_put_attempt(daemon->state, &stored, &err);
        attempt_row_release(&stored);
    }
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0) {
        core_log("%s/%s: %s", view->project, view->name, err.text);
        return;
    }
    free(attempt->job);
    attempt->job = string_copy(job->id);
}

void watch_run(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, struct job *job)
{
    struct witnesses w;
    struct exit_record end = {0};
    struct judgement judgement;
    look(daemon, view, attempt, job, &w, &end);
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
    else if (judgement.requeue && w.phase == JOB_ENDED)
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
        say_reason(daemon, view, &judgement);
    }
    free(words);
}
