#include "schema/shape/plan.h"
#include "schema/base/json.h"
#include "schema/shape/lr.h"
#include "schema/shape/schedule.h"
#include "schema/shape/upcycle.h"

#include <math.h>
#include <stdlib.h>

enum { EVEN_RATES = 60 };

int plan_init(struct plan *plan, const struct spec *spec, struct error *err)
{
    *plan = (struct plan){0};
    if (layout_from_spec(&plan->layout, spec, err) != 0)
        return -1;
    plan->micro_batches = micro_batches(spec);
    if (plan->micro_batches < 1 ||
        plan->micro_batches * spec->training.micro_batch_size * plan->layout.dp != spec->training.global_batch_size)
        return error_set(err, "global_batch_size %lld is not divisible by micro_batch_size %lld x data parallel %lld",
            (long long)spec->training.global_batch_size, (long long)spec->training.micro_batch_size, (long long)plan->layout.dp);
    int64_t chunks = spec->parallelism.virtual_pipeline > 1 ? spec->parallelism.virtual_pipeline : 1;
    plan->parameters = param_count(spec);
    plan->flops_per_token = flops_per_token(spec);
    plan->tokens_per_step = tokens_per_step(spec);
    plan->tokens_total = samples_before(spec, spec->training.iterations + 1) * spec->data.sequence_length;
    plan->bubble = schedule_bubble(plan->micro_batches, plan->layout.pp, chunks);
    memory_cost(&plan->memory, spec, &plan->layout);
    volume_cost(&plan->volume, spec, &plan->layout);
    if (spec->resources.gpu_memory > 0 && plan->memory.state > spec->resources.gpu_memory)
        return error_set(err, "parameters, gradients and optimizer state need %lld bytes a rank, resources.gpu_memory is %lld",
            (long long)plan->memory.state, (long long)spec->resources.gpu_memory);
    return 0;
}

// ---- the learning rate's curve ----

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

size_t plan_rate_iterations(const struct spec *spec, int64_t iterations[PLAN_RATES_MAX])
{
    const struct spec_learning_rate *rate = &spec->training.learning_rate;
    int64_t last = spec->training.iterations > 1 ? spec->training.iterations : 1;
    int64_t total = rate->total_iterations > 0 ? rate->total_iterations : last;
    int64_t decay = total - rate->decay_iterations;
    const int64_t corners[] = {1, 2, rate->warmup_iterations, rate->warmup_iterations + 1, decay + 1, decay + 2, total, total + 1, last};
    size_t wanted = 0;
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++)
        if (corners[i] >= 1 && corners[i] <= last)
            iterations[wanted++] = corners[i];
    for (int64_t i = 1; i < EVEN_RATES; i++)
        iterations[wanted++] = 1 + (int64_t)((double)(last - 1) * (double)i / EVEN_RATES);
    qsort(iterations, wanted, sizeof *iterations, ascending);
    size_t count = 0;
    for (size_t i = 0; i < wanted; i++)
        if (count == 0 || iterations[count - 1] != iterations[i])
            iterations[count++] = iterations[i];
    return count;
}

// rate: of the dense parameters, or of the experts.
static struct json *rates_to_json(const struct spec *spec, double (*rate)(const struct spec *spec, int64_t samples))
{
    int64_t iterations[PLAN_RATES_MAX];
    size_t count = plan_rate_iterations(spec, iterations);
    struct json *rates = js_array();
    for (size_t i = 0; i < count; i++) {
        struct json *pair = js_array();
        js_append(pair, js_integer(iterations[i]));
        js_append(pair, js_real(rate(spec, samples_before(spec, iterations[i]))));
        js_append(rates, pair);
    }
    return rates;
}

static struct json *ramp_to_json(const struct spec *spec)
{
    struct ramp_stage *stages = allocate(SPEC_RAMP_STAGES_MAX + 1, sizeof *stages);
    size_t count = ramp_stages(spec, stages);
    struct json *list = js_array();
    for (size_t i = 0; i < count; i++) {
        struct json *pair = js_array();
        js_append(pair, js_integer(stages[i].iteration));
        js_append(pair, js_integer(stages[i].samples));
        js_append(list, pair);
    }
    free(stages);
    return list;
}

