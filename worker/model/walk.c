// The walk through the model, forward and backward, for one micro batch.
#include "worker/model/blocks.h"

#include <assert.h>

static void *layer_output(struct activations *a, size_t layer)
{
    return layer + 1 < a->sizes.layers ? a->layers[layer + 1].x : a->x_out;
}

double model_forward(struct model *model, const int32_t *tokens, const int32_t *targets, bool training, double gradient_factor)
{
    const struct device *device = model->device;
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->sizes;
    a->training = training;
    a->gradient_factor = gradient_factor;

    size_t counted = 0;
    for (size_t t = 0; t < s->T; t++) {
        assert(tokens[t] >= 0 && (size_t)tokens[t] < s->V && targets[t] < (int64_t)s->V);
        counted += targets[t] >= 0;
    }
    device->memory->upload(a->tokens, tokens, s->T * sizeof *tokens);
    device->memory->upload(a->targets, targets, s->T * sizeof *targets);

    const struct param *embedding = param_find(&model->table, PARAM_EMBEDDING, -1, -1);
    device->ops->embedding_forward(a->layers[0].x, model_weight(model, embedding), a->tokens, s->T, s->C);
    for (size_t layer = 0; layer < s->layers; layer++) {
        attention_block_forward(model, layer);
        mlp_block_forward(model, layer, layer_output(a, layer));
    }
    if (training)
        model->moe->micro_batches++;
    return loss_forward(model, counted);
}

void model_backward(struct model *model)
{
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->sizes;
    assert(a->training); // and once for each forward: the activations are spent
    a->training = false;

    loss_backward(model);
    for (size_t layer = s->layers; layer-- > 0;) {
        mlp_block_backward(model, layer);
        attention_block_backward(model, layer);
    }
    const struct param *embedding = param_find(&model->table, PARAM_EMBEDDING, -1, -1);
    model->device->ops->embedding_backward(model_gradient(model, embedding), a->dx, a->tokens, s->T, s->V, s->C);
}
