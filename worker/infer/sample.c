#include "worker/infer/sample.h"
#include "schema/shape/philox.h"

#include <math.h>
#include <stdlib.h>

static int32_t likeliest(const double *logits, size_t V)
{
    size_t best = 0;
    for (size_t v = 1; v < V; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

static int compare_tokens(const void *a, const void *b, void *logits_)
{
    const double *logits = logits_;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return logits[x] > logits[y] ? -1 : logits[x] < logits[y] ? 1 : (x > y) - (x < y);
}

// A number in [0, 1) of 53 bits. The counter's upper half keeps it apart from what else is drawn by the seed.
static double uniform(uint64_t seed, uint64_t n)
{
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32), 0x67656e65, 0x72617465}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}; // "generate"
    uint32_t words[4];
    philox4x32(words, counter, key);
    return (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) * 0x1p-53;
}

int32_t sample_token(const double *logits, size_t V, const struct sampling_options *options, uint64_t n, int32_t *order)
{
    if (!(options->temperature > 0))
        return likeliest(logits, V);
    for (size_t v = 0; v < V; v++)
        order[v] = (int32_t)v;
    qsort_r(order, V, sizeof *order, compare_tokens, (void *)(uintptr_t)logits);
    size_t count = options->top_k > 0 && (size_t)options->top_k < V ? (size_t)options->top_k : V;
    double all = 0, kept = 0, top = logits[order[0]];
    for (size_t i = 0; i < count; i++)
        all += exp((logits[order[i]] - top) / options->temperature);
    size_t end = 0;
    while (end < count && (end == 0 || kept < options->top_p * all))
        kept += exp((logits[order[end++]] - top) / options->temperature);
    double wanted = uniform(options->seed, n) * kept, sum = 0;
    for (size_t i = 0; i < end; i++) {
        sum += exp((logits[order[i]] - top) / options->temperature);
        if (wanted < sum)
            return order[i];
    }
    return order[end - 1];
}