// ---- JSON ----

struct member {
    const char *key;
    int64_t value;
};

static struct json *members_to_json(const struct member *members, size_t count)
{
    struct json *object = js_object();
    for (size_t i = 0; i < count; i++)
        js_set(object, members[i].key, js_integer(members[i].value));
    return object;
}

#define MEMBERS(...) \
    members_to_json((const struct member[]){__VA_ARGS__}, sizeof((const struct member[]){__VA_ARGS__}) / sizeof(struct member))

static struct json *memory_to_json(const struct memory_cost *m)
{
    return MEMBERS({"parameters", m->parameters}, {"gradients", m->gradients}, {"optimizer", m->optimizer}, {"state", m->state},
        {"activations_balanced", m->activations_balanced}, {"activations_worst", m->activations_worst},
        {"dispatch_balanced", m->dispatch_balanced}, {"dispatch_worst", m->dispatch_worst}, {"process", m->process}, {"checkpoint", m->checkpoint}, {"total", m->total},
        {"total_worst", m->total_worst}, {"stage", m->stage});
}

// A count that is a whole number is written as one.
static struct json *count_to_json(double count)
{
    return count == floor(count) && fabs(count) < 0x1p53 ? js_integer((int64_t)count) : js_real(count);
}

// Whose weights it starts from, and what is made of them; of the layers with most experts.
static struct json *from_to_json(const struct spec *spec)
{
    const struct spec_from *from = &spec->model.from;
    if (!from->run && !from->path)
        return js_null();
    struct json *object = js_object(), *upcycle = NULL;
    if (from->upcycle.present) {
        int64_t experts = spec->model.moe.experts;
        upcycle = MEMBERS({"granularity", from->upcycle.granularity}, {"copies", experts / from->upcycle.granularity});
        js_set(upcycle, "weight_scale", js_real(upcycle_weight_scale(spec, experts)));
    }
    js_set(object, "run", js_string(from->run));
    js_set(object, "path", js_string(from->path));
    js_set(object, "step", js_integer(from->step));
    js_set(object, "upcycle", upcycle ? upcycle : js_null());
    return object;
}

struct json *plan_to_json(const struct plan *plan, const struct spec *spec)
{
    const struct layout *l = &plan->layout;
    const struct volume_cost *v = &plan->volume;
    struct json *object = js_object();
    js_set(object, "name", js_string(spec->name));
    js_set(object, "parameters", MEMBERS({"total", plan->parameters.total}, {"active", plan->parameters.active}));
    js_set(object, "flops_per_token", count_to_json(plan->flops_per_token));
    js_set(object, "tokens_per_step", js_integer(plan->tokens_per_step));
    js_set(object, "tokens_total", js_integer(plan->tokens_total));
    js_set(object, "micro_batches", js_integer(plan->micro_batches));
    js_set(object, "layout", MEMBERS({"world", l->world}, {"tensor", l->tp}, {"context", l->cp}, {"data", l->dp}, {"pipeline", l->pp},
        {"expert_tensor", l->etp}, {"expert", l->ep}, {"expert_data", l->edp}));
    js_set(object, "bubble", js_real(plan->bubble));
    js_set(object, "memory", memory_to_json(&plan->memory));
    js_set(object, "alltoall_bytes_per_step", js_integer(v->alltoall_total));
    js_set(object, "volume", MEMBERS({"alltoall_rows", v->alltoall_rows}, {"alltoall_probabilities", v->alltoall_probabilities}, {"alltoall_passes", v->alltoall_rows + v->alltoall_probabilities}, {"alltoall_recompute", v->alltoall_recompute},
        {"alltoall_total", v->alltoall_total}, {"gradient_reduce", v->gradient_reduce}));
    js_set(object, "learning_rate", rates_to_json(spec, learning_rate));
    if (spec_is_moe(spec) && spec->training.learning_rate.expert_peak > 0)
        js_set(object, "expert_learning_rate", rates_to_json(spec, expert_learning_rate));
    if (spec->training.rampup_batch_size.present)
        js_set(object, "batch_ramp", ramp_to_json(spec));
    js_set(object, "from", from_to_json(spec));
    return object;
}
