// Keys and values of the tokens so far, so that the next ones attend to them without computing them again. All blocks are those of training;
// attention alone reads from here.
#include "worker/model/blocks.h"

#include "schema/base/text.h"

#include <assert.h>
#include <stdlib.h>

struct cache {
    void *at;                   // device memory, (layers, positions, 2G·D): keys, then values of a position
    size_t row, positions;      // reals of a position; room for so many
    size_t bytes;               // of it
    size_t kept, most;          // tokens so far; the most at a time
    int32_t *numbers;           // host memory (most)
};

void model_keep(struct model *model, size_t positions)
{
    const struct model_sizes *s = &model->activations->sizes;
    struct cache *cache = allocate(1, sizeof *cache);
    assert(!model->cache && s->B == 1 && !s->documents && model->parallel->ep->size == 1);
    *cache = (struct cache){.row = 2 * s->G * s->D, .positions = positions, .most = s->T, .numbers = allocate(s->T, sizeof(int32_t))};
    cache->bytes = s->layers * positions * cache->row * model->device->real_bytes;
    cache->at = model->device->memory->alloc(cache->bytes);
    model->cache = cache;
}

void cache_free(struct cache *cache, const struct device *device)
{
    if (!cache)
        return;
    device->memory->free(cache->at, cache->bytes);
    free(cache->numbers);
    free(cache);
}

static void *layer_at(const struct model *model, size_t layer, size_t position)
{
    const struct cache *cache = model->cache;
    return real_at(model->device, cache->at, (layer * cache->positions + position) * cache->row);
}

void cache_attend(struct model *model, size_t layer)
{
    const struct device *device = model->device;
    const struct cache *cache = model->cache;
    struct layer_activations *l = &model->activations->layers[layer];
    const struct model_sizes *s = &model->activations->sizes;
    for (size_t t = 0; t < s->T; t++)
        device->memory->copy(layer_at(model, layer, cache->kept + t), real_at(device, l->qkv, t * s->Q + s->A), cache->row * device->real_bytes);
    device->ops->attention_cached(l->attention, l->qkv, layer_at(model, layer, 0), s->T, cache->kept, s->H, s->G, s->D,
        (size_t)model->spec->model.attention_window);
}

void model_extend(struct model *model, const int32_t *tokens, size_t count)
{
    const struct device_memory *memory = model->device->memory;
    struct activations *a = model->activations;
    struct cache *cache = model->cache;
    assert(count > 0 && count <= cache->most && cache->kept + count <= cache->positions);
    activations_resize(a, count);
    a->training = a->dropping = false;
    for (size_t t = 0; t < count; t++)
        cache->numbers[t] = (int32_t)(cache->kept + t);
    memory->upload(a->tokens, tokens, count * sizeof *tokens);
    if (a->positions)
        memory->upload(a->positions, cache->numbers, count * sizeof *cache->numbers);
    layers_forward(model);
    final_norm_forward(model);
    cache->kept += count;
}

size_t model_kept(const struct model *model)
{
    return model->cache->kept;
}

void model_forget(struct model *model)
{
    model->cache->kept = 0;
}
