// Runs that this database does not know: jobs in a scheduler's queue that carry a mark of ours, and run directories that another home made,
// or this one before its database was lost. A run directory says all that is needed: run.json what the run is, its attempts what happened;
// the tick finds out the rest as after any restart.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_ID = 32 };

static bool is_known(struct daemon *daemon, const char *run_id)
{
    struct run_row row;
    pthread_mutex_lock(&daemon->lock);
    int found = state_find_run_id(daemon->state, run_id, &row, NULL);
    pthread_mutex_unlock(&daemon->lock);
    if (found == 0)
        run_row_release(&row);
    return found == 0;
}

static struct json *stranger_json(const struct slurm_stranger *stranger)
{
    struct json *json = js_object();
    js_set(json, "job_id", js_string(stranger->id));
    js_set(json, "run_id", js_string(stranger->tag));
    js_set(json, "state", js_string(stranger->state));
    js_set(json, "name", js_string(stranger->name));
    js_set(json, "directory", js_string(stranger->directory));
    return json;
}

void daemon_strangers(struct daemon *daemon, struct answer *answer)
{
    struct slurm_stranger *list = NULL;
    size_t count = 0;
    bool fresh = slurm_strangers(daemon->slurm, &list, &count) == 0;
    struct json *jobs = js_array();
    for (size_t i = 0; fresh && i < count; i++)
        if (!is_known(daemon, list[i].tag))
            js_append(jobs, stranger_json(&list[i]));
    if (fresh)
        slurm_strangers_free(list, count);
    answer->status = 200;
    answer->body = js_object();
    js_set(answer->body, "answered", js_boolean(fresh));
    js_set(answer->body, "jobs", jobs);
    daemon_wake(daemon);
}

// ---- a run directory ----

static struct json *read_file(const char *directory, const char *name, struct error *err)
{
    char *path = path_join(directory, name);
    struct json *json = js_read_file(path, SPEC_TEXT_MAX, err);
    free(path);
    return json;
}

static int take_text(char *out, size_t size, const struct json *run, const char *member, struct error *err)
{
    const char *text = js_string_of(js_get(run, member), "");
    if (!text[0] || strlen(text) >= size)
        return error_set(err, RUN_FILE " has no good `%s`", member);
    strcpy(out, text);
    return 0;
}

// The content key of what a stage makes: the name of the directory that its prefix is in.
static char *key_of(const struct json *run)
{
    const char *prefix = js_string_of(js_get(js_get(run, "tokenize"), "prefix"), "");
    char *directory = path_join(prefix, "..");
    char *clean = path_absolute(directory, NULL);
    const char *slash = strrchr(clean, '/');
    char *key = string_copy(slash && strlen(slash + 1) == RUN_ID ? slash + 1 : NULL);
    free(clean);
    free(directory);
    return key;
}

// What this daemon writes and reads is made of objects: anything else in their place is not a run's.
static int check_shape(const struct json *run, const struct json *job, struct error *err)
{
    static const char *const members[] = {"spec", "plan", "provenance", "tokenize"};
    static const char *const sections[] = {"data", "model", "training", "resources", "checkpoint", "environment", "slurm", "retry", "sweep"};
    const struct json *spec = js_get(run, "spec");
    if (js_kind(run) != JSON_KIND_OBJECT || (job && js_kind(job) != JSON_KIND_OBJECT))
        return error_set(err, "%s is not a JSON object", job && js_kind(job) != JSON_KIND_OBJECT ? JOB_FILE : RUN_FILE);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (js_kind(js_get(run, members[i])) != JSON_KIND_NULL && js_kind(js_get(run, members[i])) != JSON_KIND_OBJECT)
            return error_set(err, RUN_FILE ": `%s` is not an object", members[i]);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (js_kind(js_get(spec, sections[i])) != JSON_KIND_NULL && js_kind(js_get(spec, sections[i])) != JSON_KIND_OBJECT)
            return error_set(err, RUN_FILE ": `spec.%s` is not an object", sections[i]);
    return 0;
}

static bool is_kind(const char *word)
{
    return strcmp(word, "train") == 0 || strcmp(word, "tokenize") == 0 || strcmp(word, "check") == 0;
}

// NULL where there is none.
static struct json *object_of(const struct json *run, const char *member)
{
    const struct json *value = js_get(run, member);
    return js_kind(value) == JSON_KIND_OBJECT ? js_copy(value) : NULL;
}

