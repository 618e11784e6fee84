#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/shape/cost.h"
#include "worker/train/checkpoint.h"
#include "worker/weights/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILES_PER_RANK = 5, FILE_NAME = 96 };

struct written { // one file; travels between ranks as bytes
    char name[FILE_NAME];
    int64_t bytes;
    char hex[HASH_HEX];
};

struct own { // which tensors this rank writes
    bool dense, experts;
    int64_t part, parts; // of the model's files, from 1
};

static struct own what_is_mine(const struct training_state *state)
{
    const struct parallel *parallel = state->model->parallel;
    struct own own = {.dense = state->world->rank == 0};
    own.experts = state->model->experts.count > 0 && parallel->edp->rank == 0;
    own.parts = state->model->experts.count > 0 ? 1 + parallel->ep->size : 1;
    own.part = 2 + parallel->ep->rank;
    return own;
}

static void file_name(char out[FILE_NAME], const char *kind, int64_t part, int64_t parts)
{
    if (parts == 1)
        snprintf(out, FILE_NAME, "%s.safetensors", kind);
    else
        snprintf(out, FILE_NAME, "%s-%05lld-of-%05lld.safetensors", kind, (long long)part, (long long)parts);
}

static void name_entry(struct tensor_entry *entry, const struct param *param, const char *suffix, const void *source)
{
    snprintf(entry->name, sizeof entry->name, "%s%s", param->name, suffix);
    bool vector = param->init != INIT_NORMAL; // norms and biases; a matrix may have one row too
    entry->dimensions = vector ? 1 : 2;
    entry->shape[0] = vector ? param->columns : param->rows;
    entry->shape[1] = vector ? 1 : param->columns;
    entry->dtype = "F32";
    entry->source = source;
}

// The entries of one file: of this kind (model or optimizer), experts or the others.
static struct tensor_entry *list_entries(const struct training_state *state, bool experts, bool optimizer, size_t *count)
{
    const struct param_table *table = &state->model->table;
    struct tensor_entry *entries = allocate(2 * table->count, sizeof *entries);
    *count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        if (!param->resident || (param->expert >= 0) != experts)
            continue;
        if (!optimizer)
            name_entry(&entries[(*count)++], param, "", model_param(state->model, param));
        else {
            name_entry(&entries[(*count)++], param, ".exp_avg", optimizer_state(state->optimizer, param, MOMENT_FIRST));
            name_entry(&entries[(*count)++], param, ".exp_avg_sq", optimizer_state(state->optimizer, param, MOMENT_SECOND));
        }
    }
    return entries;
}

// Device reals are floats in every run that saves; the fp64 reference is for gradient checks only.
static void fetch(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes)
{
    const struct device *device = context;
    device->memory->read_back(host, (const char *)entry->source + at, bytes);
}

static void fetch_extra(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes)
{
    (void)context;
    memcpy(host, (const char *)entry->source + at, bytes);
}

static int write_file(const struct training_state *state, const char *directory, const struct own *own, bool experts, bool optimizer,
    struct written *written, struct error *err)
{
    file_name(written->name, optimizer ? "optimizer" : "model", experts ? own->part : 1, own->parts);
    size_t count;
    struct tensor_entry *entries = list_entries(state, experts, optimizer, &count);
    char *path = path_join(directory, written->name);
    int status = safetensors_write(path, entries, count, fetch, (void *)(uintptr_t)state->model->device, &written->bytes, written->hex, err);
    free(path);
    free(entries);
    return status;
}

static int write_extra(const struct training_state *state, const char *directory, struct written *written, struct error *err)
{
    const struct extra_states *extra = state->extra;
    struct tensor_entry *entries = allocate(extra->count, sizeof *entries);
    for (size_t i = 0; i < extra->count; i++) {
        const struct extra_state *item = &extra->items[i];
        entries[i] = (struct tensor_entry){.shape = {item->count, 1}, .dimensions = 1, .dtype = extra_dtype(item->kind), .source = item->values};
        snprintf(entries[i].name, sizeof entries[i].name, "%s", item->name);
    }
    file_name(written->name, "extra", 1, 1);
    char *path = path_join(directory, written->name);
    int status = safetensors_write(path, entries, extra->count, fetch_extra, NULL, &written->bytes, written->hex, err);
    free(path);
    free(entries);
    return status;
}

