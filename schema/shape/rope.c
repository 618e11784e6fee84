#include "schema/shape/rope.h"

#include "schema/shape/params.h"

#include <math.h>

static double scaled(const struct spec_model *model, double frequency)
{
    const double two_pi = 6.283185307179586476925286766559;
    double low = model->rope_scaling_low_freq_factor, high = model->rope_scaling_high_freq_factor;
    double turns = (double)model->rope_scaling_original_length * frequency / two_pi; // in the original length
    double kept = fmin(1, fmax(0, (turns - low) / (high - low)));
    return kept * frequency + (1 - kept) * frequency / model->rope_scaling_factor;
}

void rope_frequencies(double *frequencies, const struct spec *spec)
{
    const struct spec_model *model = &spec->model;
    int64_t D = dims_of(spec).D;
    for (int64_t i = 0; i < D / 2; i++) {
        frequencies[i] = pow(model->rope_base, -2.0 * (double)i / (double)D);
        if (model->rope_scaling_factor > 0)
            frequencies[i] = scaled(model, frequencies[i]);
    }
}
