// What routers did over some micro batches: on this rank, and over all that share the data. And the bias that follows from it.
#include "worker/model/blocks.h"
#include "worker/model/router.h"

#include "schema/base/text.h"
#include "worker/parallel/reduce.h"

#include <stdlib.h>
#include <string.h>

void moe_report_init(struct moe_report *report, const struct spec *spec)
{
    size_t layers = (size_t)spec->model.layers, experts = (size_t)spec->model.moe.experts;
    *report = (struct moe_report){.layers = layers, .experts = experts};
    report->counts = allocate(layers * experts, sizeof *report->counts);
    report->kept = allocate(layers * experts, sizeof *report->kept);
    report->asked = allocate(layers, sizeof *report->asked);
    report->lost = allocate(layers, sizeof *report->lost);
    for (size_t type = 0; type < MOE_LOSSES; type++)
        report->losses[type] = allocate(layers, sizeof *report->losses[type]);
}

void moe_report_release(struct moe_report *report)
{
    free(report->counts);
    free(report->kept);
    free(report->asked);
    free(report->lost);
    for (size_t type = 0; type < MOE_LOSSES; type++)
        free(report->losses[type]);
    *report = (struct moe_report){0};
}

struct router *router_new(const struct spec *spec, const struct model_sizes *sizes)
{
    struct router *router = allocate(1, sizeof *router);
    size_t B = sizes->B, E = sizes->E, layers = sizes->layers, integers = B * E > sizes->T * sizes->J ? B * E : sizes->T * sizes->J;
    moe_report_init(&router->report, spec);
    router->global_counts = allocate(layers * E, sizeof *router->global_counts);
    router->bias = spec->model.moe.expert_bias && E ? allocate(layers * E, sizeof *router->bias) : NULL;
    router->integers = allocate(integers, sizeof *router->integers);
    router->masses = allocate(B * E, sizeof *router->masses);
    router->pull = allocate(B * E, sizeof *router->pull);
    router->taken = allocate(E, sizeof *router->taken);
    router->rows = allocate(E, sizeof *router->rows);
    return router;
}

void router_free(struct router *router)
{
    if (!router)
        return;
    moe_report_release(&router->report);
    free(router->global_counts);
    free(router->bias);
    free(router->integers);
    free(router->masses);
    free(router->pull);
    free(router->taken);
    free(router->rows);
    free(router);
}

void model_statistics(const struct model *model, struct moe_report *report)
{
    const struct moe_report *sums = &model->router->report;
    size_t layers = sums->layers, experts = sums->experts;
    report->micro_batches = sums->micro_batches;
    memcpy(report->counts, sums->counts, layers * experts * sizeof *sums->counts);
    memcpy(report->kept, sums->kept, layers * experts * sizeof *sums->kept);
    memcpy(report->asked, sums->asked, layers * sizeof *sums->asked);
    memcpy(report->lost, sums->lost, layers * sizeof *sums->lost);
    for (size_t type = 0; type < MOE_LOSSES; type++)
        for (size_t layer = 0; layer < layers; layer++)
            report->losses[type][layer] = sums->micro_batches ? sums->losses[type][layer] / (double)sums->micro_batches : 0;
}

void model_statistics_global(const struct model *model, struct moe_report *report)
{
    struct comm *dp = model->parallel->dp;
    size_t layers = report->layers, experts = report->experts;
    model_statistics(model, report);
    if (!experts)
        return;
    all_reduce_integers(dp, report->counts, layers * experts);
    all_reduce_integers(dp, report->kept, layers * experts);
    all_reduce_integers(dp, report->asked, layers);
    all_reduce_integers(dp, report->lost, layers);
    for (size_t type = 0; type < MOE_LOSSES; type++) {
        all_reduce_doubles(dp, report->losses[type], layers);
        for (size_t layer = 0; layer < layers; layer++)
            report->losses[type][layer] /= (double)dp->size;
    }
}

void model_statistics_reset(struct model *model)
{
    struct router *router = model->router;
    struct moe_report *report = &router->report;
    size_t layers = report->layers, experts = report->experts;
    memset(report->counts, 0, layers * experts * sizeof *report->counts);
    memset(report->kept, 0, layers * experts * sizeof *report->kept);
    memset(report->asked, 0, layers * sizeof *report->asked);
    memset(report->lost, 0, layers * sizeof *report->lost);
    for (size_t type = 0; type < MOE_LOSSES; type++)
        memset(report->losses[type], 0, layers * sizeof *report->losses[type]);
    memset(router->global_counts, 0, layers * experts * sizeof *router->global_counts);
    report->micro_batches = 0;
}

float *model_expert_bias(const struct model *model, size_t layer)
{
    return model->router->bias ? model->router->bias + layer * model->activations->sizes.E : NULL;
}

void model_move_expert_bias(struct model *model, const struct moe_report *report)
{
    float rate = (float)model->spec->model.moe.bias_update_rate;
    for (size_t layer = 0; layer < report->layers; layer++) {
        float *bias = model_expert_bias(model, layer);
        const int64_t *kept = report->kept + layer * report->experts;
        size_t experts = model->activations->layers[layer].sizes.E;
        int64_t all = 0;
        for (size_t e = 0; e < experts; e++)
            all += kept[e];
        for (size_t e = 0; e < experts && bias; e++) {
            int64_t below = all - kept[e] * (int64_t)experts; // E times how far it is below the mean
            bias[e] += below > 0 ? rate : below < 0 ? -rate : 0;
        }
    }
}
