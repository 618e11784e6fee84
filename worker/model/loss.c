// Final norm, output layer and cross-entropy, in chunks of rows.
#include "worker/model/blocks.h"

static const struct param *output_param(const struct model *model)
{
    bool tied = model->spec->model.tied_embeddings;
    return param_find(&model->table, tied ? PARAM_EMBEDDING : PARAM_LM_HEAD, -1, -1);
}

// One chunk: logits, losses, and in training the gradients of the output matrix and of the normed rows.
static void loss_chunk(struct model *model, size_t first, size_t rows, double factor)
{
    const struct device *device = model->device;
    const struct device_ops *ops = device->ops;
    struct activations *a = model->activations;
    size_t C = a->sizes.C, V = a->sizes.V;
    const struct param *output = output_param(model);
    const void *weight = model_weight(model, output);
    const void *normed = real_at(device, a->normed_final, first * C);

    ops->linear_forward(a->logits, normed, weight, rows, V, C);
    ops->cross_entropy(real_at(device, a->losses, first), a->logits, a->targets + first, rows, V, factor);
    if (!a->training)
        return;
    ops->linear_dweight(model_gradient(model, output), a->logits, normed, rows, V, C);
    ops->linear_dinput(real_at(device, a->dnormed, first * C), a->logits, weight, rows, V, C);
}

void final_norm_forward(struct model *model)
{
    struct activations *a = model->activations;
    norm_forward(model, PARAM_FINAL_NORM, -1, a->normed_final, a->mean_final, a->rstd_final, a->x_out);
}

double loss_forward(struct model *model, size_t counted)
{
    struct activations *a = model->activations;
    size_t T = a->sizes.T;
    double factor = counted ? a->gradient_factor / (double)counted : 0;

    final_norm_forward(model);
    for (size_t first = 0; first < T; first += a->sizes.loss_rows) {
        size_t rows = T - first < a->sizes.loss_rows ? T - first : a->sizes.loss_rows;
        loss_chunk(model, first, rows, factor);
    }
    double sum = model->device->ops->sum(a->losses, T);
    return counted ? sum / (double)counted : 0;
}

void model_logits(struct model *model, size_t row, double *logits)
{
    const struct device *device = model->device;
    struct activations *a = model->activations;
    size_t C = a->sizes.C, V = a->sizes.V;
    device->ops->linear_forward(a->logits, real_at(device, a->normed_final, row * C), model_weight(model, output_param(model)), 1, V, C);
    device->ops->to_double(logits, a->logits, V);
}

void loss_backward(struct model *model)
{
    const struct device *device = model->device;
    struct activations *a = model->activations;
    size_t T = a->sizes.T, C = a->sizes.C;

    device->memory->zero(a->dx, T * C * device->real_bytes);
    norm_backward(model, PARAM_FINAL_NORM, -1, a->x_out, a->mean_final, a->rstd_final);
}
