// The matrix products of a rank's experts over their rows: all in one call (moe.grouped_gemm), or one product for each expert that has
// rows. Both give the same bits, because a device promises it; how fast they are differs.
#include "worker/model/blocks.h"

static bool grouped(const struct model *model)
{
    return model->spec->model.moe.grouped_gemm;
}

// Experts one by one, each where the store has it.
static void stored_forward(const struct model *model, const struct dispatch *d, void *out, void *rows, enum param_kind kind, size_t layer, size_t N,
    size_t K)
{
    const struct device *device = model->device;
    for (size_t expert = 0, at = 0, count; expert < d->local; expert++, at += count) {
        count = (size_t)d->expert_rows[expert];
        if (count)
            device->ops->linear_forward(real_at(device, out, at * N), real_at(device, rows, at * K),
                model->store->matrix(model->store->context, kind, layer, expert), count, N, K);
    }
}

void experts_forward(const struct model *model, const struct dispatch *d, void *out, void *rows, enum param_kind kind, size_t layer, size_t N,
    size_t K)
{
    const struct device *device = model->device;
    if (model->store) {
        stored_forward(model, d, out, rows, kind, layer, N, K);
        return;
    }
    void *weights = layer_weight(model, kind, layer);
    if (grouped(model)) {
        device->ops->grouped_forward(out, rows, weights, d->expert_rows, d->local, N, K);
        return;
    }
    for (size_t expert = 0, at = 0, count; expert < d->local; expert++, at += count) {
        count = (size_t)d->expert_rows[expert];
        if (count)
            device->ops->linear_forward(
                real_at(device, out, at * N), real_at(device, rows, at * K), weight_at(device, weights, expert * N * K), count, N, K);
    }
}

void experts_dinput(const struct model *model, const struct dispatch *d, void *out, void *drows, void *weights, size_t N, size_t K)
{
    const struct device *device = model->device;
    if (grouped(model)) {
        device->ops->grouped_dinput(out, drows, weights, d->expert_rows, d->local, N, K);
        return;
    }
    for (size_t expert = 0, at = 0, count; expert < d->local; expert++, at += count) {
        count = (size_t)d->expert_rows[expert];
        if (count)
            device->ops->linear_dinput(
                real_at(device, out, at * K), real_at(device, drows, at * N), weight_at(device, weights, expert * N * K), count, N, K);
    }
}

void experts_dweight(const struct model *model, const struct dispatch *d, void *dweights, void *drows, void *rows, size_t N, size_t K)
{
    const struct device *device = model->device;
    if (grouped(model)) {
        device->ops->grouped_dweight(dweights, drows, rows, d->expert_rows, d->local, N, K);
        return;
    }
    for (size_t expert = 0, at = 0, count; expert < d->local; expert++, at += count) {
        count = (size_t)d->expert_rows[expert];
        if (count)
            device->ops->linear_dweight(
                real_at(device, dweights, expert * N * K), real_at(device, drows, at * N), real_at(device, rows, at * K), count, N, K);
    }
}
