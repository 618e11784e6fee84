// The second half of a layer: norm, then a dense SwiGLU ffn (here) or experts (moe.c), then the residual.
#include "worker/model/blocks.h"

void mlp_block_forward(struct model *model, size_t layer, void *out)
{
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];

    model->device->ops->rmsnorm_forward(l->normed_mlp, l->rstd_mlp, l->x_mid, layer_weight(model, PARAM_MLP_NORM, layer), a->sizes.T,
        a->sizes.C, model->spec->model.norm_epsilon);
    if (layer_is_moe(model->spec, layer))
        moe_forward(model, layer, out);
    else
        ffn_forward(model, layer, out);
}

void mlp_block_backward(struct model *model, size_t layer)
{
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];

    if (layer_is_moe(model->spec, layer))
        moe_backward(model, layer);
    else
        ffn_backward(model, layer);
    model->device->ops->rmsnorm_backward(a->dx, layer_gradient(model, PARAM_MLP_NORM, layer), a->dnormed, l->x_mid,
        layer_weight(model, PARAM_MLP_NORM, layer), l->rstd_mlp, a->sizes.T, a->sizes.C);
}

void ffn_forward(struct model *model, size_t layer, void *out)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;

    ops->linear_forward(l->gate_up, l->normed_mlp, layer_weight(model, PARAM_GATE, layer), s->T, 2 * s->F, s->C);
    ops->swiglu_forward(l->act, l->gate_up, NULL, s->T, s->F);
    ops->linear_forward(a->branch, l->act, layer_weight(model, PARAM_DOWN, layer), s->T, s->C, s->F);
    ops->add(out, a->branch, l->x_mid, s->T * s->C);
}

void ffn_backward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;

    ops->linear_dweight(layer_gradient(model, PARAM_DOWN, layer), a->dx, l->act, s->T, s->C, s->F);
    ops->linear_dinput(a->dact, a->dx, layer_weight(model, PARAM_DOWN, layer), s->T, s->C, s->F);
    ops->swiglu_backward(a->dgate_up, NULL, a->dact, l->gate_up, NULL, s->T, s->F);
    ops->linear_dweight(layer_gradient(model, PARAM_GATE, layer), a->dgate_up, l->normed_mlp, s->T, 2 * s->F, s->C);
    ops->linear_dinput(a->dnormed, a->dgate_up, layer_weight(model, PARAM_GATE, layer), s->T, 2 * s->F, s->C);
}
