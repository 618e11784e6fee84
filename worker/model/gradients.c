// Gradients of the whole model over ranks: their sum, their norm, their zeros.
#include "worker/model/model.h"

#include "worker/parallel/reduce.h"

#include <math.h>
#include <string.h>

void model_zero_gradients(struct model *model)
{
    const struct device *device = model->device;
    device->memory->zero(model->dense.gradients, model->dense.count * device->real_bytes);
    if (model->experts.count)
        device->memory->zero(model->experts.gradients, model->experts.count * device->real_bytes);
}

static void reduce_segment(const struct model *model, struct comm *comm, const struct segment *segment)
{
    const struct device *device = model->device;
    if (!segment->count)
        return;
    size_t scratch_bytes = reduce_scratch_reals(comm, segment->count) * device->real_bytes;
    void *scratch = scratch_bytes ? model->reduce_scratch : NULL;
    all_reduce(device, comm, segment->gradients, segment->count, 1.0 / (double)model->parallel->layout.dp, scratch);
}

// The factor is 1/DP for both: an expert's gradient already holds the tokens of every rank in its expert-parallel group.
void model_reduce_gradients(struct model *model)
{
    reduce_segment(model, model->parallel->dp, &model->dense);
    reduce_segment(model, model->parallel->edp, &model->experts);
}

// Every rank fills in the experts it holds; a sum over the group completes the tables, exactly, because the others hold zero.
double model_gradient_norm(const struct model *model, int64_t *zeros)
{
    const struct device_ops *ops = model->device->ops;
    size_t count = model->table.count;
    double *squares = memset(model->squares, 0, count * sizeof *squares);
    int64_t *counted = memset(model->zeros, 0, count * sizeof *counted);
    bool lowest = model->parallel->ep->rank == 0;
    for (size_t i = 0; i < count; i++) {
        const struct param *param = &model->table.items[i];
        if (!param->resident || (param->expert < 0 && !lowest))
            continue;
        squares[i] = ops->sum_of_squares(model_gradient(model, param), param_elements(param), &counted[i]);
    }
    all_reduce_doubles(model->parallel->ep, squares, count);
    all_reduce_integers(model->parallel->ep, counted, count);
    double sum = 0;
    *zeros = 0;
    for (size_t i = 0; i < count; i++) {
        sum += squares[i];
        *zeros += counted[i];
    }
    return sqrt(sum);
}
