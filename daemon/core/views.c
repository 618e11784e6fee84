// Views and watches: the tick's picture of the runs that are with an executor, and what it remembers of each between ticks.
#include "daemon/core/core.h"

#include <stdio.h>
#include <stdlib.h>

struct viewing {
    struct daemon *daemon;
    struct views *views;
};

static void add_view(void *context, const struct run_head *head)
{
    struct viewing *viewing = context;
    struct views *views = viewing->views;
    if (views->count >= RUNS_ALIVE_MAX)
        return;
    if ((views->count & (views->count - 1)) == 0)
        views->at = reallocate(views->at, views->count ? 2 * views->count : 1, sizeof *views->at);
    struct view *view = &views->at[views->count++];
    *view = (struct view){
        .id = head->id,
        .state = head->state,
        .attempt = head->attempt,
        .cancel_requested = head->cancel_requested,
        .directory = string_copy(head->directory),
        .dataset_key = string_copy(head->dataset_key),
        .reason = string_copy(head->reason),
        .excluded = string_copy(head->excluded),
        .retries = head->retries,
        .retry_at = head->retry_at,
        .job = string_copy(head->job),
        .job_started = head->job_started,
        .executor = executor_named(viewing->daemon, head->executor),
    };
    snprintf(view->project, sizeof view->project, "%s", head->project);
    snprintf(view->name, sizeof view->name, "%s", head->name);
    snprintf(view->run_id, sizeof view->run_id, "%s", head->run_id);
    snprintf(view->kind, sizeof view->kind, "%s", head->kind);
    snprintf(view->title, sizeof view->title, "%s.%s", view->project, view->name);
}

// ---- what is remembered of each ----

// The worker's own end, if a daemon before us has read it already. Under the lock.
static void recall_end(struct daemon *daemon, struct watch *watch)
{
    struct json *ends = state_notes(daemon->state, watch->run, "end", -1, 10000, NULL);
    for (size_t i = 0; i < js_count(ends); i++) {
        const struct json *end = js_at(ends, i);
        const struct json *body = js_get(end, "body") ? js_get(end, "body") : end;
        watch->end_attempt = js_integer_of(js_get(body, "attempt"), 0);
        watch->end_code = js_integer_of(js_get(body, "code"), -1);
    }
    js_free(ends);
}

// Under the lock.
static void recall_facts(struct daemon *daemon, struct watch *watch)
{
    struct run_row row;
    if (state_get_run(daemon->state, watch->run, &row, NULL) != 0)
        return;
    watch->facts = (struct facts){
        .time_limit = js_real_of(js_get(js_get(row.spec, "resources"), "time_limit"), 0),
        .grace = js_real_of(js_get(js_get(row.spec, "slurm"), "grace"), SCHEDULER_GRACE),
        .gpus = js_integer_of(js_get(js_get(row.spec, "resources"), "gpus_per_node"), 0),
        .memory = js_integer_of(js_get(js_get(row.spec, "resources"), "memory"), 0),
        .iterations = row.iterations,
        .retry = retry_policy_of(row.spec),
    };
    run_row_release(&row);
}

// Once, since a spec is long and a tick short; and not of all runs before the first of them is looked at.
void watch_recall(struct daemon *daemon, const struct view *view)
{
    struct watch *watch = view->watch;
    if (watch->recalled)
        return;
    char *home = owner_elsewhere(daemon, view->directory);
    watch->elsewhere = home != NULL;
    free(home);
    pthread_mutex_lock(&daemon->lock);
    recall_facts(daemon, watch);
    recall_end(daemon, watch);
    pthread_mutex_unlock(&daemon->lock);
    watch->recalled = true;
}

static struct watch **bucket_of(struct daemon *daemon, int64_t run)
{
    return &daemon->watches[(uint64_t)run % WATCH_BUCKETS];
}

struct watch *watch_find(struct daemon *daemon, int64_t run)
{
    struct watch *watch = *bucket_of(daemon, run);
    while (watch && watch->run != run)
        watch = watch->next;
    return watch;
}

// Under the lock.
static struct watch *watch_of(struct daemon *daemon, int64_t run)
{
    struct watch *watch = watch_find(daemon, run);
    if (!watch) {
        struct watch **bucket = bucket_of(daemon, run);
        watch = allocate(1, sizeof *watch);
        *watch = (struct watch){.run = run, .ingest_attempt = 1, .end_code = -1, .next = *bucket};
        *bucket = watch;
    }
    watch->used = true;
    return watch;
}

void watches_sweep(struct daemon *daemon)
{
    pthread_mutex_lock(&daemon->lock);
    for (size_t i = 0; i < WATCH_BUCKETS; i++)
        for (struct watch **at = &daemon->watches[i]; *at;) {
            struct watch *watch = *at;
            if (watch->used) {
                watch->used = false;
                at = &watch->next;
            } else {
                *at = watch->next;
                curve_settle(daemon, watch->run);
                free(watch);
            }
        }
    pthread_mutex_unlock(&daemon->lock);
}

// ---- all of them ----

// run: only that one; 0: all that are with an executor.
static int load(struct daemon *daemon, struct views *views, int64_t run, struct error *err)
{
    *views = (struct views){0};
    struct viewing viewing = {daemon, views};
    pthread_mutex_lock(&daemon->lock);
    int status = run ? state_head(daemon->state, run, add_view, &viewing, err) : state_each_active(daemon->state, add_view, &viewing, err);
    for (size_t i = 0; i < views->count && status == 0; i++)
        views->at[i].watch = watch_of(daemon, views->at[i].id);
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0)
        views_release(views);
    return status;
}

int views_load(struct daemon *daemon, struct views *views, struct error *err)
{
    return load(daemon, views, 0, err);
}

int views_load_one(struct daemon *daemon, struct views *views, int64_t run, struct error *err)
{
    int status = load(daemon, views, run, err);
    for (size_t i = 0; i < views->count; i++)
        watch_recall(daemon, &views->at[i]);
    return status;
}

void views_release(struct views *views)
{
    for (size_t i = 0; i < views->count; i++) {
        free(views->at[i].directory);
        free(views->at[i].dataset_key);
        free(views->at[i].reason);
        free(views->at[i].excluded);
        free(views->at[i].job);
    }
    free(views->at);
    *views = (struct views){0};
}
