// A Mixture of Experts over normed_mlp: router, permutation, the exchange between ranks, grouped experts with the router's weight
// applied between activation and second matrix (and to its bias), the way back, and the sum of each token's K rows in order. Backward mirrors each step,
// and each exchange. A rank that gets no rows does all of it with none.
#include "worker/model/blocks.h"

#include "schema/base/text.h"

#include <stdlib.h>

static double balance_coefficient(const struct spec *spec)
{
    double coefficient = 0;
    for (size_t i = 0; i < spec->model.moe.losses_count; i++)
        if (spec->model.moe.losses[i].type == MOE_LOSS_AUX)
            coefficient += spec->model.moe.losses[i].coefficient;
    return coefficient;
}

// Rows of each expert as host integers, counted into the statistics in training.
static void read_counts(struct model *model, size_t layer, int64_t *counts)
{
    const struct device_memory *memory = model->device->memory;
    struct activations *a = model->activations;
    size_t E = a->layers[layer].sizes.E, row = layer * a->sizes.E;
    int32_t *read = allocate(E, sizeof *read);
    memory->read_back(read, a->layers[layer].counts, E * sizeof *read);
    for (size_t e = 0; e < E; e++)
        counts[e] = read[e];
    free(read);
    if (!a->training || a->again)
        return;
    double balance;
    model->device->ops->to_double(&balance, a->balance, 1);
    model->moe->balance[layer] += balance;
    for (size_t e = 0; e < E; e++)
        model->moe->counts[row + e] += counts[e];
}

static void route(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;

    void *logits = a->exchange.dlogits; // the same place serves both directions
    ops->router_linear_forward(logits, l->normed_mlp, layer_weight(model, PARAM_ROUTER, layer), s->T, s->E, s->C, FORMAT_FP32);
    ops->router_forward(l->probs, l->choice, l->scores, logits, s->T, s->E, s->K, model->spec->model.moe.pre_softmax);
    ops->router_counts(l->counts, a->balance, l->choice, l->scores, s->T, s->E, s->K);
    ops->permute_plan(l->row_token, l->row_slot, l->row_of, l->choice, l->counts, s->T, s->E, s->K);

    int64_t *counts = allocate(s->E, sizeof *counts);
    read_counts(model, layer, counts);
    dispatch_plan(&l->dispatch, model->device, counts);
    free(counts);
}

void moe_refresh(struct model *model, size_t layer)
{
    struct layer_activations *l = &model->activations->layers[layer];
    activation_forward(model, l->act, l->gate_up, l->expert_probs, l->dispatch.rows, l->sizes.X);
    branches_refresh(model, layer);
}

void moe_forward(struct model *model, size_t layer, void *out, const void *residual)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;
    const struct dispatch *d = &l->dispatch;

    route(model, layer);

    void *rows = dispatch_send_buffer(d, l->expert_rows, x->send);
    void *probs = dispatch_send_buffer(d, l->expert_probs, x->send_probs);
    ops->round_rows(rows, l->normed_mlp, l->row_token, s->T * s->K, s->C);
    ops->gather_rows(probs, branches_probs(model, layer), l->row_slot, s->T * s->K, 1);
    dispatch_rows_forth(d, device, l->expert_rows, rows, x->arrived, s->C);
    dispatch_forth(d, device, l->expert_probs, probs, x->arrived_probs, 1);

    size_t F = s->X, N = s->gates * F;
    enum param_kind first = first_matrix(model, PARAM_EXPERT_GATE, PARAM_EXPERT_UP);
    enum param_kind first_bias = first_matrix(model, PARAM_EXPERT_GATE_BIAS, PARAM_EXPERT_UP_BIAS);
    bool biased = model->spec->model.bias;
    experts_forward(model, d, l->gate_up, l->expert_rows, first, layer, N, s->C);
    if (biased)
        ops->grouped_bias_add(l->gate_up, layer_weight(model, first_bias, layer), d->expert_rows, d->local, N);
    activation_forward(model, l->act, l->gate_up, l->expert_probs, d->rows, F);
    if (!out) {
        branches_again(model, layer);
        return;
    }
    experts_forward(model, d, x->ordered, l->act, PARAM_EXPERT_DOWN, layer, s->C, F);
    if (biased)
        ops->weighted_bias_add(x->ordered, layer_weight(model, PARAM_EXPERT_DOWN_BIAS, layer), l->expert_probs, d->expert_rows, d->local, s->C);

    const void *back = dispatch_rows_back(d, device, x->send, x->ordered, x->arrived, s->C);
    ops->combine_rows(out, back, l->row_of, branches_forward(model, layer, residual), s->T, s->K, s->C);
}

