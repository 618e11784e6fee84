// model.from: the weights of another run. A dense checkpoint becomes a model with experts where the spec asks for it (model.from.upcycle),
// by the formulas of schema/shape/upcycle.h. Each rank makes its own experts. Where the scale is 1 the experts have the FFN's own bits.
#include "schema/base/text.h"
#include "schema/shape/upcycle.h"
#include "worker/train/checkpoint_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct upcycling {
    struct model *model;
    const struct tensor_set *set;
    const char *directory;
    float *host;
    int64_t granularity;
};

// How an expert's tensor is cut out of the dense FFN's.
enum cut { CUT_ROWS, CUT_COLUMNS, CUT_VECTOR, CUT_NONE };
struct twin {
    const char *name; // behind "model.layers.N.mlp."; NULL: the tensor has no dense twin but itself
    enum cut cut;
};

static struct twin twin_of(enum param_kind kind)
{
    switch (kind) {
    case PARAM_EXPERT_GATE:      return (struct twin){"gate_proj.weight", CUT_ROWS};
    case PARAM_EXPERT_UP:        return (struct twin){"up_proj.weight", CUT_ROWS};
    case PARAM_EXPERT_DOWN:      return (struct twin){"down_proj.weight", CUT_COLUMNS};
    case PARAM_EXPERT_GATE_BIAS: return (struct twin){"gate_proj.bias", CUT_VECTOR};
    case PARAM_EXPERT_UP_BIAS:   return (struct twin){"up_proj.bias", CUT_VECTOR};
    case PARAM_EXPERT_DOWN_BIAS: return (struct twin){"down_proj.bias", CUT_NONE};
    default:                     return (struct twin){NULL, CUT_NONE};
    }
}

// The slice of a dense tensor (rows, columns of the expert's), in place at the front of host.
static void cut_slice(float *host, const struct param *param, enum cut cut, int64_t slice, int64_t granularity)
{
    size_t rows = (size_t)param->rows, columns = (size_t)param->columns, whole = columns * (size_t)granularity;
    if (cut == CUT_COLUMNS)
        for (size_t r = 0; r < rows; r++)
            memmove(host + r * columns, host + r * whole + (size_t)slice * columns, columns * sizeof *host);
    else if (cut != CUT_NONE)
        memmove(host, host + (size_t)slice * rows * columns, rows * columns * sizeof *host);
}

static int make_expert(const struct upcycling *up, const struct param *param, struct twin twin, struct error *err)
{
    char name[128], shape[TENSOR_SHAPE_TEXT];
    struct tensor_info info;
    snprintf(name, sizeof name, "model.layers.%d.mlp.%s", param->layer, twin.name);
    if (!tensor_set_find(up->set, name, &info))
        return error_set(err, "%s: no tensor %s in it, of which this model's experts would be made", up->directory, name);
    struct param dense = *param;
    dense.rows *= twin.cut == CUT_ROWS ? up->granularity : 1;
    dense.columns *= twin.cut == CUT_COLUMNS || twin.cut == CUT_VECTOR ? up->granularity : 1;
    if (!tensor_has_shape(&info, dense.rows, dense.columns))
        return error_set(err, "%s: %s is %s, but %lld slices for experts of this model are %lld × %lld", up->directory, name,
            tensor_shape_text(shape, &info), (long long)up->granularity, (long long)dense.rows, (long long)dense.columns);
    if (tensor_read(&info, up->host, err) != 0)
        return -1;
    cut_slice(up->host, param, twin.cut, param->expert % up->granularity, up->granularity);
    float scale = (float)upcycle_weight_scale(up->model->spec, spec_layer_experts(up->model->spec, param->layer)); // in float, as the weights are
    for (size_t i = 0; i < param_elements(param) && twin.cut != CUT_NONE; i++)
        up->host[i] *= scale;
    up->model->device->memory->upload(model_param(up->model, param), up->host, param_elements(param) * sizeof *up->host);
    return 0;
}

static void make_router(const struct upcycling *up, const struct param *param)
{
    size_t columns = (size_t)param->columns;
    double *row = allocate(columns, sizeof *row);
    for (size_t j = 0; j < (size_t)param->rows; j++) {
        param_initial(row, param, (uint64_t)up->model->spec->training.seed, j / (size_t)up->granularity * columns, columns);
        for (size_t c = 0; c < columns; c++)
            up->host[j * columns + c] = (float)row[c];
    }
    free(row);
    up->model->device->memory->upload(model_param(up->model, param), up->host, param_elements(param) * sizeof *up->host);
}

static int upcycle_param(const struct upcycling *up, const struct param *param, struct error *err)
{
    struct twin twin = twin_of(param->kind);
    if (twin.name)
        return make_expert(up, param, twin, err);
    if (param->kind != PARAM_ROUTER)
        return load_param(up->model, up->set, param, up->host, up->directory, err);
    make_router(up, param);
    return 0;
}

// The first tensor of experts in the checkpoint, if there is one.
struct finding { char name[128]; };

static void look_for_experts(void *context, const char *name, const struct tensor_info *info)
{
    struct finding *finding = context;
    (void)info;
    if (!finding->name[0] && strstr(name, ".experts."))
        snprintf(finding->name, sizeof finding->name, "%s", name);
}

static int check_source(const struct model *model, const struct tensor_set *set, const char *directory, bool *upcycle, struct error *err)
{
    const struct spec *spec = model->spec;
    struct finding finding = {0};
    tensor_set_walk(set, look_for_experts, &finding);
    bool asked = spec->model.from.upcycle.present, experts = finding.name[0];
    *upcycle = asked;
    if (asked && experts)
        return error_set(err, "%s: model.from.upcycle takes a dense model, and this one has experts (%s)", directory, finding.name);
    if (!asked && !experts && spec_is_moe(spec))
        return error_set(err, "%s is a dense model's, and this one has %lld experts a layer: model.from.upcycle: {granularity: %lld} makes them of its FFN",
            directory, (long long)spec->model.moe.experts,
            (long long)(spec->model.ffn_hidden_size / (spec->model.moe.expert_ffn_hidden_size > 0 ? spec->model.moe.expert_ffn_hidden_size : 1)));
    return 0;
}

// Room for a dense tensor of which an expert is a slice.
static float *host_for_slices(const struct model *model, int64_t granularity)
{
    size_t largest = 0;
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        size_t elements = param_elements(param) * (size_t)(param->expert >= 0 ? granularity : 1);
        largest = elements > largest ? elements : largest;
    }
    return allocate(largest, sizeof(float));
}

int checkpoint_start(struct model *model, const char *directory, struct error *err)
{
    struct tensor_set *set;
    bool upcycle;
    if (tensor_set_open(&set, directory, "model", err) != 0)
        return -1;
    int status = check_source(model, set, directory, &upcycle, err);
    struct upcycling up = {.model = model, .set = set, .directory = directory, .granularity = upcycle ? model->spec->model.from.upcycle.granularity : 1};
    up.host = host_for_slices(model, up.granularity);
    for (size_t i = 0; i < model->table.count && status == 0; i++) {
        const struct param *param = &model->table.items[i];
        if (param->resident)
            status = upcycle ? upcycle_param(&up, param, err) : load_param(model, set, param, up.host, directory, err);
    }
    model_refresh_weights(model);
    free(up.host);
    tensor_set_close(set);
    return status;
}
