// How many samples a run has seen before a step: the batch may grow over its first samples (training.rampup_batch_size, as Megatron does).
#include "schema/shape/cost.h"

int64_t samples_before(const struct spec *spec, int64_t iteration)
{
    const struct spec_rampup *ramp = &spec->training.rampup_batch_size;
    int64_t whole = spec->training.global_batch_size, steps = iteration - 1, seen = 0;
    int64_t stages = ramp->present && ramp->increment > 0 ? (whole - ramp->start) / ramp->increment : 0;
    for (int64_t stage = 0; stage < stages && steps > 0; stage++) {
        // Stage k ends with the first step after which at least (k + 1) / stages of the ramp's samples are seen.
        int64_t end = ramp->samples / stages * (stage + 1) + (ramp->samples % stages * (stage + 1) + stages - 1) / stages;
        int64_t batch = ramp->start + stage * ramp->increment;
        int64_t taken = seen < end ? (end - seen + batch - 1) / batch : 0;
        taken = taken < steps ? taken : steps;
        seen += taken * batch;
        steps -= taken;
    }
    return seen + steps * whole;
}
