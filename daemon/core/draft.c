#include "daemon/core/draft.h"
#include "daemon/core/dataset.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/base/patch.h"
#include "schema/record/layout.h"
#include "schema/shape/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct draft *add_draft(struct drafts *drafts, const char *kind)
{
    struct draft *draft = &drafts->at[drafts->count++];
    *draft = (struct draft){.from_sibling = FROM_NONE};
    draft->row.created = clock_wall();
    draft->row.executor = string_copy("local");
    snprintf(draft->row.kind, sizeof draft->row.kind, "%s", kind);
    random_hex(draft->row.run_id, 32);
    return draft;
}

void drafts_release(struct drafts *drafts, bool undo)
{
    for (size_t i = 0; i < drafts->count; i++)
        draft_remove(&drafts->at[i], undo);
    for (size_t i = 0; i < 2 * drafts->count && undo; i++)
        draft_remove_parents(&drafts->at[i % drafts->count], i >= drafts->count);
    for (size_t i = 0; i < drafts->count; i++) {
        struct draft *draft = &drafts->at[i];
        run_row_release(&draft->row);
        if (draft->spec_held)
            spec_release(&draft->spec);
        free(draft->root);
        free(draft->staging);
        free(draft->text_path);
        free(draft->from_directory);
    }
    free(drafts->at);
    js_free(drafts->makers);
    *drafts = (struct drafts){0};
}

// ---- the spec ----

// What is the same as in another spec is the same value: ten thousand trials are not ten thousand times as large.
static void share_with(struct json *spec, const struct json *other)
{
    for (void *i = js_first(other); i; i = js_next(other, i)) {
        const struct json *own = js_get(spec, js_key(i));
        if (own && js_equal(own, js_value(i)))
            js_set(spec, js_key(i), js_keep(js_value(i)));
    }
}

int draft_make_plan(struct draft *draft, struct error *err)
{
    struct plan plan;
    if (plan_init(&plan, &draft->spec, err) != 0)
        return -1;
    draft->row.plan = plan_to_json(&plan, &draft->spec);
    return 0;
}

void draft_forget_documents(struct draft *draft)
{
    js_free(draft->row.spec);
    js_free(draft->row.plan);
    js_free(draft->row.provenance);
    draft->row.spec = draft->row.plan = draft->row.provenance = NULL;
}

// A run is a whole spec, or {"like": i, "change": {…}}: run i of these, with a merge patch. js_free()
static struct json *run_of(const struct json *runs, size_t index, struct error *err)
{
    const struct json *run = js_at(runs, index), *like = js_get(run, "like");
    if (!like)
        return js_keep(run);
    const struct json *base = js_at(runs, (size_t)js_integer_of(like, INT64_MAX));
    if (js_kind(base) == JSON_KIND_OBJECT && !js_get(base, "like"))
        return js_patched(base, js_get(run, "change"));
    error_set(err, "runs[%zu]: like is the index of a run that is given in full", index);
    return NULL;
}

static int read_spec(struct draft *draft, const struct json *resolved, const char *name, const struct draft *before, struct error *err)
{
    if (spec_from_json(&draft->spec, resolved, err) != 0)
        return -1;
    draft->has_spec = draft->spec_held = true;
    struct spec *spec = &draft->spec;
    if (spec_runnable(spec, err) != 0)
        return -1;
    free(draft->row.executor);
    draft->row.executor = string_copy(spec->executor == EXECUTOR_SLURM ? "slurm" : "local");
    struct plan plan;
    if (plan_init(&plan, spec, err) != 0)
        return -1;
    draft->row.spec = spec_to_json(spec);
    if (before)
        share_with(draft->row.spec, before->row.spec);
    draft->row.iterations = spec->training.iterations;
    snprintf(draft->row.project, sizeof draft->row.project, "%s", spec->project);
    int length = name ? snprintf(draft->row.name, sizeof draft->row.name, "%s", name)
                      : snprintf(draft->row.name, sizeof draft->row.name, "%s-", spec->name);
    if (length >= (int)sizeof draft->row.name || !draft->row.project[0] || length == 0)
        return error_set(err, "a run needs a project and a name of at most %zu characters", sizeof draft->row.name - 1);
    return 0;
}

