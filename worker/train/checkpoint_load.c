#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/checkpoint.h"
#include "worker/weights/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 64 << 20 };

struct json *schedule_identity(const struct spec *spec)
{
    // The keys of the field table, as they resolve: what a person would compare.
    struct json *whole = spec_to_json(spec);
    struct json *schedule = js_copy(js_get(js_get(whole, "training"), "learning_rate"));
    js_set(schedule, "iterations", js_integer(spec->training.iterations));
    js_set(schedule, "global_batch_size", js_integer(spec->training.global_batch_size));
    js_free(whole);
    return schedule;
}

static int verify_file(const char *directory, const struct json *file, struct error *err)
{
    const char *name = js_string_of(js_get(file, "name"), "");
    int64_t expected = js_integer_of(js_get(file, "bytes"), -1);
    char *path = path_join(directory, name), hex[HASH_HEX];
    int status = 0;
    if (strchr(name, '/') || !*name)
        status = error_set(err, "%s: a file's name is \"%s\"", directory, name);
    else if (!file_exists(path))
        status = error_set(err, "%s: is missing, and complete.json names it", path);
    else if (file_size(path) != expected)
        status = error_set(err, "%s: %lld bytes, expected %lld", path, (long long)file_size(path), (long long)expected);
    else if (hash_file(hex, path, err) != 0)
        status = -1;
    else if (strcmp(hex, js_string_of(js_get(file, "sha256"), "")) != 0)
        status = error_set(err, "%s: corrupt: its SHA-256 is not that of complete.json", path);
    free(path);
    return status;
}

int checkpoint_verify(const char *directory, struct error *err)
{
    char *mark = path_join(directory, COMPLETE_FILE);
    struct json *complete = js_read_file(mark, JSON_MAX, err);
    int status = complete ? 0 : -1;
    const struct json *files = js_get(complete, "files");
    if (status == 0 && js_count(files) == 0)
        status = error_set(err, "%s: names no files", mark);
    for (size_t i = 0; i < js_count(files) && status == 0; i++)
        status = verify_file(directory, js_at(files, i), err);
    js_free(complete);
    free(mark);
    return status;
}

static bool same_shape(const struct tensor_info *info, const struct param *param)
{
    if (info->dimensions == 1)
        return param->rows == 1 && info->shape[0] == param->columns;
    return info->shape[0] == param->rows && info->shape[1] == param->columns;
}

static int load_into(const struct model *model, void *to, const struct param *param, const struct tensor_info *info, const char *name, float *host,
    struct error *err)
{
    if (!same_shape(info, param))
        return error_set(err, "%s: %s is %lld × %lld, but this model's %s is %lld × %lld", info->file, name, (long long)info->shape[0],
            (long long)info->shape[1], param->name, (long long)param->rows, (long long)param->columns);
    if (tensor_read(info, host, err) != 0)
        return -1;
    model->device->memory->upload(to, host, param_elements(param) * sizeof *host);
    return 0;
}

static float *host_for(const struct model *model)
{
    size_t largest = 0;
    for (size_t i = 0; i < model->table.count; i++)
        if (param_elements(&model->table.items[i]) > largest)
            largest = param_elements(&model->table.items[i]);
    return allocate(largest, sizeof(float));
}

// The dense FFN's tensor that an expert's becomes a copy of; false for any other tensor.
static bool dense_twin(char name[128], const struct param *param)
{
    const char *twin = param->kind == PARAM_EXPERT_GATE ? "gate_proj"
        : param->kind == PARAM_EXPERT_UP                ? "up_proj"
        : param->kind == PARAM_EXPERT_DOWN              ? "down_proj"
                                                        : NULL;
    if (!twin)
        return false;
    snprintf(name, 128, "model.layers.%d.mlp.%s.weight", param->layer, twin);
    return true;
}

static bool has_experts(const struct tensor_set *set, const struct param_table *table)
{
    struct tensor_info info;
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].expert >= 0 && tensor_set_find(set, table->items[i].name, &info))
            return true;
    return false;
}

