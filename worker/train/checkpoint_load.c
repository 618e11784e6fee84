// Tensors of a checkpoint into a model and its optimizer, each by its own name; and whether a checkpoint is whole.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/checkpoint_read.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 64 << 20 };

// content: its SHA-256 too, for which all of it is read.
static int verify_file(const char *directory, const struct json *file, bool content, struct error *err)
{
    const char *name = js_string_of(js_get(file, "name"), "");
    int64_t expected = js_integer_of(js_get(file, "bytes"), -1);
    char *path = path_join(directory, name), hex[HASH_HEX];
    int status = 0;
    if (strchr(name, '/') || !*name)
        status = error_set(err, "%s: a file's name is \"%s\"", directory, name);
    else if (!file_exists(path))
        status = error_set(err, "%s: is missing, and complete.json names it", path);
    else if (file_size(path) < 0)
        status = error_set(err, "%s: not a regular file", path);
    else if (file_size(path) != expected)
        status = error_set(err, "%s: %lld bytes, expected %lld", path, (long long)file_size(path), (long long)expected);
    else if (content && hash_file(hex, path, err) != 0)
        status = -1;
    else if (content && strcmp(hex, js_string_of(js_get(file, "sha256"), "")) != 0)
        status = error_set(err, "%s: corrupt: its SHA-256 is not that of complete.json", path);
    free(path);
    return status;
}

static bool is_named(const struct json *files, const char *name)
{
    for (size_t i = 0; i < js_count(files); i++)
        if (strcmp(js_string_of(js_get(js_at(files, i), "name"), ""), name) == 0)
            return true;
    return false;
}

// Tensors are read from all of a directory's files: one that was not there when it was completed would be taken for part of it.
static int verify_names(const char *directory, const struct json *files, struct error *err)
{
    DIR *listing = opendir(directory);
    if (!listing)
        return error_errno(err, "%s", directory);
    int status = 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(listing));) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && entry->d_name != end && strcmp(end, ".safetensors") == 0 && !is_named(files, entry->d_name))
            status = error_set(err, "%s/%s: complete.json does not name it", directory, entry->d_name);
    }
    closedir(listing);
    return status;
}

// Of a file that holds experts and nothing else (checkpoint_image.c names them): part 2 and further ones.
static bool holds_experts(const char *name)
{
    return strncmp(name, "model-", 6) == 0 && strncmp(name + 6, "00001-", 6) != 0;
}

int checkpoint_verify(const char *directory, enum verify_what what, struct error *err)
{
    char *mark = path_join(directory, COMPLETE_FILE);
    struct json *complete = js_read_file(mark, JSON_MAX, err);
    int status = complete ? 0 : -1;
    const struct json *files = js_get(complete, "files");
    if (status == 0 && js_count(files) == 0)
        status = error_set(err, "%s: names no files", mark);
    for (size_t i = 0; i < js_count(files) && status == 0; i++) {
        const char *name = js_string_of(js_get(js_at(files, i), "name"), "");
        bool wanted = what == VERIFY_ALL || strncmp(name, "optimizer", 9) != 0;
        if (wanted)
            status = verify_file(directory, js_at(files, i), what != VERIFY_WEIGHTS_BUT_EXPERTS || !holds_experts(name), err);
    }
    if (status == 0)
        status = verify_names(directory, files, err);
    js_free(complete);
    free(mark);
    return status;
}

static int load_into(const struct model *model, void *to, const struct param *param, const struct tensor_info *info, const char *name, float *host,
    struct error *err)
{
    char shape[TENSOR_SHAPE_TEXT];
    if (!tensor_has_shape(info, param->rows, param->columns))
        return error_set(err, "%s: %s is %s, but this model's %s is %lld × %lld", info->file, name, tensor_shape_text(shape, info), param->name,
            (long long)param->rows, (long long)param->columns);
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
