// A submission becomes runs: rows, needs and directories, all of them or none. The slow part (draft.c) has happened without the lock.
#include "daemon/core/dataset.h"
#include "daemon/core/draft.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- names ----

// A database that is locked or full is no fault of who asks.
static int begin(struct daemon *daemon, struct answer *answer)
{
    int status = state_begin(daemon->state, &answer->error);
    if (status != 0)
        answer->status = 500;
    return status;
}

// Names are numbered by the database, and a run's directory is named after it: the rows are added once to learn the names, and taken back.
static int assign_names(struct daemon *daemon, struct drafts *drafts, struct answer *answer)
{
    struct error *err = &answer->error;
    if (begin(daemon, answer) != 0)
        return -1;
    int status = 0;
    for (size_t i = 0; i < drafts->count && status == 0; i++)
        if (!drafts->at[i].dropped)
            status = state_add_run(daemon->state, &drafts->at[i].row, err);
    state_rollback(daemon->state);
    for (size_t i = 0; i < drafts->count && status == 0; i++) {
        struct draft *draft = &drafts->at[i];
        free(draft->row.directory);
        draft->row.directory = string_format("%s/%s/%s", draft->root, draft->row.project, draft->row.name);
        draft->row.id = 0;
    }
    return status;
}

// A stage that somebody is working on already, or that has just been done, is not done again. Returns the run to wait for, 0 for none.
static int64_t shared_stage(struct daemon *daemon, const char *key)
{
    struct run_row row;
    if (!key[0] || state_dataset_run(daemon->state, key, &row, NULL) != 0)
        return 0;
    int64_t id = !run_state_ended(row.state) ? row.id : 0;
    run_row_release(&row);
    return id;
}

static void drop_shared(struct daemon *daemon, struct drafts *drafts)
{
    for (size_t i = 0; i < drafts->count; i++) {
        struct draft *draft = &drafts->at[i];
        if (draft->has_spec)
            continue;
        draft->instead = shared_stage(daemon, draft->key);
        draft->dropped = draft->instead != 0 || dataset_is_complete(daemon->home, draft->key);
    }
}

// ---- files ----

static int write_json(const char *directory, const char *name, const struct json *json, struct error *err)
{
    struct text bytes;
    text_init(&bytes, SPEC_TEXT_MAX);
    js_write_pretty(&bytes, json);
    char *path = path_join(directory, name);
    int status = bytes.overflowed ? error_set(err, "%s: larger than %d bytes", path, SPEC_TEXT_MAX)
                                  : file_write_atomic(path, bytes.at, bytes.length, 0600, err);
    free(path);
    text_release(&bytes);
    return status;
}

static struct json *data_json(struct daemon *daemon, const struct draft *draft, struct error *err)
{
    char *text_prefix = draft->key[0] ? dataset_prefix(daemon->home, draft->key) : NULL;
    struct json *prefixes = dataset_prefixes(&draft->spec.data, text_prefix, err);
    free(text_prefix);
    if (!prefixes)
        return NULL;
    struct json *data = js_object();
    js_set(data, "prefixes", prefixes);
    js_set(data, "key", draft->key[0] ? js_string(draft->key) : js_null());
    return data;
}

static struct json *from_json(const struct drafts *drafts, const struct draft *draft)
{
    const struct spec_from *from = &draft->spec.model.from;
    if (!from->run && !from->path)
        return js_null();
    const char *directory = draft->from_sibling != FROM_NONE ? drafts->at[draft->from_sibling].row.directory : draft->from_directory;
    struct json *json = js_object();
    js_set(json, "run_directory", from->run ? js_string(directory) : js_null());
    js_set(json, "checkpoint", js_string(from->path));
    js_set(json, "step", js_integer(from->step));
    return json;
}

