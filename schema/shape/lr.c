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

double learning_rate(const struct spec *spec, int64_t iteration)
{
    const struct spec_learning_rate *rate = &spec->training.learning_rate;
    double samples = (double)spec->training.global_batch_size;
    double n = (double)samples_before(spec, iteration);
    double warmup = (double)rate->warmup_iterations * samples;
    double end = (double)(rate->total_iterations > 0 ? rate->total_iterations : spec->training.iterations) * samples;
    double wsd = (double)rate->decay_iterations * samples;
    double range = rate->peak - rate->minimum;

    if (warmup > 0.0 && n <= warmup)
        return rate->initial + (rate->peak - rate->initial) * n / warmup;
    if (rate->schedule == SCHEDULE_CONSTANT)
        return rate->peak;
    if (n > end)
        return rate->minimum;
    switch (rate->schedule) {
    case SCHEDULE_WSD:
        return n <= end - wsd ? rate->peak : rate->minimum + decay_part(rate->decay_style, (n - (end - wsd)) / wsd) * range;
    case SCHEDULE_COSINE:
        return rate->minimum + decay_part(DECAY_COSINE, (n - warmup) / (end - warmup)) * range;
    case SCHEDULE_LINEAR:
        return rate->minimum + decay_part(DECAY_LINEAR, (n - warmup) / (end - warmup)) * range;
    case SCHEDULE_INVERSE_SQUARE_ROOT:
        return fmax(rate->minimum, rate->peak * sqrt(fmax(warmup, 1.0)) / sqrt(fmax(n, 1.0)));
    case SCHEDULE_CONSTANT:
        break;
    }
    return rate->peak;
}