static int load_weight(struct model *model, const struct tensor_set *set, const struct param *param, bool from_dense, float *host,
    const char *directory, struct error *err)
{
    char name[128];
    struct tensor_info info;
    snprintf(name, sizeof name, "%s", param->name);
    if (from_dense && param->kind == PARAM_ROUTER)
        return 0; // a dense model has none: initial values stay
    if (from_dense)
        dense_twin(name, param);
    if (!tensor_set_find(set, name, &info))
        return error_set(err, "%s: no tensor %s in it, which this model needs", directory, name);
    if (from_dense && param->expert >= 0 && !same_shape(&info, param))
        return error_set(err, "%s: a dense checkpoint makes experts of its own width only: its %s is %lld × %lld, an expert's %lld × %lld "
                              "(model.moe.expert_ffn_hidden_size)",
            directory, name, (long long)info.shape[0], (long long)info.shape[1], (long long)param->rows, (long long)param->columns);
    return load_into(model, model_param(model, param), param, &info, name, host, err);
}

int checkpoint_weights(struct model *model, const char *directory, struct error *err)
{
    struct tensor_set *set;
    if (tensor_set_open(&set, directory, "model", err) != 0)
        return -1;
    float *host = host_for(model);
    bool from_dense = spec_is_moe(model->spec) && !has_experts(set, &model->table);
    int status = 0;
    for (size_t i = 0; i < model->table.count && status == 0; i++)
        if (model->table.items[i].resident)
            status = load_weight(model, set, &model->table.items[i], from_dense, host, directory, err);
    model_refresh_weights(model);
    free(host);
    tensor_set_close(set);
    return status;
}

static int load_moments(const struct training_state *state, const char *directory, struct error *err)
{
    static const char *const suffix[] = {".exp_avg", ".exp_avg_sq"};
    const struct model *model = state->model;
    struct tensor_set *set;
    if (tensor_set_open(&set, directory, "optimizer", err) != 0)
        return -1;
    float *host = host_for(model);
    int status = 0;
    for (size_t i = 0; i < 2 * model->table.count && status == 0; i++) {
        const struct param *param = &model->table.items[i / 2];
        char name[128];
        struct tensor_info info;
        if (!param->resident)
            continue;
        snprintf(name, sizeof name, "%s%s", param->name, suffix[i % 2]);
        if (!tensor_set_find(set, name, &info))
            status = error_set(err, "%s: no optimizer state %s in it", directory, name);
        else
            status = load_into(model, optimizer_state(state->optimizer, param, i % 2 ? MOMENT_SECOND : MOMENT_FIRST), param, &info, name, host, err);
    }
    free(host);
    tensor_set_close(set);
    return status;
}

static int compare(const char *directory, const char *what, const struct json *saved, const struct json *now, struct error *err)
{
    if (js_equal(saved, now))
        return 0;
    struct text a, b;
    text_init(&a, ERROR_TEXT_MAX / 3);
    text_init(&b, ERROR_TEXT_MAX / 3);
    js_write(&a, saved);
    js_write(&b, now);
    error_set(err, "%s: cannot continue from it: the %s has changed from %s to %s", directory, what, a.at, b.at);
    text_release(&a);
    text_release(&b);
    return -1;
}

// Rank 0: the files are whole, and the run is still the same.
static int check_trainer(const struct training_state *state, const char *directory, int64_t step, struct error *err)
{
    if (checkpoint_verify(directory, err) != 0)
        return -1;
    char *path = path_join(directory, "trainer.json");
    struct json *trainer = js_read_file(path, JSON_MAX, err), *schedule = schedule_identity(&state->job->spec);
    int status = trainer ? 0 : -1;
    if (status == 0 && js_integer_of(js_get(trainer, "step"), -1) != step)
        status = error_set(err, "%s: its step is not that of its directory", path);
    if (status == 0)
        status = compare(directory, "data", js_get(trainer, "data"), state->identity, err);
    if (status == 0)
        status = compare(directory, "schedule", js_get(trainer, "schedule"), schedule, err);
    js_free(schedule);
    js_free(trainer);
    free(path);
    return status;
}

int checkpoint_resume(struct training_state *state, int64_t *resumed, struct error *err)
{
    struct comm *world = state->world;
    int64_t step = world->rank == 0 ? run_last_checkpoint(state->job->run_directory) : -1;
    world->ops->broadcast(world, &step, sizeof step, 0); // one answer for all: a slow file system may show each rank another
    *resumed = step;
    if (step < 0)
        return 0;
    char *directory = run_checkpoint_directory(state->job->run_directory, step);
    int status = agree(world, world->rank == 0 ? check_trainer(state, directory, step, err) : 0, err);
    if (status == 0) {
        if (checkpoint_weights(state->model, directory, err) != 0 || load_moments(state, directory, err) != 0 ||
            extra_states_load(state->extra, directory, false, err) != 0)
            status = -1;
        status = agree(world, status, err);
    }
    if (status == 0)
        state->step = step;
    free(directory);
    return status;
}
