// The blocks of the model, each forward and backward for one micro batch. They read and write the slots of model/activations.h; a
// backward expects the activations of the last training forward and adds to the gradient segments. Private to this room.
#pragma once
#include "worker/model/activations.h"

// Router statistics of this rank, accumulated over training forwards.
struct moe_statistics {
    int64_t *counts;        // (layers, E)
    double *balance;        // (layers): sums over micro batches
    int64_t micro_batches;
};

// Device address of a layer's tensor, or of its gradient. Kinds of experts: the first resident expert, the others follow.
void *layer_weight(const struct model *model, enum param_kind kind, size_t layer);
void *layer_gradient(const struct model *model, enum param_kind kind, size_t layer);

// x_mid = x + attention(norm(x)). Backward: dx (T,C), the gradient of x_mid, becomes the gradient of x.
void attention_block_forward(struct model *model, size_t layer);
void attention_block_backward(struct model *model, size_t layer);

// out(T,C) = x_mid + ffn(norm(x_mid)). Backward: dx, the gradient of out, becomes the gradient of x_mid.
void mlp_block_forward(struct model *model, size_t layer, void *out);
void mlp_block_backward(struct model *model, size_t layer);

// The two kinds of ffn over normed_mlp. Forward writes out = x_mid + ffn; backward writes activations->dnormed from dx.
void ffn_forward(struct model *model, size_t layer, void *out);
void ffn_backward(struct model *model, size_t layer);
void moe_forward(struct model *model, size_t layer, void *out);
void moe_backward(struct model *model, size_t layer);

// The experts' products over their rows (R,K) or gradients (R,N), as in the grouped operations of worker/device/device.h; N and K are an
// expert's matrix.
void experts_forward(const struct model *model, const struct dispatch *d, void *out, void *rows, void *weights, size_t N, size_t K);
void experts_dinput(const struct model *model, const struct dispatch *d, void *out, void *drows, void *weights, size_t N, size_t K);
void experts_dweight(const struct model *model, const struct dispatch *d, void *dweights, void *drows, void *rows, size_t N, size_t K); // +=

// Final norm, output layer and cross-entropy over x_out; targets are on the device and counted of them are not negative. Returns the
// mean loss. In training it also does the output layer's backward: its weight gradient is added and dnormed holds d normed_final, so
// that the (T,V) logits never exist as a whole. Backward then makes dx, the gradient of x_out.
double loss_forward(struct model *model, size_t counted);
void loss_backward(struct model *model);

struct moe_statistics *moe_statistics_new(const struct spec *spec);
void moe_statistics_free(struct moe_statistics *statistics);
