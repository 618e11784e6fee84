// What stands beside the experts of a layer, over every token: a shared expert with or without a gate, and the dense branch of a residual
// MoE. A gate or share multiplies where a routing weight does in an expert: between activation and second matrix, which is linear, so
// that no product of (T,C) by a column is needed; its gradient falls out of the activation's backward.
//
// None of this waits for the exchange: it can be computed while rows travel.
#include "worker/model/blocks.h"

// A shared expert has no biases (nor has Megatron's).
static struct ffn shared_expert(const struct model *model, size_t layer)
{
    const struct layer_activations *l = &model->activations->layers[layer];
    return (struct ffn){.first = first_matrix(model, PARAM_SHARED_GATE, PARAM_SHARED_UP), .down = PARAM_SHARED_DOWN, .width = l->sizes.Z,
        .gate_up = l->shared_gate_up, .act = l->shared_act, .scale = l->shared_gate};
}

static struct ffn dense_branch(const struct model *model, size_t layer)
{
    const struct layer_activations *l = &model->activations->layers[layer];
    return (struct ffn){.first = first_matrix(model, PARAM_RESIDUAL_GATE, PARAM_RESIDUAL_UP), .down = PARAM_RESIDUAL_DOWN,
        .biased = model->spec->model.bias, .first_bias = first_matrix(model, PARAM_RESIDUAL_GATE_BIAS, PARAM_RESIDUAL_UP_BIAS),
        .down_bias = PARAM_RESIDUAL_DOWN_BIAS, .width = l->sizes.Y, .gate_up = l->branch_gate_up, .act = l->branch_act,
        .scale = l->mix_branch};
}

const void *branches_probs(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;
    if (!s->Y)
        return l->probs;
    ops->linear_forward(x->mix_logits, l->normed_mlp, layer_weight(model, PARAM_RESIDUAL_COEFFICIENT, layer), s->T, 2, s->C);
    if (model->spec->model.bias)
        ops->bias_add(x->mix_logits, layer_weight(model, PARAM_RESIDUAL_COEFFICIENT_BIAS, layer), s->T, 2);
    ops->mix_forward(l->mix_experts, l->mix_branch, x->mix_logits, s->T);
    ops->scale_rows(x->dprobs, l->probs, l->mix_experts, s->T, s->J); // the same place serves both directions
    return x->dprobs;
}

static void shared_forward(struct model *model, size_t layer, void *out)
{
    const struct device_ops *ops = model->device->ops;
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &l->sizes;
    struct ffn shared = shared_expert(model, layer);
    if (s->shared_gate) {
        ops->linear_forward(l->shared_gate, l->normed_mlp, layer_weight(model, PARAM_SHARED_ROUTER, layer), s->T, 1, s->C);
        ops->sigmoid_forward(l->shared_gate, l->shared_gate, s->T);
    }
    ffn_forward(model, layer, &shared, out);
}

static void branch_forward(struct model *model, size_t layer, void *out)
{
    struct ffn branch = dense_branch(model, layer);
    ffn_forward(model, layer, &branch, out);
}

const void *branches_forward(struct model *model, size_t layer, const void *residual)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->layers[layer].sizes;
    if (s->Z) {
        shared_forward(model, layer, a->branch);
        if (residual)
            ops->add(a->branch, a->branch, residual, s->T * s->C);
        residual = a->branch;
    }
    if (s->Y) {
        branch_forward(model, layer, a->exchange.drouter); // free in the forward pass
        if (residual)
            ops->add(a->branch, a->exchange.drouter, residual, s->T * s->C);
        residual = residual ? a->branch : a->exchange.drouter;
    }
    return residual;
}

void branches_again(struct model *model, size_t layer)
{
    const struct model_sizes *s = &model->activations->layers[layer].sizes;
    if (s->Z)
        shared_forward(model, layer, NULL);
    if (s->Y)
        branch_forward(model, layer, NULL);
}

void branches_refresh(struct model *model, size_t layer)
{
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &l->sizes;
    if (s->Z)
        activation_forward(model, l->shared_act, l->shared_gate_up, l->shared_gate, s->T, s->Z);
    if (s->Y)
        activation_forward(model, l->branch_act, l->branch_gate_up, l->mix_branch, s->T, s->Y);
}

void branches_probs_backward(struct model *model, size_t layer)
{
    struct layer_activations *l = &model->activations->layers[layer];
    struct exchange_buffers *x = &model->activations->exchange;
    if (l->sizes.Y)
        model->device->ops->scale_rows_backward(x->dprobs, x->dmix_experts, x->dprobs, l->probs, l->mix_experts, l->sizes.T, l->sizes.J);
}

// drouter += what flows to normed_mlp through a linear layer of few outputs; its weight's gradient is added.
static void small_linear_backward(struct model *model, size_t layer, enum param_kind kind, const void *dout, size_t outputs)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;
    ops->linear_dweight(layer_gradient(model, kind, layer), dout, l->normed_mlp, s->T, outputs, s->C);
    ops->linear_dinput(a->branch, dout, layer_weight(model, kind, layer), s->T, outputs, s->C);
    ops->add(a->exchange.drouter, a->exchange.drouter, a->branch, s->T * s->C);
}

void branches_backward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;
    if (s->Z) {
        struct ffn shared = shared_expert(model, layer);
        ffn_backward(model, layer, &shared, a->branch, x->dshared_gate, x->branch_dgate_up, x->branch_dact);
        ops->add(x->drouter, x->drouter, a->branch, s->T * s->C);
        if (s->shared_gate) {
            ops->sigmoid_backward(x->dshared_gate, x->dshared_gate, l->shared_gate, s->T);
            small_linear_backward(model, layer, PARAM_SHARED_ROUTER, x->dshared_gate, 1);
        }
    }
    if (s->Y) {
        struct ffn branch = dense_branch(model, layer);
        ffn_backward(model, layer, &branch, a->branch, x->dmix_branch, x->branch_dgate_up, x->branch_dact);
        ops->add(x->drouter, x->drouter, a->branch, s->T * s->C);
        ops->mix_backward(x->mix_logits, x->dmix_experts, x->dmix_branch, l->mix_experts, l->mix_branch, s->T);
        if (model->spec->model.bias)
            ops->bias_gradient(layer_gradient(model, PARAM_RESIDUAL_COEFFICIENT_BIAS, layer), x->mix_logits, s->T, 2);
        small_linear_backward(model, layer, PARAM_RESIDUAL_COEFFICIENT, x->mix_logits, 2);
    }
}
