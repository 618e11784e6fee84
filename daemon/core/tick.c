// One round of the daemon: look at the jobs, take in what they wrote, judge, start what is ready.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"

#include <stdlib.h>
#include <string.h>

struct running { // one run that has, or should have, a job
    const struct view *view;
    struct attempt_row attempt;
};

// A crash may have left a run that was being added: its directory is complete or it is not there at all.
static void settle_created(struct daemon *daemon, const struct view *view)
{
    struct error err = {0};
    pthread_mutex_lock(&daemon->lock);
    core_change(daemon, view->id, RUN_FAILED, "the daemon ended while this run was being submitted", "daemon", &err);
    pthread_mutex_unlock(&daemon->lock);
}

// The row of the run's last attempt: the newest that the daemon knows of, or a newer one that a job claimed by itself.
static int load_attempt(struct daemon *daemon, const struct view *view, struct attempt_row *attempt)
{
    int64_t number = run_last_attempt(view->directory);
    if (number < view->attempt)
        number = view->attempt;
    struct error err = {0};
    pthread_mutex_lock(&daemon->lock);
    int found = state_get_attempt(daemon->state, view->id, number, attempt, &err);
    if (found == 1) {
        *attempt = (struct attempt_row){.run = view->id,
            .number = number,
            .job = string_copy("0"),
            .state = string_copy("running"),
            .started = clock_wall(),
            .code = -1};
        found = state_put_attempt(daemon->state, attempt, &err);
    }
    pthread_mutex_unlock(&daemon->lock);
    if (found != 0)
        core_log("%s/%s: %s", view->project, view->name, err.text);
    return found;
}

static size_t gather_running(struct daemon *daemon, const struct views *views, struct running *running)
{
    size_t count = 0;
    for (size_t i = 0; i < views->count; i++) {
        const struct view *view = &views->at[i];
        struct running *one = &running[count];
        if (view->state == RUN_CREATED)
            settle_created(daemon, view);
        if (view->state < RUN_SUBMITTED || !view->executor || load_attempt(daemon, view, &one->attempt) != 0)
            continue;
        one->view = view;
        if (view->state == RUN_SUBMITTED && !one->attempt.job) {
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
    for (size_t i = 0; i < count; i++) {
        views[i] = running[i].view;
        jobs[i] = job_of(views[i]);
        jobs[i].started = running[i].attempt.job_started;
        strncat(jobs[i].id, running[i].attempt.job ? running[i].attempt.job : "", sizeof jobs[i].id - 1);
    }
    executors_poll(daemon, views, jobs, count);
    for (size_t i = 0; i < count; i++) {
        watch_run(daemon, running[i].view, watch_of(daemon, running[i].view), &running[i].attempt, &jobs[i]);
        attempt_row_release(&running[i].attempt);
    }
    free(views);
    free(jobs);
}

int daemon_tick(struct daemon *daemon)
{
    struct views views;
    struct error err = {0};
    daemon->behind = false;
    if (views_load(daemon, &views, &err) != 0) {
        core_log("%s", err.text);
        return TICK_IDLE_MS;
    }
    struct running *running = allocate(views.count + 1, sizeof *running);
    size_t count = gather_running(daemon, &views, running);
    watch_all(daemon, running, count);
    free(running);
    views_release(&views);
    watches_sweep(daemon);
    // Seen anew: what has just ended gives its cores to what waits.
    bool busy = count > 0;
    if (views_load(daemon, &views, &err) == 0) {
        schedule_start(daemon, &views);
        for (size_t i = 0; i < views.count; i++)
            busy |= views.at[i].state != RUN_CREATED;
        views_release(&views);
    }
    return daemon->behind ? TICK_BEHIND_MS : busy ? TICK_BUSY_MS : TICK_IDLE_MS;
}
