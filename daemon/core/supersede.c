// A later attempt that resumed from an earlier step wins: the rows it will write again leave Trackio's database and the series, and are
// kept in ours. They are stored here first and deleted there afterwards, so that a crash in between leaves them in both, never in none;
// doing it again changes nothing.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <stdio.h>

struct moved {
    int64_t first_step;
    struct json *rows;
    int64_t count;
};

static void collect(void *context, int64_t id, int64_t step, double time, const struct json *metrics)
{
    struct moved *moved = context;
    (void)id;
    if (step < moved->first_step)
        return;
    struct json *row = js_object();
    char when[CLOCK_TEXT];
    clock_text(when, time);
    js_set(row, "step", js_integer(step));
    js_set(row, "timestamp", js_string(when));
    js_set(row, "metrics", js_copy(metrics));
    js_append(moved->rows, row);
}

static void count_deleted(void *context, int64_t step, const char *timestamp, const char *metrics)
{
    struct moved *moved = context;
    (void)step;
    (void)timestamp;
    (void)metrics;
    moved->count++;
}

static int keep_rows(struct daemon *daemon, const struct view *view, int64_t attempt, const struct moved *moved, struct error *err)
{
    int status = change_begin(daemon, err);
    if (status != 0)
        return -1;
    for (size_t i = 0; i < js_count(moved->rows) && status == 0; i++) {
        const struct json *row = js_at(moved->rows, i);
        status = state_add_note(daemon->state, view->id, attempt - 1, js_integer_of(js_get(row, "step"), 0), "superseded", row, err);
    }
    return change_end(daemon, status, err);
}

int supersede(struct daemon *daemon, const struct view *view, int64_t attempt, int64_t first_step, struct error *err)
{
    struct moved moved = {.first_step = first_step, .rows = js_array()};
    int status = trackio_each_row(daemon->writer, view->project, view->run_id, 0, collect, &moved, err);
    if (status == 0 && js_count(moved.rows) > 0) {
        status = keep_rows(daemon, view, attempt, &moved, err);
        if (status == 0)
            status = trackio_supersede(daemon->writer, view->project, view->run_id, first_step, count_deleted, &moved, err);
    }
    js_free(moved.rows);
    if (status != 0)
        return status;
    pthread_mutex_lock(&daemon->lock);
    series_forget_from(daemon->series, view->run_id, first_step);
    pthread_mutex_unlock(&daemon->lock);
    if (moved.count) {
        char text[160];
        snprintf(text, sizeof text, "attempt %lld goes on from step %lld: %lld rows of the attempt before were set aside",
            (long long)attempt, (long long)first_step - 1, (long long)moved.count);
        change_event(daemon, view, "superseded", text, "daemon");
    }
    return 0;
}
