// The walk through the model, forward and backward, for one micro batch.
#include "worker/model/blocks.h"
#include "worker/model/router.h"

#include <assert.h>

static void *layer_output(struct activations *a, size_t layer)
{
    return layer + 1 < a->sizes.layers ? a->layers[layer + 1].x : a->x_out;
}

static void check_micro_batch(const struct model *model, const struct micro_batch *batch)
{
    const struct model_sizes *s = &model->activations->sizes;
    assert(!s->documents == !batch->first_key && !model->spec->data.reset_position_ids == !batch->positions);
    for (size_t t = 0; t < s->T; t++) {
        assert(batch->tokens[t] >= 0 && (size_t)batch->tokens[t] < s->V && batch->targets[t] < (int64_t)s->V);
        assert(!batch->positions || (batch->positions[t] >= 0 && (size_t)batch->positions[t] < s->S));
        assert(!batch->first_key || (batch->first_key[t] >= 0 && (size_t)batch->first_key[t] <= t % s->S));
    }
}

static void upload(struct model *model, const struct micro_batch *batch)
{
    const struct device_memory *memory = model->device->memory;
    struct activations *a = model->activations;
    size_t bytes = a->sizes.T * sizeof(int32_t);
    memory->upload(a->tokens, batch->tokens, bytes);
    memory->upload(a->targets, batch->targets, bytes);
    if (a->first_key)
        memory->upload(a->first_key, batch->first_key, bytes);
    if (a->positions && batch->positions) // else they are as activations_new left them
        memory->upload(a->positions, batch->positions, bytes);
}

void layers_forward(struct model *model)
{
    struct activations *a = model->activations;
    router_begin(model);
    embedding_forward(model);
    for (size_t layer = 0; layer < a->sizes.layers; layer++) {
        attention_block_forward(model, layer);
        mlp_block_forward(model, layer, layer_output(a, layer));
    }
}

double model_forward(struct model *model, const struct micro_batch *batch, bool training, double gradient_factor)
{
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->sizes;
    a->training = a->dropping = training;
    a->gradient_factor = gradient_factor;
    a->first_token = (uint64_t)batch->first_sample * s->S;
    check_micro_batch(model, batch);
    upload(model, batch);
    size_t counted = 0;
    for (size_t t = 0; t < s->T; t++)
        counted += batch->targets[t] >= 0;
    layers_forward(model);
    if (training)
        model->router->report.micro_batches++;
    return loss_forward(model, counted);
}

void model_backward(struct model *model)
{
    struct activations *a = model->activations;
    assert(a->training);

    loss_backward(model);
    for (size_t layer = a->sizes.layers; layer-- > 0;) {
        recompute(model, layer);
        mlp_block_backward(model, layer);
        attention_block_backward(model, layer);
    }
    embedding_backward(model);
    a->training = false; // once for each forward: the activations are spent
}
