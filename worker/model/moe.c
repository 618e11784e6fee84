// A Mixture of Experts over normed_mlp: router, permutation, the exchange between ranks (what stands beside the experts is computed
// meanwhile), grouped experts with the router's weight applied between activation and second matrix (and to its bias), the way back, and
// the sum of each token's rows in order. Backward mirrors each step, and each exchange. A rank that gets no rows does all of it with none.
#include "worker/model/blocks.h"
#include "worker/model/router.h"

void moe_refresh(struct model *model, size_t layer)
{
    struct layer_activations *l = &model->activations->layers[layer];
    activation_forward(model, l->act, l->gate_up, l->expert_probs, l->dispatch.rows, l->sizes.X);
    branches_refresh(model, layer);
}

// The experts of a part, forward: their rows of x->ordered, unless only what backward needs is wanted.
static void part_forward(struct model *model, size_t layer, const struct expert_part *part, bool again)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &l->sizes;
    size_t F = s->X, N = s->gates * F;
    enum param_kind first = first_matrix(model, PARAM_EXPERT_GATE, PARAM_EXPERT_UP);
    enum param_kind first_bias = first_matrix(model, PARAM_EXPERT_GATE_BIAS, PARAM_EXPERT_UP_BIAS);
    bool biased = model->spec->model.bias;
    void *gate_up = real_at(device, l->gate_up, part->row * N), *act = real_at(device, l->act, part->row * F);
    void *probs = real_at(device, l->expert_probs, part->row);

    experts_forward(model, part, gate_up, real_at(device, l->expert_rows, part->row * s->C), first, layer, N, s->C);
    if (biased)
        ops->grouped_bias_add(gate_up, layer_weight(model, first_bias, layer), part->rows_each, part->count, N);
    activation_forward(model, act, gate_up, probs, part->rows, F);
    if (again)
        return;
    void *out = real_at(device, model->activations->exchange.ordered, part->row * s->C);
    experts_forward(model, part, out, act, PARAM_EXPERT_DOWN, layer, s->C, F);
    if (biased)
        ops->weighted_bias_add(out, layer_weight(model, PARAM_EXPERT_DOWN_BIAS, layer), probs, part->rows_each, part->count, s->C);
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
    ops->round_rows(rows, l->normed_mlp, l->row_token, d->sent, s->C);
    ops->gather_rows(probs, branches_probs(model, layer), l->row_slot, d->sent, 1);
    dispatch_forth(d, device, l->expert_probs, probs, x->arrived_probs, 1);
    struct exchange_flight flight;
    dispatch_rows_depart(&flight, d, device, l->expert_rows, rows, x->arrived, s->C);
    const void *beside = out ? branches_forward(model, layer, residual) : NULL; // while the rows travel
    if (!out)
        branches_again(model, layer);
    dispatch_rows_arrive(&flight, d, device, l->expert_rows, x->arrived, s->C);

    for (struct expert_part part = {0}; experts_next(model, d, s->gates * s->X, &part);)
        part_forward(model, layer, &part, !out);
    if (!out)
        return;
    const void *back = dispatch_rows_back(d, device, x->send, x->ordered, x->arrived, s->C);
    ops->combine_rows(out, back, l->row_of, beside, s->T, s->J, s->C);
}

// The experts of a part, backward: the gradients of their weights; their rows of x->ordered, gradients of outputs, become those of inputs.
// What is between the matrices is overwritten by the next part.
static void part_backward(struct model *model, size_t layer, const struct expert_part *part)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;
    size_t F = s->X, N = s->gates * F;
    enum param_kind first = first_matrix(model, PARAM_EXPERT_GATE, PARAM_EXPERT_UP);
    enum param_kind first_bias = first_matrix(model, PARAM_EXPERT_GATE_BIAS, PARAM_EXPERT_UP_BIAS);
    void *drows = real_at(device, x->ordered, part->row * s->C), *gate_up = real_at(device, l->gate_up, part->row * N);
    void *probs = real_at(device, l->expert_probs, part->row), *dprobs = real_at(device, x->dexpert_probs, part->row);

    experts_dweight(model, part, layer_gradient(model, PARAM_EXPERT_DOWN, layer), drows, real_at(device, l->act, part->row * F), s->C, F);
    experts_dinput(model, part, x->dact, drows, layer_weight(model, PARAM_EXPERT_DOWN, layer), s->C, F);
    activation_backward(model, x->dgate_up, dprobs, x->dact, gate_up, probs, part->rows, F);
    if (model->spec->model.bias) {
        ops->weighted_bias_backward(layer_gradient(model, PARAM_EXPERT_DOWN_BIAS, layer), dprobs, drows,
            layer_weight(model, PARAM_EXPERT_DOWN_BIAS, layer), probs, part->rows_each, part->count, s->C);
        ops->grouped_bias_gradient(layer_gradient(model, first_bias, layer), x->dgate_up, part->rows_each, part->count, N);
    }
    experts_dweight(model, part, layer_gradient(model, first, layer), x->dgate_up, real_at(device, l->expert_rows, part->row * s->C), N, s->C);
    experts_dinput(model, part, drows, x->dgate_up, layer_weight(model, first, layer), N, s->C);
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

    void *drows = dispatch_send_buffer(d, x->ordered, x->send);
    ops->round_rows(drows, a->dout, l->row_token, d->sent, s->C);
    dispatch_rows_forth(d, device, x->ordered, drows, x->arrived, s->C);

    for (struct expert_part part = {0}; experts_next(model, d, s->gates * s->X, &part);)
        part_backward(model, layer, &part);

    const void *dsent = dispatch_rows_back(d, device, x->send, x->ordered, x->arrived, s->C);
    const void *dsent_probs = dispatch_back(d, device, x->send_probs, x->dexpert_probs, x->arrived_probs, 1);
    route_backward(model, layer, dsent_probs);
    branches_backward(model, layer);
    ops->combine_rows(a->dnormed, dsent, l->row_of, x->drouter, s->T, s->J, s->C);
}
