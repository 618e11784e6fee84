// The parameter table: what tensors a model has, in which order and at which place of a rank's memory.
#include "schema/shape/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t or_else(int64_t value, int64_t fallback)
{
    return value > 0 ? value : fallback;
}

struct dims dims_of(const struct spec *spec)
{
    const struct spec_model *model = &spec->model;
    struct dims d = {
        .L = model->layers, .C = model->hidden_size, .F = model->ffn_hidden_size, .H = model->attention_heads, .V = model->vocab_size,
        .S = spec->data.sequence_length, .B = spec->training.micro_batch_size,
        .G = or_else(model->kv_heads, model->attention_heads),
        .D = or_else(model->head_dim, model->hidden_size / or_else(model->attention_heads, 1)),
        .E = model->moe.experts, .K = model->moe.experts > 0 ? model->moe.top_k : 0,
        .X = or_else(model->moe.expert_ffn_hidden_size, model->ffn_hidden_size),
        .moe_every = or_else(model->moe.layer_frequency, 1), .gated = model->activation == ACTIVATION_SWIGLU,
    };
    d.moe_layers = spec_moe_layers(spec);
    return d;
}

// ---- names ----

static const char *const names[PARAM_KINDS] = { // behind "model.layers.N." where the tensor is a layer's
    [PARAM_EMBEDDING] = "model.embed_tokens.weight",
    [PARAM_POSITION] = "model.embed_positions.weight",
    [PARAM_FINAL_NORM] = "model.norm.weight",
    [PARAM_FINAL_NORM_BIAS] = "model.norm.bias",
    [PARAM_LM_HEAD] = "lm_head.weight",
    [PARAM_ATTENTION_NORM] = "input_layernorm.weight",
    [PARAM_ATTENTION_NORM_BIAS] = "input_layernorm.bias",
    [PARAM_Q] = "self_attn.q_proj.weight",
    [PARAM_K] = "self_attn.k_proj.weight",
    [PARAM_V] = "self_attn.v_proj.weight",
    [PARAM_O] = "self_attn.o_proj.weight",
    [PARAM_Q_BIAS] = "self_attn.q_proj.bias",
    [PARAM_K_BIAS] = "self_attn.k_proj.bias",
    [PARAM_V_BIAS] = "self_attn.v_proj.bias",
    [PARAM_O_BIAS] = "self_attn.o_proj.bias",
    [PARAM_Q_NORM] = "self_attn.q_norm.weight",
    [PARAM_K_NORM] = "self_attn.k_norm.weight",
    [PARAM_MLP_NORM] = "post_attention_layernorm.weight",
    [PARAM_MLP_NORM_BIAS] = "post_attention_layernorm.bias",
    [PARAM_GATE] = "mlp.gate_proj.weight",
    [PARAM_UP] = "mlp.up_proj.weight",
    [PARAM_DOWN] = "mlp.down_proj.weight",
    [PARAM_GATE_BIAS] = "mlp.gate_proj.bias",
    [PARAM_UP_BIAS] = "mlp.up_proj.bias",
    [PARAM_DOWN_BIAS] = "mlp.down_proj.bias",
    [PARAM_ROUTER] = "block_sparse_moe.gate.weight",
    [PARAM_SHARED_GATE] = "block_sparse_moe.shared_expert.gate_proj.weight",
    [PARAM_SHARED_UP] = "block_sparse_moe.shared_expert.up_proj.weight",
    [PARAM_SHARED_DOWN] = "block_sparse_moe.shared_expert.down_proj.weight",
    [PARAM_SHARED_ROUTER] = "block_sparse_moe.shared_expert_gate.weight",
    [PARAM_RESIDUAL_GATE] = "block_sparse_moe.residual.gate_proj.weight",
    [PARAM_RESIDUAL_UP] = "block_sparse_moe.residual.up_proj.weight",
    [PARAM_RESIDUAL_DOWN] = "block_sparse_moe.residual.down_proj.weight",
    [PARAM_RESIDUAL_GATE_BIAS] = "block_sparse_moe.residual.gate_proj.bias",
    [PARAM_RESIDUAL_UP_BIAS] = "block_sparse_moe.residual.up_proj.bias",
    [PARAM_RESIDUAL_DOWN_BIAS] = "block_sparse_moe.residual.down_proj.bias",
    [PARAM_RESIDUAL_COEFFICIENT_BIAS] = "block_sparse_moe.coefficient.bias",
    [PARAM_RESIDUAL_COEFFICIENT] = "block_sparse_moe.coefficient.weight",
    [PARAM_EXPERT_GATE] = "w1.weight", // behind "block_sparse_moe.experts.J."
    [PARAM_EXPERT_UP] = "w3.weight",
    [PARAM_EXPERT_DOWN] = "w2.weight",
    [PARAM_EXPERT_GATE_BIAS] = "w1.bias",
    [PARAM_EXPERT_UP_BIAS] = "w3.bias",
    [PARAM_EXPERT_DOWN_BIAS] = "w2.bias",
};