// drouter becomes the part of d normed_mlp that flows through the router, from the gradients of the sent rows' weights.
static void route_backward(struct model *model, size_t layer, const void *dsent_probs)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;

    double T = (double)s->T;
    double aux_factor = balance_coefficient(model->spec) * (double)s->E / ((double)s->K * T * T) * a->gradient_factor;
    ops->gather_rows(x->dprobs, dsent_probs, l->row_of, s->T * s->K, 1);
    branches_probs_backward(model, layer);
    ops->router_backward(x->dlogits, x->dprobs, l->probs, l->choice, l->scores, l->counts, aux_factor, s->T, s->E, s->K,
        model->spec->model.moe.pre_softmax);
    ops->router_linear_dweight(layer_gradient(model, PARAM_ROUTER, layer), x->dlogits, l->normed_mlp, s->T, s->E, s->C, FORMAT_FP32);
    ops->router_linear_dinput(x->drouter, x->dlogits, layer_weight(model, PARAM_ROUTER, layer), s->T, s->E, s->C, FORMAT_FP32);
}

void moe_backward(struct model *model, size_t layer)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;
    const struct dispatch *d = &l->dispatch;
    size_t F = s->X, N = s->gates * F;
    enum param_kind first = first_matrix(model, PARAM_EXPERT_GATE, PARAM_EXPERT_UP);
    enum param_kind first_bias = first_matrix(model, PARAM_EXPERT_GATE_BIAS, PARAM_EXPERT_UP_BIAS);
    bool biased = model->spec->model.bias;

    void *drows = dispatch_send_buffer(d, x->ordered, x->send);
    ops->round_rows(drows, a->dout, l->row_token, s->T * s->K, s->C);
    dispatch_rows_forth(d, device, x->ordered, drows, x->arrived, s->C);

    experts_dweight(model, d, layer_gradient(model, PARAM_EXPERT_DOWN, layer), x->ordered, l->act, s->C, F);
    experts_dinput(model, d, x->dact, x->ordered, layer_weight(model, PARAM_EXPERT_DOWN, layer), s->C, F);
    activation_backward(model, x->dgate_up, x->dexpert_probs, x->dact, l->gate_up, l->expert_probs, d->rows, F);
    if (biased) {
        ops->weighted_bias_backward(layer_gradient(model, PARAM_EXPERT_DOWN_BIAS, layer), x->dexpert_probs, x->ordered,
            layer_weight(model, PARAM_EXPERT_DOWN_BIAS, layer), l->expert_probs, d->expert_rows, d->local, s->C);
        ops->grouped_bias_gradient(layer_gradient(model, first_bias, layer), x->dgate_up, d->expert_rows, d->local, N);
    }
    experts_dweight(model, d, layer_gradient(model, first, layer), x->dgate_up, l->expert_rows, N, s->C);
    experts_dinput(model, d, x->ordered, x->dgate_up, layer_weight(model, first, layer), N, s->C);

    const void *dsent = dispatch_rows_back(d, device, x->send, x->ordered, x->arrived, s->C);
    const void *dsent_probs = dispatch_back(d, device, x->send_probs, x->dexpert_probs, x->arrived_probs, 1);
    route_backward(model, layer, dsent_probs);
    branches_backward(model, layer);
    ops->combine_rows(a->dnormed, dsent, l->row_of, x->drouter, s->T, s->K, s->C);
}
