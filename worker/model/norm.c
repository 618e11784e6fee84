// The norms of the model: RMSNorm, or layer norm with its bias.
#include "worker/model/blocks.h"

static enum param_kind bias_of(enum param_kind weight)
{
    return weight == PARAM_ATTENTION_NORM ? PARAM_ATTENTION_NORM_BIAS : weight == PARAM_MLP_NORM ? PARAM_MLP_NORM_BIAS : PARAM_FINAL_NORM_BIAS;
}

void norm_forward(struct model *model, enum param_kind weight, int64_t layer, void *out, void *mean, void *rstd, const void *x)
{
    const struct device_ops *ops = model->device->ops;
    const struct model_sizes *s = &model->activations->sizes;
    const void *w = model_param(model, param_find(&model->table, weight, layer, -1));
    double eps = model->spec->model.norm_epsilon;
    if (!s->centred) {
        ops->rmsnorm_forward(out, rstd, x, w, s->T, s->C, eps);
        return;
    }
    const void *b = model_param(model, param_find(&model->table, bias_of(weight), layer, -1));
    ops->layernorm_forward(out, mean, rstd, x, w, b, s->T, s->C, eps);
}

void norm_backward(struct model *model, enum param_kind weight, int64_t layer, const void *x, const void *mean, const void *rstd)
{
    const struct device_ops *ops = model->device->ops;
    const struct activations *a = model->activations;
    const struct param *param = param_find(&model->table, weight, layer, -1);
    const void *w = model_param(model, param);
    void *dw = model_gradient(model, param);
    if (!a->sizes.centred) {
        ops->rmsnorm_backward(a->dx, dw, a->dnormed, x, w, rstd, a->sizes.T, a->sizes.C);
        return;
    }
    void *db = model_gradient(model, param_find(&model->table, bias_of(weight), layer, -1));
    ops->layernorm_backward(a->dx, dw, db, a->dnormed, x, w, mean, rstd, a->sizes.T, a->sizes.C);
}
