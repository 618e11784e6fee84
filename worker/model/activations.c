#include "worker/model/activations.h"

#include "schema/base/text.h"
#include "schema/shape/rope.h"

#include <stdlib.h>

static void *at(void *arena, int64_t offset)
{
    return offset == ARENA_ABSENT ? NULL : (char *)arena + offset;
}

static void point_layer(struct layer_activations *layer, void *arena, const int64_t offsets[LAYER_SLOTS])
{
#define LAYER_SLOT(name, ...) layer->name = at(arena, offsets[LAYER_##name]);
#include "schema/shape/slots.inc"
}

static void point(struct activations *a, const struct arena *plan)
{
    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        point_layer(&a->layers[layer], a->arena, plan->layers[layer]);
#define ONCE_SLOT(name, ...) a->name = at(a->arena, plan->once[ONCE_##name]);
#include "schema/shape/slots.inc"
#define DISPATCH_SLOT(name, ...) a->exchange.name = at(a->dispatch_arena, plan->dispatch[DISPATCH_##name]);
#include "schema/shape/slots.inc"
}

static void layer_init(struct layer_activations *layer, const struct spec *spec, const struct model_sizes *sizes, size_t index,
    const struct parallel *parallel)
{
    layer->sizes = model_sizes_of(sizes, (size_t)spec_layer_experts(spec, (int64_t)index));
    if (layer->sizes.E)
        dispatch_init(&layer->dispatch, parallel->ep, layer->sizes.E, layer->sizes.R, layer->order, layer->arrival);
}

// Positions as they are where documents do not begin them anew.
static void number_positions(const struct activations *a, const struct device *device)
{
    size_t T = a->sizes.T;
    int32_t *positions = allocate(T, sizeof *positions);
    for (size_t t = 0; t < T; t++)
        positions[t] = (int32_t)(t % a->sizes.S);
    device->memory->upload(a->positions, positions, T * sizeof *positions);
    free(positions);
}

struct activations *activations_new(const struct spec *spec, const struct device *device, const struct parallel *parallel)
{
    struct activations *a = allocate(1, sizeof *a);
    struct arena plan;
    model_sizes_init(&a->sizes, spec, &parallel->layout, ROUTING_WORST);
    a->layers = allocate(a->sizes.layers, sizeof *a->layers);
    arena_init(&plan, spec, &a->sizes, device->real_bytes);
    a->arena_bytes = plan.bytes;
    a->dispatch_bytes = plan.dispatch_bytes;
    a->arena = device->memory->alloc(a->arena_bytes);
    a->dispatch_arena = a->dispatch_bytes ? device->memory->alloc(a->dispatch_bytes) : NULL;
    point(a, &plan);
    if (a->positions)
        number_positions(a, device);
    a->frequencies = allocate(a->sizes.D / 2, sizeof *a->frequencies);
    rope_frequencies(a->frequencies, spec);
    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        layer_init(&a->layers[layer], spec, &a->sizes, layer, parallel);
    arena_release(&plan);
    return a;
}

static void resize(struct model_sizes *sizes, size_t tokens)
{
    sizes->B = 1;
    sizes->S = sizes->T = sizes->t = tokens;
}

void activations_resize(struct activations *a, size_t tokens)
{
    resize(&a->sizes, tokens);
    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        resize(&a->layers[layer].sizes, tokens);
}

void activations_free(struct activations *a, const struct device *device)
{
    if (!a)
        return;
    for (size_t layer = 0; layer < a->sizes.layers; layer++)
        dispatch_release(&a->layers[layer].dispatch);
    device->memory->free(a->arena, a->arena_bytes);
    if (a->dispatch_arena)
        device->memory->free(a->dispatch_arena, a->dispatch_bytes);
    free(a->frequencies);
    free(a->layers);
    free(a);
}
