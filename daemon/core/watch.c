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

// The run's own witness, else: the kernel has killed somebody for want of memory since this job was handed over.
static bool memory_evidence(const struct view *view, int64_t attempt, char *why, size_t size)
{
    enum memory_verdict verdict = memory_verdict(view->directory, attempt, why, size);
    if (verdict != MEMORY_UNKNOWN)
        return verdict == MEMORY_ENDED;
    char *path = run_attempt_file(view->directory, attempt, JOB_FILE);
    struct json *job = js_read_file(path, JOB_FILE_MAX, NULL);
    free(path);
    int64_t before = js_integer_of(js_get(job, "memory_kills_before"), -1);
    js_free(job);
    return before >= 0 && memory_kills() > before;
}

// Seconds since the heartbeat last changed, by our steady clock: the times in it are another clock's, which may be set, on this machine or
// on a node. Only of the first one that is seen the age is believed, as far as it can be true.
static double beat_age(struct watch *watch, const char *path)
{
    double age = heartbeat_age(path), now = clock_steady();
    if (!isfinite(age))
        return INFINITY;
    double beat = clock_wall() - age;
    if (watch->beat == 0)
        watch->beat_seen = age > 0 ? now - age : now;
    else if (fabs(beat - watch->beat) >= BEAT_SAME)
        watch->beat_seen = now;
    watch->beat = beat;
    return now - watch->beat_seen;
}

static void note_times(struct watch *watch, int64_t attempt, struct witnesses *w, const char *beat_path, double now)
{
    if (watch->attempt != attempt) {
        watch->attempt = attempt;
        watch->gone_since = watch->exit_seen_since = watch->stop_asked = watch->beat = 0;
        watch->seen = now;
    }
    w->heartbeat_age = beat_age(watch, beat_path);
    if (w->phase == JOB_RUNNING || w->phase == JOB_PENDING) {
        watch->gone_since = 0;
        watch->seen = now;
    } else if (w->phase == JOB_GONE && watch->gone_since == 0) {
        watch->gone_since = now;
    }
    if (isfinite(w->heartbeat_age) && now - w->heartbeat_age > watch->seen)
        watch->seen = now - w->heartbeat_age;
    if (w->exit_present && watch->exit_seen_since == 0)
        watch->exit_seen_since = now;
}

// How long the attempt has run, if possible by clocks that nobody sets.
static double ran_for(const struct attempt_row *attempt, const struct job *job, const struct witnesses *w, const struct exit_record *end)
{
    if (w->exit_present)
        return end->ended - end->started;
    return isfinite(job->ran) ? job->ran : clock_wall() - attempt->started;
}

static void look(struct daemon *daemon, const struct view *view, struct watch *watch, const struct attempt_row *attempt,
    const struct job *job, struct witnesses *w, struct exit_record *end)
{
    char *exit_path = run_attempt_file(view->directory, attempt->number, EXIT_FILE);
    char *beat_path = run_attempt_file(view->directory, attempt->number, HEARTBEAT_FILE);
    char *attempt_path = run_attempt_directory(view->directory, attempt->number);
    *w = (struct witnesses){
        .state = view->state,
        .phase = job->phase,
        .phase_reason = job->reason,
        .exit_present = exit_record_read(end, exit_path, NULL) == 0 && end->attempt == attempt->number,
        .started = file_exists(attempt_path),
        .cancel_requested = view->cancel_requested,
        .attempt = attempt->number,
    };
    double now = clock_steady();
    note_times(watch, attempt->number, w, beat_path, now);
    free(exit_path);
    free(beat_path);
    free(attempt_path);
    w->gone_for = watch->gone_since > 0 ? now - watch->gone_since : 0;
    w->unseen_for = now - watch->seen;
    w->exit_code = w->exit_present ? end->code : 0;
    w->exit_signal = w->exit_present ? end->signal : 0;
    w->exit_seen_for = w->exit_present ? now - watch->exit_seen_since : 0;
    w->over_time = view->time_limit > 0 && ran_for(attempt, job, w, end) >= view->time_limit;
    w->records_complete = ingest_run(daemon, view, watch, w->phase != JOB_RUNNING && (w->exit_present || w->phase == JOB_GONE));
    w->end_present = watch->end_attempt == attempt->number;
    w->end_code = watch->end_code;
    if (view->dataset_key && dataset_is_complete(daemon->home, view->dataset_key)) {
        w->end_present = true;
        w->end_code = EXIT_DONE;
    }
}

static void kill_run(const struct view *view, struct job *job)
{
    struct error err = {0};
    if (view->executor->calls->kill(view->executor->context, job, &err) < 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
}

// Asks once, kills after the grace. The judgement sees the rest: the exit record, or that everybody is gone.
static void stop_if_wanted(struct daemon *daemon, const struct view *view, struct watch *watch, const struct witnesses *w, struct job *job)
{
    if (w->exit_present || w->phase != JOB_RUNNING || !(w->cancel_requested || w->over_time))
        return;
    double now = clock_steady();
    double grace = w->cancel_requested ? CANCEL_GRACE : TIME_LIMIT_GRACE;
    if (watch->stop_asked > 0) {
        if (now - watch->stop_asked >= grace)
            kill_run(view, job);
        return;
    }
    watch->stop_asked = now;
    struct error err = {0};
    char text[200];
    snprintf(
        text, sizeof text, "%s: asked to save and stop, killed after %.0f s", w->cancel_requested ? "cancel" : "time limit reached", grace);
    if (view->executor->calls->stop(view->executor->context, job, &err) != 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
    pthread_mutex_lock(&daemon->lock);
    core_event(daemon, view->id, "stopping", text, w->cancel_requested ? "user" : "daemon", clock_wall());
    pthread_mutex_unlock(&daemon->lock);
}

static void close_attempt(
    struct attempt_row *attempt, const struct judgement *judgement, const struct witnesses *w, const struct exit_record *end)
{
    free(attempt->state);
    attempt->state = string_copy(judgement->requeue ? "requeued" : run_state_name(judgement->to));
    if (!judgement->requeue && !run_state_ended(judgement->to))
        return;
    attempt->ended = w->exit_present && isfinite(end->ended) ? end->ended : clock_wall();
    attempt->code = w->exit_present ? w->exit_code : w->end_present ? w->end_code : -1;
    attempt->ended_by_signal = w->exit_signal;
}

static void apply(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, const struct judgement *judgement,
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
        if (status == 0)
            status = core_change(daemon, view->id, judgement->to, judgement->reason, judgement->witness, &err);
        if (status == 0)
            status = state_commit(daemon->state, &err);
        else
            state_rollback(daemon->state);
    }
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
}

void watch_run(struct daemon *daemon, const struct view *view, struct watch *watch, struct attempt_row *attempt, struct job *job)
{
    struct witnesses w;
    struct exit_record end = {0};
    struct judgement judgement;
    look(daemon, view, watch, attempt, job, &w, &end);
    stop_if_wanted(daemon, view, watch, &w, job);
    char *words = w.exit_present || w.phase == JOB_GONE ? last_words(view->directory, attempt->number) : NULL;
    w.last_words = words;
    char memory_reason[256] = "";
    if (w.exit_present ? w.exit_code != 0 : w.phase == JOB_GONE)
        w.memory_evidence = memory_evidence(view, attempt->number, memory_reason, sizeof memory_reason);
    w.memory_reason = memory_reason[0] ? memory_reason : NULL;
    judge(&judgement, &w);
    if (judgement.kill)
        kill_run(view, job);
    if (judgement.to != view->state) {
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
    }
    free(words);
}
