// Bytes of memory a rank: which tensors a pipeline stage holds, what they weigh with gradients and optimizer, and the activations.
#include "schema/shape/cost.h"
#include "schema/shape/schedule.h"

enum { ALIGNMENT = 64, LOSS_LOGITS_MAX = 1 << 22, CHUNK_REALS = 1 << 21 }; // as in worker/model/activations.h and worker/parallel/reduce.c

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
    case PARAM_RESIDUAL_GATE: case PARAM_RESIDUAL_UP: case PARAM_RESIDUAL_DOWN:
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

// ---- activations: the tables of worker/model/activations.h ----

struct sizes { // of one micro batch on one rank
    struct dims n;
    int64_t T, t;      // tokens, and those that norms and residuals see (fewer with sequence parallelism)
    int64_t A, Q, F, X; // a tensor-parallel rank's part of heads, of q|k|v, of FFN and expert width
    bool worst;        // routing: the worst that can reach a rank, else balanced
    int64_t ep, etp;
    int64_t real;      // bytes
    bool exchanged;
};

static struct sizes sizes_of(const struct spec *spec, const struct layout *layout, bool worst)
{
    struct dims n = dims_of(spec);
    int64_t groups = n.G < layout->tp ? 1 : n.G / layout->tp;
    struct sizes s = {.n = n, .T = n.B * n.S / layout->cp, .A = n.H * n.D / layout->tp, .F = n.F / layout->tp, .X = n.X / layout->etp,
        .real = spec->training.precision == PRECISION_FP32 ? 4 : 2, .exchanged = layout->ep > 1};
    s.t = s.T / (spec->parallelism.sequence ? layout->tp : 1);
    s.Q = s.A + 2 * groups * n.D;
    s.worst = worst;
    s.ep = layout->ep;
    s.etp = layout->etp;
    return s;
}

// Rows that a rank's experts get in a layer with so many of them.
static int64_t expert_rows(const struct sizes *s, int64_t experts)
{
    int64_t local = experts / s->ep, most = s->n.K < local ? s->n.K : local;
    return (s->worst ? s->ep * s->t * most : s->t * s->n.K) * s->etp;
}

