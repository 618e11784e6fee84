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

void ffn_forward(struct model *model, size_t layer, const struct ffn *ffn, void *out)
{
    const struct device_ops *ops = model->device->ops;
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &l->sizes;
    size_t F = ffn->width, rows = s->gates * F;

    ops->linear_forward(ffn->gate_up, l->normed_mlp, layer_weight(model, ffn->first, layer), s->T, rows, s->C);
    if (ffn->biased)
        ops->bias_add(ffn->gate_up, layer_weight(model, ffn->first_bias, layer), s->T, rows);
    activation_forward(model, ffn->act, ffn->gate_up, ffn->scale, s->T, F);
    if (!out)
        return;
    ops->linear_forward(out, ffn->act, layer_weight(model, ffn->down, layer), s->T, s->C, F);
    if (ffn->biased && ffn->scale)
        ops->weighted_bias_add(out, layer_weight(model, ffn->down_bias, layer), ffn->scale, &(int64_t){(int64_t)s->T}, 1, s->C);
    else if (ffn->biased)
        ops->bias_add(out, layer_weight(model, ffn->down_bias, layer), s->T, s->C);
}

void ffn_backward(struct model *model, size_t layer, const struct ffn *ffn, void *out, void *dscale, void *dgate_up, void *dact)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;
    size_t F = ffn->width, rows = s->gates * F;

    ops->linear_dweight(layer_gradient(model, ffn->down, layer), a->dout, ffn->act, s->T, s->C, F);
    ops->linear_dinput(dact, a->dout, layer_weight(model, ffn->down, layer), s->T, s->C, F);
    activation_backward(model, dgate_up, dscale, dact, ffn->gate_up, ffn->scale, s->T, F);
    if (ffn->biased && ffn->scale)
        ops->weighted_bias_backward(layer_gradient(model, ffn->down_bias, layer), dscale, a->dout, layer_weight(model, ffn->down_bias, layer),
            ffn->scale, &(int64_t){(int64_t)s->T}, 1, s->C);
    else if (ffn->biased)
        ops->bias_gradient(layer_gradient(model, ffn->down_bias, layer), a->dout, s->T, s->C);
    if (ffn->biased)
        ops->bias_gradient(layer_gradient(model, ffn->first_bias, layer), dgate_up, s->T, rows);
    ops->linear_dweight(layer_gradient(model, ffn->first, layer), dgate_up, l->normed_mlp, s->T, rows, s->C);
    ops->linear_dinput(out, dgate_up, layer_weight(model, ffn->first, layer), s->T, rows, s->C);
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
