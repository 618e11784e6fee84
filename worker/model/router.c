// The way of one layer's tokens: logits, choice, weights, what full experts drop, and the rows that follow from it.
#include "worker/model/router.h"
#include "worker/model/blocks.h"

#include <assert.h>
#include <string.h>

enum score_function router_score_function(const struct spec_moe *moe)
{
    switch (moe->score_function) {
    case SCORE_SIGMOID:
        return SCORES_SIGMOID;
    case SCORE_SQRTSOFTPLUS:
        return SCORES_SQRTSOFTPLUS;
    default:
        return SCORES_SOFTMAX;
    }
}

static enum arithmetic router_arithmetic(const struct spec_moe *moe)
{
    return moe->router_dtype == ROUTER_BF16 ? ARITHMETIC_BF16 : moe->router_dtype == ROUTER_FP64 ? ARITHMETIC_FP64 : ARITHMETIC_FP32;
}

// A single sigmoid or softplus score is a weight as it is. Where experts choose, so is every score.
static struct weighing weighing_of(const struct spec_moe *moe)
{
    bool normalised = moe->score_function == SCORE_SOFTMAX ? !moe->pre_softmax : moe->top_k > 1;
    return (struct weighing){router_score_function(moe), normalised && moe->routing == ROUTING_TOP_K, moe->scaling_factor > 0 ? moe->scaling_factor : 1};
}

// The choice that full experts are cut from, and the one that weights are made of: the same, unless those who are left share anew.
static const int32_t *weighed_choice(const struct spec_moe *moe, const struct layer_activations *l)
{
    return l->sizes.limited && moe->renormalise_after_drop ? l->kept : l->choice;
}

static const int32_t *final_choice(const struct layer_activations *l)
{
    return l->sizes.limited ? l->kept : l->choice;
}

void router_begin(struct model *model)
{
    struct activations *a = model->activations;
    if (!model->router->bias)
        return;
    for (size_t layer = 0; layer < a->sizes.layers; layer++) {
        double *bias = model->router->masses;
        for (size_t e = 0; e < a->sizes.E; e++)
            bias[e] = model->router->bias[layer * a->sizes.E + e];
        model->device->ops->from_double(real_at(model->device, a->expert_bias, layer * a->sizes.E), bias, a->sizes.E);
    }
}

// What experts are chosen by: logits where only their order counts, else scores, with the bias. Keys are made where backward has dlogits.
static const void *keys_of(struct model *model, size_t layer)
{
    const struct spec_moe *moe = &model->spec->model.moe;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    bool by_logits = moe->score_function == SCORE_SOFTMAX && !moe->pre_softmax;
    if (moe->routing == ROUTING_TOP_K && !moe->expert_bias && (moe->num_groups <= 1 || by_logits))
        return l->router_logits;
    const void *bias = moe->expert_bias ? real_at(model->device, a->expert_bias, layer * a->sizes.E) : NULL;
    model->device->ops->router_scores(a->exchange.dlogits, l->router_logits, bias, l->sizes.T, l->sizes.E, router_score_function(moe));
    return a->exchange.dlogits;
}

static void choose(struct model *model, size_t layer, size_t capacity)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_moe *moe = &model->spec->model.moe;
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &l->sizes;
    if (moe->force_balance)
        ops->router_choose_evenly(l->choice, s->T, s->E, s->K);
    else if (moe->routing == ROUTING_EXPERT_CHOICE)
        ops->router_choose_tokens(l->choice, keys_of(model, layer), s->T, s->E, capacity);
    else
        ops->router_choose(l->choice, keys_of(model, layer), s->T, s->E, s->K, (size_t)moe->num_groups, (size_t)moe->group_topk);
}

