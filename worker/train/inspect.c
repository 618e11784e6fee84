// `inspect`: what is in a checkpoint, and what a run would allocate.
#include "schema/record/layout.h"
#include "schema/shape/groups.h"
#include "worker/train/job.h"
#include "worker/weights/safetensors.h"
#include "worker/train/train.h"
#include "schema/shape/params.h"

#include <stdio.h>
#include <stdlib.h>

static int print(struct json *json, struct error *err)
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

static int complain(const struct error *err)
{
    fprintf(stderr, "switchyard-worker: %s\n", err->text);
    return EXIT_BAD_INPUT;
}

struct listing {
    struct json *tensors; // NULL: print lines
    int64_t elements;
};

static void list_tensor(void *context, const char *name, const struct tensor_info *info)
{
    struct listing *listing = context;
    listing->elements += info->elements;
    if (!listing->tensors) {
        printf("%-72s %-4s %lld", name, info->dtype, (long long)info->shape[0]);
        for (int d = 1; d < info->dimensions && d < TENSOR_DIMENSIONS; d++)
            printf(" x %lld", (long long)info->shape[d]);
        printf("\n");
        return;
    }
    struct json *item = js_object(), *shape = js_array();
    for (int d = 0; d < info->dimensions && d < TENSOR_DIMENSIONS; d++)
        js_append(shape, js_integer(info->shape[d]));
    js_set(item, "name", js_string(name));
    js_set(item, "dtype", js_string(info->dtype));
    js_set(item, "shape", shape);
    js_set(item, "file", js_string(info->file));
    js_append(listing->tensors, item);
}

int inspect_checkpoint(const char *directory, bool as_json)
{
    struct tensor_set *set;
    struct error err = {0};
    if (tensor_set_open(&set, directory, "model", &err) != 0)
        return complain(&err);
    struct listing listing = {.tensors = as_json ? js_array() : NULL};
    tensor_set_walk(set, list_tensor, &listing);
    tensor_set_close(set);
    if (!as_json) {
        printf("%lld parameters\n", (long long)listing.elements);
        return EXIT_DONE;
    }
    struct json *json = js_object();
    js_set(json, "parameters", js_integer(listing.elements));
    js_set(json, "tensors", listing.tensors);
    return print(json, &err) == 0 ? EXIT_DONE : complain(&err);
}

// Elements of a rank's two segments, and of the whole model: the table itself is asked, not a formula.
static struct json *table_json(const struct spec *spec, const struct layout *layout)
{
    struct json *json = js_object(), *ranks = js_array();
    struct param_count count = param_count(spec);
    int64_t total = 0;
    for (int64_t ep = 0; ep < layout->ep; ep++) {
        struct param_table table;
        struct json *rank = js_object();
        param_table_init(&table, spec, ep, layout->ep);
        total += (int64_t)table.expert_elements + (ep == 0 ? (int64_t)table.dense_elements : 0);
        js_set(rank, "dense", js_integer((int64_t)table.dense_elements));
        js_set(rank, "experts", js_integer((int64_t)table.expert_elements));
        js_set(rank, "local_experts", js_integer(spec->model.moe.experts / layout->ep)); // of the layer with most
        js_append(ranks, rank);
        param_table_release(&table);
    }
    js_set(json, "total", js_integer(total));
    js_set(json, "active", js_integer(count.active));
    js_set(json, "expert_parallel_ranks", ranks);
    return json;
}

int inspect_run(const char *run_directory, bool as_json)
{
    struct job job;
    struct layout layout;
    struct error err = {0};
    int code = EXIT_DONE;
    if (job_open(&job, run_directory, "train", &err) != 0 || layout_from_spec(&layout, &job.spec, &err) != 0)
        code = complain(&err);
    else {
        struct json *json = table_json(&job.spec, &layout);
        if (as_json)
            code = print(json, &err) == 0 ? EXIT_DONE : complain(&err);
        else {
            printf("parameters: %lld total, %lld active\n", (long long)js_integer_of(js_get(json, "total"), 0),
                (long long)js_integer_of(js_get(json, "active"), 0));
            js_free(json);
        }
    }
    job_release(&job);
    return code;
}
