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

    size_t F = s->X, N = s->gates * F;
    enum param_kind first = first_matrix(model, PARAM_EXPERT_GATE, PARAM_EXPERT_UP);
    enum param_kind first_bias = first_matrix(model, PARAM_EXPERT_GATE_BIAS, PARAM_EXPERT_UP_BIAS);
    bool biased = model->spec->model.bias;
    experts_forward(model, d, l->gate_up, l->expert_rows, first, layer, N, s->C);
    if (biased)
        ops->grouped_bias_add(l->gate_up, layer_weight(model, first_bias, layer), d->expert_rows, d->local, N);
    activation_forward(model, l->act, l->gate_up, l->expert_probs, d->rows, F);
    if (!out)
        return;
    experts_forward(model, d, x->ordered, l->act, PARAM_EXPERT_DOWN, layer, s->C, F);
    if (biased)
        ops->weighted_bias_add(x->ordered, layer_weight(model, PARAM_EXPERT_DOWN_BIAS, layer), l->expert_probs, d->expert_rows, d->local, s->C);

    const void *back = dispatch_rows_back(d, device, x->send, x->ordered, x->arrived, s->C);
    ops->combine_rows(out, back, l->row_of, beside, s->T, s->J, s->C);
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
    ops->round_rows(drows, a->dout, l->row_token, d->sent, s->C);
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
    ops->combine_rows(a->dnormed, dsent, l->row_of, x->drouter, s->T, s->J, s->C);
}
