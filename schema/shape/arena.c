// Sizes of a micro batch on a rank, and the offsets of its buffers.
#include "schema/shape/arena.h"
#include "schema/base/text.h"

#include <math.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void model_sizes_init(struct model_sizes *sizes, const struct spec *spec, const struct layout *layout, enum arena_routing routing)
{
    struct dims d = dims_of(spec);
    size_t tp = (size_t)layout->tp, heads = (size_t)(d.H * d.D) / tp;
    size_t groups = (size_t)d.G < tp ? 1 : (size_t)d.G / tp, rows = d.V > 0 ? LOSS_LOGITS_MAX / (size_t)d.V : 1;
    struct model_sizes s = {
        .B = (size_t)d.B, .S = (size_t)d.S, .T = (size_t)(d.B * d.S / layout->cp), .C = (size_t)d.C, .H = (size_t)d.H, .G = (size_t)d.G,
        .D = (size_t)d.D, .A = heads, .Q = heads + 2 * groups * (size_t)d.D, .V = (size_t)d.V, .F = (size_t)d.F / tp,
        .gates = d.gated ? 2 : 1, .layers = (size_t)d.L, .any_dense = d.moe_layers < d.L, .routing = routing, .ep = (size_t)layout->ep,
        .etp = (size_t)layout->etp, .centred = spec->model.norm == NORM_LAYERNORM, .Z = (size_t)spec->model.moe.shared_expert_size / tp,
        .Y = spec->model.moe.residual ? (size_t)d.X / tp : 0, .shared_gate = spec->model.moe.shared_expert_gate,
        .positions = spec->model.position != POSITION_NONE, .documents = spec->data.reset_attention_mask,
        .drops = spec->model.hidden_dropout > 0,
        .biases = spec->model.bias, .moe = &spec->model.moe, .biased = spec->model.moe.expert_bias,
        .balanced = spec_moe_coefficient(spec, MOE_LOSS_AUX) != 0 || spec_moe_coefficient(spec, MOE_LOSS_SEQ_AUX) != 0 ||
            spec_moe_coefficient(spec, MOE_LOSS_GLOBAL_AUX) != 0,
    };
    if (spec->model.qk_norm) {
        bool heads_apart = spec->model.qk_norm_over == QK_NORM_HEAD;
        s.q_pieces = heads_apart ? heads / s.D : 1;
        s.k_pieces = heads_apart ? groups : 1;
    }
    s.t = s.T / (spec->parallelism.sequence ? tp : 1);
    s.loss_rows = spec->engine == ENGINE_NATIVE ? smaller(s.T, rows ? rows : 1) : s.T; // the others hold all logits at once
    s.K = (size_t)d.K;
    s.X = (size_t)(d.X / layout->etp);
    *sizes = model_sizes_of(&s, (size_t)d.E);
}

size_t expert_capacity(const struct spec_moe *moe, size_t tokens, size_t experts, bool training)
{
    double factor = !training && moe->eval_capacity_factor > 0 ? moe->eval_capacity_factor : moe->capacity_factor;
    if (factor <= 0 && moe->routing == ROUTING_EXPERT_CHOICE)
        factor = 1;
    if (factor <= 0)
        return 0;
    double share = (double)((int64_t)tokens * moe->top_k) / (double)experts, capacity = ceil(share * factor);
    if (capacity < (double)moe->min_capacity)
        capacity = (double)moe->min_capacity;
    return capacity < (double)tokens ? (size_t)capacity : tokens;
}

// How many rows go out and come in. Full experts bound both: by what each rank may send to each expert.
static void route_sizes(struct model_sizes *s)
{
    const struct spec_moe *moe = s->moe;
    bool experts_choose = moe->routing == ROUTING_EXPERT_CHOICE;
    size_t capacity = expert_capacity(moe, s->t, s->E, true), later = expert_capacity(moe, s->t, s->E, false), choices = s->t * s->K;
    s->limited = capacity && !experts_choose;
    s->J = experts_choose ? s->E : s->K;
    if (s->routing == ROUTING_WORST && later > capacity)
        capacity = later;
    size_t most = capacity * s->E; // of one rank
    s->N = !capacity ? choices : experts_choose || moe->pad_to_capacity ? most : smaller(choices, most);
    if (s->routing != ROUTING_WORST)
        s->R = s->etp * s->N;
    else if (experts_choose || moe->pad_to_capacity)
        s->R = s->etp * s->ep * s->local * capacity;
    else
        s->R = s->etp * s->ep * smaller(s->t * smaller(s->K, s->local), capacity ? s->local * capacity : SIZE_MAX);
    // One expert's rows: every token's, at worst.
    size_t one = s->routing == ROUTING_WORST ? s->etp * s->ep * s->t : (s->R + s->local - 1) / s->local, together = rows_together(s->gates * s->X);
    s->P = s->biases ? s->R : smaller(s->R, one > together ? one : together);
}

struct model_sizes model_sizes_of(const struct model_sizes *sizes, size_t experts)
{
    struct model_sizes s = *sizes;
    s.E = experts;
    s.local = experts / s.ep;
    s.exchanged = experts > 0 && s.ep > 1;
    if (!experts)
        s.Z = s.Y = 0;
    else
        route_sizes(&s);
    return s;
}

// ---- bytes ----

enum unit { REALS, WIDE, INTS };
enum recompute { KEPT, INPUT, CHEAP, ALWAYS };

