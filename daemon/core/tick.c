// One round of the daemon: look at the jobs, take in what they wrote, judge, start what is ready.
#include "daemon/core/draft.h"
#include "schema/base/clock.h"

#define DATABASE_TRIED_SECONDS 2.0

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
        core_log("the state database, or its log, was removed under this daemon; it has been written anew, nothing is lost");
    else if (kept < 0)
        core_log("%s: this daemon ends, jobs go on", err.text);
    return kept >= 0;
}

// What kept changes from being stored may be over with nobody left who stores something: that is found out here.
static void try_database(struct daemon *daemon)
{
    double since, now = clock_steady();
    pthread_mutex_lock(&daemon->lock);
    bool due = now - daemon->database_tried >= DATABASE_TRIED_SECONDS;
    if (due && state_stuck(daemon->state, &since)) {
        state_try(daemon->state);
        daemon->database_tried = now;
    }
    pthread_mutex_unlock(&daemon->lock);
}

static int64_t changes_of(struct daemon *daemon)
{
    pthread_mutex_lock(&daemon->lock);
    int64_t changes = state_changes(daemon->state);
    pthread_mutex_unlock(&daemon->lock);
    return changes;
}

static int tick(struct daemon *daemon)
{
    struct views views;
    struct error err = {0};
    daemon->behind = false;
    if (!keep_database(daemon))
        return -1;
    try_database(daemon);
    settings_follow(daemon);
    submissions_finish(daemon);
    int64_t changes = changes_of(daemon);
    if (views_load(daemon, &views, &err) != 0) {
        core_log("%s", err.text);
        return TICK_IDLE_MS;
    }
    pass_go_on(daemon, &views);
    // Seen anew: what has just ended gives its cores to what waits.
    int pause = TICK_IDLE_MS, status = 0;
    if (changes_of(daemon) != changes) {
        views_release(&views);
        status = views_load(daemon, &views, &err);
    }
    if (status == 0) {
        queue_start(daemon, &views);
        pause = pause_after(daemon, &views);
        views_release(&views);
    }
    watches_sweep(daemon);
    curves_trim(daemon);
    return pause;
}

// ---- what it costs ----

int daemon_tick(struct daemon *daemon)
{
    daemon->tick_began = clock_cpu();
    int pause = tick(daemon);
    struct tick_costs *costs = &daemon->ticks;
    pthread_mutex_lock(&daemon->lock);
    costs->recent[costs->count++ % TICKS_REMEMBERED] = clock_cpu() - daemon->tick_began;
    pthread_mutex_unlock(&daemon->lock);
    return pause;
}

struct json *tick_costs_json(const struct tick_costs *costs)
{
    double sum = 0, largest = 0;
    int64_t recent = costs->count < TICKS_REMEMBERED ? costs->count : TICKS_REMEMBERED;
    for (int64_t i = 0; i < recent; i++) {
        sum += costs->recent[i];
        largest = costs->recent[i] > largest ? costs->recent[i] : largest;
    }
    struct json *json = js_object();
    js_set(json, "count", js_integer(costs->count));
    js_set(json, "recent", js_integer(recent));
    js_set(json, "cpu_ms_mean", js_real(recent ? 1000 * sum / (double)recent : 0));
    js_set(json, "cpu_ms_largest", js_real(1000 * largest));
    return json;
}
