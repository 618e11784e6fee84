// The matrix products of a rank's experts over their rows: all in one call (moe.grouped_gemm), or one product for each expert that has
// rows. Both give the same bits, because a device promises it; how fast they are differs.
#include "worker/model/blocks.h"

bool experts_next(const struct model *model, const struct dispatch *d, size_t width, struct expert_part *part)
{
    // As schema/shape/arena.c has it: what is between the matrices in backward has room for no more.
    size_t most = model->spec->model.bias ? d->rows : rows_together(width);
    part->row += part->rows;
    part->first += part->count;
    part->rows = part->count = 0;
    while (part->first + part->count < d->local) {
        size_t rows = (size_t)d->expert_rows[part->first + part->count];
        if (part->rows && rows && part->rows + rows > most)
            break;
        part->rows += rows;
        part->count++;
    }
    part->rows_each = d->expert_rows + part->first;
    return part->rows;
}

static bool grouped(const struct model *model)
{
    return model->spec->model.moe.grouped_gemm;
}

// Experts one by one, each where the store has it.
static void stored_forward(const struct model *model, const struct expert_part *part, void *out, void *rows, enum param_kind kind, size_t layer,
    size_t N, size_t K)
{
    const struct device *device = model->device;
    for (size_t expert = 0, at = 0, count; expert < part->count; expert++, at += count) {
        count = (size_t)part->rows_each[expert];
        if (count)
            device->ops->linear_forward(real_at(device, out, at * N), real_at(device, rows, at * K),
                model->store->matrix(model->store->context, kind, layer, part->first + expert), count, N, K);
    }
}

void experts_forward(const struct model *model, const struct expert_part *part, void *out, void *rows, enum param_kind kind, size_t layer,
    size_t N, size_t K)
{
    const struct device *device = model->device;
    if (model->store) {
        stored_forward(model, part, out, rows, kind, layer, N, K);
        return;
    }
    void *weights = weight_at(device, layer_weight(model, kind, layer), part->first * N * K);
    if (grouped(model)) {
        device->ops->grouped_forward(out, rows, weights, part->rows_each, part->count, N, K);
        return;
    }
    for (size_t expert = 0, at = 0, count; expert < part->count; expert++, at += count) {
        count = (size_t)part->rows_each[expert];
        if (count)
            device->ops->linear_forward(
                real_at(device, out, at * N), real_at(device, rows, at * K), weight_at(device, weights, expert * N * K), count, N, K);
    }
}

void experts_dinput(const struct model *model, const struct expert_part *part, void *out, void *drows, void *weights, size_t N, size_t K)
{
    const struct device *device = model->device;
    weights = weight_at(device, weights, part->first * N * K);
    if (grouped(model)) {
        device->ops->grouped_dinput(out, drows, weights, part->rows_each, part->count, N, K);
        return;
    }
    for (size_t expert = 0, at = 0, count; expert < part->count; expert++, at += count) {
        count = (size_t)part->rows_each[expert];
        if (count)
            device->ops->linear_dinput(
                real_at(device, out, at * K), real_at(device, drows, at * N), weight_at(device, weights, expert * N * K), count, N, K);
    }
}

void experts_dweight(const struct model *model, const struct expert_part *part, void *dweights, void *drows, void *rows, size_t N, size_t K)
{
    const struct device *device = model->device;
    dweights = real_at(device, dweights, part->first * N * K);
    if (grouped(model)) {
        device->ops->grouped_dweight(dweights, drows, rows, part->rows_each, part->count, N, K);
        return;
    }
    for (size_t expert = 0, at = 0, count; expert < part->count; expert++, at += count) {
        count = (size_t)part->rows_each[expert];
        if (count)
            device->ops->linear_dweight(
                real_at(device, dweights, expert * N * K), real_at(device, drows, at * N), real_at(device, rows, at * K), count, N, K);
    }
}
