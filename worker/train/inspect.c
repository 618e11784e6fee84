// `inspect CHECKPOINT`: what is in a checkpoint: whether it is whole, of which step, data and model, every tensor with its norm, the checksum
// of each expert (experts that were lost or doubled on the way into a file are not distinct any more), and the state beside the tensors.
#include "worker/train/inspect.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/checkpoint.h"
#include "worker/train/train.h"
#include "worker/weights/safetensors.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 64 << 20, BLOCK = 1 << 16 };

int inspect_print(struct json *json, struct error *err)
{
    struct text text;
    text_init(&text, 1 << 28);
    js_write_pretty(&text, json);
    fputs(text.at, stdout);
    js_free(json);
    int status = text.overflowed ? error_set(err, "too much to print") : 0;
    text_release(&text);
    return status;
}

int inspect_complain(const struct error *err)
{
    fprintf(stderr, "switchyard-worker: %s\n", err->text);
    return EXIT_BAD_INPUT;
}

// ---- tensors ----

struct tensor {
    char *name;
    struct tensor_info info;
};

struct tensors {
    struct tensor *items;
    size_t count, capacity;
    int64_t elements, bytes;
};

static void take_tensor(void *context, const char *name, const struct tensor_info *info)
{
    struct tensors *tensors = context;
    if (tensors->count == tensors->capacity) {
        tensors->capacity = tensors->capacity ? 2 * tensors->capacity : 64;
        tensors->items = reallocate(tensors->items, tensors->capacity, sizeof *tensors->items);
    }
    tensors->items[tensors->count++] = (struct tensor){string_copy(name), *info};
    tensors->elements += info->elements;
    tensors->bytes += info->bytes;
}

static void tensors_release(struct tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        free(tensors->items[i].name);
    free(tensors->items);
}

// The L2 norm, squares added in double; NaN for a dtype that is not read here.
static int norm_of(const struct tensor_info *info, double *norm, struct error *err)
{
    float *block = allocate(BLOCK, sizeof *block);
    double sum = info->elements > 0 && info->dtype[0] != 'I' ? 0 : NAN;
    int status = 0;
    for (int64_t at = 0; at < info->elements && !isnan(sum) && status == 0; at += BLOCK) {
        int64_t count = info->elements - at < BLOCK ? info->elements - at : BLOCK;
        status = tensor_read_part(info, at, count, block, err);
        for (int64_t i = 0; i < count && status == 0; i++)
            sum += (double)block[i] * (double)block[i];
    }
    free(block);
    *norm = sqrt(sum);
    return status;
}

static int tensors_to_json(const struct tensors *tensors, struct json *list, struct error *err)
{
    for (size_t i = 0; i < tensors->count; i++) {
        const struct tensor_info *info = &tensors->items[i].info;
        struct json *item = js_object(), *shape = js_array();
        double norm;
        js_append(list, item);
        for (int d = 0; d < info->dimensions && d < TENSOR_DIMENSIONS; d++) // further ones are nobody's here
            js_append(shape, js_integer(info->shape[d]));
        js_set(item, "name", js_string(tensors->items[i].name));
        js_set(item, "dtype", js_string(info->dtype));
        js_set(item, "shape", shape);
        js_set(item, "bytes", js_integer(info->bytes));
        js_set(item, "file", js_string(info->file));
        if (norm_of(info, &norm, err) != 0)
            return -1;
        js_set(item, "norm", isnan(norm) && info->dtype[0] == 'I' ? js_null() : js_real(norm));
    }
    return 0;
}

// ---- experts ----

// "model.layers.3.block_sparse_moe.experts.5.w1.weight": the length of what names the layer, and the expert; -1 if it is no expert's.
static int64_t expert_of(const char *name, size_t *layer)
{
    const char *at = strstr(name, ".experts.");
    if (!at || !isdigit((unsigned char)at[9]))
        return -1;
    *layer = (size_t)(at - name);
    return strtoll(at + 9, NULL, 10);
}

