// What the model keeps on the device for one micro batch, laid out once in two arenas. `plan` shows their sizes, so the arithmetic of
// schema/shape/cost.c mirrors this table; counts are in reals (ints: 4 bytes), every buffer begins on a multiple of 64 bytes.
//
//   T = micro batch · S tokens, K top-k, E experts, A = H·D, Q = (H + 2G)·D, F ffn width of a dense or of an expert layer,
//   R = the most rows that can reach a rank: EP · T · min(K, E/EP); T·K where routing is balanced.
//
//   each layer   x TC, rstd_attention T, normed_attention TC, qkv TQ, attention TA, lse TH, x_mid TC, rstd_mlp T, normed_mlp TC
//     dense      gate_up T·2F, act TF
//     MoE        probs TK, scores TE, expert_rows RC, expert_probs R, gate_up R·2F, act RF;
//                ints: choice TK, counts E, row_token TK, row_slot TK, row_of TK; where EP > 1 also order R, arrival R
//   once         x_out TC, rstd_final T, normed_final TC, losses T, logits loss_rows·V, balance 1; ints: tokens T, targets T
//   backward     dx TC, dnormed TC, branch TC, dattention TA, dqkv TQ; if any layer is dense: dgate_up T·2F, dact TF
//   dispatch     send T·K·C, arrived RC, ordered RC, send_probs TK, arrived_probs R, dexpert_probs R, dgate_up R·2F, dact RF, dprobs TK, dlogits TE,
//                drouter TC (only if any layer is MoE; an arena of its own)
#pragma once
#include "worker/model/dispatch.h"
#include "worker/model/model.h"

enum { LOSS_LOGITS_MAX = 1 << 22 }; // reals of the logits buffer; loss_rows = min(T, max(1, LOSS_LOGITS_MAX / V))

struct model_sizes { // dims of one micro batch on this rank, as the operations take them
    size_t B, S, T, C, H, G, D, A, Q, V, F; // F of dense layers
    size_t E, K, local, R, expert_F;        // 0 in a dense model
    size_t layers, loss_rows;
    bool any_dense;
};

struct moe_activations {
    void *probs, *scores;           // (T,K), (T,E)
    int32_t *choice, *counts;       // (T,K), (E)
    int32_t *row_token, *row_slot, *row_of; // (T·K) each
    void *expert_rows, *expert_probs; // (R,C), (R): the input of the experts, ordered by local expert
    void *gate_up, *act;            // (R,2F), (R,F)
    struct dispatch dispatch;       // how this layer's rows travel; host memory
};

struct layer_activations {
    void *x, *rstd_attention, *normed_attention, *qkv, *attention, *lse;
    void *x_mid, *rstd_mlp, *normed_mlp;
    void *gate_up, *act;            // dense layers
    struct moe_activations moe;     // MoE layers
};

struct activations {
    struct model_sizes sizes;
    struct layer_activations *layers;
    void *x_out, *rstd_final, *normed_final, *losses, *logits, *balance;
    int32_t *tokens, *targets;
    void *dx, *dnormed, *branch, *dattention, *dqkv, *dgate_up, *dact; // branch: what a block adds to the residual
    struct exchange_buffers {
        void *send, *arrived, *ordered, *send_probs, *arrived_probs, *dexpert_probs;
        void *dgate_up, *dact, *dprobs, *dlogits, *drouter;
    } exchange;
    void *arena, *dispatch_arena;
    size_t arena_bytes, dispatch_bytes;
    bool training;                  // the last forward kept what backward needs
    double gradient_factor;
};

struct activations *activations_new(const struct spec *spec, const struct param_table *table, const struct device *device,
    const struct parallel *parallel);
void activations_free(struct activations *activations, const struct device *device);

static inline bool layer_is_moe(const struct spec *spec, size_t layer)
{
    return spec_is_moe(spec) && (int64_t)layer % dims_of(spec).moe_every == 0;
}
