#include "worker/train/optimizer.h"
#include "schema/shape/lr.h"

static void moments_init(struct moments *moments, const struct device *device, size_t count)
{
    *moments = (struct moments){.count = count};
    if (count == 0)
        return;
    moments->m = device->memory->alloc(count * device->real_bytes);
    moments->v = device->memory->alloc(count * device->real_bytes);
}

static void moments_release(struct moments *moments, const struct device *device)
{
    if (moments->count == 0)
        return;
    device->memory->free(moments->m, moments->count * device->real_bytes);
    device->memory->free(moments->v, moments->count * device->real_bytes);
}

void optimizer_init(struct optimizer *optimizer, const struct model *model)
{
    optimizer->device = model->device;
    moments_init(&optimizer->dense, model->device, model->dense.count);
    moments_init(&optimizer->experts, model->device, model->experts.count);
}

void optimizer_release(struct optimizer *optimizer)
{
    if (!optimizer->device)
        return;
    moments_release(&optimizer->dense, optimizer->device);
    moments_release(&optimizer->experts, optimizer->device);
}

void *optimizer_state(const struct optimizer *optimizer, const struct param *param, enum moment which)
{
    if (!param->resident)
        return NULL;
    const struct moments *moments = param->expert >= 0 ? &optimizer->experts : &optimizer->dense;
    return real_at(optimizer->device, which == MOMENT_FIRST ? moments->m : moments->v, param->offset);
}

double optimizer_clip(const struct spec *spec, double norm)
{
    double most = spec->training.optimizer.clip_grad;
    if (most <= 0)
        return 1;
    double factor = most / (norm + 1e-6);
    return factor < 1 ? factor : 1;
}

void optimizer_step(struct optimizer *optimizer, struct model *model, double norm, double loss_scale, int64_t samples)
{
    const struct spec *spec = model->spec;
    const struct spec_optimizer *o = &spec->training.optimizer;
    double factor = optimizer_clip(spec, norm) / loss_scale, rate = learning_rate(spec, optimizer->samples);
    double experts = expert_learning_rate(spec, optimizer->samples);
    optimizer->updates++;
    optimizer->samples += samples;
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        if (!param->resident)
            continue;
        void *weights = model_weight_is_rounded(model, param) ? model_weight(model, param) : NULL;
        optimizer->device->ops->adamw(model_param(model, param), weights, optimizer_state(optimizer, param, MOMENT_FIRST),
            optimizer_state(optimizer, param, MOMENT_SECOND), model_gradient(model, param), param_elements(param), factor,
            param->expert >= 0 ? experts : rate, o->beta1, o->beta2, o->eps, param->decay ? o->weight_decay : 0, optimizer->updates);
    }
}
