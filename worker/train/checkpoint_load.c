// Tensors of a checkpoint into a model and its optimizer, each by its own name; and whether a checkpoint is whole.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/checkpoint_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 64 << 20 };

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

bool same_shape(const struct tensor_info *info, const struct param *param)
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

int load_param(struct model *model, const struct tensor_set *set, const struct param *param, float *host, const char *directory,
    struct error *err)
{
    struct tensor_info info;
    if (!tensor_set_find(set, param->name, &info))
        return error_set(err, "%s: no tensor %s in it, which this model needs", directory, param->name);
    return load_into(model, model_param(model, param), param, &info, param->name, host, err);
}

float *host_for(const struct model *model)
{
    size_t largest = 0;
    for (size_t i = 0; i < model->table.count; i++)
        if (param_elements(&model->table.items[i]) > largest)
            largest = param_elements(&model->table.items[i]);
    return allocate(largest, sizeof(float));
}

int checkpoint_weights(struct model *model, const char *directory, struct error *err)
{
    struct tensor_set *set;
    if (tensor_set_open(&set, directory, "model", err) != 0)
        return -1;
    float *host = host_for(model);
    int status = 0;
    for (size_t i = 0; i < model->table.count && status == 0; i++)
        if (model->table.items[i].resident && !(model->store && model->table.items[i].expert >= 0))
            status = load_param(model, set, &model->table.items[i], host, directory, err);
    model_refresh_weights(model);
    free(host);
    tensor_set_close(set);
    return status;
}

int checkpoint_moments(const struct training_state *state, const char *directory, struct error *err)
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