static int64_t padded(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int64_t reals(const struct sizes *s, int64_t count)
{
    return padded(count * s->real);
}

static int64_t ints(int64_t count)
{
    return padded(count * 4);
}

static int64_t moe_bytes(const struct sizes *s, int64_t experts)
{
    const struct dims *n = &s->n;
    int64_t choices = s->t * n->K, rows = expert_rows(s, experts);
    int64_t bytes = reals(s, choices) + reals(s, s->t * experts);              // probs, scores
    bytes += reals(s, rows * n->C) + reals(s, rows);                           // expert_rows, expert_probs
    bytes += reals(s, rows * (n->gated ? 2 : 1) * s->X) + reals(s, rows * s->X); // gate_up, act
    bytes += 4 * ints(choices) + ints(experts);                                // choice, row_token, row_slot, row_of; counts
    return bytes + (s->exchanged ? 2 * ints(rows) : 0);                        // order, arrival
}

static int64_t layer_bytes(const struct sizes *s, int64_t experts)
{
    const struct dims *n = &s->n;
    int64_t bytes = 2 * (2 * reals(s, s->t * n->C) + reals(s, s->t));               // x, normed, rstd: attention's and the FFN's
    bytes += reals(s, s->T * s->Q) + reals(s, s->T * s->A) + reals(s, s->T * n->H); // qkv, attention, lse
    if (experts > 0)
        return bytes + moe_bytes(s, experts);
    return bytes + reals(s, s->T * (n->gated ? 2 : 1) * s->F) + reals(s, s->T * s->F); // gate_up, act
}

static int64_t once_bytes(const struct sizes *s, const struct spec *spec)
{
    const struct dims *n = &s->n;
    int64_t rows = n->V > 0 && LOSS_LOGITS_MAX / n->V > 0 ? LOSS_LOGITS_MAX / n->V : 1;
    if (spec->engine != ENGINE_NATIVE || rows > s->T) // the others hold all logits at once
        rows = s->T;
    int64_t bytes = 2 * reals(s, s->t * n->C) + reals(s, s->t) + reals(s, s->T); // x_out, normed_final, rstd_final, losses
    bytes += padded(rows * n->V * 4) + reals(s, 1) + 2 * ints(s->T);             // logits, balance, tokens, targets
    bytes += 3 * reals(s, s->t * n->C) + reals(s, s->T * s->A) + reals(s, s->T * s->Q); // dx, dnormed, branch, dattention, dqkv
    if (n->moe_layers < n->L)
        bytes += reals(s, s->T * (n->gated ? 2 : 1) * s->F) + reals(s, s->T * s->F); // dgate_up, dact
    return bytes;
}

static int64_t dispatch_bytes(const struct sizes *s)
{
    const struct dims *n = &s->n;
    if (!n->E)
        return 0;
    int64_t choices = s->t * n->K, rows = expert_rows(s, n->E);
    int64_t bytes = reals(s, choices * n->C) + 2 * reals(s, rows * n->C);               // send, arrived, ordered
    bytes += 2 * reals(s, choices) + 2 * reals(s, rows);                                // send_probs, dprobs; arrived_probs, dexpert_probs
    bytes += reals(s, rows * (n->gated ? 2 : 1) * s->X) + reals(s, rows * s->X);        // dgate_up, dact
    return bytes + reals(s, s->t * n->E) + reals(s, s->t * n->C);                       // dlogits, drouter
}

// How many micro batches' worth of a rank's layers are alive at once, as a fraction of its chunks: in (warm-up + 1) / chunks.
static void in_flight(const struct spec *spec, const struct layout *layout, int64_t stage, int64_t *passes, int64_t *chunks)
{
    *chunks = spec->parallelism.virtual_pipeline > 1 ? spec->parallelism.virtual_pipeline : 1;
    int64_t count = micro_batches(spec) > 0 ? micro_batches(spec) : 1;
    int64_t alive = schedule_warmup(count, layout->pp, stage, *chunks, 0) + 1;
    *passes = alive < count * *chunks ? alive : count * *chunks;
}

// What recomputation keeps of a stage's layers for one micro batch, and the most that one backward step needs beside it.
static void kept_bytes(const struct sizes *s, const struct spec *spec, const struct layout *layout, int64_t stage, int64_t *kept,
    int64_t *working)
{
    const struct spec_recompute_keys *recompute = &spec->training.recompute;
    bool full = recompute->granularity == RECOMPUTE_FULL;
    bool uniform = full && recompute->method == RECOMPUTE_UNIFORM;
    int64_t span = full && recompute->layers > 0 ? recompute->layers : 1;
    int64_t input = reals(s, s->t * s->n.C), index = 0, chunk = 0;
    *kept = *working = 0;
    for (int64_t layer = 0; layer < s->n.L; layer++) {
        if (layer_stage(spec, layout, layer) != stage)
            continue;
        int64_t whole = layer_bytes(s, spec_layer_experts(spec, layer));
        bool again = full && (uniform || index < span);
        *kept += !again ? whole : !uniform || index % span == 0 ? input : 0;
        chunk = uniform && index % span != 0 ? chunk + whole : whole; // layers that are made anew together
        if (again && chunk > *working)
            *working = chunk;
        index++;
    }
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

static int64_t activation_bytes(const struct sizes *s, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    int64_t kept, working, passes, chunks;
    kept_bytes(s, spec, layout, stage, &kept, &working);
    in_flight(spec, layout, stage, &passes, &chunks);
    return shared_out(kept * passes, chunks) + working + once_bytes(s, spec) + reduce_bytes(spec, layout, stage);
}

static void stage_cost(struct memory_cost *cost, const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct sizes balanced = sizes_of(spec, layout, false), worst = sizes_of(spec, layout, true);
    *cost = (struct memory_cost){.stage = stage};
    state_cost(cost, spec, layout, stage);
    cost->activations_balanced = activation_bytes(&balanced, spec, layout, stage);
    cost->activations_worst = activation_bytes(&worst, spec, layout, stage);
    cost->dispatch_balanced = dispatch_bytes(&balanced);
    cost->dispatch_worst = dispatch_bytes(&worst);
    cost->total = cost->state + cost->activations_balanced + cost->dispatch_balanced;
    cost->total_worst = cost->state + cost->activations_worst + cost->dispatch_worst;
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
