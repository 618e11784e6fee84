// What a person asks of a run that is there: cancel, and retry.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/shape/params.h"
#include "schema/spec/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NEEDS_MAX = 1100 };

// A wish about one run is one change of the store. 0: it has begun, and the run is there.
static int begin_wish(struct daemon *daemon, const char *run, struct run_row *row, struct answer *answer)
{
    if (change_begin_for(daemon, answer) != 0)
        return -1;
    return answer_run(daemon, run, row, answer) == 0 ? 0 : change_end_for(daemon, -1, answer);
}

static void end_wish(struct daemon *daemon, struct run_row *row, int status, struct answer *answer)
{
    if (change_end_for(daemon, status, answer) == 0)
        answer_summary(daemon, row->id, 202, answer);
    run_row_release(row);
    daemon_wake(daemon);
}

static int cancel(struct daemon *daemon, const struct run_row *row, struct answer *answer)
{
    if (run_state_ended(row->state))
        return answer_fail(answer, 409, "%s/%s is over: %s", row->project, row->name, run_state_name(row->state));
    if (row->state == RUN_CREATED)
        return answer_fail(answer, 409, "%s/%s is still being submitted", row->project, row->name);
    int status = state_request_cancel(daemon->state, row->id, &answer->error);
    if (status == 0 && row->state == RUN_QUEUED)
        status = core_change(daemon, row->id, RUN_CANCELLED, "cancelled before it began", "user", &answer->error);
    if (status != 0)
        answer->status = 500;
    return status;
}

void daemon_cancel(struct daemon *daemon, const char *run, struct answer *answer)
{
    struct run_row row;
    if (begin_wish(daemon, run, &row, answer) == 0)
        end_wish(daemon, &row, cancel(daemon, &row, answer), answer);
}

// ---- many at once ----

enum { CANCELLED_AT_ONCE = 256 }; // in one transaction

// Within a change. Of at most CANCELLED_AT_ONCE runs, newest first: what waits for others ends before them. The same as cancel(), but what is over is passed by.
static int cancel_some(struct daemon *daemon, const int64_t *runs, const enum run_state *states, size_t count, int64_t counts[2], struct error *err)
{
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        bool queued = states[i] == RUN_QUEUED;
        status = state_request_cancel(daemon->state, runs[i], err);
        if (status == 0 && queued)
            status = core_change(daemon, runs[i], RUN_CANCELLED, "cancelled before it began", "user", err);
        counts[queued ? 0 : 1]++;
    }
    return status;
}

void daemon_cancel_many(struct daemon *daemon, const char *project, const char *with, struct answer *answer)
{
    int64_t counts[2] = {0, 0}, runs[CANCELLED_AT_ONCE], before = INT64_MAX, experiment = 0;
    enum run_state states[CANCELLED_AT_ONCE];
    size_t found = CANCELLED_AT_ONCE;
    struct run_row row;
    int status = 0;
    if (with) {
        pthread_mutex_lock(&daemon->lock);
        status = answer_run(daemon, with, &row, answer);
        pthread_mutex_unlock(&daemon->lock);
        if (status != 0)
            return;
        experiment = row.experiment;
        run_row_release(&row);
        if (!experiment) {
            answer_fail(answer, 409, "%s came with no submission: it was adopted", with);
            return;
        }
    }
    pthread_mutex_lock(&daemon->lock);
    bool there = !project || state_has_project(daemon->state, project);
    pthread_mutex_unlock(&daemon->lock);
    if (!there) {
        answer_fail(answer, 404, "there is no run of project %s", project);
        return;
    }
    while (status == 0 && found == CANCELLED_AT_ONCE) {
        status = change_begin_for(daemon, answer);
        if (status != 0)
            break;
        status = state_alive_before(daemon->state, project, experiment, before, CANCELLED_AT_ONCE, runs, states, &found, &answer->error);
        if (status == 0)
            status = cancel_some(daemon, runs, states, found, counts, &answer->error);
        before = found ? runs[found - 1] : before;
        status = change_end_for(daemon, status, answer);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); // others that wait for the lock come in between
    }
    daemon_wake(daemon);
    answer->status = status == 0 ? 202 : 500;
    if (status != 0)
        return;
    answer->body = js_object();
    js_set(answer->body, "cancelled", js_integer(counts[0]));
    js_set(answer->body, "stopping", js_integer(counts[1]));
}

