// Sizes of a micro batch on a rank, and the offsets of its buffers.
#include "schema/shape/arena.h"
#include "schema/base/text.h"

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

struct model_sizes model_sizes_of(const struct model_sizes *sizes, size_t experts)
{
    struct model_sizes s = *sizes;
    s.E = experts;
    s.local = experts / s.ep;
    s.exchanged = experts > 0 && s.ep > 1;
    if (!experts)
        s.Z = s.Y = 0;
    s.R = !experts ? 0 : s.etp * (s.routing == ROUTING_WORST ? s.ep * s.t * smaller(s.K, s.local) : s.t * s.K);
    return s;
}

// ---- bytes ----

enum unit { REALS, WIDE, INTS };
enum recompute { KEPT, INPUT, CHEAP };

static size_t bytes_of(enum unit unit, size_t elements, size_t real_bytes)
{
    size_t each = unit == REALS ? real_bytes : unit == INTS || real_bytes < 4 ? 4 : real_bytes;
    return (elements * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

struct layer_bytes layer_bytes(const struct model_sizes *s, size_t real_bytes)
{
    struct layer_bytes bytes = {0};
#define LAYER_SLOT(name, unit, elements, present, recompute)                                                                               \
    if (present) {                                                                                                                         \
        size_t slot = bytes_of(unit, elements, real_bytes);                                                                                \
        bytes.whole += slot;                                                                                                               \
        bytes.input += (recompute) == INPUT ? slot : 0;                                                                                    \
        bytes.cheap += (recompute) == CHEAP ? slot : 0;                                                                                    \
    }
#include "schema/shape/slots.inc"
    return bytes;
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

static void lay_out_layer(int64_t offsets[LAYER_SLOTS], size_t *used, const struct model_sizes *s, size_t real_bytes)
{
#define LAYER_SLOT(name, unit, elements, present, recompute)                                                                               \
    offsets[LAYER_##name] = (present) ? take(used, bytes_of(unit, elements, real_bytes)) : ARENA_ABSENT;
#include "schema/shape/slots.inc"
}

void arena_init(struct arena *arena, const struct spec *spec, const struct model_sizes *s, size_t real_bytes)
{
    *arena = (struct arena){.layers = allocate(s->layers, sizeof *arena->layers)};
    for (size_t layer = 0; layer < s->layers; layer++) {
        struct model_sizes sizes = model_sizes_of(s, (size_t)spec_layer_experts(spec, (int64_t)layer));
        lay_out_layer(arena->layers[layer], &arena->bytes, &sizes, real_bytes);
    }
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
