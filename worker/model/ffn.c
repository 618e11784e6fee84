// The second half of a layer: norm, then a dense FFN (here) or experts (moe.c), then the residual.
#include "worker/model/blocks.h"

// ---- FFNs ----

void activation_forward(struct model *model, void *out, const void *gate_up, const void *scale, size_t rows, size_t width)
{
    const struct device_ops *ops = model->device->ops;
    if (model->spec->model.activation == ACTIVATION_SWIGLU)
        ops->swiglu_forward(out, gate_up, scale, rows, width);
    else
        ops->gelu_forward(out, gate_up, scale, rows, width);
}

void activation_backward(struct model *model, void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale,
    size_t rows, size_t width)
{
    const struct device_ops *ops = model->device->ops;
    if (model->spec->model.activation == ACTIVATION_SWIGLU)
        ops->swiglu_backward(dgate_up, dscale, dout, gate_up, scale, rows, width);
    else
        ops->gelu_backward(dgate_up, dscale, dout, gate_up, scale, rows, width);
}

enum param_kind first_matrix(const struct model *model, enum param_kind gate, enum param_kind up)
{
    return model->spec->model.activation == ACTIVATION_SWIGLU ? gate : up;
}

// The rows of a product know nothing of each other, and sums over rows may be cut where rows_together cuts: no bit depends on it.
_Static_assert(ROWS_TOGETHER % DWEIGHT_ROWS == 0, "sums over rows are cut where the device says");

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Rows t … t + T of the forward pass; out may be NULL.
static void rows_forward(struct model *model, size_t layer, const struct ffn *ffn, void *out, size_t t, size_t T)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct layer_activations *l = &model->activations->layers[layer];
    size_t F = ffn->width, N = l->sizes.gates * F, C = l->sizes.C;
    void *gate_up = real_at(device, ffn->gate_up, t * N), *act = real_at(device, ffn->act, t * F);
    void *scale = ffn->scale ? real_at(device, ffn->scale, t) : NULL;

    ops->linear_forward(gate_up, real_at(device, l->normed_mlp, t * C), layer_weight(model, ffn->first, layer), T, N, C);
    if (ffn->biased)
        ops->bias_add(gate_up, layer_weight(model, ffn->first_bias, layer), T, N);
    activation_forward(model, act, gate_up, scale, T, F);
    if (!out)
        return;
    out = real_at(device, out, t * C);
    ops->linear_forward(out, act, layer_weight(model, ffn->down, layer), T, C, F);
    if (ffn->biased && scale)
        ops->weighted_bias_add(out, layer_weight(model, ffn->down_bias, layer), scale, &(int64_t){(int64_t)T}, 1, C);
    else if (ffn->biased)
        ops->bias_add(out, layer_weight(model, ffn->down_bias, layer), T, C);
}

void ffn_forward(struct model *model, size_t layer, const struct ffn *ffn, void *out)
{
    const struct model_sizes *s = &model->activations->layers[layer].sizes;
    size_t together = rows_together(s->gates * ffn->width);
    for (size_t t = 0; t < s->T; t += together)
        rows_forward(model, layer, ffn, out, t, smaller(together, s->T - t));
}

// Rows t … t + T of the gradients of what is between the matrices, which the next rows overwrite; then of the input and the first matrix.
static void rows_backward(struct model *model, size_t layer, const struct ffn *ffn, void *out, void *dscale, void *dgate_up, void *dact,
    size_t t, size_t T)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct activations *a = model->activations;
    const struct layer_activations *l = &a->layers[layer];
    size_t F = ffn->width, N = l->sizes.gates * F, C = l->sizes.C;
    void *scale = ffn->scale ? real_at(device, ffn->scale, t) : NULL;

    ops->linear_dinput(dact, real_at(device, a->dout, t * C), layer_weight(model, ffn->down, layer), T, C, F);
    activation_backward(model, dgate_up, scale ? real_at(device, dscale, t) : NULL, dact, real_at(device, ffn->gate_up, t * N), scale, T, F);
    if (ffn->biased)
        ops->bias_gradient(layer_gradient(model, ffn->first_bias, layer), dgate_up, T, N);
    ops->linear_dinput(real_at(device, out, t * C), dgate_up, layer_weight(model, ffn->first, layer), T, N, C);
    ops->linear_dweight(layer_gradient(model, ffn->first, layer), dgate_up, real_at(device, l->normed_mlp, t * C), T, N, C);
}

