// The blocks of the model, each forward and backward for one micro batch. They read and write the slots of model/activations.h; a
// backward expects the activations of the last training forward and adds to the gradient segments. Private to this room.
#pragma once
#include "worker/model/activations.h"

// Device address of a layer's tensor, or of its gradient. Kinds of experts: the first resident expert, the others follow.
void *layer_weight(const struct model *model, enum param_kind kind, size_t layer);
void *layer_gradient(const struct model *model, enum param_kind kind, size_t layer);

// x of the first layer from tokens, and from positions where these are learned; and the way back from dx.
void embedding_forward(struct model *model);
void embedding_backward(struct model *model);

// What is dropped of a place of the micro batch at hand: nothing outside of training.
struct dropout dropout_of(const struct model *model, double probability, enum dropout_kind kind, size_t layer);
// Whether hidden values are dropped at all. The hidden dropout of x(T,C), in place. Backward returns where the gradient of the values before lies: dx itself where nothing is dropped.
bool hidden_drops(const struct model *model);
void hidden_dropout_forward(struct model *model, enum dropout_kind kind, size_t layer, void *x);
void *hidden_dropout_backward(struct model *model, enum dropout_kind kind, size_t layer, void *dx);

// x_out from tokens and positions that are on the device.
void layers_forward(struct model *model);

// x_mid = x + attention(norm(x)). Backward: dx (T,C), the gradient of x_mid, becomes the gradient of x.
void attention_block_forward(struct model *model, size_t layer);
void attention_block_backward(struct model *model, size_t layer);

// Attention of the rows at hand over all that is kept, of which they become a part (model_keep).
void cache_attend(struct model *model, size_t layer);
void cache_free(struct cache *cache, const struct device *device);

// out(T,C) = x_mid + ffn(norm(x_mid)). Backward: dx, the gradient of out, becomes the gradient of x_mid.
// out NULL: only what backward needs.
void mlp_block_forward(struct model *model, size_t layer, void *out);
void mlp_block_backward(struct model *model, size_t layer);

// Recomputation, before a layer's backward: makes anew what its forward did not keep.
void recompute(struct model *model, size_t layer);
// Selective recomputation: the CHEAP buffers of schema/shape/slots.inc, from those that are kept.
void attention_block_refresh(struct model *model, size_t layer);
void mlp_block_refresh(struct model *model, size_t layer);
void moe_refresh(struct model *model, size_t layer);
void branches_refresh(struct model *model, size_t layer);

// Experts over normed_mlp, with all that stands beside them. Forward writes out = residual + moe (residual NULL: moe alone; out NULL: only
// what backward needs); backward writes activations->dnormed from activations->dout.
void moe_forward(struct model *model, size_t layer, void *out, const void *residual);
void moe_backward(struct model *model, size_t layer);

// RMSNorm or layer norm, as the spec says; `weight` is one of PARAM_ATTENTION_NORM, PARAM_MLP_NORM and, with layer -1, PARAM_FINAL_NORM.
// Backward adds to activations->dx from activations->dnormed. mean: NULL with RMSNorm.
void norm_forward(struct model *model, enum param_kind weight, int64_t layer, void *out, void *mean, void *rstd, const void *x);
void norm_backward(struct model *model, enum param_kind weight, int64_t layer, const void *x, const void *mean, const void *rstd);

// What stands between the matrices of an FFN of this width, over rows: SwiGLU of (rows, 2·width), or GELU of (rows, width); scale as there.
void activation_forward(struct model *model, void *out, const void *gate_up, const void *scale, size_t rows, size_t width);
void activation_backward(struct model *model, void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale,
    size_t rows, size_t width);
// The first matrix of an FFN is gate|up, or up where nothing gates: the kind that it begins with.
enum param_kind first_matrix(const struct model *model, enum param_kind gate, enum param_kind up);

// A dense FFN over normed_mlp: a layer's own, a shared expert, the dense branch of a residual MoE.
struct ffn {
    enum param_kind first, down, first_bias, down_bias;
    bool biased;
    size_t width;
    void *gate_up, *act;
    void *scale;            // (T): factors of the whole output, biases included; NULL: 1
};
// out(T,C) = scale · ffn(normed_mlp); NULL: only what backward needs.
void ffn_forward(struct model *model, size_t layer, const struct ffn *ffn, void *out);
// out(T,C) = the gradient of normed_mlp, from activations->dout; dscale(T) if scale; dgate_up and dact are room to work in.
void ffn_backward(struct model *model, size_t layer, const struct ffn *ffn, void *out, void *dscale, void *dgate_up, void *dact);

// Beside a layer's experts: a shared expert, and the dense branch of a residual MoE, which shares the token with the experts by a learned
// softmax over two (DeepSpeed's coefficient).
// The weights of the chosen experts (T,J) as they are sent: probs, times the experts' share.
const void *branches_probs(struct model *model, size_t layer);
// residual(T,C) + what the branches give; residual where there are none. NULL counts as zeros.
void branches_again(struct model *model, size_t layer); // only what backward needs
const void *branches_forward(struct model *model, size_t layer, const void *residual);
// exchange.dprobs, the gradient of what was sent, becomes that of probs.
void branches_probs_backward(struct model *model, size_t layer);
void branches_backward(struct model *model, size_t layer); // exchange.drouter +=

// Some of a rank's experts, next to each other, and their rows.
struct expert_part {
    size_t first, count;        // experts
    size_t row, rows;           // where their rows begin, and how many they are
    const int64_t *rows_each;
};
// The next experts whose rows go through an FFN of this width together (all where there are biases); part begins as zeros. False: no more rows.
bool experts_next(const struct model *model, const struct dispatch *d, size_t width, struct expert_part *part);

// The experts' products over a part's rows (rows,K) or gradients (rows,N), as in the grouped operations of worker/device/device.h; N and K
// are an expert's matrix, weights and dweights those of the rank's first expert.
void experts_forward(const struct model *model, const struct expert_part *part, void *out, void *rows, enum param_kind kind, size_t layer,
    size_t N, size_t K); // kind: of the first of the matrices that lie side by side
void experts_dinput(const struct model *model, const struct expert_part *part, void *out, void *drows, void *weights, size_t N, size_t K);
void experts_dweight(const struct model *model, const struct expert_part *part, void *dweights, void *drows, void *rows, size_t N, size_t K); // +=

// Final norm, output layer and cross-entropy over x_out; targets are on the device and counted of them are not negative. Returns the
// mean loss. In training it also does the output layer's backward: its weight gradient is added and dnormed holds d normed_final, so
// that the (T,V) logits never exist as a whole. Backward then makes dx, the gradient of x_out.
double loss_forward(struct model *model, size_t counted);
void final_norm_forward(struct model *model); // its first step: normed_final of x_out
void loss_backward(struct model *model);
