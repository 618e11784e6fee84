// State beyond parameters and moments: the table of what its owners registered, and reading it back.
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "worker/train/checkpoint.h"
#include "worker/weights/safetensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void extra_states_add(struct extra_states *extra, const char *name, enum extra_kind kind, void *values, int64_t count, enum extra_part part)
{
    assert(count > 0 && strlen(name) < sizeof extra->items->name);
    for (size_t i = 0; i < extra->count; i++)
        assert(strcmp(extra->items[i].name, name) != 0);
    extra->items = reallocate(extra->items, extra->count + 1, sizeof *extra->items);
    struct extra_state *item = &extra->items[extra->count++];
    *item = (struct extra_state){.kind = kind, .values = values, .count = count, .part = part};
    snprintf(item->name, sizeof item->name, "%s", name);
}

void extra_states_add_model(struct extra_states *extra, const struct model *model)
{
    for (size_t layer = 0; layer < (size_t)model->spec->model.layers; layer++) {
        int64_t experts = spec_layer_experts(model->spec, (int64_t)layer);
        float *bias = experts ? model_expert_bias(model, layer) : NULL;
        char name[128]; // as in the checkpoints of DeepSeek's models
        snprintf(name, sizeof name, "model.layers.%zu.block_sparse_moe.gate.e_score_correction_bias", layer);
        if (bias)
            extra_states_add(extra, name, EXTRA_F32, bias, experts, EXTRA_MODEL);
    }
}

void extra_states_release(struct extra_states *extra)
{
    free(extra->items);
    *extra = (struct extra_states){0};
}

const char *extra_dtype(enum extra_kind kind)
{
    return kind == EXTRA_F32 ? "F32" : kind == EXTRA_F64 ? "F64" : "I64";
}

static int load_one(const struct extra_state *item, const struct tensor_set *set, const char *directory, bool demanded, struct error *err)
{
    struct tensor_info info;
    if (!set || !tensor_set_find(set, item->name, &info))
        return demanded ? error_set(err, "%s: no state %s in it, which this run needs", directory, item->name) : 0;
    if (strcmp(info.dtype, extra_dtype(item->kind)) != 0 || info.elements != item->count)
        return error_set(err, "%s: %s is %lld values of %s, but this run's are %lld of %s", directory, item->name, (long long)info.elements,
            info.dtype, (long long)item->count, extra_dtype(item->kind));
    return tensor_read_bytes(&info, item->values, err);
}

static int load(struct extra_states *extra, const char *directory, bool of_model_only, const bool may_lack[EXTRA_MODEL + 1], struct error *err)
{
    struct tensor_set *set = NULL;
    char *path = path_join(directory, "extra.safetensors");
    int status = extra->count > 0 && file_exists(path) ? tensor_set_open(&set, directory, "extra", err) : 0;
    for (size_t i = 0; i < extra->count && status == 0; i++)
        if (extra->items[i].part == EXTRA_MODEL || !of_model_only)
            status = load_one(&extra->items[i], set, directory, !may_lack[extra->items[i].part], err);
    tensor_set_close(set);
    free(path);
    return status;
}

int extra_states_load(struct extra_states *extra, const char *directory, const bool may_lack[EXTRA_MODEL + 1], struct error *err)
{
    return load(extra, directory, false, may_lack, err);
}

int extra_states_load_model(struct extra_states *extra, const char *directory, struct error *err)
{
    return load(extra, directory, true, (const bool[EXTRA_MODEL + 1]){[EXTRA_MODEL] = true}, err);
}
