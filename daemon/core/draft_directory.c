// A draft on the disk: its directory, prepared beside its place under a name of its own, what is written into it, how it comes into its place in
// one step, and how it goes again.
#include "daemon/core/dataset.h"
#include "daemon/core/draft.h"
#include "daemon/record/provenance.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *draft_staging(const char *directory, const char *run_id)
{
    return string_format("%.*s/.new-%s", (int)(strrchr(directory, '/') - directory), directory, run_id);
}

void draft_free_name(const struct draft *draft)
{
    char *staging = draft_staging(draft->row.directory, draft->row.run_id), *aside = string_format("%s-old", staging);
    if (rename(draft->row.directory, aside) == 0)
        directory_remove(aside, NULL);
    free(aside);
    free(staging);
}

void draft_remove(struct draft *draft, bool undo)
{
    if (draft->staging)
        directory_remove(draft->staging, NULL);
    if (undo && draft->placed)
        draft_free_name(draft);
}

void draft_remove_parents(struct draft *draft, bool root)
{
    if (!draft->root || !draft->row.project[0])
        return;
    char *project = path_join(draft->root, draft->row.project);
    if (!root)
        rmdir(project);
    else if (draft->root_made)
        rmdir(draft->root);
    free(project);
}

// ---- made ----

bool draft_same_place(const struct draft *a, const struct draft *b)
{
    return a && strcmp(a->root, b->root) == 0 && strcmp(a->row.project, b->row.project) == 0;
}

// before: a draft whose directory is there.
static int make_staging(struct draft *draft, const struct draft *before, struct error *err)
{
    bool there = draft_same_place(before, draft);
    draft->root_made = !there && !file_exists(draft->root);
    char *project = path_join(draft->root, draft->row.project);
    int status = there ? 0 : directory_make(project, err);
    if (status == 0) {
        draft->staging = draft_staging(draft->row.directory, draft->row.run_id);
        if (mkdir(draft->staging, 0777) != 0) {
            status = error_errno(err, "%s: cannot write here", project);
            free(draft->staging);
            draft->staging = NULL;
        }
    }
    free(project);
    return status == 0 ? 0 : error_context(err, "output");
}

// What a record tells of, and a trial seldom changes.
static bool same_record(const struct draft *a, const struct draft *b)
{
    static const char *const sections[] = {"code", "image", "data", "environment"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const struct json *one = js_get(a->row.spec, sections[i]), *other = js_get(b->row.spec, sections[i]);
        if (!one != !other || (one && !js_equal(one, other)))
            return false;
    }
    return true;
}

static int collect_record(struct daemon *daemon, struct draft *draft, const struct draft *before, const struct json *body, struct error *err)
{
    if (before && same_record(before, draft)) {
        draft->row.provenance = provenance_share(before->row.provenance, before->staging, draft->staging, err);
    } else {
        char *digests = path_join(daemon->home, "digests.json"); // of large files, so that they are not hashed for each run
        struct provenance_request request = {.spec = &draft->spec,
            .environment = js_get(body, "environment"),
            .directory = draft->staging,
            .worker = daemon->worker,
            .digests = digests};
        draft->row.provenance = provenance_collect_for(&request, err);
        free(digests);
    }
    return draft->row.provenance ? 0 : -1;
}

int draft_make_directory(struct daemon *daemon, struct draft *draft, const struct draft *before, const struct json *body, struct error *err)
{
    if (make_staging(draft, before, err) != 0)
        return -1;
    return draft->has_spec ? collect_record(daemon, draft, before, body, err) : 0;
}

// ---- files ----

static int write_json(const char *directory, const char *name, const struct json *json, struct error *err)
{
    struct text bytes;
    text_init(&bytes, SPEC_TEXT_MAX);
    js_write_pretty(&bytes, json);
    char *path = path_join(directory, name);
    int status = bytes.overflowed ? error_set(err, "%s: larger than %d bytes", path, SPEC_TEXT_MAX)
                                  : file_write_new(path, bytes.at, bytes.length, 0600, err);
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

int draft_write_files(struct daemon *daemon, const struct drafts *drafts, struct draft *draft, struct slurm_tally *tally, struct error *err)
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
    if (strcmp(draft->row.executor, "slurm") == 0)
        slurm_tally_add(tally, &launch, draft->row.directory);
    js_free(run);
    js_free(job);
    launch_release(&launch);
    return status;
}

// ---- its place ----

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

int draft_place(struct daemon *daemon, struct draft *draft, struct error *err)
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
    draft->placed = true;
    free(draft->staging);
    draft->staging = NULL;
    return 0;
}
