// What is said of a run in a list, and the small tools that every answer uses.
#include "daemon/core/core.h"
#include "daemon/record/provenance.h"
#include "schema/base/clock.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_release(struct answer *answer)
{
    js_free(answer->body);
    *answer = (struct answer){0};
}

int answer_fail(struct answer *answer, int status, const char *format, ...)
{
    answer->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(answer->error.text, sizeof answer->error.text, format, args);
    va_end(args);
    return -1;
}

int answer_run(struct daemon *daemon, const char *text, struct run_row *row, struct answer *answer)
{
    int found = state_resolve_run(daemon->state, text, row, &answer->error);
    if (found == 0)
        return 0;
    answer->status = found == 1 ? 404 : found == 2 ? 400 : 500;
    return -1;
}

void answer_summary(struct daemon *daemon, int64_t run, int status, struct answer *answer)
{
    struct run_row row;
    pthread_mutex_lock(&daemon->lock);
    int found = state_get_run(daemon->state, run, &row, &answer->error);
    if (found == 0) {
        answer->body = run_summary(daemon, &row);
        run_row_release(&row);
    }
    pthread_mutex_unlock(&daemon->lock);
    answer->status = found == 0 ? status : 500;
}

// ---- one run ----

struct json *spec_shown(const struct run_row *row)
{
    struct json *shown = row->spec ? js_copy(row->spec) : js_object();
    struct json *environment = js_get(shown, "environment");
    if (js_kind(js_get(environment, "variables")) == JSON_KIND_OBJECT)
        js_set(environment, "variables", provenance_mask(js_get(environment, "variables"), NULL));
    return shown;
}

static struct json *time_json(double seconds)
{
    return seconds > 0 ? js_real(seconds) : js_null();
}

static struct json *value_json(const struct outcome_row *outcome, const char *metric)
{
    const struct json *value = js_get(outcome->last, metric);
    return value ? js_keep(value) : js_null();
}

int64_t run_diverged(struct daemon *daemon, int64_t run, const char *run_id)
{
    enum { STARTS_MAX = 1000 };
    if (isfinite(series_last_value(daemon->series, run_id, "loss", 0)))
        return 0;
    // Not every step is recorded; the worker's own word is about the very one. Of an attempt that was superseded it may come twice.
    int64_t finite = series_last_finite_step(daemon->series, run_id, "loss"), first = 0;
    struct json *starts = state_notes(daemon->state, run, NON_FINITE_NOTE, -1, STARTS_MAX, NULL);
    for (size_t i = 0; i < js_count(starts); i++) {
        int64_t step = js_integer_of(js_get(js_at(starts, i), "step"), 0);
        if (step > finite && (first == 0 || step < first))
            first = step;
    }
    js_free(starts);
    return first > 0 ? first : finite + 1;
}

static struct json *eta_json(struct daemon *daemon, const struct run_row *row, int64_t step)
{
    if (row->state != RUN_RUNNING || step <= 0 || step >= row->iterations)
        return js_null();
    double step_ms = recent_pace(daemon, row, step); // times add up, and one step says little of the next
    if (!isfinite(step_ms))
        return js_null();
    return js_real((double)(row->iterations - step) * step_ms / 1000.0);
}

enum { WAITS_FOR_MAX = 16 };

// Why it does not run yet, in words, for which runs, and when its scheduler expects to start it.
static void add_queue(struct daemon *daemon, const struct run_row *row, struct json *summary)
{
    bool waits = row->state == RUN_QUEUED || row->state == RUN_SUBMITTED || row->state == RUN_PENDING;
    const struct watch *watch = watch_find(daemon, row->id);
    js_set(summary, "executor", js_string(row->executor ? row->executor : "local"));
    // Behind the first that waits for cores nobody is looked at: a list of thousands is not written in each round.
    bool behind = row->state == RUN_QUEUED && (!row->executor || strcmp(row->executor, "local") == 0) && row->reason && strcmp(row->reason, "submitted") == 0;
    js_set(summary, "pending_reason", behind ? js_string("waits its turn on this machine") : waits ? js_string(row->reason) : js_null());
    js_set(summary, "waits_for", waits ? state_open_needs(daemon->state, row->id, WAITS_FOR_MAX) : js_array());
    js_set(summary, "expected_start", waits && watch ? time_json(watch->expected_start) : js_null());
}

// Of a trial: the swept keys with their values, and the entry of the spec that it is a trial of.
static void add_trial(struct daemon *daemon, const struct run_row *row, struct json *summary)
{
    struct trial_row trial = {0};
    bool is_trial = state_get_trial(daemon->state, row->id, &trial, NULL) == 0;
    js_set(summary, "sweep", trial.sweep ? trial.sweep : js_null());
    js_set(summary, "sweep_of", is_trial ? js_string(trial.entry) : js_null());
}

