#include "worker/train/compute.h"

#include <sched.h>

// Threads of this rank: as the spec says, else its share of the processors that this process may use.
static int threads_of(const struct spec *spec)
{
    if (spec->resources.threads_per_rank > 0)
        return (int)spec->resources.threads_per_rank;
    cpu_set_t usable;
    int processors = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
    int64_t ranks = spec->resources.ranks_per_node > 0 ? spec->resources.ranks_per_node : 1;
    return processors / ranks > 1 ? (int)(processors / ranks) : 1;
}

static enum format format_of(const struct spec *spec)
{
    static const enum format formats[] = {[PRECISION_FP32] = FORMAT_FP32, [PRECISION_BF16] = FORMAT_BF16, [PRECISION_FP16] = FORMAT_FP16};
    return formats[spec->training.precision];
}

int compute_device(const struct device **device, int *threads, const struct spec *spec, struct error *err)
{
    *threads = threads_of(spec);
    switch (spec->resources.device) {
    case DEVICE_REFERENCE:
        *threads = 1;
        *device = device_reference_in(format_of(spec));
        return 0;
    case DEVICE_AUTO:
    case DEVICE_CPU:
        *device = device_cpu_in(*threads, format_of(spec));
        return 0;
    case DEVICE_CUDA:
        break;
    }
    return error_set(err, "resources.device: this build cannot train on cuda yet");
}