static void write_name(struct param *param)
{
    const char *own = names[param->kind];
    int used;
    if (param->layer < 0)
        used = snprintf(param->name, sizeof param->name, "%s", own);
    else if (param->expert < 0)
        used = snprintf(param->name, sizeof param->name, "model.layers.%d.%s", param->layer, own);
    else
        used = snprintf(param->name, sizeof param->name, "model.layers.%d.block_sparse_moe.experts.%d.%s", param->layer,
            param->expert, own);
    assert(used > 0 && (size_t)used < sizeof param->name);
}

// ---- the walk ----

struct walk {
    const struct spec *spec;
    struct dims d;
    int64_t layer;
    void (*take)(void *context, const struct param *param);
    void *context;
};

static bool writes_to_residual(enum param_kind kind)
{
    return kind == PARAM_O || kind == PARAM_DOWN || kind == PARAM_EXPERT_DOWN || kind == PARAM_SHARED_DOWN || kind == PARAM_RESIDUAL_DOWN;
}

static void matrix(const struct walk *walk, enum param_kind kind, int64_t expert, int64_t rows, int64_t columns)
{
    double std = walk->spec->model.init.std;
    struct param param = {
        .kind = kind, .layer = (int32_t)walk->layer, .expert = (int32_t)expert, .rows = rows, .columns = columns,
        .init = INIT_NORMAL, .init_std = writes_to_residual(kind) ? std / sqrt(2.0 * (double)walk->d.L) : std, .decay = true,
    };
    write_name(&param);
    walk->take(walk->context, &param);
}

static void vector(const struct walk *walk, enum param_kind kind, int64_t expert, enum param_init init, int64_t columns)
{
    struct param param = {
        .kind = kind, .layer = (int32_t)walk->layer, .expert = (int32_t)expert, .rows = 1, .columns = columns, .init = init,
    };
    write_name(&param);
    walk->take(walk->context, &param);
}

static void norm(const struct walk *walk, enum param_kind weight, enum param_kind bias)
{
    vector(walk, weight, -1, INIT_ONES, walk->d.C);
    if (walk->spec->model.norm == NORM_LAYERNORM)
        vector(walk, bias, -1, INIT_ZEROS, walk->d.C);
}

static void bias(const struct walk *walk, enum param_kind kind, int64_t expert, int64_t columns)
{
    if (walk->spec->model.bias)
        vector(walk, kind, expert, INIT_ZEROS, columns);
}

