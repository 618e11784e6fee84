// Bytes of memory a rank: which tensors a pipeline stage holds, what they weigh with gradients and optimizer, and the activations.
#include "schema/shape/arena.h"
#include "schema/shape/cost.h"
#include "schema/shape/process.h"
#include "schema/shape/schedule.h"

enum { CHUNK_REALS = 1 << 21 }; // as in worker/parallel/reduce.c

// ---- where tensors live ----

int64_t layer_stage(const struct spec *spec, const struct layout *layout, int64_t layer)
{
    int64_t chunks = layout->pp * (spec->parallelism.virtual_pipeline > 1 ? spec->parallelism.virtual_pipeline : 1);
    int64_t each = (spec->model.layers + chunks - 1) / chunks;
    return layer / each % layout->pp;
}

static bool lives_on(const struct param *param, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    if (param->layer >= 0)
        return layer_stage(spec, layout, param->layer) == stage;
    bool last = stage == layout->pp - 1;
    switch (param->kind) {
    case PARAM_EMBEDDING: // a tied one is the output matrix too
        return stage == 0 || (last && spec->model.tied_embeddings);
    case PARAM_POSITION:
        return stage == 0;
    default:
        return last;
    }
}

// Ranks over which a tensor is cut; the others are replicated.
static int64_t tensor_parts(const struct param *param, const struct spec *spec, const struct layout *layout)
{
    int64_t groups = dims_of(spec).G;
    switch (param->kind) {
    case PARAM_EMBEDDING: case PARAM_LM_HEAD: case PARAM_Q: case PARAM_O: case PARAM_Q_BIAS: case PARAM_GATE: case PARAM_UP:
    case PARAM_DOWN: case PARAM_GATE_BIAS: case PARAM_UP_BIAS: case PARAM_SHARED_GATE: case PARAM_SHARED_UP: case PARAM_SHARED_DOWN:
    case PARAM_RESIDUAL_GATE: case PARAM_RESIDUAL_UP: case PARAM_RESIDUAL_DOWN: case PARAM_RESIDUAL_GATE_BIAS: case PARAM_RESIDUAL_UP_BIAS:
        return layout->tp;
    case PARAM_K: case PARAM_V: case PARAM_K_BIAS: case PARAM_V_BIAS:
        return groups < layout->tp ? groups : layout->tp;
    case PARAM_EXPERT_GATE: case PARAM_EXPERT_UP: case PARAM_EXPERT_DOWN: case PARAM_EXPERT_GATE_BIAS: case PARAM_EXPERT_UP_BIAS:
        return layout->etp;
    default:
        return 1;
    }
}

int64_t param_elements_on(const struct param *param, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    if (!lives_on(param, spec, layout, stage))
        return 0;
    if (param->expert >= 0 && param->expert >= spec_layer_experts(spec, param->layer) / layout->ep) // every rank holds as many experts as the first one
        return 0;
    return (int64_t)param_elements(param) / tensor_parts(param, spec, layout);
}

// ---- state ----

struct holding {
    const struct spec *spec;
    const struct layout *layout;
    int64_t stage, dense, expert; // elements
};

static void hold(void *context, const struct param *param)
{
    struct holding *holding = context;
    int64_t here = param_elements_on(param, holding->spec, holding->layout, holding->stage);
    *(param->expert < 0 ? &holding->dense : &holding->expert) += here;
}

static int64_t shared_out(int64_t bytes, int64_t ranks)
{
    return (bytes + ranks - 1) / ranks;
}

static struct holding held(const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct holding holding = {.spec = spec, .layout = layout, .stage = stage};
    param_walk(spec, hold, &holding);
    return holding;
}

static void state_cost(struct memory_cost *cost, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct holding holding = held(spec, layout, stage);
    bool mixed = spec->training.precision != PRECISION_FP32;
    bool shards = spec->training.distributed_optimizer;
    int64_t elements = holding.dense + holding.expert, moments = mixed ? 12 : 8;
    cost->parameters = elements * (mixed ? 2 : 4);
    cost->gradients = elements * 4;
    cost->optimizer = shared_out(holding.dense * moments, shards ? layout->dp * layout->cp : 1) +
        shared_out(holding.expert * moments, shards ? layout->edp : 1);
    cost->state = cost->parameters + cost->gradients + cost->optimizer;
}

// ---- activations ----

// On CPUs, activations and their gradients are fp32 whatever format weights have.
static bool on_cpu(const struct spec *spec)
{
    const struct spec_resources *r = &spec->resources;
    return spec->engine == ENGINE_NATIVE && (r->device == DEVICE_AUTO ? r->gpus_per_node == 0 : r->device != DEVICE_CUDA);
}

