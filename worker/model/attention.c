// Attention with its norm and residual: RMSNorm, one fused product for q|k|v, rotary positions on q and k, causal attention, o_proj.
#include "worker/model/blocks.h"

void attention_block_forward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;
    double base = model->spec->model.rope_base;

    norm_forward(model, PARAM_ATTENTION_NORM, (int64_t)layer, l->normed_attention, l->mean_attention, l->rstd_attention, l->x);
    ops->linear_forward(l->qkv, l->normed_attention, layer_weight(model, PARAM_Q, layer), s->T, s->Q, s->C);
    ops->rope(l->qkv, s->T, s->Q, 0, s->H + s->G, s->D, s->S, base, +1);
    ops->attention_forward(l->attention, l->lse, l->qkv, s->B, s->S, s->H, s->G, s->D);
    ops->linear_forward(a->branch, l->attention, layer_weight(model, PARAM_O, layer), s->T, s->C, s->A);
    ops->add(l->x_mid, l->x, a->branch, s->T * s->C);
}

void attention_block_backward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;
    double base = model->spec->model.rope_base;

    ops->linear_dweight(layer_gradient(model, PARAM_O, layer), a->dx, l->attention, s->T, s->C, s->A);
    ops->linear_dinput(a->dattention, a->dx, layer_weight(model, PARAM_O, layer), s->T, s->C, s->A);
    ops->attention_backward(a->dqkv, a->dattention, l->qkv, l->attention, l->lse, s->B, s->S, s->H, s->G, s->D);
    ops->rope(a->dqkv, s->T, s->Q, 0, s->H + s->G, s->D, s->S, base, -1);
    ops->linear_dweight(layer_gradient(model, PARAM_Q, layer), a->dqkv, l->normed_attention, s->T, s->Q, s->C);
    ops->linear_dinput(a->dnormed, a->dqkv, layer_weight(model, PARAM_Q, layer), s->T, s->Q, s->C);
    norm_backward(model, PARAM_ATTENTION_NORM, (int64_t)layer, l->x, l->mean_attention, l->rstd_attention);
}