static int write_tensors(const struct training_state *state, const char *directory, struct written *written, struct error *err)
{
    const struct own own = what_is_mine(state);
    int status = 0;
    for (int i = 0; i < 4 && status == 0; i++) {
        bool experts = i & 1, optimizer = i & 2;
        if (experts ? own.experts : own.dense)
            status = write_file(state, directory, &own, experts, optimizer, &written[i], err);
    }
    if (status == 0 && state->world->rank == 0 && state->extra->count > 0)
        status = write_extra(state, directory, &written[4], err);
    return status;
}

static int write_json(const char *directory, const char *name, const struct json *json, struct written *written, struct error *err)
{
    struct text text;
    text_init(&text, 1 << 28);
    js_write_pretty(&text, json);
    char *path = path_join(directory, name);
    int status = file_write_atomic(path, text.at, text.length, 0644, err);
    if (written) {
        snprintf(written->name, sizeof written->name, "%s", name);
        written->bytes = (int64_t)text.length;
        hash_bytes(written->hex, text.at, text.length);
    }
    free(path);
    text_release(&text);
    return status;
}

// Hugging Face's map: which file holds which tensor. Tensors of other ranks are known from the table.
static struct json *weight_map(const struct training_state *state)
{
    const struct param_table *table = &state->model->table;
    struct json *index = js_object(), *metadata = js_object(), *map = js_object();
    int64_t ep = state->model->parallel->ep->size, total = 0;
    char name[FILE_NAME];
    for (size_t i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        int64_t local = layer_local_experts(table, state->model->spec, param->layer);
        file_name(name, "model", param->expert >= 0 ? 2 + param->expert / local : 1, 1 + ep);
        js_set(map, param->name, js_string(name));
        total += (int64_t)(param_elements(param) * sizeof(float));
    }
    js_set(metadata, "total_size", js_integer(total));
    js_set(index, "metadata", metadata);
    js_set(index, "weight_map", map);
    return index;
}

static struct json *trainer_json(const struct training_state *state)
{
    const struct spec *spec = &state->job->spec;
    struct json *json = js_object();
    js_set(json, "v", js_integer(1));
    js_set(json, "run_id", js_string(state->job->run_id));
    js_set(json, "attempt", js_integer(state->job->attempt));
    js_set(json, "step", js_integer(state->step));
    int64_t samples = samples_before(spec, state->step + 1);
    js_set(json, "samples", js_integer(samples));
    js_set(json, "tokens", js_integer(samples * spec->data.sequence_length));
    js_set(json, "seed", js_integer(spec->training.seed));
    js_set(json, "data", js_keep(state->identity));
    js_set(json, "schedule", schedule_identity(spec));
    return json;
}

// Rank 0: what is small, and the list of all files.
static int write_small(const struct training_state *state, const char *directory, struct json **complete, const struct written *all, size_t count,
    int64_t *bytes, struct error *err)
{
    struct written small[2] = {0};
    struct json *trainer = trainer_json(state);
    int status = write_json(directory, "trainer.json", trainer, &small[0], err);
    js_free(trainer);
    if (status == 0 && state->model->experts.count > 0) {
        struct json *index = weight_map(state);
        status = write_json(directory, "model.safetensors.index.json", index, &small[1], err);
        js_free(index);
    }
    struct json *files = js_array();
    *bytes = 0;
    for (size_t i = 0; i < count + 2; i++) {
        const struct written *file = i < count ? &all[i] : &small[i - count];
        if (!file->name[0])
            continue;
        struct json *item = js_object();
        js_set(item, "name", js_string(file->name));
        js_set(item, "bytes", js_integer(file->bytes));
        js_set(item, "sha256", js_string(file->hex));
        js_append(files, item);
        *bytes += file->bytes;
    }
    *complete = js_object();
    js_set(*complete, "v", js_integer(1));
    js_set(*complete, "step", js_integer(state->step));
    js_set(*complete, "files", files);
    return status;
}

static int check_fence(const struct job *job, struct error *err)
{
    if (!job_is_fenced(job))
        return 0;
    return error_set(err, "attempt %lld is fenced: attempt %lld exists and is the run's only writer", (long long)job->attempt,
        (long long)run_last_attempt(job->run_directory));
}

