// Life of a model: its table, its segments of parameters and gradients, its arenas, and where a tensor lies.
#include "worker/model/model.h"

#include "schema/base/text.h"
#include "worker/model/blocks.h"
#include "worker/model/router.h"
#include "worker/parallel/reduce.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { INITIAL_CHUNK = 1 << 16 }; // elements made at a time

static int check_layout(const struct spec *spec, const struct parallel *parallel, struct error *err)
{
    const struct layout *layout = &parallel->layout;
    if (layout->tp != 1 || layout->pp != 1 || layout->cp != 1)
        return error_set(err, "this build cannot split a model over tensor, pipeline or context parallel ranks yet");
    for (int64_t layer = 0; layer < spec->model.layers; layer++)
        if (spec_layer_experts(spec, layer) % layout->ep != 0)
            return error_set(err, "%" PRId64 " experts cannot be spread over %" PRId64 " expert-parallel ranks",
                spec_layer_experts(spec, layer), layout->ep);
    return 0;
}

static void segment_init(struct segment *segment, const struct device *device, size_t count, bool with_gradients)
{
    *segment = (struct segment){.count = count};
    if (!count)
        return;
    segment->params = device->memory->alloc(count * device->real_bytes);
    segment->gradients = with_gradients ? device->memory->alloc(count * device->real_bytes) : NULL;
    segment->weights = device->format == FORMAT_FP32 ? segment->params : device->memory->alloc(count * device->weight_bytes);
}

static void segment_release(struct segment *segment, const struct device *device)
{
    if (segment->count) {
        if (segment->weights != segment->params)
            device->memory->free(segment->weights, segment->count * device->weight_bytes);
        if (segment->params)
            device->memory->free(segment->params, segment->count * device->real_bytes);
        if (segment->gradients)
            device->memory->free(segment->gradients, segment->count * device->real_bytes);
    }
    *segment = (struct segment){0};
}

static void set_initial_values(struct model *model)
{
    double *values = allocate(INITIAL_CHUNK, sizeof *values);
    uint64_t seed = (uint64_t)model->spec->training.seed;
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        size_t count = param->resident ? param_elements(param) : 0;
        for (size_t first = 0; first < count; first += INITIAL_CHUNK) {
            size_t n = count - first < INITIAL_CHUNK ? count - first : INITIAL_CHUNK;
            param_initial(values, param, seed, first, n);
            model->device->ops->from_double(real_at(model->device, model_param(model, param), first), values, n);
        }
    }
    free(values);
    model_refresh_weights(model);
}

static size_t scratch_reals(const struct model *model)
{
    size_t dense = reduce_scratch_reals(model->parallel->dp, model->dense.count);
    size_t experts = reduce_scratch_reals(model->parallel->edp, model->experts.count);
    return dense > experts ? dense : experts;
}

// All but its parameters.
static struct model *model_of(const struct spec *spec, const struct device *device, const struct parallel *parallel)
{
    struct model *model = allocate(1, sizeof *model);
    *model = (struct model){.spec = spec, .device = device, .parallel = parallel};
    param_table_init(&model->table, spec, parallel->ep->rank, parallel->ep->size);
    model->squares = allocate(model->table.count, sizeof *model->squares);
    model->zeros = allocate(model->table.count, sizeof *model->zeros);
    model->activations = activations_new(spec, device, parallel);
    model->router = router_new(spec, &model->activations->sizes);
    return model;
}

int model_new(struct model **out, const struct spec *spec, const struct device *device, const struct parallel *parallel, struct error *err)
{
    if (check_layout(spec, parallel, err) < 0)
        return -1;
    struct model *model = model_of(spec, device, parallel);
    segment_init(&model->dense, device, model->table.dense_elements, true);
    segment_init(&model->experts, device, model->table.expert_elements, true);
    model->reduce_scratch_bytes = scratch_reals(model) * device->real_bytes;
    if (model->reduce_scratch_bytes)
        model->reduce_scratch = device->memory->alloc(model->reduce_scratch_bytes);
    set_initial_values(model);
    *out = model;
    return 0;
}

