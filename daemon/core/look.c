// One run that has a job: what its witnesses say, which is all that the judgement knows: the executor, the exit record, the heartbeat, the
// worker's own end, and what this daemon remembers of the looks before.
#include "daemon/core/look.h"
#include "daemon/core/dataset.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

void watch_new_job(struct watch *watch)
{
    watch->gone_since = watch->exit_seen_since = watch->stop_asked = watch->ran = watch->directory_seen = 0;
    watch->killed = false;
    watch->seen = clock_steady();
}

static void note_times(struct daemon *daemon, const struct view *view, struct witnesses *w, const char *beat_path, double now, double asked)
{
    struct watch *watch = view->watch;
    if (watch->attempt != w->attempt) {
        pthread_mutex_lock(&daemon->lock);
        watch->done_before = w->queues && w->attempt > 1 && state_done_before(daemon->state, view->id, w->attempt, NULL) == 1;
        pthread_mutex_unlock(&daemon->lock);
        watch->attempt = w->attempt;
        watch_new_job(watch);
        watch->left_before = false;
        watch->furthest = watch->idle_before = 0;
        watch->before = watch->pulse;
        watch->pulse = (struct pulse){0};
        if (w->attempt > 1)
            attempts_progress(daemon, view, w->attempt, &watch->furthest, &watch->idle_before);
    }
    if (w->exit_present && watch->exit_seen_since == 0)
        watch->exit_seen_since = now;
    look_for_done_before(view, w);
    if (w->started && watch->directory_seen == 0) { // a sign of life: that it was gone before is none of its end
        watch->directory_seen = watch->seen = now;
        watch->gone_since = 0;
    }
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

// What the attempts before this one have left: one that may live on, and how far they came.
static void look_before(const struct view *view, struct witnesses *w, const char *beat_path, double now)
{
    struct watch *watch = view->watch;
    int64_t before = w->queues && !w->started && w->attempt > 1 ? run_last_attempt(view->directory) : 0;
    w->before_alive = before > 0 && before < w->attempt && pulse_age(&watch->before, attempt_last_beat(view->directory, before), clock_wall(), now) < SILENCE_LOST;
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

void watch_look(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, const struct job *job, struct witnesses *w,
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
        .unlaunched = job->unlaunched,
        .nodes = job->nodes,
        .started = file_exists(attempt_path),
        .cancel_requested = view->cancel_requested,
        .attempt = attempt->number,
    };
    if (!w->started && !file_exists(view->directory)) {
        char *project = path_absolute("..", view->directory);
        w->removed = file_exists(project);
        w->away = !w->removed;
        free(project);
    }
    if (w->started && job->phase == JOB_ENDED && job->if_unbegun)
        w->phase = JOB_GONE;
    w->vanished = !w->started && (attempt->ingest_offset > 0 || (watch->attempt == attempt->number && watch->directory_seen > 0));
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
    w->exit_cancelled = w->exit_present && end->cancelled;
    w->exit_seen_for = w->exit_present ? now - watch->exit_seen_since : 0;
    double limit = w->queues ? 0 : watch->facts.time_limit; // a scheduler keeps it itself
    w->over_time = limit > 0 && ran_for(watch, attempt, job, w, end) >= limit;
    bool runs_on = w->phase == JOB_RUNNING && !w->exit_present;
    w->records_complete = !(watch->shared && runs_on) && ingest_run(daemon, view, is_over(w)); // read with the others: more can wait
    w->end_present = watch->end_attempt == attempt->number;
    w->end_code = watch->end_code;
    w->all_saved = watch->facts.iterations > 0 && is_over(w) && run_has_checkpoint(view->directory, watch->facts.iterations);
    w->diverged = w->records_complete ? diverged(daemon, view) : 0;
    if (view->dataset_key && dataset_is_complete(daemon->home, view->dataset_key)) {
        w->end_present = true;
        w->end_code = EXIT_DONE;
    }
    witnesses_settle(w);
}