static int by_layer_and_expert(const void *a, const void *b)
{
    const struct tensor *x = *(struct tensor *const *)a, *y = *(struct tensor *const *)b;
    size_t n = 0, m = 0;
    int64_t i = expert_of(x->name, &n), j = expert_of(y->name, &m);
    int layers = n != m ? (n > m) - (n < m) : strncmp(x->name, y->name, n); // a shorter name has the lower number
    return layers ? layers : i != j ? (i > j) - (i < j) : strcmp(x->name, y->name);
}

static int hash_tensor(struct hash *hash, const struct tensor_info *info, struct error *err)
{
    void *bytes = allocate((size_t)info->bytes, 1);
    int status = tensor_read_bytes(info, bytes, err);
    if (status == 0)
        hash_add(hash, bytes, (size_t)info->bytes);
    free(bytes);
    return status;
}

static struct json *layer_of(struct json *layers, const char *name, size_t length)
{
    struct json *last = js_count(layers) ? js_at(layers, js_count(layers) - 1) : NULL;
    char *whole = string_format("%.*s", (int)length, name);
    if (!last || strcmp(js_string_of(js_get(last, "layer"), ""), whole) != 0) {
        last = js_object();
        js_set(last, "layer", js_string(whole));
        js_set(last, "sha256", js_array());
        js_append(layers, last);
    }
    free(whole);
    return last;
}

static int64_t count_distinct(const struct json *list)
{
    int64_t distinct = 0;
    for (size_t i = 0; i < js_count(list); i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = js_equal(js_at(list, i), js_at(list, j));
        distinct += !seen;
    }
    return distinct;
}

// {"layers": [{"layer", "sha256": [one an expert], "count", "distinct"}], "count", "distinct"}: SHA-256 of an expert's tensors by name.
static struct json *experts_to_json(const struct tensors *tensors, struct error *err)
{
    struct tensor **sorted = allocate(tensors->count, sizeof *sorted);
    struct json *experts = js_object(), *layers = js_array();
    size_t count = 0, length;
    int status = 0;
    for (size_t i = 0; i < tensors->count; i++)
        if (expert_of(tensors->items[i].name, &length) >= 0)
            sorted[count++] = &tensors->items[i];
    qsort(sorted, count, sizeof *sorted, by_layer_and_expert);
    for (size_t first = 0, end; first < count && status == 0; first = end) {
        struct hash *hash = hash_new();
        char hex[HASH_HEX];
        size_t other = 0;
        int64_t expert = expert_of(sorted[first]->name, &length);
        for (end = first; end < count && expert_of(sorted[end]->name, &other) == expert && other == length &&
             strncmp(sorted[end]->name, sorted[first]->name, length) == 0 && status == 0; end++)
            status = hash_tensor(hash, &sorted[end]->info, err);
        hash_end(hash, hex);
        js_append(js_get(layer_of(layers, sorted[first]->name, length), "sha256"), js_string(hex));
    }
    int64_t all = 0, distinct = 0;
    for (size_t i = 0; i < js_count(layers); i++) {
        struct json *layer = js_at(layers, i);
        int64_t here = count_distinct(js_get(layer, "sha256"));
        js_set(layer, "count", js_integer((int64_t)js_count(js_get(layer, "sha256"))));
        js_set(layer, "distinct", js_integer(here));
        all += (int64_t)js_count(js_get(layer, "sha256"));
        distinct += here;
    }
    js_set(experts, "layers", layers);
    js_set(experts, "count", js_integer(all));
    js_set(experts, "distinct", js_integer(distinct));
    free(sorted);
    if (status == 0)
        return experts;
    js_free(experts);
    return NULL;
}

// ---- what else there is ----

