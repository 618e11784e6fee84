// The losses of routing and what is counted of it, once a training micro batch and layer. The losses see what the router wishes: the K
// experts that a token scores highest, before a bias, groups, forced choices or full experts change its way. So an expert that is full
// still counts with everybody who asked for it.
#include "worker/model/blocks.h"
#include "worker/model/router.h"
#include "worker/parallel/reduce.h"

// The layer's counts and masses, of each sequence: everything that the balance losses are made of.
struct balance {
    const int32_t *counts;      // (B,E)
    const double *masses;       // (B,E)
    const int64_t *global;      // (E): all ranks' counts of `micro_batches` micro batches
    double micro_batches, ranks;
    const struct model_sizes *s;
};

// Calls for each sequence and expert with the count that its mass is weighed with: of the micro batch, of the sequence, or, as a mean over
// micro batches, of all ranks. They share the form  factor · Σ_b Σ_e count[b,e] · mass[b,e].
static double count_of(const struct balance *balance, enum spec_moe_loss type, size_t b, size_t e)
{
    const struct model_sizes *s = balance->s;
    if (type == MOE_LOSS_GLOBAL_AUX)
        return (double)balance->global[e] / balance->micro_batches;
    if (type == MOE_LOSS_SEQ_AUX)
        return balance->counts[b * s->E + e];
    int64_t count = 0;
    for (size_t i = 0; i < s->B; i++)
        count += balance->counts[i * s->E + e];
    return (double)count;
}

// What makes a loss 1 when experts are chosen evenly: E / (K · tokens that are counted · tokens whose mass it is). The global loss divides
// by this rank's own tokens once: then the mean over ranks is the loss of all, and its gradient too.
static double divisor_of(const struct balance *balance, enum spec_moe_loss type)
{
    const struct model_sizes *s = balance->s;
    double K = (double)s->K, T = (double)s->T, S = (double)s->S;
    switch (type) {
    case MOE_LOSS_GLOBAL_AUX:
        return K * (T * balance->ranks) * T;
    case MOE_LOSS_SEQ_AUX:
        return K * S * S * (double)s->B;
    default:
        return K * T * T;
    }
}

// The loss without coefficient; adds what pulls at each mass, times `upstream`, to pull(B,E).
static double add_loss(double *pull, const struct balance *balance, enum spec_moe_loss type, double upstream)
{
    const struct model_sizes *s = balance->s;
    double sum = 0, E = (double)s->E, divisor = divisor_of(balance, type);
    for (size_t b = 0; b < s->B; b++)
        for (size_t e = 0; e < s->E; e++) {
            double count = count_of(balance, type, b, e);
            sum += count * balance->masses[b * s->E + e];
            pull[b * s->E + e] += upstream * E * count / divisor;
        }
    return E * sum / divisor;
}

// Adds this micro batch's choices of all ranks to those of the step so far.
static const int64_t *count_globally(struct model *model, size_t layer, const int32_t *counts)
{
    struct activations *a = model->activations;
    const struct model_sizes *s = &a->layers[layer].sizes;
    int64_t *global = model->router->global_counts + layer * a->sizes.E, *all = model->router->rows;
    for (size_t e = 0; e < s->E; e++) {
        all[e] = 0;
        for (size_t b = 0; b < s->B; b++)
            all[e] += counts[b * s->E + e];
    }
    all_reduce_integers(model->parallel->dp, all, s->E);
    for (size_t e = 0; e < s->E; e++)
        global[e] += all[e];
    return global;
}

// The plain balance loss is always measured: it shows collapse, whether or not anything is done about it.
static void measure_balance(struct model *model, size_t layer, const int32_t *counts)
{
    struct router *router = model->router;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;
    struct balance balance = {.counts = counts, .masses = router->masses, .s = s, .ranks = (double)model->parallel->dp->size,
        .micro_batches = (double)(router->report.micro_batches + 1)};
    if (spec_moe_asks_for(model->spec, MOE_LOSS_GLOBAL_AUX))
        balance.global = count_globally(model, layer, counts);
    for (size_t i = 0; i < s->B * s->E; i++)
        router->pull[i] = 0;
    for (enum spec_moe_loss type = MOE_LOSS_AUX; type <= MOE_LOSS_GLOBAL_AUX; type++)
        if (type == MOE_LOSS_AUX || spec_moe_asks_for(model->spec, type))
            router->report.losses[type][layer] += add_loss(router->pull, &balance, type, spec_moe_coefficient(model->spec, type) * a->gradient_factor);
    if (l->pull)
        model->device->ops->from_double(l->pull, router->pull, s->B * s->E);
}

// Tokens that no expert chose.
static int64_t left_alone(struct model *model, const struct layer_activations *l)
{
    const struct model_sizes *s = &l->sizes;
    int32_t *choice = model->router->integers;
    int64_t alone = 0;
    model->device->memory->read_back(choice, l->choice, s->T * s->J * sizeof *choice);
    for (size_t t = 0; t < s->T; t++) {
        size_t j = 0;
        while (j < s->J && choice[t * s->J + j] < 0)
            j++;
        alone += j == s->J;
    }
    return alone;
}

static void count_choices(struct model *model, size_t layer)
{
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;
    struct moe_report *report = &model->router->report;
    int64_t *counts = report->counts + layer * a->sizes.E, *kept = report->kept + layer * a->sizes.E, taken = 0;
    int32_t *chosen = model->router->integers;
    for (size_t e = 0; e < s->E; e++) {
        chosen[e] = (int32_t)model->router->taken[e];
        kept[e] += chosen[e];
        taken += chosen[e];
    }
    if (s->limited) { // the rows are what is left of them
        model->device->ops->router_counts(a->loss_counts, l->choice, 1, s->T, s->E, s->J);
        model->device->memory->read_back(chosen, a->loss_counts, s->E * sizeof *chosen);
    }
    for (size_t e = 0; e < s->E; e++)
        counts[e] += chosen[e];
    bool experts_choose = model->spec->model.moe.routing == ROUTING_EXPERT_CHOICE;
    report->asked[layer] += (int64_t)(experts_choose ? s->T : s->T * s->K);
    report->lost[layer] += experts_choose ? left_alone(model, l) : (int64_t)(s->T * s->K) - taken;
}

// Whether tokens go where the losses see them go (full experts apart).
static bool goes_as_wished(const struct spec_moe *moe)
{
    return moe->routing == ROUTING_TOP_K && !moe->expert_bias && moe->num_groups <= 1 && !moe->force_balance;
}

void route_measure(struct model *model, size_t layer)
{
    const struct device_ops *ops = model->device->ops;
    const struct spec_moe *moe = &model->spec->model.moe;
    struct router *router = model->router;
    struct activations *a = model->activations;
    struct layer_activations *l = &a->layers[layer];
    const struct model_sizes *s = &l->sizes;

    count_choices(model, layer);
    const int32_t *wished = l->choice;
    if (!goes_as_wished(moe)) {
        ops->router_choose(a->loss_choice, l->router_logits, s->T, s->E, s->K, 0, 0);
        wished = a->loss_choice;
    }
    ops->router_counts(a->loss_counts, wished, s->B, s->S, s->E, s->K);
    model->device->memory->read_back(router->integers, a->loss_counts, s->B * s->E * sizeof *router->integers);
    ops->router_masses(router->masses, l->router_logits, s->B, s->S, s->E, router_score_function(moe));
    measure_balance(model, layer, router->integers);
    if (spec_moe_asks_for(model->spec, MOE_LOSS_Z))
        router->report.losses[MOE_LOSS_Z][layer] += ops->router_z(l->router_logits, s->T, s->E) / (double)s->T;
}
