// Routing: which experts a token goes to and with what weights, the losses that keep experts busy, and what is counted on the way. Private
// to this room.
#pragma once
#include "worker/model/activations.h"

struct router {
    struct moe_report report;   // of the training micro batches since the last reset; losses are sums over them
    int64_t *global_counts;     // (layers, E): all data parallel ranks' choices since the last reset, for global_aux_loss
    float *bias;                // (layers, E) of expert_bias, the same on every rank; NULL without it
    // Where one layer's numbers are worked on, host memory.
    int32_t *integers;          // (max(B·E, T·J))
    double *masses, *pull;      // (B,E) each
    int64_t *taken, *rows;      // (E) each: tokens that an expert takes, and its rows with those that only fill it up
};

struct router *router_new(const struct spec *spec, const struct model_sizes *sizes);
void router_free(struct router *router);

// Before a micro batch: what the device must know of it.
void router_begin(struct model *model);
// From normed_mlp to probs, choice, the permutation and the dispatch plan of the layer. Collective over the expert-parallel group.
void route(struct model *model, size_t layer);
// From the gradients of the sent rows' weights to the router's gradient, and to exchange.drouter (T,C), the part of d normed_mlp that flows
// through the router.
void route_backward(struct model *model, size_t layer, const void *dsent_probs);

// router_losses.c: the layer's statistics, and its pull towards balance. Collective where global counts are asked for.
void route_measure(struct model *model, size_t layer);
enum score_function router_score_function(const struct spec_moe *moe);