static void attention(const struct walk *walk)
{
    const struct dims *d = &walk->d;
    norm(walk, PARAM_ATTENTION_NORM, PARAM_ATTENTION_NORM_BIAS);
    matrix(walk, PARAM_Q, -1, d->H * d->D, d->C);
    matrix(walk, PARAM_K, -1, d->G * d->D, d->C);
    matrix(walk, PARAM_V, -1, d->G * d->D, d->C);
    matrix(walk, PARAM_O, -1, d->C, d->H * d->D);
    bias(walk, PARAM_Q_BIAS, -1, d->H * d->D);
    bias(walk, PARAM_K_BIAS, -1, d->G * d->D);
    bias(walk, PARAM_V_BIAS, -1, d->G * d->D);
    bias(walk, PARAM_O_BIAS, -1, d->C);
    if (walk->spec->model.qk_norm) {
        bool heads_apart = walk->spec->model.qk_norm_over == QK_NORM_HEAD;
        vector(walk, PARAM_Q_NORM, -1, INIT_ONES, heads_apart ? d->D : d->H * d->D);
        vector(walk, PARAM_K_NORM, -1, INIT_ONES, heads_apart ? d->D : d->G * d->D);
    }
}

// An FFN: gate (if gated), up, down.
static void ffn(const struct walk *walk, enum param_kind gate, enum param_kind up, enum param_kind down, int64_t width)
{
    if (walk->d.gated)
        matrix(walk, gate, -1, width, walk->d.C);
    matrix(walk, up, -1, width, walk->d.C);
    matrix(walk, down, -1, walk->d.C, width);
}

static void ffn_biases(const struct walk *walk, enum param_kind gate, enum param_kind up, enum param_kind down, int64_t width)
{
    if (walk->d.gated)
        bias(walk, gate, -1, width);
    bias(walk, up, -1, width);
    bias(walk, down, -1, walk->d.C);
}

static void experts(const struct walk *walk, int64_t count)
{
    const struct dims *d = &walk->d;
    for (int64_t e = 0; e < count; e++) {
        if (d->gated)
            matrix(walk, PARAM_EXPERT_GATE, e, d->X, d->C);
        matrix(walk, PARAM_EXPERT_UP, e, d->X, d->C);
    }
    for (int64_t e = 0; e < count; e++)
        matrix(walk, PARAM_EXPERT_DOWN, e, d->C, d->X);
    for (int64_t e = 0; e < count; e++) {
        if (d->gated)
            bias(walk, PARAM_EXPERT_GATE_BIAS, e, d->X);
        bias(walk, PARAM_EXPERT_UP_BIAS, e, d->X);
    }
    for (int64_t e = 0; e < count; e++)
        bias(walk, PARAM_EXPERT_DOWN_BIAS, e, d->C);
}

static void moe_ffn(const struct walk *walk, int64_t count)
{
    const struct spec_moe *moe = &walk->spec->model.moe;
    matrix(walk, PARAM_ROUTER, -1, count, walk->d.C);
    experts(walk, count);
    if (moe->shared_expert_size > 0)
        ffn(walk, PARAM_SHARED_GATE, PARAM_SHARED_UP, PARAM_SHARED_DOWN, moe->shared_expert_size);
    if (moe->shared_expert_size > 0 && moe->shared_expert_gate)
        matrix(walk, PARAM_SHARED_ROUTER, -1, 1, walk->d.C);
    if (moe->residual) {
        ffn(walk, PARAM_RESIDUAL_GATE, PARAM_RESIDUAL_UP, PARAM_RESIDUAL_DOWN, walk->d.X);
        ffn_biases(walk, PARAM_RESIDUAL_GATE_BIAS, PARAM_RESIDUAL_UP_BIAS, PARAM_RESIDUAL_DOWN_BIAS, walk->d.X);
        matrix(walk, PARAM_RESIDUAL_COEFFICIENT, -1, 2, walk->d.C);
        bias(walk, PARAM_RESIDUAL_COEFFICIENT_BIAS, -1, 2);
    }
}

