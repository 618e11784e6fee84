// Router statistics: how many tokens each expert got, and the balance loss, per layer.
#include "worker/model/blocks.h"

#include "schema/base/text.h"
#include "worker/parallel/reduce.h"

#include <stdlib.h>
#include <string.h>

struct moe_statistics *moe_statistics_new(const struct spec *spec)
{
    size_t layers = (size_t)spec->model.layers, experts = (size_t)spec->model.moe.experts;
    struct moe_statistics *statistics = allocate(1, sizeof *statistics);
    statistics->counts = allocate(layers * experts, sizeof *statistics->counts);
    statistics->balance = allocate(layers, sizeof *statistics->balance);
    return statistics;
}

void moe_statistics_free(struct moe_statistics *statistics)
{
    if (!statistics)
        return;
    free(statistics->counts);
    free(statistics->balance);
    free(statistics);
}

void model_statistics(const struct model *model, int64_t *counts, double *balance, int64_t *micro_batches)
{
    const struct moe_statistics *statistics = model->moe;
    const struct model_sizes *s = &model->activations->sizes;
    memcpy(counts, statistics->counts, s->layers * s->E * sizeof *counts);
    for (size_t layer = 0; layer < s->layers; layer++)
        balance[layer] = statistics->micro_batches ? statistics->balance[layer] / (double)statistics->micro_batches : 0;
    *micro_batches = statistics->micro_batches;
}

void model_statistics_global(const struct model *model, int64_t *counts, double *balance)
{
    int64_t micro_batches;
    const struct model_sizes *s = &model->activations->sizes;
    struct comm *dp = model->parallel->dp;
    model_statistics(model, counts, balance, &micro_batches);
    if (s->E)
        all_reduce_integers(dp, counts, s->layers * s->E);
    all_reduce_doubles(dp, balance, s->layers);
    for (size_t layer = 0; layer < s->layers; layer++)
        balance[layer] /= (double)dp->size;
}

void model_statistics_reset(struct model *model)
{
    const struct model_sizes *s = &model->activations->sizes;
    memset(model->moe->counts, 0, s->layers * s->E * sizeof *model->moe->counts);
    memset(model->moe->balance, 0, s->layers * sizeof *model->moe->balance);
    model->moe->micro_batches = 0;
}
