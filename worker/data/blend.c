// Samples drawn from several pairs by weight, in Megatron's deterministic order (no randomness in the mixing itself). One pair is read
// plainly, without a blend. Each pair is built with half a per cent more samples than its share, as Megatron does, so that samples and
// their order are the same.
#include "schema/base/text.h"
#include "worker/data/data.h"

#include <math.h>
#include <stdlib.h>

enum { BLEND_DATASETS_MAX = 32767 };

struct blend {
    struct indexed **indexed;
    struct samples **samples;
    size_t datasets;
    int64_t count;
    int16_t *dataset; // NULL with one dataset
    int64_t *sample;
};

void blend_order(int16_t *dataset, int64_t *sample, const double *weights, size_t datasets, int64_t size)
{
    int64_t *taken = allocate(datasets, sizeof *taken);
    for (int64_t s = 0; s < size; s++) {
        size_t best = 0;
        double scale = s > 1 ? (double)s : 1, most = weights[0] * scale - (double)taken[0];
        for (size_t d = 1; d < datasets; d++) {
            double lag = weights[d] * scale - (double)taken[d];
            if (lag > most) {
                most = lag;
                best = d;
            }
        }
        dataset[s] = (int16_t)best;
        sample[s] = taken[best]++;
    }
    free(taken);
}

// Weighted: a pair's share of wanted, and a little more. Unweighted: one epoch of each (0), and the lengths are the weights.
static int open_parts(struct blend *blend, const struct blend_part *parts, double *weights, bool weighted, const struct sampling *sampling,
    int64_t wanted, struct error *err)
{
    for (size_t d = 0; d < blend->datasets; d++) {
        int64_t target = weighted ? (int64_t)ceil((double)wanted * weights[d]) : 0;
        int64_t built = blend->datasets == 1 ? wanted : (int64_t)ceil((double)target * 1.005);
        if (indexed_open(&blend->indexed[d], parts[d].prefix, err) != 0)
            return -1;
        if (samples_open(&blend->samples[d], blend->indexed[d], sampling, built, err) != 0)
            return error_context(err, "%s", parts[d].prefix);
        if (!weighted)
            weights[d] = (double)samples_count(blend->samples[d]);
        blend->count += weighted ? target : samples_count(blend->samples[d]);
    }
    return 0;
}

static void normalise(double *weights, size_t count)
{
    double sum = 0;
    for (size_t d = 0; d < count; d++)
        sum += weights[d];
    for (size_t d = 0; d < count; d++)
        weights[d] /= sum;
}

int blend_open(struct blend **result, const struct blend_part *parts, size_t count, const struct sampling *sampling, int64_t wanted,
    struct error *err)
{
    *result = NULL;
    if (count == 0 || count > BLEND_DATASETS_MAX)
        return error_set(err, "%zu datasets; expected 1 to %d", count, BLEND_DATASETS_MAX);
    struct blend *blend = allocate(1, sizeof *blend);
    blend->datasets = count;
    blend->indexed = allocate(count, sizeof *blend->indexed);
    blend->samples = allocate(count, sizeof *blend->samples);
    double *weights = allocate(count, sizeof *weights);
    bool weighted = wanted > 0;
    for (size_t d = 0; d < count; d++) {
        weights[d] = parts[d].weight;
        weighted = weighted && weights[d] > 0;
    }
    if (weighted)
        normalise(weights, count);
    int status = open_parts(blend, parts, weights, weighted, sampling, wanted, err);
    if (status == 0 && count == 1)
        blend->count = samples_count(blend->samples[0]);
    if (status == 0 && count > 1) {
        if (!weighted)
            normalise(weights, count);
        if (!weighted && wanted > 0 && wanted < blend->count)
            blend->count = wanted;
        blend->dataset = allocate((size_t)blend->count, sizeof *blend->dataset);
        blend->sample = allocate((size_t)blend->count, sizeof *blend->sample);
        blend_order(blend->dataset, blend->sample, weights, count, blend->count);
    }
    free(weights);
    if (status != 0) {
        blend_close(blend);
        return -1;
    }
    *result = blend;
    return 0;
}

void blend_close(struct blend *blend)
{
    if (!blend)
        return;
    for (size_t d = 0; d < blend->datasets; d++) {
        samples_close(blend->samples[d]);
        indexed_close(blend->indexed[d]);
    }
    free(blend->indexed);
    free(blend->samples);
    free(blend->dataset);
    free(blend->sample);
    free(blend);
}

int64_t blend_count(const struct blend *blend)
{
    return blend->count;
}

void blend_read(const struct blend *blend, int64_t index, int32_t *out)
{
    if (blend->datasets == 1)
        samples_read(blend->samples[0], index, out);
    else
        samples_read(blend->samples[blend->dataset[index]], blend->sample[index], out);
}
