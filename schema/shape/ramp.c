// Which samples a step reads: the batch may grow over a run's first samples (training.rampup_batch_size, as Megatron does).
#include "schema/shape/cost.h"

struct walk { // over the stages of the ramp
    int64_t stages;     // before the full batch; 0: no ramp
    int64_t stage, batch;
    int64_t seen;       // samples before this stage
    int64_t steps;      // of this stage; it may have none
};

static struct walk walk_begin(const struct spec *spec)
{
    const struct spec_rampup *ramp = &spec->training.rampup_batch_size;
    int64_t whole = spec->training.global_batch_size;
    return (struct walk){.stages = ramp->present && ramp->increment > 0 ? (whole - ramp->start) / ramp->increment : 0, .stage = -1};
}

// The next stage of the ramp; false where the full batch begins.
static bool walk_next(struct walk *walk, const struct spec *spec)
{
    const struct spec_rampup *ramp = &spec->training.rampup_batch_size;
    walk->seen += walk->steps * walk->batch;
    walk->steps = 0;
    if (++walk->stage >= walk->stages) {
        walk->batch = spec->training.global_batch_size;
        return false;
    }
    // Stage k ends with the first step after which at least (k + 1) / stages of the ramp's samples are seen.
    int64_t k = walk->stage + 1;
    int64_t end = ramp->samples / walk->stages * k + (ramp->samples % walk->stages * k + walk->stages - 1) / walk->stages;
    walk->batch = ramp->start + walk->stage * ramp->increment;
    walk->steps = walk->seen < end ? (end - walk->seen + walk->batch - 1) / walk->batch : 0;
    return true;
}

int64_t samples_before(const struct spec *spec, int64_t iteration)
{
    struct walk walk = walk_begin(spec);
    int64_t steps = iteration - 1;
    while (walk_next(&walk, spec) && walk.steps < steps)
        steps -= walk.steps;
    return walk.seen + steps * walk.batch;
}

int64_t step_samples(const struct spec *spec, int64_t iteration)
{
    return samples_before(spec, iteration + 1) - samples_before(spec, iteration);
}

size_t ramp_stages(const struct spec *spec, struct ramp_stage stages[SPEC_RAMP_STAGES_MAX + 1])
{
    struct walk walk = walk_begin(spec);
    int64_t iteration = 1;
    size_t count = 0;
    for (bool ramp = true; ramp && iteration <= spec->training.iterations && count <= SPEC_RAMP_STAGES_MAX; iteration += walk.steps) {
        ramp = walk_next(&walk, spec);
        if (!ramp || walk.steps > 0)
            stages[count++] = (struct ramp_stage){iteration, walk.batch};
    }
    return count;
}
