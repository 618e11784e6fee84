#include "worker/train/metrics.h"
#include "schema/base/text.h"
#include "schema/shape/cost.h"
#include "worker/train/routing.h"

#include <stdio.h>
#include <stdlib.h>

void step_result_init(struct step_result *result, const struct spec *spec)
{
    *result = (struct step_result){0};
    moe_report_init(&result->routing, spec);
}

void step_result_release(struct step_result *result)
{
    moe_report_release(&result->routing);
}

struct json *step_metrics(const struct step_result *result, const struct spec *spec)
{
    struct json *metrics = js_object();
    double step_tokens = (double)(result->samples * spec->data.sequence_length), ranks = (double)spec_world_size(spec);
    js_set(metrics, "loss", js_real(result->loss));
    if (spec_is_moe(spec))
        routing_add_means(metrics, &result->routing, spec);
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
    routing_add_layers(metrics, &result->routing, spec);
    return metrics;
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
