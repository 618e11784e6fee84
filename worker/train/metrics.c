#include "worker/train/metrics.h"
#include "schema/base/text.h"
#include "schema/shape/cost.h"

#include <stdio.h>
#include <stdlib.h>

void step_result_init(struct step_result *result, const struct spec *spec)
{
    *result = (struct step_result){0};
    result->balance = allocate((size_t)spec->model.layers, sizeof *result->balance);
    if (spec_is_moe(spec))
        result->counts = allocate((size_t)(spec->model.layers * spec->model.moe.experts), sizeof *result->counts);
}

void step_result_release(struct step_result *result)
{
    free(result->balance);
    free(result->counts);
}

bool layer_has_experts(const struct spec *spec, int64_t layer)
{
    return spec_layer_experts(spec, layer) > 0;
}

static double mean_balance(const struct step_result *result, const struct spec *spec)
{
    double sum = 0;
    int64_t layers = 0;
    for (int64_t layer = 0; layer < spec->model.layers; layer++) {
        if (!layer_has_experts(spec, layer))
            continue;
        sum += result->balance[layer];
        layers++;
    }
    return sum / (double)layers;
}

static void add_layer(struct json *metrics, const struct step_result *result, const struct spec *spec, int64_t layer)
{
    int64_t sum = 0, largest = 0, smallest = INT64_MAX;
    const int64_t *counts = result->counts + layer * spec->model.moe.experts; // a row has room for the most experts of any layer
    for (int64_t e = 0; e < spec_layer_experts(spec, layer); e++) {
        int64_t count = counts[e];
        sum += count;
        largest = count > largest ? count : largest;
        smallest = count < smallest ? count : smallest;
    }
    const struct { const char *name; double value; } values[] = {
        {"load_balancing_loss", result->balance[layer]},
        {"largest_share", (double)largest / (double)sum},
        {"smallest_share", (double)smallest / (double)sum},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char name[64];
        snprintf(name, sizeof name, "moe/layer_%02lld/%s", (long long)layer, values[i].name);
        js_set(metrics, name, js_real(values[i].value));
    }
}

struct json *step_metrics(const struct step_result *result, const struct spec *spec)
{
    struct json *metrics = js_object();
    double step_tokens = (double)(result->samples * spec->data.sequence_length), ranks = (double)spec_world_size(spec);
    js_set(metrics, "loss", js_real(result->loss));
    if (spec_is_moe(spec))
        js_set(metrics, "load_balancing_loss", js_real(mean_balance(result, spec)));
    if (!result->skipped) { // there is no norm of gradients that overflowed
        js_set(metrics, "grad_norm", js_real(result->gradient_norm));
        js_set(metrics, "grad_zeros", js_integer(result->gradient_zeros));
    }
    if (spec->training.precision == PRECISION_FP16) {
        js_set(metrics, "loss_scale", js_real(result->loss_scale));
        js_set(metrics, "skipped_steps", js_integer(result->skipped_steps));
    }
    js_set(metrics, "learning_rate", js_real(result->learning_rate));
    if (spec_is_moe(spec) && spec->training.learning_rate.expert_peak > 0)
        js_set(metrics, "expert_learning_rate", js_real(result->expert_learning_rate));
    if (result->validated)
        js_set(metrics, "validation_loss", js_real(result->validation_loss));
    js_set(metrics, "tokens", js_integer(result->tokens));
    js_set(metrics, "step_time_ms", js_real(result->seconds * 1e3));
    js_set(metrics, "tokens_per_second", js_real(step_tokens / result->seconds));
    js_set(metrics, "tflops", js_real(flops_per_token(spec) * step_tokens / (result->seconds * 1e12 * ranks))); // a rank
    js_set(metrics, "memory_mb", js_real(result->memory_mb));
    for (int64_t layer = 0; spec->model.moe.per_layer_metrics && layer < spec->model.layers; layer++)
        if (layer_has_experts(spec, layer))
            add_layer(metrics, result, spec, layer);
    return metrics;
}

struct json *step_expert_load(const struct step_result *result, const struct spec *spec)
{
    struct json *members = js_object(), *layers = js_array();
    int64_t E = spec->model.moe.experts;
    for (int64_t layer = 0; layer < spec->model.layers; layer++) {
        struct json *counts = js_array();
        for (int64_t e = 0; e < spec_layer_experts(spec, layer); e++)
            js_append(counts, js_integer(result->counts[layer * E + e]));
        js_append(layers, counts);
    }
    js_set(members, "counts", layers);
    return members;
}

// A line of /proc/self/status, in bytes; 0 if this kernel has no such line.
static double status_bytes(const char *format)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    double kilobytes = 0;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, format, &kilobytes) == 1)
            break;
    if (status)
        fclose(status);
    return kilobytes * 1024;
}

double peak_memory_bytes(void)
{
    return status_bytes("VmHWM: %lf kB");
}

double allocated_memory_bytes(void)
{
    return status_bytes("RssAnon: %lf kB");
}