// ---- retry: what it needs ----

// Within a change: back into the queue, and before it whatever it needs that did not succeed. Depth is bounded by the needs themselves: they have no cycle.
static int retry(struct daemon *daemon, const struct run_row *row, struct answer *answer)
{
    int64_t needed[NEEDS_MAX];
    size_t count = 0;
    struct error *err = &answer->error;
    answer->status = 500;
    if (state_needs(daemon->state, row->id, needed, NEEDS_MAX, &count, err) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct run_row need;
        if (state_get_run(daemon->state, needed[i], &need, err) != 0)
            return -1;
        int status = run_state_ended(need.state) && need.state != RUN_SUCCEEDED ? retry(daemon, &need, answer) : 0;
        run_row_release(&need);
        if (status != 0)
            return -1;
    }
    answer->status = 409;
    if (owner_take(daemon, row->directory, err) != 0)
        return -1;
    answer->status = 500;
    if (state_set_retry(daemon->state, row->id, 0, 0, row->excluded, err) != 0)
        return -1;
    char reason[128] = "retry requested";
    int64_t step = run_last_checkpoint(row->directory);
    if (step >= 0)
        snprintf(reason, sizeof reason, "retry requested: its last checkpoint is of step %lld", (long long)step);
    return core_change(daemon, row->id, RUN_QUEUED, reason, "user", err);
}

// ---- what may differ ----

static bool is_listed(const struct json *list, const char *word)
{
    for (size_t i = 0; i < js_count(list); i++)
        if (strcmp(js_string_of(js_at(list, i), ""), word) == 0)
            return true;
    return false;
}

// The spec with checkpoint.accept_changed longer by these words; NULL where one of them is none.
static struct json *spec_accepting(const struct json *spec, const struct json *accepted, struct error *err)
{
    struct json *longer = js_array();
    const struct json *checkpoint = js_get(spec, "checkpoint"), *before = js_get(checkpoint, "accept_changed");
    for (size_t i = 0; i < js_count(before); i++)
        js_append(longer, js_keep(js_at(before, i)));
    for (size_t i = 0; i < js_count(accepted); i++) {
        const char *word = js_string_of(js_at(accepted, i), "");
        if (strcmp(word, "data") != 0 && strcmp(word, "schedule") != 0 && strcmp(word, "model") != 0) {
            error_set(err, "accept_changed: one of data, schedule, model, not '%.40s'", word);
            js_free(longer);
            return NULL;
        }
        if (!is_listed(longer, word))
            js_append(longer, js_string(word));
    }
    struct json *copy = js_copy(spec), *section = js_kind(checkpoint) == JSON_KIND_OBJECT ? js_copy(checkpoint) : js_object();
    js_set(section, "accept_changed", longer);
    js_set(copy, "checkpoint", section);
    return copy;
}

static struct json *read_run_file(const struct run_row *row, struct error *err)
{
    char *path = path_join(row->directory, RUN_FILE);
    struct json *run = js_read_file(path, SPEC_TEXT_MAX, err);
    if (run && (js_kind(run) != JSON_KIND_OBJECT || js_kind(js_get(run, "spec")) != JSON_KIND_OBJECT)) {
        error_set(err, "%s: not a JSON object, or its `spec` is none", path);
        js_free(run);
        run = NULL;
    }
    free(path);
    return run;
}