static size_t real_bytes(const struct spec *spec)
{
    return on_cpu(spec) || spec->training.precision == PRECISION_FP32 ? 4 : 2;
}

// How many micro batches' worth of a rank's layers are alive at once, as a fraction of its chunks: in (warm-up + 1) / chunks.
static void in_flight(const struct spec *spec, const struct layout *layout, int64_t stage, int64_t *passes, int64_t *chunks)
{
    *chunks = spec->parallelism.virtual_pipeline > 1 ? spec->parallelism.virtual_pipeline : 1;
    int64_t count = micro_batches(spec) > 0 ? micro_batches(spec) : 1;
    int64_t alive = schedule_warmup(count, layout->pp, stage, *chunks, 0) + 1;
    *passes = alive < count * *chunks ? alive : count * *chunks;
}

// What recomputation keeps of a stage's layers for one micro batch, and the place that they share.
static struct layers_space stage_layers(const struct model_sizes *sizes, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct layers_space space = {0};
    for (int64_t layer = 0; layer < spec->model.layers; layer++) {
        if (layer_stage(spec, layout, layer) != stage)
            continue;
        struct model_sizes own = model_sizes_of(sizes, (size_t)spec_layer_experts(spec, layer));
        layers_space_add(&space, spec, &own, real_bytes(spec));
    }
    return space;
}

// Where the sums over ranks are made: the parts of one slice.
static int64_t scratch_bytes(int64_t elements, int64_t ranks)
{
    int64_t chunk = elements < CHUNK_REALS ? elements : CHUNK_REALS;
    return ranks == 1 ? 0 : shared_out(chunk, ranks) * ranks * 4;
}

static int64_t reduce_bytes(const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct holding holding = held(spec, layout, stage);
    int64_t dense = scratch_bytes(holding.dense, layout->dp * layout->cp), expert = scratch_bytes(holding.expert, layout->edp);
    return dense > expert ? dense : expert;
}

static int64_t activation_bytes(const struct model_sizes *s, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    int64_t passes, chunks;
    struct layers_space space = stage_layers(s, spec, layout, stage);
    in_flight(spec, layout, stage, &passes, &chunks);
    return shared_out((int64_t)space.kept * passes, chunks) + (int64_t)space.shared + (int64_t)once_bytes(s, real_bytes(spec)) + reduce_bytes(spec, layout, stage);
}

// fp32 weights and both moments of all that the rank writes: the first rank's, which writes most. (Extra state is a few numbers an expert.)
static int64_t checkpoint_bytes(const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct holding holding = held(spec, layout, stage);
    bool copies = spec->engine == ENGINE_NATIVE && spec->checkpoint.interval > 0 && spec->checkpoint.asynchronous;
    return copies ? 12 * (holding.dense + holding.expert) : 0;
}

static void stage_cost(struct memory_cost *cost, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct model_sizes balanced, worst;
    model_sizes_init(&balanced, spec, layout, ROUTING_BALANCED);
    model_sizes_init(&worst, spec, layout, ROUTING_WORST);
    *cost = (struct memory_cost){.stage = stage};
    state_cost(cost, spec, layout, stage);
    cost->activations_balanced = activation_bytes(&balanced, spec, layout, stage);
    cost->activations_worst = activation_bytes(&worst, spec, layout, stage);
    cost->dispatch_balanced = (int64_t)dispatch_bytes(&balanced, real_bytes(spec));
    cost->dispatch_worst = (int64_t)dispatch_bytes(&worst, real_bytes(spec));
    cost->checkpoint = checkpoint_bytes(spec, layout, stage);
    struct holding holding = held(spec, layout, stage);
    if (on_cpu(spec))
        cost->process = (int64_t)process_bytes(spec, &worst, &(struct process_holding){(size_t)holding.dense, (size_t)holding.expert,
            (size_t)cost->activations_worst, (size_t)cost->dispatch_worst});
    int64_t host = on_cpu(spec) ? cost->checkpoint + cost->process : 0; // GPUs do not hold it
    cost->total = host + cost->state + cost->activations_balanced + cost->dispatch_balanced;
    cost->total_worst = host + cost->state + cost->activations_worst + cost->dispatch_worst;
}

void memory_cost(struct memory_cost *cost, const struct spec *spec, const struct layout *layout)
{
    stage_cost(cost, spec, layout, 0);
    for (int64_t stage = 1; stage < layout->pp; stage++) {
        struct memory_cost other;
        stage_cost(&other, spec, layout, stage);
        if (other.total > cost->total)
            *cost = other;
    }
}
