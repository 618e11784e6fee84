// The model: a Llama-style decoder, dense or with experts, spelled out block by block with device operations: no graph, no autograd.
// It owns parameters, gradients and activations (one arena each, allocated at model_new by the parameter table); the train loop calls
// forward and backward for each micro batch.
#pragma once
#include "schema/shape/params.h"
#include "worker/device/device.h"
#include "worker/parallel/parallel.h"

struct segment {        // parameters of one kind: every resident tensor of the table at its offset
    void *params, *gradients;   // device memory, reals: what the optimizer and checkpoints see
    void *weights;              // the same values in the device's weight format, which blocks read; params itself where that is reals
    size_t count;
};

// Experts that lie elsewhere than in the model's segment, in the device's weight format: generation reads them from a mapped checkpoint.
struct expert_store {
    void *context;
    // The matrices of an expert that has rows: gate and up, side by side, by the kind of the first; or down.
    const void *(*matrix)(void *context, enum param_kind kind, size_t layer, size_t expert);
};

struct model {
    const struct spec *spec;
    const struct device *device;
    const struct parallel *parallel;
    struct param_table table;
    struct segment dense, experts;
    struct activations *activations; // opaque: model/activations.h
    struct router *router;           // opaque: model/router.h
    void *reduce_scratch;            // device memory for sums over ranks; NULL where there is one
    size_t reduce_scratch_bytes;
    double *squares;                 // of each tensor's gradient, while the norm is computed
    int64_t *zeros;
    struct cache *cache;              // opaque: what model_keep keeps; NULL: nothing
    const struct expert_store *store; // lent; NULL: the experts are in their segment
};

// sequences: micro batch size B. Parameters start from param_initial(seed).
int model_new(struct model **model, const struct spec *spec, const struct device *device, const struct parallel *parallel, struct error *err);
// For forward passes alone: no gradients, no values. store: may be NULL; else the segment of experts has no memory.
int model_new_for_inference(struct model **model, const struct spec *spec, const struct device *device, const struct parallel *parallel,
    const struct expert_store *store, struct error *err);
void model_free(struct model *model);

// Address of a tensor (or its gradient) on the device; NULL if its expert is not resident.
void *model_param(const struct model *model, const struct param *param);
void *model_gradient(const struct model *model, const struct param *param);
// What blocks read: matrices in the device's weight format; norms, biases and the router are read as reals, as model_param has them.
void *model_weight(const struct model *model, const struct param *param);
bool model_weight_is_rounded(const struct model *model, const struct param *param); // model_weight is another place than model_param
// Makes the rounded weights anew. To be called once after parameters were written by others than the optimizer.
void model_refresh_weights(struct model *model);

// One micro batch, in host memory.
struct micro_batch {
    const int32_t *tokens, *targets; // (B,S); targets < 0 are not counted
    const int32_t *positions;        // (B,S) with data.reset_position_ids; else NULL: 0 … S − 1 in each sequence
    const int32_t *first_key;        // (B,S) with data.reset_attention_mask: where each token's document begins in its sequence; else NULL
    int64_t first_sample;            // place of the first sequence in the order of the run: what dropout is drawn by
};

// Returns the mean loss over counted tokens. training: keep what backward needs, drop, and count the router's statistics. gradient_factor
// multiplies dloss (1 / micro batches).
// A training forward already adds the output layer's part of the gradients (that is how the (T,V) logits stay small): zero them before.
double model_forward(struct model *model, const struct micro_batch *batch, bool training, double gradient_factor);
// What the last forward says comes after its row (of B·S): logits(V), host memory.
void model_logits(struct model *model, size_t row, double *logits);

// ---- one sequence, piece by piece: keys and values of all that went before are kept ----
// Once, for a model made for inference whose micro batch is one sequence: its length is the most tokens that model_extend takes at a time. positions: the
// most tokens of the sequence.
void model_keep(struct model *model, size_t positions);
// The next tokens; afterwards model_logits of row count − 1 says what follows them.
void model_extend(struct model *model, const int32_t *tokens, size_t count);
size_t model_kept(const struct model *model);   // tokens so far
void model_forget(struct model *model);         // none, as at the start

// Once for each training forward: adds the rest of its gradients (the balance loss's included, coefficient · gradient_factor) to the gradient segments.
void model_backward(struct model *model);
void model_zero_gradients(struct model *model);

// Sums gradients over ranks: dense over dp, experts over edp, everything × 1/DP.
void model_reduce_gradients(struct model *model);
// Global L2 norm of all gradients, dense and experts once each, squares added per tensor in double and then in the order of logical
// names; and the number of gradient elements that are exactly zero. Same on every rank and for every layout.
double model_gradient_norm(const struct model *model, int64_t *zeros);

// What routers did over the training micro batches since the last reset; host memory. Dense layers: zeros.
enum { MOE_LOSSES = 4 };
struct moe_report {
    size_t layers, experts;     // the most that a layer has: rows of the tables below
    int64_t micro_batches;
    int64_t *counts, *kept;     // (layers, E): tokens that chose each expert, or that it chose; of them those that it took
    int64_t *asked, *lost;      // (layers): choices made, and of them those that full experts dropped. Where experts choose: tokens, and
                                // of them those that no expert chose
    double *losses[MOE_LOSSES]; // by enum spec_moe_loss, (layers): without coefficient, mean over micro batches; the plain balance loss
                                // always, the others where the spec asks for them
};
void moe_report_init(struct moe_report *report, const struct spec *spec);
void moe_report_release(struct moe_report *report);
void model_statistics(const struct model *model, struct moe_report *report); // of this rank
// Of all data parallel ranks: counts summed, losses averaged. Collective.
void model_statistics_global(const struct model *model, struct moe_report *report);
void model_statistics_reset(struct model *model);

// The bias that a layer's experts are chosen with (E of the layer): host memory, the same on every rank; NULL without model.moe.expert_bias.
float *model_expert_bias(const struct model *model, size_t layer);
// After a step that changed the model: += rate where an expert took fewer tokens than the mean, −= rate where more; report: the global one.
void model_move_expert_bias(struct model *model, const struct moe_report *report);

// "parameters" (as blocks read them), "master" (fp32 beside them, else 0), "gradients", "activations" (scratch of sums over ranks included), "dispatch", "experts" (parameters of resident experts).
size_t model_bytes(const struct model *model, const char *category);
