// Which curves are in memory, and what lists say of a run without its curve. The curve of a run that is alive stays in memory; that of one that
// has ended is read when somebody looks at it, and forgotten when nobody has for a while. What a list shows of it is kept in our own database
// when the run ends: a list of ten thousand runs reads no curve.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define UNSEEN_KEPT 300.0 // seconds that the curve of an ended run stays in memory after the last look at it

static const char *const listed[] = {"loss", "validation_loss", "tokens_per_second"};
enum { LISTED = sizeof listed / sizeof *listed };

struct loading {
    struct daemon *daemon;
    const char *run_id;
};

static void load_row(void *context, int64_t id, int64_t step, double time, const struct json *metrics)
{
    const struct loading *loading = context;
    (void)id;
    loading->daemon->curve_rows++;
    series_add(loading->daemon->series, loading->run_id, step, time, metrics);
}

static bool has_curve(const struct run_row *row)
{
    return strcmp(row->kind, "train") == 0 && row->attempt > 0;
}

static bool load(struct daemon *daemon, const struct run_row *row)
{
    struct loading loading = {daemon, row->run_id};
    struct error err = {0};
    if (trackio_each_row(daemon->reader, row->project, row->run_id, 0, load_row, &loading, &err) == 0)
        return true;
    core_log("%s/%s: %s", row->project, row->name, err.text);
    if (run_state_ended(row->state))
        series_forget(daemon->series, row->run_id); // half a curve is none
    return false;
}

static struct json *value_of(struct daemon *daemon, const char *run_id, const char *metric)
{
    double missing = -12345.0e300; // no metric of ours has this value; NAN is one that a metric can have
    double value = series_last_value(daemon->series, run_id, metric, missing);
    return value == missing ? NULL : js_real(value);
}

// Of a curve that is in memory.
static struct outcome_row outcome_found(struct daemon *daemon, const struct run_row *row)
{
    struct outcome_row outcome = {.step = series_last_step(daemon->series, row->run_id), .last = js_object(),
        .diverged_step = run_diverged(daemon, row->id, row->run_id)};
    for (size_t i = 0; i < LISTED; i++) {
        struct json *value = value_of(daemon, row->run_id, listed[i]);
        if (value)
            js_set(outcome.last, listed[i], value);
    }
    return outcome;
}

// What cannot be kept is read again when it is wanted.
static void keep(struct daemon *daemon, const struct run_row *row)
{
    struct outcome_row known = {0}, found = outcome_found(daemon, row);
    bool same = state_get_outcome(daemon->state, row->id, &known, NULL) == 0 && known.step == found.step &&
                known.diverged_step == found.diverged_step && js_equal(known.last, found.last);
    if (!same)
        state_put_outcome(daemon->state, row->id, &found, NULL);
    js_free(known.last);
    js_free(found.last);
}

void series_need(struct daemon *daemon, const struct run_row *row)
{
    bool ended = run_state_ended(row->state);
    if (!has_curve(row))
        return;
    bool loaded = !series_has(daemon->series, row->run_id) && load(daemon, row);
    if (loaded && ended && series_has(daemon->series, row->run_id)) // no row at all may mean that its database is elsewhere just now
        keep(daemon, row);
    series_hold(daemon->series, row->run_id, ended ? clock_steady() : INFINITY);
}

struct outcome_row run_outcome(struct daemon *daemon, const struct run_row *row)
{
    struct outcome_row outcome = {0};
    bool ended = run_state_ended(row->state), in_memory = series_has(daemon->series, row->run_id);
    if (!has_curve(row) || (ended && !in_memory && state_get_outcome(daemon->state, row->id, &outcome, NULL) == 0))
        return outcome;
    if (!in_memory)
        series_need(daemon, row);
    outcome = outcome_found(daemon, row);
    if (ended && !in_memory)
        series_forget(daemon->series, row->run_id); // a list asked, nobody looks at it
    return outcome;
}

// ---- runs that nobody watches any more ----

static void take_head(void *context, const struct run_head *head)
{
    struct run_row *row = context;
    *row = (struct run_row){.id = head->id, .state = head->state, .attempt = head->attempt};
    snprintf(row->run_id, sizeof row->run_id, "%s", head->run_id);
    snprintf(row->kind, sizeof row->kind, "%s", head->kind);
}

void curve_settle(struct daemon *daemon, int64_t run)
{
    struct run_row row = {0};
    if (state_head(daemon->state, run, take_head, &row, NULL) != 0 || !run_state_ended(row.state) || !has_curve(&row))
        return;
    if (!series_has(daemon->series, row.run_id))
        return;
    keep(daemon, &row);
    series_hold(daemon->series, row.run_id, clock_steady());
}

// A run that has been started again meanwhile keeps its curve, whoever looked at it last.
static bool may_forget(void *context, const char *run_id)
{
    struct daemon *daemon = context;
    struct run_row row;
    if (state_find_run_id(daemon->state, run_id, &row, NULL) != 0)
        return false;
    bool ended = run_state_ended(row.state);
    run_row_release(&row);
    return ended;
}

void curves_trim(struct daemon *daemon)
{
    pthread_mutex_lock(&daemon->lock);
    series_forget_unseen(daemon->series, clock_steady() - UNSEEN_KEPT, may_forget, daemon);
    pthread_mutex_unlock(&daemon->lock);
}