static int sync_directory(const char *path, struct error *err)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = descriptor < 0 || fsync(descriptor) != 0 ? error_errno(err, "%s", path) : 0;
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

// Rank 0: the rename and the mark that make it a checkpoint.
static int publish(const struct training_state *state, const char *temporary, const char *final, const struct json *complete, struct error *err)
{
    if (sync_directory(temporary, err) != 0 || check_fence(state->job, err) != 0 || directory_remove(final, err) != 0)
        return -1;
    if (rename(temporary, final) != 0)
        return error_errno(err, "%s", final);
    if (check_fence(state->job, err) != 0)
        return -1;
    return write_json(final, COMPLETE_FILE, complete, NULL, err);
}

// The mark goes first: a directory half removed is no checkpoint.
static void remove_checkpoint(const char *directory)
{
    char *mark = path_join(directory, COMPLETE_FILE);
    unlink(mark);
    directory_remove(directory, NULL);
    free(mark);
}

enum { LISTED_MAX = 4096 };

// Lists the steps of complete checkpoints, and removes what killed attempts left half-written.
static size_t list_steps(const char *parent, int64_t steps[LISTED_MAX])
{
    DIR *listing = opendir(parent);
    size_t count = 0;
    for (struct dirent *entry; listing && (entry = readdir(listing)) && count < LISTED_MAX;) {
        char *directory = path_join(parent, entry->d_name), *mark = path_join(directory, COMPLETE_FILE), *end;
        long long step = strncmp(entry->d_name, "step-", 5) == 0 ? strtoll(entry->d_name + 5, &end, 10) : -1;
        if (step >= 0 && *end == 0 && file_exists(mark))
            steps[count++] = step;
        else if (step >= 0 && (*end == 0 || strcmp(end, ".tmp") == 0))
            remove_checkpoint(directory);
        free(mark);
        free(directory);
    }
    if (listing)
        closedir(listing);
    return count;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Rank 0, right after a save: removes all but the newest `keep` complete checkpoints (0: keeps all of them).
static void remove_old(const struct job *job)
{
    int64_t steps[LISTED_MAX], keep = job->spec.checkpoint.keep;
    char *parent = path_join(job->run_directory, "checkpoints");
    size_t count = list_steps(parent, steps);
    free(parent);
    qsort(steps, count, sizeof *steps, compare_steps);
    for (size_t i = 0; keep > 0 && i + (size_t)keep < count; i++) {
        char *directory = run_checkpoint_directory(job->run_directory, steps[i]);
        remove_checkpoint(directory);
        free(directory);
    }
}

static int prepare(const struct training_state *state, const char *temporary, struct error *err)
{
    if (state->world->rank != 0)
        return 0;
    if (check_fence(state->job, err) != 0 || directory_remove(temporary, err) != 0)
        return -1;
    return directory_make(temporary, err);
}

int checkpoint_save(const struct training_state *state, int64_t *bytes, struct error *err)
{
    struct comm *world = state->world;
    char *final = run_checkpoint_directory(state->job->run_directory, state->step), *temporary = string_format("%s.tmp", final);
    char *mark = path_join(final, COMPLETE_FILE);
    struct written mine[FILES_PER_RANK] = {0}, *all = allocate(FILES_PER_RANK * (size_t)world->size, sizeof *all);
    struct json *complete = NULL;
    int64_t already = file_exists(mark);
    int status = -1;
    *bytes = 0;
    world->ops->broadcast(world, &already, sizeof already, 0);
    if (already) {
        status = 0;
        goto out;
    }
    if (agree(world, prepare(state, temporary, err), err) != 0)
        goto out;
    status = agree(world, write_tensors(state, temporary, mine, err), err);
    world->ops->allgather(world, all, mine, sizeof mine);
    if (status == 0) {
        if (world->rank == 0) {
            status = write_small(state, temporary, &complete, all, FILES_PER_RANK * (size_t)world->size, bytes, err);
            if (status == 0)
                status = publish(state, temporary, final, complete, err);
        }
        status = agree(world, status, err);
    }
    if (world->rank == 0 && status == 0)
        remove_old(state->job);
    if (world->rank == 0 && status != 0)
        directory_remove(temporary, NULL);
out:
    js_free(complete);
    free(all);
    free(mark);
    free(temporary);
    free(final);
    return status;
}
