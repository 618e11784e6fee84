// Where tokens become rows: embeddings of tokens and, where learned, of positions; and hidden dropout, which follows them and every block.
#include "worker/model/blocks.h"

static const struct param *table_of(const struct model *model, enum param_kind kind)
{
    return param_find(&model->table, kind, -1, -1);
}

void embedding_forward(struct model *model)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->sizes;
    void *x = a->layers[0].x;

    ops->embedding_forward(x, model_weight(model, table_of(model, PARAM_EMBEDDING)), a->tokens, s->T, s->C);
    if (model->spec->model.position == POSITION_LEARNED) {
        ops->embedding_forward(a->branch, model_weight(model, table_of(model, PARAM_POSITION)), a->positions, s->T, s->C);
        ops->add(x, x, a->branch, s->T * s->C);
    }
    hidden_dropout_forward(model, DROPOUT_EMBEDDING, 0, x);
}

void embedding_backward(struct model *model)
{
    const struct device_ops *ops = model->device->ops;
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->sizes;
    const struct param *tokens = table_of(model, PARAM_EMBEDDING);
    void *dx = hidden_dropout_backward(model, DROPOUT_EMBEDDING, 0, a->dx);

    ops->embedding_backward(model_gradient(model, tokens), dx, a->tokens, s->T, s->V, s->C);
    if (model->spec->model.position == POSITION_LEARNED) {
        const struct param *positions = table_of(model, PARAM_POSITION);
        ops->embedding_backward(model_gradient(model, positions), dx, a->positions, s->T, (size_t)positions->rows, s->C);
    }
}

struct dropout dropout_of(const struct model *model, double probability, enum dropout_kind kind, size_t layer)
{
    const struct activations *a = model->activations;
    return (struct dropout){a->dropping ? probability : 0, (uint64_t)model->spec->training.seed, a->first_token, dropout_site(kind, (int64_t)layer)};
}

bool hidden_drops(const struct model *model)
{
    return model->activations->dropping && model->spec->model.hidden_dropout > 0;
}

void hidden_dropout_forward(struct model *model, enum dropout_kind kind, size_t layer, void *x)
{
    struct activations *a = model->activations;
    struct dropout dropout = dropout_of(model, model->spec->model.hidden_dropout, kind, layer);
    if (hidden_drops(model))
        model->device->ops->dropout(x, x, &dropout, a->sizes.T, a->sizes.C);
}

void *hidden_dropout_backward(struct model *model, enum dropout_kind kind, size_t layer, void *dx)
{
    struct activations *a = model->activations;
    struct dropout dropout = dropout_of(model, model->spec->model.hidden_dropout, kind, layer);
    if (!hidden_drops(model))
        return dx;
    model->device->ops->dropout(a->dbranch, dx, &dropout, a->sizes.T, a->sizes.C);
    return a->dbranch;
}