static size_t bytes_of(enum unit unit, size_t elements, size_t real_bytes)
{
    size_t each = unit == REALS ? real_bytes : unit == INTS || real_bytes < 4 ? 4 : real_bytes;
    return (elements * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// ---- recomputation ----

int64_t recompute_chunk(const struct spec *spec, int64_t layer)
{
    const struct spec_recompute_keys *recompute = &spec->training.recompute;
    int64_t span = recompute->layers > 0 ? recompute->layers : 1;
    if (recompute->granularity != RECOMPUTE_FULL)
        return CHUNK_NONE;
    if (recompute->method == RECOMPUTE_UNIFORM)
        return layer / span;
    return layer < span ? layer : CHUNK_NONE;
}

bool recompute_repeats(const struct spec *spec, int64_t layer, bool *last)
{
    int64_t chunk = recompute_chunk(spec, layer), next = layer + 1 < spec->model.layers ? recompute_chunk(spec, layer + 1) : CHUNK_NONE;
    *last = chunk != next;
    if (chunk == CHUNK_NONE)
        return false;
    for (int64_t later = layer + 1; later < spec->model.layers; later++)
        if (recompute_chunk(spec, later) > chunk)
            return true;
    return false;
}

// The next layer begins: whether it opens a chunk, whose layers lie in the shared place one behind another.
static bool begin_layer(struct layers_space *space, const struct spec *spec)
{
    int64_t chunk = recompute_chunk(spec, space->count++);
    bool opens = chunk == CHUNK_NONE || chunk != space->chunk || space->count == 1;
    space->chunk = chunk;
    if (opens)
        space->used = 0;
    return opens;
}

static bool is_kept(const struct layers_space *space, const struct spec *spec, enum recompute slot, bool opens)
{
    if (spec->training.recompute.granularity == RECOMPUTE_SELECTIVE)
        return slot != CHEAP;
    return space->chunk == CHUNK_NONE || (slot == INPUT && opens) || slot == ALWAYS;
}

// The place of a buffer of the layer that began last; the shared place begins at `shared_at`.
static int64_t place(struct layers_space *space, bool kept, size_t bytes, size_t shared_at)
{
    size_t *used = kept ? &space->kept : &space->used;
    int64_t at = (int64_t)(*used + (kept ? 0 : shared_at));
    *used += bytes;
    if (space->used > space->shared)
        space->shared = space->used;
    return at;
}

static void add_layer(int64_t offsets[LAYER_SLOTS], struct layers_space *space, const struct spec *spec, const struct model_sizes *s,
    size_t real_bytes, size_t shared_at)
{
    bool opens = begin_layer(space, spec);
#define LAYER_SLOT(name, unit, elements, present, recompute)                                                                               \
    offsets[LAYER_##name] = (present) ? place(space, is_kept(space, spec, recompute, opens), bytes_of(unit, elements, real_bytes), shared_at) \
                                      : ARENA_ABSENT;
#include "schema/shape/slots.inc"
}

void layers_space_add(struct layers_space *space, const struct spec *spec, const struct model_sizes *sizes, size_t real_bytes)
{
    int64_t offsets[LAYER_SLOTS];
    add_layer(offsets, space, spec, sizes, real_bytes, 0);
}

size_t once_bytes(const struct model_sizes *s, size_t real_bytes)
{
    size_t bytes = 0;
#define ONCE_SLOT(name, unit, elements, present) bytes += (present) ? bytes_of(unit, elements, real_bytes) : 0;
#include "schema/shape/slots.inc"
    return bytes;
}

size_t dispatch_bytes(const struct model_sizes *s, size_t real_bytes)
{
    size_t bytes = 0;
#define DISPATCH_SLOT(name, unit, elements, present) bytes += (present) ? bytes_of(unit, elements, real_bytes) : 0;
#include "schema/shape/slots.inc"
    return bytes;
}

// ---- offsets ----

static int64_t take(size_t *used, size_t bytes)
{
    int64_t at = (int64_t)*used;
    *used += bytes;
    return at;
}

void arena_init(struct arena *arena, const struct spec *spec, const struct model_sizes *s, size_t real_bytes)
{
    *arena = (struct arena){.layers = allocate(s->layers, sizeof *arena->layers)};
    for (size_t pass = 0; pass < 2; pass++) { // the first one finds out where the shared place begins
        size_t shared_at = arena->space.kept;
        arena->space = (struct layers_space){0};
        for (size_t layer = 0; layer < s->layers; layer++) {
            struct model_sizes sizes = model_sizes_of(s, (size_t)spec_layer_experts(spec, (int64_t)layer));
            add_layer(arena->layers[layer], &arena->space, spec, &sizes, real_bytes, shared_at);
        }
    }
    arena->bytes = arena->space.kept + arena->space.shared;
#define ONCE_SLOT(name, unit, elements, present)                                                                                           \
    arena->once[ONCE_##name] = (present) ? take(&arena->bytes, bytes_of(unit, elements, real_bytes)) : ARENA_ABSENT;
#include "schema/shape/slots.inc"
#define DISPATCH_SLOT(name, unit, elements, present)                                                                                       \
    arena->dispatch[DISPATCH_##name] = (present) ? take(&arena->dispatch_bytes, bytes_of(unit, elements, real_bytes)) : ARENA_ABSENT;
#include "schema/shape/slots.inc"
}

void arena_release(struct arena *arena)
{
    free(arena->layers);
}
