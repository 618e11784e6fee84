#include "worker/train/routing.h"

#include "schema/base/text.h"

#include <stdio.h>
#include <stdlib.h>

// What is measured of a layer: the losses without coefficient, by enum spec_moe_loss, and behind them the share of choices that full
// experts dropped (where experts choose: of tokens that none chose).
static const char *const measures[] = {"load_balancing_loss", "seq_load_balancing_loss", "global_load_balancing_loss", "z_loss", "tokens_dropped"};
enum { MEASURES = sizeof measures / sizeof *measures, TOKENS_DROPPED = MOE_LOSSES };

static bool is_measured(const struct spec *spec, size_t measure)
{
    const struct spec_moe *moe = &spec->model.moe;
    if (measure == TOKENS_DROPPED)
        return moe->capacity_factor > 0 || moe->routing == ROUTING_EXPERT_CHOICE;
    return measure == MOE_LOSS_AUX || spec_moe_asks_for(spec, (enum spec_moe_loss)measure);
}

static double value_of(const struct moe_report *report, size_t measure, int64_t layer)
{
    if (measure == TOKENS_DROPPED)
        return report->asked[layer] ? (double)report->lost[layer] / (double)report->asked[layer] : 0;
    return report->losses[measure][layer];
}

void routing_add_means(struct json *metrics, const struct moe_report *report, const struct spec *spec)
{
    for (size_t measure = 0; measure < MEASURES; measure++) {
        double sum = 0;
        if (!is_measured(spec, measure))
            continue;
        for (int64_t layer = 0; layer < spec->model.layers; layer++)
            sum += spec_layer_experts(spec, layer) ? value_of(report, measure, layer) : 0;
        js_set(metrics, measures[measure], js_real(sum / (double)spec_moe_layers(spec)));
    }
}

static void add_to_layer(struct json *metrics, int64_t layer, const char *name, double value)
{
    char path[64];
    snprintf(path, sizeof path, "moe/layer_%02lld/%s", (long long)layer, name);
    js_set(metrics, path, js_real(value));
}

static void add_layer(struct json *metrics, const struct moe_report *report, const struct spec *spec, int64_t layer)
{
    int64_t sum = 0, largest = 0, smallest = INT64_MAX;
    const int64_t *counts = report->counts + layer * (int64_t)report->experts; // a row has room for the most experts of any layer
    for (int64_t e = 0; e < spec_layer_experts(spec, layer); e++) {
        sum += counts[e];
        largest = counts[e] > largest ? counts[e] : largest;
        smallest = counts[e] < smallest ? counts[e] : smallest;
    }
    for (size_t measure = 0; measure < MEASURES; measure++)
        if (is_measured(spec, measure))
            add_to_layer(metrics, layer, measures[measure], value_of(report, measure, layer));
    add_to_layer(metrics, layer, "largest_share", (double)largest / (double)sum);
    add_to_layer(metrics, layer, "smallest_share", (double)smallest / (double)sum);
}

void routing_add_layers(struct json *metrics, const struct moe_report *report, const struct spec *spec)
{
    for (int64_t layer = 0; spec->model.moe.per_layer_metrics && layer < spec->model.layers; layer++)
        if (spec_layer_experts(spec, layer))
            add_layer(metrics, report, spec, layer);
}

struct json *routing_load(const struct moe_report *report, const struct spec *spec)
{
    struct json *members = js_object(), *layers = js_array();
    for (int64_t layer = 0; layer < spec->model.layers; layer++) {
        struct json *counts = js_array();
        for (int64_t e = 0; e < spec_layer_experts(spec, layer); e++)
            js_append(counts, js_integer(report->counts[layer * (int64_t)report->experts + e]));
        js_append(layers, counts);
    }
    js_set(members, "counts", layers);
    return members;
}

void balance_watch_init(struct balance_watch *watch, const struct spec *spec)
{
    watch->last = allocate((size_t)spec->model.layers, sizeof *watch->last);
    watch->steps = allocate((size_t)spec->model.layers, sizeof *watch->steps);
}

void balance_watch_release(struct balance_watch *watch)
{
    free(watch->last);
    free(watch->steps);
    *watch = (struct balance_watch){0};
}

int64_t balance_watch_step(struct balance_watch *watch, const struct moe_report *report, const struct spec *spec)
{
    int64_t found = -1;
    for (int64_t layer = 0; layer < spec->model.layers; layer++) {
        double balance = report->losses[MOE_LOSS_AUX][layer];
        bool same = balance == watch->last[layer];
        watch->last[layer] = balance;
        watch->steps[layer] = same ? watch->steps[layer] + 1 : 1;
        bool could_change = spec_layer_experts(spec, layer) > spec->model.moe.top_k; // else every token goes to every expert
        if (could_change && watch->steps[layer] == BALANCE_STEPS && found < 0)
            found = layer;
    }
    return found;
}