void ffn_backward(struct model *model, size_t layer, const struct ffn *ffn, void *out, void *dscale, void *dgate_up, void *dact)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->layers[layer].sizes;
    size_t F = ffn->width, together = rows_together(s->gates * F);

    ops->linear_dweight(layer_gradient(model, ffn->down, layer), a->dout, ffn->act, s->T, s->C, F);
    for (size_t t = 0; t < s->T; t += together)
        rows_backward(model, layer, ffn, out, dscale, dgate_up, dact, t, smaller(together, s->T - t));
    if (ffn->biased && ffn->scale)
        ops->weighted_bias_backward(layer_gradient(model, ffn->down_bias, layer), dscale, a->dout, layer_weight(model, ffn->down_bias, layer),
            ffn->scale, &(int64_t){(int64_t)s->T}, 1, s->C);
    else if (ffn->biased)
        ops->bias_gradient(layer_gradient(model, ffn->down_bias, layer), a->dout, s->T, s->C);
}

// ---- the block ----

static struct ffn own_ffn(const struct model *model, size_t layer)
{
    const struct layer_activations *l = &model->activations->layers[layer];
    return (struct ffn){.first = first_matrix(model, PARAM_GATE, PARAM_UP), .down = PARAM_DOWN, .biased = model->spec->model.bias,
        .first_bias = first_matrix(model, PARAM_GATE_BIAS, PARAM_UP_BIAS), .down_bias = PARAM_DOWN_BIAS, .width = l->sizes.F,
        .gate_up = l->gate_up, .act = l->act};
}

void mlp_block_refresh(struct model *model, size_t layer)
{
    struct layer_activations *l = &model->activations->layers[layer];
    norm_forward(model, PARAM_MLP_NORM, (int64_t)layer, l->normed_mlp, l->mean_mlp, l->rstd_mlp, l->x_mid);
    if (layer_is_moe(model->spec, layer))
        moe_refresh(model, layer);
    else
        activation_forward(model, l->act, l->gate_up, NULL, l->sizes.T, l->sizes.F);
}

void mlp_block_forward(struct model *model, size_t layer, void *out)
{
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];

    norm_forward(model, PARAM_MLP_NORM, (int64_t)layer, l->normed_mlp, l->mean_mlp, l->rstd_mlp, l->x_mid);
    bool drops = hidden_drops(model), experts = layer_is_moe(model->spec, layer);
    if (experts && !drops) {
        moe_forward(model, layer, out, l->x_mid);
        return;
    }
    void *added = experts ? a->dbranch : a->branch;
    struct ffn ffn = own_ffn(model, layer);
    if (experts)
        moe_forward(model, layer, out ? added : NULL, NULL);
    else
        ffn_forward(model, layer, &ffn, out ? added : NULL);
    if (!out)
        return;
    hidden_dropout_forward(model, DROPOUT_MLP, layer, added);
    model->device->ops->add(out, added, l->x_mid, a->sizes.T * a->sizes.C);
}

void mlp_block_backward(struct model *model, size_t layer)
{
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];

    a->dout = hidden_dropout_backward(model, DROPOUT_MLP, layer, a->dx);
    if (layer_is_moe(model->spec, layer)) {
        moe_backward(model, layer);
    } else {
        struct ffn ffn = own_ffn(model, layer);
        ffn_backward(model, layer, &ffn, a->dnormed, NULL, a->dgate_up, a->dact);
    }
    norm_backward(model, PARAM_MLP_NORM, (int64_t)layer, l->x_mid, l->mean_mlp, l->rstd_mlp);
}
