// What the model keeps on the device for one micro batch: the buffers of schema/shape/slots.inc, laid out once in two arenas by
// schema/shape/arena.h, which is what `plan` shows. A line there makes a member here.
#pragma once
#include "schema/shape/arena.h"
#include "worker/model/dispatch.h"
#include "worker/model/model.h"

#define MEMBER_OF_REALS void *
#define MEMBER_OF_WIDE void *
#define MEMBER_OF_INTS int32_t *

#define LAYER_SLOT(name, unit, ...) MEMBER_OF_##unit name;
struct layer_activations {
#include "schema/shape/slots.inc"
    struct model_sizes sizes;       // with this layer's experts
    struct dispatch dispatch;       // MoE: how this layer's rows travel; host memory
};

#define ONCE_SLOT(name, unit, ...) MEMBER_OF_##unit name;
struct activations {
    struct model_sizes sizes;       // of the layer with most experts
    struct layer_activations *layers;
#include "schema/shape/slots.inc"
    struct exchange_buffers {
#define DISPATCH_SLOT(name, unit, ...) MEMBER_OF_##unit name;
#include "schema/shape/slots.inc"
    } exchange;
    void *arena, *dispatch_arena;
    size_t arena_bytes, dispatch_bytes;
    double *frequencies;            // (D/2) of rotary positions; host memory
    bool training;                  // the last forward kept what backward needs
    bool dropping;                  // the last forward was a training one
    uint64_t first_token;           // of the micro batch, in the order of the run
    bool again;                     // a training forward that only makes anew what was not kept: same bits, nothing counted
    double gradient_factor;
    void *dout;                     // the gradient of what an mlp block adds: dx, or dbranch where it was dropped
};

struct activations *activations_new(const struct spec *spec, const struct device *device, const struct parallel *parallel);
// From now on a micro batch is one sequence of so many tokens, at most those that the arenas were made for.
void activations_resize(struct activations *activations, size_t tokens);
void activations_free(struct activations *activations, const struct device *device);

static inline bool layer_is_moe(const struct spec *spec, size_t layer)
{
    return spec_layer_experts(spec, (int64_t)layer) > 0;
}