// run.json: all that the worker needs to know.
static struct json *run_json(struct daemon *daemon, const struct drafts *drafts, const struct draft *draft, struct error *err)
{
    char when[CLOCK_TEXT];
    clock_text(when, draft->row.created);
    struct json *json = js_object();
    js_set(json, "v", js_integer(1));
    js_set(json, "kind", js_string(draft->row.kind));
    js_set(json, "project", js_string(draft->row.project));
    js_set(json, "name", js_string(draft->row.name));
    js_set(json, "run_id", js_string(draft->row.run_id));
    js_set(json, "created", js_string(when));
    js_set(json, "home", js_string(daemon->home));
    if (!draft->has_spec) {
        js_set(json, "tokenize", js_keep(js_get(draft->row.spec, "tokenize")));
        return json;
    }
    js_set(json, "spec", js_keep(draft->row.spec));
    js_set(json, "plan", js_keep(draft->row.plan));
    js_set(json, "provenance", js_keep(draft->row.provenance));
    js_set(json, "from", from_json(drafts, draft));
    struct json *data = data_json(daemon, draft, err);
    if (data) {
        js_set(json, "data", data);
        return json;
    }
    js_free(json);
    return NULL;
}

static int write_files(struct daemon *daemon, const struct drafts *drafts, struct draft *draft, struct error *err)
{
    struct launch launch;
    if (draft->has_spec ? launch_train(&launch, &draft->spec, &daemon->machine, daemon->worker, draft->row.directory, err)
                        : launch_tokenize(&launch, &drafts->at[draft->user].spec, &daemon->machine, daemon->worker, draft->row.directory, err))
        return -1;
    if (!draft->row.provenance)
        draft->row.provenance = js_object();
    js_set(draft->row.provenance, "argv", word_list_to_json(&launch.argv));
    struct json *job = launch_to_json(&launch), *run = run_json(daemon, drafts, draft, err);
    int status = run ? write_json(draft->staging, RUN_FILE, run, err) : -1;
    if (status == 0)
        status = write_json(draft->staging, JOB_FILE, job, err);
    js_free(run);
    js_free(job);
    launch_release(&launch);
    return status;
}

// ---- places ----

// Left behind by a daemon of this home that ended in the middle of a submission: its run is in no database and was never started.
static bool is_orphan(struct daemon *daemon, const char *directory)
{
    char *path = path_join(directory, RUN_FILE);
    struct json *run = js_read_file(path, SPEC_TEXT_MAX, NULL);
    bool orphan = run && strcmp(js_string_of(js_get(run, "home"), ""), daemon->home) == 0 && run_last_attempt(directory) == 0;
    js_free(run);
    free(path);
    return orphan;
}

// The prepared directory takes the name in one step, if nobody has it: an empty directory there gives way, any other makes this fail.
static int place(struct daemon *daemon, struct draft *draft, struct error *err)
{
    const char *directory = draft->row.directory;
    int fault = rename(draft->staging, directory) == 0 ? 0 : errno;
    if ((fault == ENOTEMPTY || fault == EEXIST) && is_orphan(daemon, directory)) {
        draft_free_name(draft);
        fault = rename(draft->staging, directory) == 0 ? 0 : errno;
    }
    if (fault == ENOTEMPTY || fault == EEXIST || fault == ENOTDIR)
        return error_set(
            err, "%s is there already, and not a run of this daemon: move it away, or choose another output: or --name", directory);
    errno = fault;
    if (fault != 0)
        return error_errno(err, "%s", directory);
    draft->placed = string_copy(directory);
    free(draft->staging);
    draft->staging = NULL;
    return 0;
}

// ---- rows ----

static int add_needs(struct daemon *daemon, struct drafts *drafts, struct draft *draft, struct error *err)
{
    int64_t needed[3] = {
        shared_stage(daemon, draft->key), draft->from_run, draft->from_sibling != FROM_NONE ? drafts->at[draft->from_sibling].row.id : 0};
    for (size_t i = 0; i < 3; i++)
        if (needed[i] && needed[i] != draft->row.id && state_add_need(daemon->state, draft->row.id, needed[i], err) != 0)
            return -1;
    return 0;
}

