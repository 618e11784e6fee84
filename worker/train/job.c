// Reading run.json. The daemon wrote it, or a person did: everything is checked again.
#include "worker/train/job.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RUN_FILE_MAX = 64 << 20, PREFIXES_MAX = 32767 };

static const char *text_at(const struct json *object, const char *key)
{
    return js_string_of(js_get(object, key), NULL);
}

static int read_identity(struct job *job, const char *path, const char *kind, struct error *err)
{
    const char *actual = text_at(job->run, "kind");
    if (!actual || strcmp(actual, kind) != 0)
        return error_set(err, "%s: this is a run of kind \"%s\", and one of kind \"%s\" is needed", path, actual ? actual : "(absent)", kind);
    job->project = text_at(job->run, "project");
    job->name = text_at(job->run, "name");
    job->run_id = text_at(job->run, "run_id");
    if (!job->project || !job->name || !job->run_id)
        return error_set(err, "%s: project, name and run_id must be strings", path);
    return 0;
}

static int read_parts(struct job *job, const char *path, struct error *err)
{
    const struct json *prefixes = js_get(js_get(job->run, "data"), "prefixes");
    job->part_count = js_count(prefixes);
    if (js_kind(prefixes) != JSON_KIND_ARRAY || job->part_count == 0 || job->part_count > PREFIXES_MAX)
        return error_set(err, "%s: data.prefixes must be an array of 1 to %d objects", path, PREFIXES_MAX);
    job->parts = allocate(job->part_count, sizeof *job->parts);
    for (size_t i = 0; i < job->part_count; i++) {
        const struct json *item = js_at(prefixes, i);
        job->parts[i].prefix = text_at(item, "path");
        job->parts[i].weight = js_real_of(js_get(item, "weight"), 0);
        if (!job->parts[i].prefix || !isfinite(job->parts[i].weight))
            return error_set(err, "%s: data.prefixes[%zu] needs a path and a finite weight", path, i);
    }
    return 0;
}

// "from": a checkpoint directory as it is, or a step (0: the last complete one) of a run directory.
static int read_from(struct job *job, const char *path, struct error *err)
{
    const struct json *from = js_get(job->run, "from");
    if (js_kind(from) == JSON_KIND_NULL)
        return 0;
    const char *checkpoint = text_at(from, "checkpoint"), *directory = text_at(from, "run_directory");
    int64_t step = js_integer_of(js_get(from, "step"), 0);
    if (checkpoint) {
        job->from = string_copy(checkpoint);
        return 0;
    }
    if (!directory)
        return error_set(err, "%s: from needs a checkpoint or a run_directory", path);
    int64_t found = step > 0 ? step : run_last_checkpoint(directory);
    if (found < 0)
        return error_set(err, "%s: no complete checkpoint to start from", directory);
    job->from = run_checkpoint_directory(directory, found);
    return 0;
}

int job_open(struct job *job, const char *run_directory, const char *kind, struct error *err)
{
    *job = (struct job){.run_directory = path_absolute(run_directory, NULL)};
    spec_init(&job->spec);
    char *path = path_join(job->run_directory, RUN_FILE);
    int status = -1;
    job->run = js_read_file(path, RUN_FILE_MAX, err);
    if (!job->run || read_identity(job, path, kind, err) != 0)
        goto out;
    if (strcmp(kind, "train") == 0) {
        spec_release(&job->spec);
        if (spec_from_json(&job->spec, js_get(job->run, "spec"), err) != 0 || spec_runnable(&job->spec, err) != 0) {
            error_context(err, "%s: spec", path);
            goto out;
        }
        if (read_parts(job, path, err) != 0 || read_from(job, path, err) != 0)
            goto out;
    }
    status = 0;
out:
    free(path);
    return status;
}

void job_release(struct job *job)
{
    spec_release(&job->spec);
    js_free(job->run);
    free(job->parts);
    free(job->from);
    free(job->run_directory);
}

int job_claim(struct job *job, struct error *err)
{
    const char *given = getenv(ATTEMPT_VARIABLE);
    char *end = NULL;
    int64_t number = given ? strtoll(given, &end, 10) : run_last_attempt(job->run_directory) + 1;
    if (number < 1 || (given && *end))
        return error_set(err, "%s=%s: expected the number of an attempt", ATTEMPT_VARIABLE, given ? given : "");
    for (;; number++) {
        char *directory = run_attempt_directory(job->run_directory, number);
        int made = mkdir(directory, 0777);
        int fault = made == 0 ? 0 : errno;
        if (fault && (fault != EEXIST))
            error_errno(err, "%s: cannot make this directory", directory);
        free(directory);
        if (fault && fault != EEXIST)
            return -1;
        if (made == 0 || given) {
            job->attempt = number;
            return 0;
        }
    }
}

bool job_is_fenced(const struct job *job)
{
    return run_last_attempt(job->run_directory) > job->attempt;
}

int agree(struct comm *world, int status, struct error *err)
{
    int64_t mine = status != 0, *all = allocate((size_t)world->size, sizeof *all), first = -1;
    world->ops->allgather(world, all, &mine, sizeof mine);
    for (int64_t r = world->size - 1; r >= 0; r--)
        if (all[r])
            first = r;
    free(all);
    if (first < 0)
        return 0;
    if (first > 0 && world->rank == first)
        error_context(err, "rank %lld", (long long)first);
    world->ops->broadcast(world, err, sizeof *err, first);
    return -1;
}