static void weigh_and_drop(struct model *model, struct layer_activations *l, size_t capacity)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_moe *moe = &model->spec->model.moe;
    const struct model_sizes *s = &l->sizes;
    struct weighing weighing = weighing_of(moe);
    ops->router_weights(l->probs, l->choice, l->router_logits, s->T, s->E, s->J, &weighing);
    if (!s->limited)
        return;
    ops->router_drop(l->kept, l->choice, moe->drop_policy == DROP_PROBS ? l->probs : NULL, s->T, s->E, s->J, capacity);
    if (moe->renormalise_after_drop)
        ops->router_weights(l->probs, l->kept, l->router_logits, s->T, s->E, s->J, &weighing);
}

// Rows of each expert, filled up to the capacity where that is asked for, as host integers and on the device.
static void count_rows(struct model *model, struct layer_activations *l, size_t capacity)
{
    const struct device *device = model->device;
    const struct model_sizes *s = &l->sizes;
    struct router *router = model->router;
    int32_t *read = router->integers;
    device->ops->router_counts(l->counts, final_choice(l), 1, s->T, s->E, s->J);
    device->memory->read_back(read, l->counts, s->E * sizeof *read);
    bool fill = s->limited && model->spec->model.moe.pad_to_capacity;
    for (size_t e = 0; e < s->E; e++) {
        assert(!capacity || (size_t)read[e] <= capacity);
        router->taken[e] = read[e];
        router->rows[e] = fill ? (int64_t)capacity : read[e];
        read[e] = (int32_t)router->rows[e];
    }
    if (fill)
        device->memory->upload(l->counts, read, s->E * sizeof *read);
}

// What the router reads in training with jitter: normed_mlp times factors of its places, in `room`. Its own adjoint.
static const void *jittered(struct model *model, size_t layer, void *room, const void *in)
{
    struct activations *a = model->activations;
    struct dropout jitter = dropout_of(model, model->spec->model.moe.input_jitter, JITTER_ROUTER, layer);
    if (jitter.probability <= 0)
        return in;
    model->device->ops->jitter(room, in, &jitter, a->sizes.T, a->sizes.C);
    return room;
}

void route(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_moe *moe = &model->spec->model.moe;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;
    size_t capacity = expert_capacity(moe, s->T, s->E, a->training);

    const void *input = jittered(model, layer, a->exchange.drouter, l->normed_mlp); // free in the forward pass
    ops->router_linear_forward(l->router_logits, input, layer_weight(model, PARAM_ROUTER, layer), s->T, s->E, s->C, router_arithmetic(moe));
    choose(model, layer, capacity);
    weigh_and_drop(model, l, capacity);
    count_rows(model, l, capacity);
    dispatch_plan(&l->dispatch, model->device, model->router->rows);
    ops->permute_plan(l->row_token, l->row_slot, l->row_of, final_choice(l), l->counts, s->T, s->E, s->J, l->dispatch.sent);
    if (a->training && !a->again)
        route_measure(model, layer);
}

void route_backward(struct model *model, size_t layer, const void *dsent_probs)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_moe *moe = &model->spec->model.moe;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    struct exchange_buffers *x = &a->exchange;
    const struct model_sizes *s = &l->sizes;
    struct weighing weighing = weighing_of(moe);
    double z_pull = spec_moe_coefficient(model->spec, MOE_LOSS_Z) / (double)s->T * a->gradient_factor;

    ops->gather_rows(x->dprobs, dsent_probs, l->row_of, s->T * s->J, 1);
    branches_probs_backward(model, layer);
    ops->router_backward(x->dlogits, x->dprobs, weighed_choice(moe, l), l->router_logits, l->pull, z_pull, s->B, s->S, s->E, s->J, &weighing);
    const void *input = jittered(model, layer, x->drouter, l->normed_mlp);
    ops->router_linear_dweight(layer_gradient(model, PARAM_ROUTER, layer), x->dlogits, input, s->T, s->E, s->C, router_arithmetic(moe));
    ops->router_linear_dinput(x->drouter, x->dlogits, layer_weight(model, PARAM_ROUTER, layer), s->T, s->E, s->C, router_arithmetic(moe));
    jittered(model, layer, x->drouter, x->drouter);
}
