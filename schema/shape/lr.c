// The learning rate: warm-up, plateau and decay, counted in samples.
#include "schema/shape/lr.h"
#include "schema/shape/cost.h"

#include <math.h>

static double decay_part(enum spec_decay_style style, double r)
{
    switch (style) {
    case DECAY_EXPONENTIAL:
        return 2.0 * pow(0.5, r) - 1.0;
    case DECAY_LINEAR:
        return 1.0 - r;
    case DECAY_COSINE:
        return 0.5 * (cos(3.14159265358979323846 * r) + 1.0);
    case DECAY_MINUS_SQRT:
        return 1.0 - sqrt(r);
    }
    return 0.0;
}

// Samples of the run's first `iterations` steps.
static double samples_of(const struct spec *spec, int64_t iterations)
{
    return (double)samples_before(spec, iterations + 1);
}

static double rate_with_peak(const struct spec *spec, int64_t samples, double peak)
{
    const struct spec_learning_rate *rate = &spec->training.learning_rate;
    int64_t total = rate->total_iterations > 0 ? rate->total_iterations : spec->training.iterations;
    double n = (double)samples, warmup = samples_of(spec, rate->warmup_iterations), range = peak - rate->minimum;

    if (warmup > 0.0 && n <= warmup)
        return rate->initial + (peak - rate->initial) * n / warmup;
    if (rate->schedule == SCHEDULE_CONSTANT)
        return peak;
    double end = samples_of(spec, total), plateau;
    if (n > end)
        return rate->minimum;
    switch (rate->schedule) {
    case SCHEDULE_WSD:
        plateau = samples_of(spec, total - rate->decay_iterations);
        return n <= plateau ? peak : rate->minimum + decay_part(rate->decay_style, (n - plateau) / (end - plateau)) * range;
    case SCHEDULE_COSINE:
        return rate->minimum + decay_part(DECAY_COSINE, (n - warmup) / (end - warmup)) * range;
    case SCHEDULE_LINEAR:
        return rate->minimum + decay_part(DECAY_LINEAR, (n - warmup) / (end - warmup)) * range;
    case SCHEDULE_INVERSE_SQUARE_ROOT:
        return fmax(rate->minimum, peak * sqrt(fmax(warmup, 1.0)) / sqrt(fmax(n, 1.0)));
    case SCHEDULE_CONSTANT:
        break;
    }
    return peak;
}

double learning_rate(const struct spec *spec, int64_t samples)
{
    return rate_with_peak(spec, samples, spec->training.learning_rate.peak);
}

double expert_learning_rate(const struct spec *spec, int64_t samples)
{
    const struct spec_learning_rate *rate = &spec->training.learning_rate;
    return rate_with_peak(spec, samples, rate->expert_peak > 0 ? rate->expert_peak : rate->peak);
}
