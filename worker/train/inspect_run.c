// `inspect RUN_DIR`: what a run would allocate, without allocating it.
#include "schema/record/layout.h"
#include "schema/shape/groups.h"
#include "schema/shape/params.h"
#include "worker/train/inspect.h"
#include "worker/train/job.h"
#include "worker/train/train.h"

#include <stdio.h>

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
        code = inspect_complain(&err);
    else {
        struct json *json = table_json(&job.spec, &layout);
        if (as_json)
            code = inspect_print(json, &err) == 0 ? EXIT_DONE : inspect_complain(&err);
        else {
            printf("parameters: %lld total, %lld active\n", (long long)js_integer_of(js_get(json, "total"), 0),
                (long long)js_integer_of(js_get(json, "active"), 0));
            js_free(json);
        }
    }
    job_release(&job);
    return code;
}