static int read_row(struct run_row *row, const char *directory, struct error *err)
{
    struct json *run = read_file(directory, RUN_FILE, err), *job = read_file(directory, JOB_FILE, NULL);
    int status = -1;
    if (!run) {
        error_context(err, "%s is no run directory of ours", directory);
        goto out;
    }
    if (check_shape(run, job, err) != 0)
        goto out;
    if (take_text(row->project, sizeof row->project, run, "project", err) != 0 || take_text(row->name, sizeof row->name, run, "name", err) != 0 ||
        take_text(row->run_id, sizeof row->run_id, run, "run_id", err) != 0 || take_text(row->kind, sizeof row->kind, run, "kind", err) != 0)
        goto out;
    if (strlen(row->run_id) != RUN_ID || row->run_id[strspn(row->run_id, "0123456789abcdef")] || row->name[0] == '-' ||
        row->name[strlen(row->name) - 1] == '-') {
        error_set(err, RUN_FILE ": `run_id` or `name` is not one that a run has");
        goto out;
    }
    if (!is_kind(row->kind) || (strcmp(row->kind, "tokenize") == 0) != (js_kind(js_get(run, "tokenize")) == JSON_KIND_OBJECT)) {
        error_set(err, RUN_FILE ": its `kind` is '%.40s', and that is none, or lacks what it is made of", row->kind);
        goto out;
    }
    double created = clock_parse(js_string_of(js_get(run, "created"), ""));
    row->created = isfinite(created) ? created : clock_wall();
    row->directory = string_copy(directory);
    row->executor = string_copy(js_string_of(js_get(job, "executor"), js_count(js_get(job, "options")) ? "slurm" : "local"));
    row->spec = object_of(run, "spec");
    row->plan = object_of(run, "plan");
    row->provenance = object_of(run, "provenance");
    row->spec = row->spec ? row->spec : js_object();
    row->provenance = row->provenance ? row->provenance : js_object();
    row->iterations = js_integer_of(js_get(js_get(row->spec, "training"), "iterations"), 0);
    if (js_get(job, "argv"))
        js_set(row->provenance, "argv", js_keep(js_get(job, "argv")));
    if (strcmp(row->kind, "tokenize") == 0) {
        js_set(row->spec, "tokenize", js_keep(js_get(run, "tokenize")));
        row->dataset_key = key_of(run);
    }
    status = 0;
out:
    js_free(run);
    js_free(job);
    return status;
}

// Within a change. Its last attempt, known or still to come, has a job: which, the executor will say. The earlier ones follow from the directory.
static int add_run(struct daemon *daemon, struct run_row *row, struct error *err)
{
    char *reason = string_format("adopted from %s", row->directory);
    int status = -1;
    struct attempt_row attempt = {.number = run_last_attempt(row->directory), .job = "0", .state = "submitted", .started = clock_wall(), .code = -1};
    attempt.number = attempt.number ? attempt.number : 1;
    if (state_add_run(daemon->state, row, err) == 0) {
        attempt.run = row->id;
        status = state_put_attempt(daemon->state, &attempt, err);
        if (status == 0)
            status = core_change(daemon, row->id, RUN_SUBMITTED, reason, "user", err);
    }
    free(reason);
    return status;
}

// Within a change.
static int take_in(struct daemon *daemon, struct run_row *row, struct answer *answer)
{
    struct run_row known;
    if (!executor_named(daemon, row->executor))
        return answer_fail(answer, 400, "%s: its executor, %.40s, is not one of this build's", row->directory, row->executor);
    if (state_find_run_id(daemon->state, row->run_id, &known, NULL) == 0) {
        answer_fail(answer, 409, "%s is known already, as %s/%s", row->directory, known.project, known.name);
        run_row_release(&known);
        return -1;
    }
    answer->status = 409;
    int status = add_run(daemon, row, &answer->error);
    return status == 0 ? owner_take(daemon, row->directory, &answer->error) : status;
}

void daemon_adopt(struct daemon *daemon, const char *directory, struct answer *answer)
{
    struct run_row row = {0};
    answer->status = 400;
    if (directory[0] != '/') {
        answer_fail(answer, 400, "'%.200s' is not an absolute path of a run directory", directory);
    } else if (read_row(&row, directory, &answer->error) == 0) {
        if (change_begin_for(daemon, answer) == 0 && change_end_for(daemon, take_in(daemon, &row, answer), answer) == 0)
            answer_summary(daemon, row.id, 201, answer);
    }
    run_row_release(&row);
    daemon_wake(daemon);
}
