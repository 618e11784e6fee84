// Attention with its norm and residual: norm, one fused product for q|k|v, norms of queries and keys, rotary positions, attention, o_proj.
#include "worker/model/blocks.h"

static struct attention_options options_of(const struct model *model, size_t layer)
{
    const struct activations *a = model->activations;
    const struct model_sizes *s = &a->sizes;
    return (struct attention_options){s->B, s->S, s->H, s->G, s->D, (size_t)model->spec->model.attention_window, a->first_key,
        dropout_of(model, model->spec->model.attention_dropout, DROPOUT_SCORES, layer)};
}

static void normalise_queries_and_keys(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &model->activations->sizes;
    double eps = model->spec->model.norm_epsilon;

    ops->piece_norm_forward(l->qkv, l->q_before_norm, l->q_rstd, layer_weight(model, PARAM_Q_NORM, layer), s->T, s->Q, 0, s->q_pieces,
        s->A / s->q_pieces, eps);
    ops->piece_norm_forward(l->qkv, l->k_before_norm, l->k_rstd, layer_weight(model, PARAM_K_NORM, layer), s->T, s->Q, s->A, s->k_pieces,
        s->G * s->D / s->k_pieces, eps);
}

static void normalise_queries_and_keys_backward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;

    ops->piece_norm_backward(a->dqkv, layer_gradient(model, PARAM_Q_NORM, layer), l->q_before_norm, layer_weight(model, PARAM_Q_NORM, layer),
        l->q_rstd, s->T, s->Q, 0, s->q_pieces, s->A / s->q_pieces);
    ops->piece_norm_backward(a->dqkv, layer_gradient(model, PARAM_K_NORM, layer), l->k_before_norm, layer_weight(model, PARAM_K_NORM, layer),
        l->k_rstd, s->T, s->Q, s->A, s->k_pieces, s->G * s->D / s->k_pieces);
}

void attention_block_refresh(struct model *model, size_t layer)
{
    struct layer_activations *l = &model->activations->layers[layer];
    norm_forward(model, PARAM_ATTENTION_NORM, (int64_t)layer, l->normed_attention, l->mean_attention, l->rstd_attention, l->x);
}

void attention_block_forward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_model *spec = &model->spec->model;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;
    struct attention_options options = options_of(model, layer);

    norm_forward(model, PARAM_ATTENTION_NORM, (int64_t)layer, l->normed_attention, l->mean_attention, l->rstd_attention, l->x);
    ops->linear_forward(l->qkv, l->normed_attention, layer_weight(model, PARAM_Q, layer), s->T, s->Q, s->C);
    if (spec->bias)
        ops->bias_add(l->qkv, layer_weight(model, PARAM_Q_BIAS, layer), s->T, s->Q);
    if (s->q_pieces)
        normalise_queries_and_keys(model, layer);
    if (spec->position == POSITION_ROPE)
        ops->rope(l->qkv, a->positions, a->frequencies, s->T, s->Q, 0, s->H + s->G, s->D, +1);
    if (model->cache)
        cache_attend(model, layer);
    else
        ops->attention_forward(l->attention, l->lse, l->qkv, &options);
    ops->linear_forward(a->branch, l->attention, layer_weight(model, PARAM_O, layer), s->T, s->C, s->A);
    if (spec->bias)
        ops->bias_add(a->branch, layer_weight(model, PARAM_O_BIAS, layer), s->T, s->C);
    hidden_dropout_forward(model, DROPOUT_ATTENTION, layer, a->branch);
    ops->add(l->x_mid, l->x, a->branch, s->T * s->C);
}

void attention_block_backward(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_model *spec = &model->spec->model;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &a->sizes;
    struct attention_options options = options_of(model, layer);
    void *dbranch = hidden_dropout_backward(model, DROPOUT_ATTENTION, layer, a->dx);

    if (spec->bias)
        ops->bias_gradient(layer_gradient(model, PARAM_O_BIAS, layer), dbranch, s->T, s->C);
    ops->linear_dweight(layer_gradient(model, PARAM_O, layer), dbranch, l->attention, s->T, s->C, s->A);
    ops->linear_dinput(a->dattention, dbranch, layer_weight(model, PARAM_O, layer), s->T, s->C, s->A);
    ops->attention_backward(a->dqkv, a->dattention, l->qkv, l->attention, l->lse, &options);
    if (spec->position == POSITION_ROPE)
        ops->rope(a->dqkv, a->positions, a->frequencies, s->T, s->Q, 0, s->H + s->G, s->D, -1);
    if (s->q_pieces)
        normalise_queries_and_keys_backward(model, layer);
    if (spec->bias)
        ops->bias_gradient(layer_gradient(model, PARAM_Q_BIAS, layer), a->dqkv, s->T, s->Q);
    ops->linear_dweight(layer_gradient(model, PARAM_Q, layer), a->dqkv, l->normed_attention, s->T, s->Q, s->C);
    ops->linear_dinput(a->dnormed, a->dqkv, layer_weight(model, PARAM_Q, layer), s->T, s->Q, s->C);
    norm_backward(model, PARAM_ATTENTION_NORM, (int64_t)layer, l->x, l->mean_attention, l->rstd_attention);
}