static int add_rows(struct daemon *daemon, struct drafts *drafts, const struct json *body, struct error *err)
{
    int64_t experiment = state_add_experiment(daemon->state, drafts->at[drafts->count - 1].row.project,
        js_string_of(js_get(body, "path"), NULL), js_string_of(js_get(body, "text"), NULL), err);
    int64_t concurrency = js_integer_of(js_get(body, "concurrency"), 0);
    if (experiment < 0 || (concurrency > 0 && state_set_concurrency(daemon->state, experiment, concurrency, err) != 0))
        return -1;
    for (size_t i = 0; i < drafts->count; i++) {
        struct draft *draft = &drafts->at[i];
        draft->row.experiment = experiment;
        if (!draft->dropped && state_add_run(daemon->state, &draft->row, err) != 0)
            return -1;
    }
    for (size_t i = 0; i < drafts->count; i++) {
        struct draft *draft = &drafts->at[i];
        if (draft->dropped)
            continue;
        if ((draft->has_spec && add_needs(daemon, drafts, draft, err) != 0) || relations_store(daemon, drafts, draft, err) != 0 ||
            place(daemon, draft, err) != 0 || core_change(daemon, draft->row.id, RUN_QUEUED, "submitted", "user", err) != 0)
            return -1;
    }
    return 0;
}

// Under the lock: names, files, then rows and places in one transaction.
static int store(struct daemon *daemon, struct drafts *drafts, const struct json *body, struct answer *answer)
{
    struct error *err = &answer->error;
    drop_shared(daemon, drafts);
    if (assign_names(daemon, drafts, answer) != 0)
        return -1;
    for (size_t i = 0; i < drafts->count; i++)
        if (!drafts->at[i].dropped && write_files(daemon, drafts, &drafts->at[i], err) != 0)
            return -1;
    if (begin(daemon, answer) != 0)
        return -1;
    if (add_rows(daemon, drafts, body, err) != 0) {
        state_rollback(daemon->state);
        return -1;
    }
    int status = state_commit(daemon->state, err);
    if (status != 0)
        answer->status = 500;
    return status;
}

// What became of it: the runs, and the stages that were asked for and whose data is there or on its way.
static struct json *describe(const struct drafts *drafts)
{
    struct json *answer = js_object(), *runs = js_array(), *left_out = js_array();
    for (size_t i = 0; i < drafts->count; i++) {
        const struct run_row *row = &drafts->at[i].row;
        if (drafts->at[i].dropped && i < drafts->first)
            continue; // nobody asked for it by name
        struct json *run = js_object();
        js_set(run, "project", js_string(row->project));
        size_t length = strlen(row->name);
        bool numbered = length && row->name[length - 1] != '-'; // what is left out got no number
        char *name = string_format("%.*s", (int)(numbered ? length : length - 1), row->name);
        js_set(run, "name", js_string(name));
        free(name);
        js_set(run, "run_id", js_string(row->run_id));
        js_set(run, "kind", js_string(row->kind));
        if (drafts->at[i].dropped)
            js_set(run, "reason", js_string(drafts->at[i].instead ? "another run makes its data already" : "its data is there already"));
        js_append(drafts->at[i].dropped ? left_out : runs, run);
    }
    js_set(answer, "runs", runs);
    js_set(answer, "left_out", left_out);
    return answer;
}

void daemon_submit(struct daemon *daemon, const struct json *body, struct answer *answer)
{
    struct drafts drafts;
    if (drafts_prepare(daemon, &drafts, body, answer) != 0)
        return;
    answer->status = 400;
    pthread_mutex_lock(&daemon->lock);
    int status = store(daemon, &drafts, body, answer);
    pthread_mutex_unlock(&daemon->lock);
    if (status == 0) {
        answer->body = describe(&drafts);
        answer->status = 201;
    }
    drafts_release(&drafts, status != 0);
    daemon_wake(daemon);
}
