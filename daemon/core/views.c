// Views and watches: the tick's picture of the runs that are alive, and what it remembers of each between ticks.
#include "daemon/core/core.h"

#include <stdlib.h>
#include <string.h>

struct viewing {
    struct daemon *daemon;
    struct views *views;
};

static void add_view(void *context, const struct run_row *row)
{
    struct viewing *viewing = context;
    struct views *views = viewing->views;
    if (views->count >= RUNS_ALIVE_MAX)
        return;
    if ((views->count & (views->count - 1)) == 0)
        views->at = reallocate(views->at, views->count ? 2 * views->count : 1, sizeof *views->at);
    struct view *view = &views->at[views->count++];
    const struct json *resources = js_get(row->spec, "resources");
    *view = (struct view){
        .id = row->id,
        .state = row->state,
        .attempt = row->attempt,
        .cancel_requested = row->cancel_requested,
        .directory = string_copy(row->directory),
        .dataset_key = string_copy(row->dataset_key),
        .reason = string_copy(row->reason),
        .executor = executor_named(viewing->daemon, row->executor),
        .time_limit = js_real_of(js_get(resources, "time_limit"), 0),
        .gpus = js_integer_of(js_get(resources, "gpus_per_node"), 0),
        .memory = js_integer_of(js_get(resources, "memory"), 0),
    };
    memcpy(view->project, row->project, sizeof view->project);
    memcpy(view->name, row->name, sizeof view->name);
    memcpy(view->run_id, row->run_id, sizeof view->run_id);
    memcpy(view->kind, row->kind, sizeof view->kind);
}

static int by_id(const void *a, const void *b)
{
    const struct view *one = a, *two = b;
    return one->id < two->id ? -1 : one->id > two->id;
}

int views_load(struct daemon *daemon, struct views *views, struct error *err)
{
    *views = (struct views){0};
    struct viewing viewing = {daemon, views};
    pthread_mutex_lock(&daemon->lock);
    int status = state_each_run(daemon->state, NULL, true, add_view, &viewing, err);
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0) {
        views_release(views);
        return -1;
    }
    if (views->count)
        qsort(views->at, views->count, sizeof *views->at, by_id);
    return 0;
}

void views_release(struct views *views)
{
    for (size_t i = 0; i < views->count; i++) {
        free(views->at[i].directory);
        free(views->at[i].dataset_key);
        free(views->at[i].reason);
    }
    free(views->at);
    *views = (struct views){0};
}

// The worker's own end, if a daemon before us has read it already.
static void recall_end(struct daemon *daemon, struct watch *watch)
{
    pthread_mutex_lock(&daemon->lock);
    struct json *ends = state_notes(daemon->state, watch->run, "end", -1, 10000, NULL);
    pthread_mutex_unlock(&daemon->lock);
    for (size_t i = 0; i < js_count(ends); i++) {
        const struct json *end = js_at(ends, i);
        const struct json *body = js_get(end, "body") ? js_get(end, "body") : end;
        watch->end_attempt = js_integer_of(js_get(body, "attempt"), 0);
        watch->end_code = js_integer_of(js_get(body, "code"), -1);
    }
    js_free(ends);
}

struct watch *watch_of(struct daemon *daemon, const struct view *view)
{
    struct watch *watch = daemon->watches;
    while (watch && watch->run != view->id)
        watch = watch->next;
    if (!watch) {
        watch = allocate(1, sizeof *watch);
        *watch = (struct watch){.run = view->id, .ingest_attempt = 1, .end_code = -1, .next = daemon->watches};
        daemon->watches = watch;
        recall_end(daemon, watch);
    }
    watch->used = true;
    return watch;
}

void watches_sweep(struct daemon *daemon)
{
    for (struct watch **at = &daemon->watches; *at;) {
        struct watch *watch = *at;
        if (watch->used) {
            watch->used = false;
            at = &watch->next;
        } else {
            *at = watch->next;
            free(watch);
        }
    }
}
