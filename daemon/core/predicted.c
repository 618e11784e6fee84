// What was predicted of a run and what was measured, in people's words with their units: the one table of these names. Lists, the dashboard and
// the command line show them as they are here.
#include "daemon/core/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// planned: in the plan; measured: in the worker's end record; metric: what says it while the run has not ended. NULL: nothing does.
static const struct figure {
    const char *name, *planned, *measured, *metric, *unit;
} figures[] = {
    {"parameters", "parameters.total", "parameters.total", NULL, ""},
    {"active parameters", "parameters.active", "parameters.active", NULL, ""},
    {"parameters of a rank outside experts", NULL, "parameters.resident_dense", NULL, ""},
    {"parameters of a rank in experts", NULL, "parameters.resident_experts", NULL, ""},
    {"FLOP per token", "flops_per_token", NULL, NULL, "FLOP"},
    {"tokens per step", "tokens_per_step", NULL, "tokens", ""},
    {"tokens", "tokens_total", NULL, "tokens", ""},
    {"memory of a rank", "memory.total_worst", "peak_memory_bytes", "memory_mb", "bytes"},
    {"memory of a rank's experts", NULL, "expert_bytes", NULL, "bytes"},
    {"all-to-all of a rank and step", "alltoall_bytes_per_step", "alltoall_bytes_per_step", NULL, "bytes"},
};

// "memory.total" in nested objects; NULL is nowhere.
static const struct json *lookup(const struct json *object, const char *path)
{
    char *copy = string_copy(path), *rest = NULL;
    for (char *key = copy ? strtok_r(copy, ".", &rest) : NULL; key && object; key = strtok_r(NULL, ".", &rest))
        object = js_get(object, key);
    free(copy);
    return path ? object : NULL;
}

// What the metrics say of it so far; null for what none does.
static struct json *told_by_metric(struct daemon *daemon, const struct run_row *row, const struct figure *figure)
{
    int64_t step = series_last_step(daemon->series, row->run_id);
    double value = figure->metric ? series_last_value(daemon->series, row->run_id, figure->metric, NAN) : NAN;
    if (step < 1 || !isfinite(value))
        return js_null();
    if (strcmp(figure->metric, "memory_mb") == 0)
        return js_integer(llround(value * 1e6));
    return js_integer(llround(strcmp(figure->name, "tokens per step") == 0 ? value / (double)step : value));
}

struct json *run_predicted(struct daemon *daemon, const struct run_row *row)
{
    struct json *list = js_array(), *end = run_measured(daemon, row);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const struct json *planned = lookup(row->plan, figures[i].planned), *measured = lookup(end, figures[i].measured);
        struct json *line = js_object();
        js_set(line, "name", js_string(figures[i].name));
        js_set(line, "predicted", planned ? js_keep(planned) : js_null());
        js_set(line, "measured", measured ? js_keep(measured) : told_by_metric(daemon, row, &figures[i]));
        js_set(line, "unit", js_string(figures[i].unit));
        js_append(list, line);
    }
    js_free(end);
    return list;
}
