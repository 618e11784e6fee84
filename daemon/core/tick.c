// One round of the daemon: look at the jobs, take in what they wrote, judge, start what is ready.
#include "daemon/core/draft.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"

#include <stdlib.h>
#include <string.h>

struct running { // one run that has, or should have, a job
    const struct view *view;
    struct attempt_row attempt;
};

static size_t gather_running(struct daemon *daemon, const struct views *views, struct running *running)
{
    size_t count = 0;
    daemon->handovers = daemon->handovers_begun = 0;
    for (size_t i = 0; i < views->count; i++) {
        const struct view *view = &views->at[i];
        struct running *one = &running[count];
        if (!view->executor || attempt_last(daemon, view, &one->attempt) != 0)
            continue;
        one->view = view;
        if (view->state == RUN_SUBMITTED && !one->attempt.job) {
            daemon->handovers += view->executor->queues;
            schedule_submit(daemon, view, &one->attempt);
            attempt_row_release(&one->attempt);
            continue;
        }
        count++;
    }
    return count;
}

static void watch_all(struct daemon *daemon, struct running *running, size_t count)
{
    struct job *jobs = allocate(count + 1, sizeof *jobs);
    const struct view **views = allocate(count + 1, sizeof *views);
    struct attempt_row **attempts = allocate(count + 1, sizeof *attempts);
    for (size_t i = 0; i < count; i++) {
        views[i] = running[i].view;
        attempts[i] = &running[i].attempt;
        jobs[i] = job_of(views[i]);
        jobs[i].started = running[i].attempt.job_started;
        if (running[i].attempt.job && strcmp(running[i].attempt.job, "0") != 0)
            strncat(jobs[i].id, running[i].attempt.job, sizeof jobs[i].id - 1);
    }
    executors_poll(daemon, views, jobs, count);
    ingest_together(daemon, views, attempts, count);
    for (size_t i = 0; i < count; i++) {
        watch_run(daemon, running[i].view, &running[i].attempt, &jobs[i]);
        attempt_row_release(&running[i].attempt);
    }
    free(attempts);
    free(views);
    free(jobs);
}

// How soon to look again: soon while something of this machine runs, less often where all there is waits or runs elsewhere.
static int pause_after(const struct daemon *daemon, const struct views *views)
{
    int pause = daemon->queue.again ? TICK_BUSY_MS : daemon->queue.waiting ? TICK_QUEUED_MS : TICK_IDLE_MS;
    for (size_t i = 0; i < views->count && pause > TICK_BUSY_MS; i++) {
        const struct view *view = &views->at[i];
        bool elsewhere = view->executor && view->executor->queues && view->state != RUN_SUBMITTED && !view->cancel_requested;
        pause = elsewhere ? TICK_QUEUED_MS : TICK_BUSY_MS;
    }
    return daemon->behind ? TICK_BEHIND_MS : pause;
}

// What nobody will find again must not be recorded.
static bool keep_database(struct daemon *daemon)
{
    struct error err = {0};
    pthread_mutex_lock(&daemon->lock);
    int kept = state_keep_file(daemon->state, &err);
    pthread_mutex_unlock(&daemon->lock);
    if (kept > 0)
        core_log("the state database was removed under this daemon; it has been written anew, nothing is lost");
    else if (kept < 0)
        core_log("%s: this daemon ends, jobs go on", err.text);
    return kept >= 0;
}

int daemon_tick(struct daemon *daemon)
{
    struct views views;
    struct error err = {0};
    daemon->behind = false;
    if (!keep_database(daemon))
        return -1;
    settings_follow(daemon);
    submissions_finish(daemon);
    if (views_load(daemon, &views, &err) != 0) {
        core_log("%s", err.text);
        return TICK_IDLE_MS;
    }
    struct running *running = allocate(views.count + 1, sizeof *running);
    watch_all(daemon, running, gather_running(daemon, &views, running));
    free(running);
    views_release(&views);
    // Seen anew: what has just ended gives its cores to what waits.
    int pause = TICK_IDLE_MS;
    if (views_load(daemon, &views, &err) == 0) {
        queue_start(daemon, &views);
        pause = pause_after(daemon, &views);
        views_release(&views);
    }
    watches_sweep(daemon);
    return pause;
}
