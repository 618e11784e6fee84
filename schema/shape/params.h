// The parameter table: every logical tensor of a model, once, in one order. The worker allocates by it, the optimizer and the gradient
// norm walk it, checkpoints are named by it, `plan` counts with it. Names and layouts are Hugging Face's Llama and Mixtral: a weight is
// [out, in], row major; rotary dimensions are half-split.
//
// Order: embed_tokens; then for each layer input_layernorm, q_proj, k_proj, v_proj, o_proj, post_attention_layernorm, then either
// gate_proj, up_proj, down_proj or the router's gate followed by (w1, w3) of each expert and then w2 of each expert; then norm; then
// lm_head where embeddings are not tied. So q|k|v, gate|up and all experts' w1|w3 lie side by side in one segment and can be used as one
// fused matrix; likewise the biases: gate|up of each expert, then down of each. Tensors that only some specs have (biases, norms of queries and keys, learned positions, shared and residual experts) stand
// behind those of their block; with GELU there is no gate.
#pragma once
#include "schema/spec/spec.h"
#include <stddef.h>
#include <stdint.h>

enum param_kind {
    PARAM_EMBEDDING, PARAM_ATTENTION_NORM, PARAM_Q, PARAM_K, PARAM_V, PARAM_O, PARAM_MLP_NORM, PARAM_GATE, PARAM_UP, PARAM_DOWN,
    PARAM_ROUTER, PARAM_EXPERT_GATE, PARAM_EXPERT_UP, PARAM_EXPERT_DOWN, PARAM_FINAL_NORM, PARAM_LM_HEAD,
    PARAM_POSITION, PARAM_Q_NORM, PARAM_K_NORM, PARAM_SHARED_GATE, PARAM_SHARED_UP, PARAM_SHARED_DOWN, PARAM_SHARED_ROUTER,
    PARAM_RESIDUAL_GATE, PARAM_RESIDUAL_UP, PARAM_RESIDUAL_DOWN, PARAM_RESIDUAL_COEFFICIENT,
    PARAM_RESIDUAL_GATE_BIAS, PARAM_RESIDUAL_UP_BIAS, PARAM_RESIDUAL_DOWN_BIAS, PARAM_RESIDUAL_COEFFICIENT_BIAS,
    PARAM_ATTENTION_NORM_BIAS, PARAM_Q_BIAS, PARAM_K_BIAS, PARAM_V_BIAS, PARAM_O_BIAS, PARAM_MLP_NORM_BIAS, PARAM_GATE_BIAS, PARAM_UP_BIAS,
    PARAM_DOWN_BIAS, PARAM_EXPERT_GATE_BIAS, PARAM_EXPERT_UP_BIAS, PARAM_EXPERT_DOWN_BIAS, PARAM_FINAL_NORM_BIAS,
    PARAM_KINDS
};

enum param_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS };

// The sizes of a model with every default filled in, by the names that formulas use.
struct dims {
    int64_t L, C, F, H, G, D, V;       // layers, hidden, FFN width, query heads, key/value heads, head size, vocabulary
    int64_t S, B;                      // positions of a sequence, sequences of a micro batch
    int64_t E, K, X;                   // experts (0: dense; the most of any layer), top-k, an expert's width
    int64_t moe_every;                 // where layers are not listed: layer i has experts if E > 0 and i % moe_every == 0
    int64_t moe_layers;
    bool gated;                        // SwiGLU: three matrices an FFN; else two
};
struct dims dims_of(const struct spec *spec);

struct param {
    char name[96];          // model.layers.3.self_attn.q_proj.weight, model.layers.3.block_sparse_moe.experts.5.w1.weight, …
    enum param_kind kind;
    int32_t layer;          // -1 outside layers
    int32_t expert;         // global expert index; -1 for dense tensors
    int64_t rows, columns;  // a vector has rows 1
    enum param_init init;
    double init_std;        // INIT_NORMAL: 0.02, or 0.02/sqrt(2L) for o_proj, down_proj, w2 (spec: model.init.std)
    bool decay;             // weight decay applies: matrices yes (one of a single row too), norms and biases no
    bool resident;          // held by this rank (experts: only those of its expert-parallel rank)
    size_t offset;          // elements from the start of its segment (dense, or expert), only if resident
};

struct param_table {
    struct param *items;    // logical order, resident or not
    size_t count;
    size_t dense_elements;  // sizes of this rank's two segments
    size_t expert_elements;
    int64_t ep_rank, ep_size; // whose table this is: of a layer's experts, an ep_size-th is resident
};

// Builds the table as the rank with expert-parallel index ep_rank of ep_size sees it (0 of 1: everything resident).
void param_table_init(struct param_table *table, const struct spec *spec, int64_t ep_rank, int64_t ep_size);
// How many of a layer's experts a rank holds (0: the layer is dense); the first one of this rank is ep_rank times as many.
int64_t layer_local_experts(const struct param_table *table, const struct spec *spec, int64_t layer);
bool param_is_expert(enum param_kind kind); // whether tensors of the kind belong to one expert
void param_table_release(struct param_table *table);

// The item of that kind in that layer (expert -1 for dense kinds); aborts if there is none: a caller's mistake.
const struct param *param_find(const struct param_table *table, enum param_kind kind, int64_t layer, int64_t expert);

static inline size_t param_elements(const struct param *param)
{
    return (size_t)param->rows * (size_t)param->columns;
}

// Calls take for every tensor of the whole model in logical order, residency left out. The table and every count are made by it.
void param_walk(const struct spec *spec, void (*take)(void *context, const struct param *param), void *context);

// Whether a model that is described by `model` (a spec's section, as JSON) has every tensor of this one, in its size: without that, none of its
// checkpoints can be this one's, whatever a person accepts. err: the first that it has not. A description that cannot be read fits.
int params_fit(const struct spec *spec, const struct json *model, struct error *err);

struct param_count { int64_t total, active; };
struct param_count param_count(const struct spec *spec); // over the whole model; active: top-k experts a layer

// The initial value of element `index` (global, row-major) of a tensor: counter-based (Philox4x32-10, keyed by the seed, counting from the
// name's hash; four uniform numbers make four normal ones by Box-Muller), so every layout starts equal. Fills out[0..count) for elements
// first..first+count.
void param_initial(double *out, const struct param *param, uint64_t seed, size_t first, size_t count);