// A run that could never start is not taken in.
static int fits_machine(struct daemon *daemon, const struct spec *spec, struct error *err)
{
    pthread_mutex_lock(&daemon->lock);
    size_t gpus = daemon->machine.gpus.count;
    pthread_mutex_unlock(&daemon->lock);
    if (spec->executor == EXECUTOR_LOCAL && spec->resources.gpus_per_node > (int64_t)gpus)
        return error_set(err, "resources.gpus_per_node: %lld, and this machine has %zu GPUs to give (serve --gpus declares them)",
            (long long)spec->resources.gpus_per_node, gpus);
    return 0;
}

// ---- its data ----

static int need_file(const char *path, const char *key, struct error *err)
{
    struct stat info;
    if (path[0] != '/')
        return error_set(err, "%s: '%s' is not an absolute path", key, path);
    if (stat(path, &info) != 0)
        return error_errno(err, "%s: %s", key, path);
    if (!S_ISREG(info.st_mode))
        return error_set(err, "%s: %s is not a file", key, path);
    return access(path, R_OK) == 0 ? 0 : error_errno(err, "%s: %s", key, path);
}

static int need_pair(const char *prefix, struct error *err)
{
    static const char *const ends[] = {".bin", ".idx"};
    for (size_t i = 0; i < 2; i++) {
        char *path = string_format("%s%s", prefix, ends[i]);
        int status = need_file(path, "data.prefix", err);
        free(path);
        if (status != 0)
            return -1;
    }
    return 0;
}

static int look_at_data(struct drafts *drafts, size_t index, struct error *err)
{
    struct draft *draft = &drafts->at[index];
    const struct spec_data *data = &draft->spec.data;
    const struct json *json = js_get(draft->row.spec, "data");
    const struct draft *before = index ? &drafts->at[index - 1] : NULL;
    if (before && before->key[0] && js_equal(json, js_get(before->row.spec, "data"))) { // trials read the same text: it is hashed once
        draft->text_path = string_copy(data->text);
        memcpy(draft->key, before->key, sizeof draft->key);
        return 0;
    }
    if (data->text) {
        if (need_file(data->text, "data.text", err) != 0)
            return -1;
        draft->text_path = string_copy(data->text);
        return dataset_key(draft->key, data->text, js_string_of(js_get(json, "document"), ""), data->json_key, data->tokenizer, err);
    }
    if (data->manifest)
        return need_file(data->manifest, "data.manifest", err);
    if (data->prefix)
        return need_pair(data->prefix, err);
    return error_set(err, "data: one of text, prefix, manifest must say what to train on");
}

static int fits(const struct spec *spec, const struct spec *source, const char *name, struct error *err)
{
    struct text why;
    text_init(&why, 4096);
    int status = spec_fits_source(&why, spec, source, name) ? 0 : error_set(err, "model.from.run: %s", why.at);
    text_release(&why);
    return status;
}

// Against a run that was stored before; one that another build stored, which this one cannot read, is left to the worker to judge.
static int fits_stored(const struct spec *spec, const struct run_row *row, struct error *err)
{
    struct spec source;
    if (!row->spec || spec_from_json(&source, row->spec, NULL) != 0)
        return 0;
    int status = fits(spec, &source, row->name, err);
    spec_release(&source);
    return status;
}

// It has not come to its end; what it has saved on the way may be what is wanted all the same.
static int refuse_unfinished(const struct run_row *row, struct error *err)
{
    int64_t step = run_last_checkpoint(row->directory);
    const char *be = row->state == RUN_FAILED ? "" : "is ", *state = run_state_name(row->state);
    if (step < 0)
        return error_set(err, "model.from.run: %s/%s %s%s, and saved no weights", row->project, row->name, be, state);
    char *directory = run_checkpoint_directory(row->directory, step);
    error_set(err, "model.from.run: %s/%s %s%s; `model.from: {path: %s}` starts from its last checkpoint, of step %lld, all the same", row->project,
        row->name, be, state, directory, (long long)step);
    free(directory);
    return -1;
}

