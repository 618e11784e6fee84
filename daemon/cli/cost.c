#include "daemon/cli/cost.h"
#include "daemon/cli/format.h"
#include "schema/shape/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_hours(struct cost *cost, const struct spec *spec, const struct machine *machine)
{
    const struct spec_resources *resources = &spec->resources;
    double seconds = resources->time_limit, nodes = (double)resources->nodes;
    if (seconds <= 0) {
        cost->unlimited++;
    } else if (resources->gpus_per_node > 0) {
        cost->gpu_seconds += nodes * (double)resources->gpus_per_node * seconds;
    } else {
        double ranks = (double)resources->ranks_per_node, share = (double)machine->cores; // of a node, where threads are not stated
        cost->core_seconds += nodes * (resources->threads_per_rank > 0 ? ranks * (double)resources->threads_per_rank : share) * seconds;
    }
}

struct cost cost_of(const struct spec_file *file, const struct machine *machine)
{
    struct cost cost = {0};
    for (size_t i = 0; i < file->count; i++) {
        const struct spec *spec = &file->runs[i].spec;
        if (strcmp(file->entries[file->runs[i].entry].kind, "train") != 0)
            continue;
        double tokens = (double)(samples_before(spec, spec->training.iterations + 1) * spec->data.sequence_length);
        cost.runs++;
        cost.tokens += tokens;
        cost.flop += tokens * flops_per_token(spec);
        add_hours(&cost, spec, machine);
    }
    return cost;
}

struct json *cost_json(const struct cost *cost)
{
    bool known = cost->unlimited == 0;
    struct json *json = js_object();
    js_set(json, "runs", js_integer((int64_t)cost->runs));
    js_set(json, "tokens", js_real(cost->tokens));
    js_set(json, "flop", js_real(cost->flop));
    js_set(json, "gpu_hours_at_most", known ? js_real(cost->gpu_seconds / 3600) : js_null());
    js_set(json, "core_hours_at_most", known ? js_real(cost->core_seconds / 3600) : js_null());
    return json;
}

// To a hundredth where there are few of them.
static const char *hours(char out[FORMAT_MAX], double seconds)
{
    return format_value(out, seconds < 100 * 3600.0 ? round(seconds / 36) / 100 : round(seconds / 3600));
}

char *cost_sentence(const struct cost *cost)
{
    char flop[FORMAT_MAX], tokens[FORMAT_MAX], gpu[FORMAT_MAX], core[FORMAT_MAX];
    struct text text;
    text_init(&text, 1024);
    text_addf(&text, "%zu run%s, %s FLOP, %s tokens", cost->runs, cost->runs == 1 ? "" : "s", format_short(flop, cost->flop),
        format_value(tokens, cost->tokens));
    if (cost->gpu_seconds > 0)
        text_addf(&text, ", at most %s GPU-hours", hours(gpu, cost->gpu_seconds));
    if (cost->core_seconds > 0)
        text_addf(&text, ", at most %s core-hours", hours(core, cost->core_seconds));
    if (cost->unlimited)
        text_addf(&text, "; hours not known for %zu of them (no `resources.time_limit`)", cost->unlimited);
    return text_take(&text);
}