int model_new_for_inference(struct model **out, const struct spec *spec, const struct device *device, const struct parallel *parallel,
    const struct expert_store *store, struct error *err)
{
    if (check_layout(spec, parallel, err) < 0)
        return -1;
    struct model *model = model_of(spec, device, parallel);
    segment_init(&model->dense, device, model->table.dense_elements, false);
    if (store)
        model->store = store;
    else
        segment_init(&model->experts, device, model->table.expert_elements, false);
    *out = model;
    return 0;
}

void model_free(struct model *model)
{
    if (!model)
        return;
    const struct device *device = model->device;
    if (model->reduce_scratch)
        device->memory->free(model->reduce_scratch, model->reduce_scratch_bytes);
    router_free(model->router);
    cache_free(model->cache, device);
    activations_free(model->activations, device);
    segment_release(&model->experts, device);
    segment_release(&model->dense, device);
    free(model->squares);
    free(model->zeros);
    param_table_release(&model->table);
    free(model);
}

static void *tensor_at(const struct model *model, const struct param *param, void *dense, void *experts)
{
    return param->resident ? real_at(model->device, param->expert < 0 ? dense : experts, param->offset) : NULL;
}

void *model_param(const struct model *model, const struct param *param)
{
    return tensor_at(model, param, model->dense.params, model->experts.params);
}

void *model_gradient(const struct model *model, const struct param *param)
{
    return tensor_at(model, param, model->dense.gradients, model->experts.gradients);
}

bool model_weight_is_rounded(const struct model *model, const struct param *param)
{
    bool matrix = param->init == INIT_NORMAL;
    return model->device->format != FORMAT_FP32 && matrix && param->kind != PARAM_ROUTER;
}

void *model_weight(const struct model *model, const struct param *param)
{
    if (!param->resident || !model_weight_is_rounded(model, param))
        return model_param(model, param);
    return weight_at(model->device, param->expert < 0 ? model->dense.weights : model->experts.weights, param->offset);
}

static void refresh_segment(const struct device *device, const struct segment *segment)
{
    if (segment->count && device->format != FORMAT_FP32)
        device->ops->narrow_rows(segment->weights, segment->params, NULL, 1, segment->count);
}

void model_refresh_weights(struct model *model)
{
    refresh_segment(model->device, &model->dense);
    refresh_segment(model->device, &model->experts);
}

static const struct param *layer_param(const struct model *model, enum param_kind kind, size_t layer)
{
    const struct param_table *table = &model->table;
    int64_t first = table->ep_rank * layer_local_experts(table, model->spec, (int64_t)layer);
    return param_find(table, kind, (int64_t)layer, param_is_expert(kind) ? first : -1);
}

void *layer_weight(const struct model *model, enum param_kind kind, size_t layer)
{
    return model_weight(model, layer_param(model, kind, layer));
}

void *layer_gradient(const struct model *model, enum param_kind kind, size_t layer)
{
    return model_gradient(model, layer_param(model, kind, layer));
}

size_t model_bytes(const struct model *model, const char *category)
{
    const struct device *device = model->device;
    size_t count = model->dense.count + model->experts.count;
    const struct { const char *name; size_t bytes; } categories[] = {
        {"parameters", count * device->weight_bytes},
        {"master", device->format == FORMAT_FP32 ? 0 : count * device->real_bytes},
        {"gradients", count * device->real_bytes},
        {"activations", model->activations->arena_bytes + model->reduce_scratch_bytes},
        {"dispatch", model->activations->dispatch_bytes},
        {"experts", model->experts.count * device->weight_bytes},
    };
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (!strcmp(categories[i].name, category))
            return categories[i].bytes;
    assert(!"a category of memory");
    abort();
}