static int look_at_from(struct daemon *daemon, struct drafts *drafts, size_t index, const struct json *names, struct error *err)
{
    struct draft *draft = &drafts->at[index];
    const struct spec_from *from = &draft->spec.model.from;
    struct stat info;
    if (from->path && (stat(from->path, &info) != 0 || !S_ISDIR(info.st_mode)))
        return error_set(err, "model.from.path: %s is not a directory", from->path);
    if (from->path && !directory_has(from->path, COMPLETE_FILE) && !directory_has(from->path, "config.json"))
        return error_set(err, "model.from.path: %s is neither a complete checkpoint (%s is missing) nor a model of transformers (config.json is)",
            from->path, COMPLETE_FILE);
    if (!from->run)
        return 0;
    int64_t sibling = js_integer_of(js_get(names, from->run), FROM_NONE);
    if (sibling != FROM_NONE && sibling != (int64_t)index) {
        draft->from_sibling = (ptrdiff_t)sibling;
        return fits(&draft->spec, &drafts->at[sibling].spec, from->run, err);
    }
    struct run_row row;
    const char *slash = strchr(from->run, '/');
    pthread_mutex_lock(&daemon->lock);
    int found = slash ? state_resolve_run(daemon->state, from->run, &row, err)
                      : state_find_run(daemon->state, draft->row.project, from->run, &row, err);
    pthread_mutex_unlock(&daemon->lock);
    if (found != 0)
        return error_set(err, "model.from.run: there is no run '%s' in this submission or in project %s", from->run, draft->row.project);
    draft->from_run = row.id;
    draft->from_directory = string_copy(row.directory);
    int status = 0;
    if (run_state_ended(row.state) && row.state != RUN_SUCCEEDED)
        status = refuse_unfinished(&row, err);
    else if (run_state_ended(row.state) && run_last_checkpoint(row.directory) < 0)
        status = error_set(err, "model.from.run: %s/%s saved no weights to start from (its checkpoint.interval is 0)", row.project, row.name);
    else if (run_state_ended(row.state) && from->step > 0 && !run_has_checkpoint(row.directory, from->step))
        status = error_set(err, "model.from.step: %s/%s has no complete checkpoint of step %lld; its last one is of step %lld", row.project, row.name,
            (long long)from->step, (long long)run_last_checkpoint(row.directory));
    if (status == 0)
        status = fits_stored(&draft->spec, &row, err);
    run_row_release(&row);
    return status;
}

// ---- the stages that make it ----

static struct json *tokenize_spec(struct daemon *daemon, const struct draft *user)
{
    const struct json *data = js_get(user->row.spec, "data");
    char *prefix = dataset_prefix(daemon->home, user->key);
    struct json *spec = js_object();
    js_set(spec, "tokenize", dataset_tokenize(&user->spec.data, js_string_of(js_get(data, "document"), ""), user->text_path, prefix));
    const struct json *retry = js_get(user->row.spec, "retry");
    if (retry)
        js_set(spec, "retry", js_keep(retry));
    free(prefix);
    return spec;
}

// A stage that makes this run's data, beside the run, once for all that need the same.
static void add_tokenize(struct daemon *daemon, struct drafts *drafts, struct drafts *stages, struct json *made, size_t index)
{
    const struct draft *user = &drafts->at[index];
    if (!user->key[0] || js_get(made, user->key))
        return;
    js_set(made, user->key, js_boolean(true));
    if (dataset_is_complete(daemon->home, user->key))
        return;
    struct draft *stage = add_draft(stages, "tokenize");
    stage->user = (ptrdiff_t)index;
    free(stage->row.executor);
    stage->row.executor = string_copy(user->row.executor);
    memcpy(stage->row.project, user->row.project, sizeof stage->row.project);
    strcpy(stage->row.name, "tokenize-");
    memcpy(stage->key, user->key, sizeof stage->key);
    stage->row.dataset_key = string_copy(user->key);
    stage->text_path = string_copy(user->text_path);
    stage->root = string_copy(user->root);
    stage->row.spec = tokenize_spec(daemon, user);
}

// A draft that was asked for as a stage of its own: of its spec only the data counts.
static int make_stage(struct daemon *daemon, struct draft *draft, struct error *err)
{
    if (!draft->key[0])
        return error_set(err, "a stage that tokenizes needs data.text");
    struct json *spec = tokenize_spec(daemon, draft);
    js_free(draft->row.spec);
    draft->row.spec = spec;
    draft->row.iterations = 0;
    draft->row.dataset_key = string_copy(draft->key);
    strcpy(draft->row.kind, "tokenize");
    draft->has_spec = false;
    return 0;
}

// ---- all of it ----

static int check_shape(const struct json *body, size_t *count, struct error *err)
{
    const struct json *runs = js_get(body, "runs");
    *count = js_count(runs);
    if (js_kind(runs) != JSON_KIND_ARRAY || *count == 0 || *count > SUBMISSION_RUNS_MAX)
        return error_set(err, "a submission has 1 to %d runs, this one has %zu: choose some with --run", SUBMISSION_RUNS_MAX, *count);
    if (js_string_of(js_get(body, "name"), NULL) && *count > 1)
        return error_set(err, "--name names one run, this submission has %zu: choose one with --run", *count);
    return relations_check(body, *count, err);
}