struct json *run_summary(struct daemon *daemon, const struct run_row *row)
{
    struct outcome_row outcome = run_outcome(daemon, row);
    int64_t step = outcome.step;
    double progress = row->state == RUN_SUCCEEDED ? 1 : row->iterations > 0 ? (double)step / (double)row->iterations : 0;
    struct json *summary = js_object();
    js_set(summary, "project", js_string(row->project));
    js_set(summary, "name", js_string(row->name));
    js_set(summary, "run_id", js_string(row->run_id));
    js_set(summary, "kind", js_string(row->kind));
    js_set(summary, "state", js_string(run_state_name(row->state)));
    js_set(summary, "reason", js_string(row->reason));
    add_queue(daemon, row, summary);
    js_set(summary, "attempt", js_integer(row->attempt));
    js_set(summary, "step", js_integer(step));
    js_set(summary, "submission", js_integer(row->experiment));
    js_set(summary, "iterations", js_integer(row->iterations));
    js_set(summary, "progress", js_real(progress < 1 ? progress : 1));
    js_set(summary, "eta_seconds", eta_json(daemon, row, step));
    js_set(summary, "loss", value_json(&outcome, "loss"));
    js_set(summary, "diverged_step", outcome.diverged_step > 0 ? js_integer(outcome.diverged_step) : js_null());
    js_set(summary, "validation_loss", value_json(&outcome, "validation_loss"));
    js_set(summary, "tokens_per_second", value_json(&outcome, "tokens_per_second"));
    js_set(summary, "commit", js_string(row->commit));
    js_set(summary, "dirty", row->dirty < 0 ? js_null() : js_boolean(row->dirty));
    js_set(summary, "created", time_json(row->created));
    js_set(summary, "started", time_json(row->started));
    js_set(summary, "ended", time_json(row->ended));
    js_set(summary, "directory", js_string(row->directory));
    js_set(summary, "experts", js_integer(row->experts));
    js_set(summary, "cancel_requested", js_boolean(row->cancel_requested));
    add_trial(daemon, row, summary);
    js_free(outcome.last);
    return summary;
}

enum { ROWS_AT_ONCE = 128 }; // between them others have the lock
#define PAGE_SECONDS 0.05    // … and where curves have to be read, after that time

// 1: there is more, 0, -1. What is found out of ended runs on the way is kept, all of a page at once.
static int list_page(struct daemon *daemon, const char *project, int64_t *last, struct json *list, struct error *err)
{
    struct run_row *rows = allocate(ROWS_AT_ONCE, sizeof *rows);
    size_t count = 0, taken = 0;
    bool keeps = change_begin(daemon, NULL) == 0;
    if (!keeps)
        pthread_mutex_lock(&daemon->lock); // what cannot be written can be read
    double until = clock_steady() + PAGE_SECONDS;
    int status = state_runs_after(daemon->state, project, *last, ROWS_AT_ONCE, rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (taken == i && (i == 0 || clock_steady() < until)) {
            js_append(list, run_summary(daemon, &rows[i]));
            *last = rows[i].id;
            taken++;
        }
        run_row_release(&rows[i]);
    }
    if (keeps)
        change_end(daemon, 0, NULL);
    else
        pthread_mutex_unlock(&daemon->lock);
    free(rows);
    return status != 0 ? -1 : count == ROWS_AT_ONCE || taken < count;
}

void daemon_list(struct daemon *daemon, const char *project, struct answer *answer)
{
    struct json *oldest_first = js_array(), *runs = js_array();
    int64_t last = 0;
    int more;
    while ((more = list_page(daemon, project, &last, oldest_first, &answer->error)) > 0)
        sched_yield();
    for (size_t i = js_count(oldest_first); i-- > 0;)
        js_append(runs, js_keep(js_at(oldest_first, i)));
    js_free(oldest_first);
    answer->status = more == 0 ? 200 : 500;
    if (more == 0) {
        answer->body = js_object();
        js_set(answer->body, "runs", runs);
    } else {
        js_free(runs);
    }
}

struct json *run_measured(struct daemon *daemon, const struct run_row *row)
{
    enum { ENDS_MAX = 10000 }; // one an attempt
    struct json *notes = state_notes(daemon->state, row->id, "end", -1, ENDS_MAX, NULL);
    const struct json *last = js_at(notes, js_count(notes) - (js_count(notes) > 0));
    struct json *measured = last ? js_keep(js_get(last, "body")) : NULL;
    js_free(notes);
    return measured;
}
