#include "worker/model/activations.h"

#include "schema/base/text.h"

#include <assert.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

// Walks an arena: the first walk (base NULL) only measures, the second hands out addresses.
struct cursor {
    char *base;
    size_t used, real_bytes;
};

static void *take_bytes(struct cursor *cursor, size_t bytes)
{
    void *at = cursor->base ? cursor->base + cursor->used : NULL;
    cursor->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static void *reals(struct cursor *cursor, size_t count)
{
    return take_bytes(cursor, count * cursor->real_bytes);
}

static int32_t *ints(struct cursor *cursor, size_t count)
{
    return take_bytes(cursor, count * sizeof(int32_t));
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void sizes_init(struct model_sizes *sizes, const struct spec *spec, const struct param_table *table, int64_t ep_size)
{
    struct dims d = dims_of(spec);
    struct model_sizes s = {
        .B = (size_t)d.B, .S = (size_t)d.S, .T = (size_t)(d.B * d.S), .C = (size_t)d.C, .H = (size_t)d.H, .G = (size_t)d.G,
        .D = (size_t)d.D, .A = (size_t)(d.H * d.D), .Q = (size_t)((d.H + 2 * d.G) * d.D), .V = (size_t)d.V, .F = (size_t)d.F,
        .layers = (size_t)d.L, .any_dense = d.moe_layers < d.L,
    };
    size_t rows = LOSS_LOGITS_MAX / s.V;
    s.loss_rows = smaller(s.T, rows ? rows : 1);
    if (spec_is_moe(spec)) {
        s.E = (size_t)d.E;
        s.K = (size_t)d.K;
        s.local = (size_t)table->local_experts;
        s.R = (size_t)ep_size * s.T * smaller(s.K, s.local);
        s.expert_F = (size_t)d.X;
    }
    *sizes = s;
}

static void lay_out_moe(struct moe_activations *moe, const struct model_sizes *s, struct cursor *at, bool exchanged)
{
    moe->probs = reals(at, s->T * s->K);
    moe->scores = reals(at, s->T * s->E);
    moe->expert_rows = reals(at, s->R * s->C);
    moe->expert_probs = reals(at, s->R);
    moe->gate_up = reals(at, s->R * 2 * s->expert_F);
    moe->act = reals(at, s->R * s->expert_F);
    moe->choice = ints(at, s->T * s->K);
    moe->counts = ints(at, s->E);
    moe->row_token = ints(at, s->T * s->K);
    moe->row_slot = ints(at, s->T * s->K);
    moe->row_of = ints(at, s->T * s->K);
    if (exchanged) {
        moe->dispatch.order = ints(at, s->R);
        moe->dispatch.arrival = ints(at, s->R);
    }
}

static void lay_out_layer(struct layer_activations *layer, const struct model_sizes *s, struct cursor *at, bool is_moe, bool exchanged)
{
    layer->x = reals(at, s->T * s->C);
    layer->rstd_attention = reals(at, s->T);
    layer->normed_attention = reals(at, s->T * s->C);
    layer->qkv = reals(at, s->T * s->Q);
    layer->attention = reals(at, s->T * s->A);
    layer->lse = reals(at, s->T * s->H);
    layer->x_mid = reals(at, s->T * s->C);
    layer->rstd_mlp = reals(at, s->T);
    layer->normed_mlp = reals(at, s->T * s->C);
    if (is_moe) {
        lay_out_moe(&layer->moe, s, at, exchanged);
    } else {
        layer->gate_up = reals(at, s->T * 2 * s->F);
        layer->act = reals(at, s->T * s->F);
    }
}

static void lay_out_once(struct activations *a, struct cursor *at)
{
    const struct model_sizes *s = &a->sizes;
    a->x_out = reals(at, s->T * s->C);
    a->rstd_final = reals(at, s->T);
    a->normed_final = reals(at, s->T * s->C);
    a->losses = reals(at, s->T);
    a->logits = reals(at, s->loss_rows * s->V);
    a->balance = reals(at, 1);
    a->tokens = ints(at, s->T);
    a->targets = ints(at, s->T);
    a->dx = reals(at, s->T * s->C);
    a->dnormed = reals(at, s->T * s->C);
    a->branch = reals(at, s->T * s->C);
    a->dattention = reals(at, s->T * s->A);
    a->dqkv = reals(at, s->T * s->Q);
    if (s->any_dense) {
        a->dgate_up = reals(at, s->T * 2 * s->F);
        a->dact = reals(at, s->T * s->F);
    }
}

static void lay_out_dispatch(struct exchange_buffers *exchange, const struct model_sizes *s, struct cursor *at)
{
    if (!s->E)
        return;
    exchange->send = reals(at, s->T * s->K * s->C);
    exchange->arrived = reals(at, s->R * s->C);
    exchange->ordered = reals(at, s->R * s->C);
    exchange->send_probs = reals(at, s->T * s->K);
    exchange->arrived_probs = reals(at, s->R);
    exchange->dexpert_probs = reals(at, s->R);
    exchange->dgate_up = reals(at, s->R * 2 * s->expert_F);
    exchange->dact = reals(at, s->R * s->expert_F);
    exchange->dprobs = reals(at, s->T * s->K);
    exchange->dlogits = reals(at, s->T * s->E);
    exchange->drouter = reals(at, s->T * s->C);
}

static void lay_out(struct activations *a, const struct spec *spec, struct cursor *arena, struct cursor *dispatch, bool exchanged)
{
    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        lay_out_layer(&a->layers[layer], &a->sizes, arena, layer_is_moe(spec, layer), exchanged);
    lay_out_once(a, arena);
    lay_out_dispatch(&a->exchange, &a->sizes, dispatch);
}

struct activations *activations_new(const struct spec *spec, const struct param_table *table, const struct device *device,
    const struct parallel *parallel)
{
    struct activations *a = allocate(1, sizeof *a);
    sizes_init(&a->sizes, spec, table, parallel->ep->size);
    a->layers = allocate(a->sizes.layers, sizeof *a->layers);
    bool exchanged = parallel->ep->size > 1;

    struct cursor arena = {.real_bytes = device->real_bytes}, dispatch = arena;
    lay_out(a, spec, &arena, &dispatch, exchanged);
    a->arena_bytes = arena.used;
    a->dispatch_bytes = dispatch.used;
    a->arena = device->memory->alloc(arena.used);
    a->dispatch_arena = dispatch.used ? device->memory->alloc(dispatch.used) : NULL;
    arena = (struct cursor){.base = a->arena, .real_bytes = device->real_bytes};
    dispatch = (struct cursor){.base = a->dispatch_arena, .real_bytes = device->real_bytes};
    lay_out(a, spec, &arena, &dispatch, exchanged);
    assert(arena.used == a->arena_bytes && dispatch.used == a->dispatch_bytes);

    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        if (layer_is_moe(spec, layer))
            dispatch_init(&a->layers[layer].moe.dispatch, parallel->ep, a->sizes.E, a->sizes.R);
    return a;
}

void activations_free(struct activations *a, const struct device *device)
{
    if (!a)
        return;
    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        dispatch_release(&a->layers[layer].moe.dispatch);
    device->memory->free(a->arena, a->arena_bytes);
    if (a->dispatch_arena)
        device->memory->free(a->dispatch_arena, a->dispatch_bytes);
    free(a->layers);
    free(a);
}