static int write_run_file(const struct run_row *row, const struct json *run, struct error *err)
{
    char *path = path_join(row->directory, RUN_FILE);
    int status = js_write_file(path, run, SPEC_TEXT_MAX, 0600, err);
    free(path);
    return status;
}

// What no acceptance can make possible is refused before a job is started for it: a checkpoint of another model's sizes.
static int fits_checkpoint(const struct run_row *row, const struct spec *spec, struct error *err)
{
    struct error why = {0};
    int64_t step = run_last_checkpoint(row->directory);
    if (step < 0)
        return 0;
    char *directory = run_checkpoint_directory(row->directory, step), *path = path_join(directory, "trainer.json");
    struct json *trainer = js_read_file(path, SPEC_TEXT_MAX, NULL); // one that cannot be read is the worker's to judge
    const struct json *model = js_get(trainer, "model");
    int status = 0;
    if (model && params_fit(spec, model, &why) != 0)
        status = error_set(err, "%s/%s cannot go on from its checkpoint of step %lld with the model that its " RUN_FILE " describes now, whatever is "
            "accepted: %s", row->project, row->name, (long long)step, why.text);
    js_free(trainer);
    free(path);
    free(directory);
    return status;
}

static int check_spec(const struct run_row *row, const struct json *json, struct error *err)
{
    struct spec spec;
    if (spec_from_json(&spec, json, err) != 0)
        return error_context(err, "%s/" RUN_FILE, row->directory);
    int status = spec_runnable(&spec, err);
    if (status == 0)
        status = fits_checkpoint(row, &spec, err);
    spec_release(&spec);
    return status;
}

// The spec that the next attempt reads is that of the run's directory: a person may have changed it there since. What is accepted on top of it goes
// into the directory and into the database. A crash in between leaves a run that accepts what its row does not say yet.
static int settle_spec(struct daemon *daemon, const struct run_row *row, const struct json *accepted, struct answer *answer)
{
    if (strcmp(row->kind, "train") != 0)
        return js_count(accepted) == 0 ? 0 : answer_fail(answer, 400, "%s/%s trains nothing: there is no checkpoint that it goes on from", row->project, row->name);
    struct error *err = &answer->error;
    struct json *run = read_run_file(row, err), *spec = NULL;
    answer->status = 409;
    int status = run ? 0 : -1;
    if (status == 0) {
        answer->status = 400;
        status = check_spec(row, js_get(run, "spec"), err);
        if (status == 0)
            spec = js_count(accepted) ? spec_accepting(js_get(run, "spec"), accepted, err) : js_keep(js_get(run, "spec"));
        status = spec ? 0 : -1;
    }
    bool changed = status == 0 && !js_equal(spec, row->spec);
    if (changed) {
        answer->status = 500;
        js_set(run, "spec", js_keep(spec));
        status = js_count(accepted) ? write_run_file(row, run, err) : 0;
        if (status == 0)
            status = state_set_spec(daemon->state, row->id, spec, err);
    }
    js_free(spec);
    js_free(run);
    return status;
}

// ---- retry ----

static int try_again(struct daemon *daemon, const struct run_row *row, const struct json *accepted, struct answer *answer)
{
    if (!run_state_ended(row->state))
        return answer_fail(
            answer, 409, "%s/%s is %s: only a run that is over can be tried again", row->project, row->name, run_state_name(row->state));
    if (row->state == RUN_SUCCEEDED)
        return answer_fail(answer, 409, "%s/%s has succeeded: there is nothing to try again", row->project, row->name);
    if (settle_spec(daemon, row, accepted, answer) != 0)
        return -1;
    return retry(daemon, row, answer);
}

void daemon_retry(struct daemon *daemon, const char *run, const struct json *accepted, struct answer *answer)
{
    struct run_row row;
    if (begin_wish(daemon, run, &row, answer) == 0)
        end_wish(daemon, &row, try_again(daemon, &row, accepted, answer), answer);
}