void param_walk(const struct spec *spec, void (*take)(void *context, const struct param *param), void *context)
{
    struct walk walk = {.spec = spec, .d = dims_of(spec), .layer = -1, .take = take, .context = context};
    matrix(&walk, PARAM_EMBEDDING, -1, walk.d.V, walk.d.C);
    if (spec->model.position == POSITION_LEARNED)
        matrix(&walk, PARAM_POSITION, -1, or_else(spec->model.max_position_embeddings, walk.d.S), walk.d.C);
    for (walk.layer = 0; walk.layer < walk.d.L; walk.layer++) {
        attention(&walk);
        norm(&walk, PARAM_MLP_NORM, PARAM_MLP_NORM_BIAS);
        int64_t count = spec_layer_experts(spec, walk.layer);
        if (count > 0) {
            moe_ffn(&walk, count);
            continue;
        }
        ffn(&walk, PARAM_GATE, PARAM_UP, PARAM_DOWN, walk.d.F);
        ffn_biases(&walk, PARAM_GATE_BIAS, PARAM_UP_BIAS, PARAM_DOWN_BIAS, walk.d.F);
    }
    walk.layer = -1;
    norm(&walk, PARAM_FINAL_NORM, PARAM_FINAL_NORM_BIAS);
    if (!spec->model.tied_embeddings)
        matrix(&walk, PARAM_LM_HEAD, -1, walk.d.V, walk.d.C);
}

// ---- the table of one rank ----

struct filling {
    struct param_table *table;
    const struct spec *spec;
    size_t capacity;
};

static void add_item(void *context, const struct param *param)
{
    struct filling *filling = context;
    struct param_table *table = filling->table;
    if (table->count == filling->capacity) {
        filling->capacity = filling->capacity ? 2 * filling->capacity : 64;
        table->items = reallocate(table->items, filling->capacity, sizeof *table->items);
    }
    struct param *item = &table->items[table->count++];
    *item = *param;
    int64_t local = layer_local_experts(table, filling->spec, item->layer);
    item->resident = item->expert < 0 || item->expert / local == table->ep_rank;
    if (!item->resident)
        return;
    size_t *end = item->expert < 0 ? &table->dense_elements : &table->expert_elements;
    item->offset = *end;
    *end += param_elements(item);
}

void param_table_init(struct param_table *table, const struct spec *spec, int64_t ep_rank, int64_t ep_size)
{
    assert(ep_size > 0 && ep_rank >= 0 && ep_rank < ep_size);
    for (int64_t layer = 0; layer < spec->model.layers; layer++)
        assert(spec_layer_experts(spec, layer) % ep_size == 0);
    *table = (struct param_table){.ep_rank = ep_rank, .ep_size = ep_size};
    struct filling filling = {.table = table, .spec = spec};
    param_walk(spec, add_item, &filling);
}

int64_t layer_local_experts(const struct param_table *table, const struct spec *spec, int64_t layer)
{
    return layer < 0 ? 0 : spec_layer_experts(spec, layer) / table->ep_size;
}

bool param_is_expert(enum param_kind kind)
{
    switch (kind) {
    case PARAM_EXPERT_GATE: case PARAM_EXPERT_UP: case PARAM_EXPERT_DOWN: case PARAM_EXPERT_GATE_BIAS: case PARAM_EXPERT_UP_BIAS:
    case PARAM_EXPERT_DOWN_BIAS:
        return true;
    default:
        return false;
    }
}

void param_table_release(struct param_table *table)
{
    free(table->items);
    *table = (struct param_table){0};
}

const struct param *param_find(const struct param_table *table, enum param_kind kind, int64_t layer, int64_t expert)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct param *item = &table->items[i];
        if (item->kind == kind && item->layer == layer && item->expert == expert)
            return item;
    }
    fprintf(stderr, "no tensor of kind %d in layer %lld, expert %lld\n", (int)kind, (long long)layer, (long long)expert);
    abort();
}

// ---- counting ----

struct counting {
    struct param_count count;
    int64_t top_k;
};

static void count_item(void *context, const struct param *param)
{
    struct counting *counting = context;
    int64_t elements = (int64_t)param_elements(param);
    counting->count.total += elements;
    if (param->expert < counting->top_k) // all experts of a layer are alike, so the first k stand for any k
        counting->count.active += elements;
}

struct param_count param_count(const struct spec *spec)
{
    struct counting counting = {.top_k = dims_of(spec).K};
    param_walk(spec, count_item, &counting);
    return counting.count;
}