static int read_runs(struct daemon *daemon, struct drafts *drafts, const struct json *body, size_t count, struct submission *submission, struct error *err)
{
    const char *name = js_string_of(js_get(body, "name"), NULL);
    for (size_t i = 0; i < count; i++) {
        struct draft *draft = add_draft(drafts, "train");
        draft->relation = relation_of(body, i);
        struct json *resolved = run_of(js_get(body, "runs"), i, err);
        int status = resolved ? read_spec(draft, resolved, name, i ? draft - 1 : NULL, err) : -1;
        js_free(resolved);
        if (status != 0 || submission_step(daemon, submission, 1, err) != 0)
            return -1;
    }
    return 0;
}

static int check_runs(struct daemon *daemon, struct drafts *drafts, struct error *err)
{
    struct json *names = js_object(); // the first of each name
    int status = 0;
    for (size_t i = 0; i < drafts->count; i++)
        if (!js_get(names, drafts->at[i].spec.name))
            js_set(names, drafts->at[i].spec.name, js_integer((int64_t)i));
    for (size_t i = 0; i < drafts->count && status == 0; i++)
        if (fits_machine(daemon, &drafts->at[i].spec, err) != 0 || look_at_data(drafts, i, err) != 0 ||
            look_at_from(daemon, drafts, i, names, err) != 0)
            status = error_context(err, "%s", drafts->at[i].spec.name);
    for (size_t i = 0; i < drafts->count && status == 0; i++)
        if (strcmp(js_string_of(js_get(drafts->at[i].relation, "kind"), "train"), "tokenize") == 0 &&
            make_stage(daemon, &drafts->at[i], err) != 0)
            status = error_context(err, "%s", drafts->at[i].spec.name);
    js_free(names);
    return status;
}

// Puts the stages in front; sibling references move with them.
static void join_stages(struct daemon *daemon, struct drafts *drafts, struct drafts *stages)
{
    struct json *made = js_object(); // {key: true} of what some stage makes, or has made
    for (size_t i = 0; i < drafts->count; i++)
        if (!drafts->at[i].has_spec)
            js_set(made, drafts->at[i].key, js_boolean(true));
    for (size_t i = 0; i < drafts->count; i++) {
        struct draft *draft = &drafts->at[i];
        draft->user = (ptrdiff_t)i;
        draft->root = draft->spec.output ? string_copy(draft->spec.output) : path_join(daemon->home, "runs");
        if (draft->has_spec)
            add_tokenize(daemon, drafts, stages, made, i);
    }
    js_free(made);
    for (size_t i = 0; i < stages->count; i++)
        stages->at[i].user += (ptrdiff_t)stages->count;
    for (size_t i = 0; i < drafts->count; i++) {
        drafts->at[i].user += (ptrdiff_t)stages->count;
        if (drafts->at[i].from_sibling != FROM_NONE)
            drafts->at[i].from_sibling += (ptrdiff_t)stages->count;
        stages->at[stages->count + i] = drafts->at[i];
    }
    stages->first = stages->count;
    stages->count += drafts->count;
    free(drafts->at);
    *drafts = *stages;
    drafts->makers = js_object();
    for (size_t i = drafts->count; i-- > 0;)
        if (!drafts->at[i].has_spec)
            js_set(drafts->makers, drafts->at[i].key, js_integer((int64_t)i));
}

int drafts_prepare(struct daemon *daemon, struct drafts *drafts, const struct json *body, struct submission *submission, struct answer *answer)
{
    struct error *err = &answer->error;
    size_t count = 0;
    answer->status = 400;
    if (check_shape(body, &count, err) != 0)
        return -1;
    struct drafts stages = {.at = allocate(2 * count, sizeof *stages.at)};
    *drafts = (struct drafts){.at = allocate(count, sizeof *drafts->at)};
    submission_phase(submission, "checking");
    if (read_runs(daemon, drafts, body, count, submission, err) == 0 && check_runs(daemon, drafts, err) == 0) {
        join_stages(daemon, drafts, &stages);
        return 0;
    }
    free(stages.at);
    drafts_release(drafts, true);
    return -1;
}