static void add_extra(void *context, const char *name, const struct tensor_info *info)
{
    struct json *item = js_object(), *values = js_array();
    char *bytes = allocate((size_t)info->bytes, 1);
    bool good = tensor_read_bytes(info, bytes, NULL) == 0;
    for (int64_t i = 0; i < info->elements && good; i++) {
        int64_t whole;
        double wide;
        float narrow;
        if (strcmp(info->dtype, "I64") == 0)
            js_append(values, js_integer((memcpy(&whole, bytes + i * 8, 8), whole)));
        else if (strcmp(info->dtype, "F64") == 0)
            js_append(values, js_real((memcpy(&wide, bytes + i * 8, 8), wide)));
        else
            js_append(values, js_real((memcpy(&narrow, bytes + i * 4, 4), (double)narrow)));
    }
    js_set(item, "name", js_string(name));
    js_set(item, "dtype", js_string(info->dtype));
    js_set(item, "values", values);
    js_append(context, item);
    free(bytes);
}

static struct json *extra_to_json(const char *directory)
{
    struct tensor_set *set;
    struct json *list = js_array();
    if (tensor_set_open(&set, directory, "extra", NULL) == 0) {
        tensor_set_walk(set, add_extra, list);
        tensor_set_close(set);
    }
    return list;
}

static struct json *optimizer_to_json(const char *directory)
{
    struct tensor_set *set;
    struct tensors tensors = {0};
    struct json *json = js_object();
    if (tensor_set_open(&set, directory, "optimizer", NULL) == 0) {
        tensor_set_walk(set, take_tensor, &tensors);
        tensor_set_close(set);
    }
    js_set(json, "tensors", js_integer((int64_t)tensors.count));
    js_set(json, "bytes", js_integer(tensors.bytes));
    tensors_release(&tensors);
    return json;
}

// Whether it is complete and whole, and what trainer.json says. One that somebody else made has neither.
static void add_story(struct json *json, const char *directory)
{
    static const char *const keys[] = {"run_id", "attempt", "step", "samples", "tokens", "seed", "data", "schedule", "model"};
    char *mark = path_join(directory, COMPLETE_FILE), *path = path_join(directory, "trainer.json");
    struct error fault = {0};
    bool complete = file_exists(mark), whole = complete && checkpoint_verify(directory, VERIFY_ALL, &fault) == 0;
    struct json *trainer = js_read_file(path, JSON_MAX, NULL);
    js_set(json, "directory", js_string(directory));
    js_set(json, "complete", js_boolean(complete));
    js_set(json, "whole", complete ? js_boolean(whole) : js_null());
    js_set(json, "fault", complete && !whole ? js_string(fault.text) : js_null());
    for (size_t i = 0; i < sizeof keys / sizeof *keys && trainer; i++)
        if (js_get(trainer, keys[i]))
            js_set(json, keys[i], js_keep(js_get(trainer, keys[i])));
    js_free(trainer);
    free(path);
    free(mark);
}

static struct json *checkpoint_json(const char *directory, struct error *err)
{
    struct tensor_set *set;
    struct tensors tensors = {0};
    if (tensor_set_open(&set, directory, "model", err) != 0)
        return NULL;
    struct json *json = js_object(), *list = js_array();
    tensor_set_walk(set, take_tensor, &tensors);
    add_story(json, directory);
    js_set(json, "parameters", js_integer(tensors.elements));
    js_set(json, "tensors", list);
    int status = tensors_to_json(&tensors, list, err);
    struct json *experts = status == 0 ? experts_to_json(&tensors, err) : NULL;
    if (experts) {
        js_set(json, "experts", experts);
        js_set(json, "optimizer", optimizer_to_json(directory));
        js_set(json, "extra", extra_to_json(directory));
    }
    tensors_release(&tensors);
    tensor_set_close(set);
    if (experts)
        return json;
    js_free(json);
    return NULL;
}

int inspect_checkpoint(const char *directory, bool as_json)
{
    struct error err = {0};
    struct json *json = checkpoint_json(directory, &err);
    if (!json)
        return inspect_complain(&err);
    bool damaged = js_get(json, "fault") && js_kind(js_get(json, "fault")) == JSON_KIND_STRING;
    if (!as_json) {
        inspect_show(json);
        js_free(json);
    } else if (inspect_print(json, &err) != 0)
        return inspect_complain(&err);
    return damaged ? EXIT_FAILED : EXIT_DONE;
}
