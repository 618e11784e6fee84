#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/shape/cost.h"
#include "worker/train/checkpoint_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what is in it ----

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
    entry->dtype = "F32"; // device reals are floats in every run that saves; the fp64 reference is for gradient checks only
    entry->source = source;
}

// The entries of one file: of this kind (model or optimizer), experts or the others.
static void add_params(struct image *image, const struct training_state *state, bool experts, bool optimizer, int64_t part, int64_t parts)
{
    const struct param_table *table = &state->model->table;
    struct image_file *file = &image->files[image->count++];
    file_name(file->name, optimizer ? "optimizer" : "model", part, parts);
    file->entries = allocate(2 * table->count, sizeof *file->entries);
    file->on_device = true;
    for (size_t i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        if (!param->resident || (param->expert >= 0) != experts)
            continue;
        if (!optimizer)
            name_entry(&file->entries[file->count++], param, "", model_param(state->model, param));
        else {
            name_entry(&file->entries[file->count++], param, ".exp_avg", optimizer_state(state->optimizer, param, MOMENT_FIRST));
            name_entry(&file->entries[file->count++], param, ".exp_avg_sq", optimizer_state(state->optimizer, param, MOMENT_SECOND));
        }
    }
}

static void add_extra(struct image *image, const struct extra_states *extra)
{
    struct image_file *file = &image->files[image->count++];
    file_name(file->name, "extra", 1, 1);
    file->entries = allocate(extra->count, sizeof *file->entries);
    for (; file->count < extra->count; file->count++) {
        const struct extra_state *item = &extra->items[file->count];
        struct tensor_entry *entry = &file->entries[file->count];
        *entry = (struct tensor_entry){.shape = {item->count, 1}, .dimensions = 1, .dtype = extra_dtype(item->kind), .source = item->values};
        snprintf(entry->name, sizeof entry->name, "%s", item->name);
    }
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
    int64_t samples = samples_before(spec, state->step + 1);
    js_set(json, "v", js_integer(1));
    js_set(json, "run_id", js_string(state->job->run_id));
    js_set(json, "attempt", js_integer(state->job->attempt));
    js_set(json, "step", js_integer(state->step));
    js_set(json, "samples", js_integer(samples));
    js_set(json, "tokens", js_integer(samples * spec->data.sequence_length));
    js_set(json, "seed", js_integer(spec->training.seed));
    js_set(json, "data", js_keep(state->identity));
    js_set(json, "schedule", schedule_identity(spec));
    js_set(json, "model", model_identity(spec));
    return json;
}

void image_init(struct image *image, const struct training_state *state)
{
    const struct parallel *parallel = state->model->parallel;
    bool experts = state->model->experts.count > 0, first = state->world->rank == 0;
    int64_t parts = experts ? 1 + parallel->ep->size : 1; // files of a kind: what every rank holds, then each expert-parallel rank's experts
    *image = (struct image){.job = state->job, .device = state->model->device, .step = state->step, .diverged = state->diverged};
    for (int optimizer = 0; optimizer < 2; optimizer++) {
        if (first)
            add_params(image, state, false, optimizer, 1, parts);
        if (experts && parallel->edp->rank == 0)
            add_params(image, state, true, optimizer, 2 + parallel->ep->rank, parts);
    }
    image->final = run_checkpoint_directory(state->job->run_directory, state->step);
    // Of an attempt: two writers may overlap for a moment, when a newer attempt begins while an older one has not yet noticed.
    image->temporary = string_format("%s.%lld.tmp", image->final, (long long)state->job->attempt);
    if (!first)
        return;
    if (state->extra->count > 0)
        add_extra(image, state->extra);
    image->trainer = trainer_json(state);
    image->index = experts ? weight_map(state) : NULL;
}

void image_release(struct image *image)
{
    for (size_t i = 0; i < image->count; i++)
        free(image->files[i].entries);
    js_free(image->trainer);
    js_free(image->index);
    free(image->temporary);
    free(image->final);
    *image = (struct image){0};
}

// ---- its snapshot ----

size_t image_bytes(const struct image *image)
{
    size_t bytes = 0;
    for (size_t i = 0; i < image->count; i++)
        for (size_t j = 0; j < image->files[i].count; j++)
            bytes += tensor_entry_bytes(&image->files[i].entries[j]);
    return bytes;
}

static void fetch_device(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes)
{
    const struct device *device = context;
    device->memory->read_back(host, (const char *)entry->source + at, bytes);
}

static void fetch_host(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes)
{
    (void)context;
    memcpy(host, (const char *)entry->source + at, bytes);
}

void image_snapshot(struct image *image, void *memory)
{
    char *at = memory;
    for (size_t i = 0; i < image->count; i++) {
        struct image_file *file = &image->files[i];
        for (size_t j = 0; j < file->count; j++) {
            size_t bytes = tensor_entry_bytes(&file->entries[j]);
            (file->on_device ? fetch_device : fetch_host)((void *)(uintptr_t)image->device, at, &file->entries[j], 0, bytes);
            file->entries[j].source = at;
            at += bytes;
        }
        file->on_device = false;
    }
}

int image_write(const struct image *image, struct written written[IMAGE_FILES], struct error *err)
{
    int status = 0;
    for (size_t i = 0; i < image->count && status == 0; i++) {
        const struct image_file *file = &image->files[i];
        char *path = path_join(image->temporary, file->name);
        memcpy(written[i].name, file->name, sizeof file->name);
        status = safetensors_write(path, file->entries, file->count, file->on_device ? fetch_device : fetch_host, (void *)(uintptr_t)image->device,
            &written[i].bytes, written[i].hex, err);
        free(path);
    }
    return status;
}
