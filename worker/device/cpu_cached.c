// Attention of new positions over a cache: one query row against all keys that it sees, a head at a time. A decoded token has one row, so there
// is nothing to tile: keys and values are read once each, where they lie.
#include "worker/device/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct cached {
    float *out;
    const float *qkv, *cache;
    size_t T, past, H, G, D, window;
};

static void one_head(const struct cached *c, size_t t, size_t h, float *p)
{
    size_t own = c->past + t, first = c->window && own + 1 > c->window ? own + 1 - c->window : 0, count = own + 1 - first;
    size_t row = 2 * c->G * c->D;
    const float *q = c->qkv + t * (c->H + 2 * c->G) * c->D + h * c->D;
    const float *keys = c->cache + first * row + h / (c->H / c->G) * c->D, *values = keys + c->G * c->D;
    float *out = c->out + (t * c->H + h) * c->D, lse;
    for (size_t j = 0; j < count; j++)
        p[j] = cpu.kernels->dot(q, keys + j * row, c->D);
    float sum = cpu.kernels->softmax(p, &lse, count, count, (float)(1 / sqrt((double)c->D)));
    memset(out, 0, c->D * sizeof *out);
    for (size_t j = 0; j < count; j++)
        cpu.kernels->add_scaled(out, values + j * row, p[j], c->D);
    cpu.kernels->scale(out, 1 / sum, c->D);
}

static void run_cached(const void *job, int thread, int threads)
{
    const struct cached *c = job;
    struct range part = cpu_part(c->T * c->H, thread, threads);
    float *p = cpu_scratch(thread, SCRATCH_ATTENTION, c->past + c->T);
    for (size_t task = part.from; task < part.to; task++)
        one_head(c, task / c->H, task % c->H, p);
}

void cpu_attention_cached(void *out, const void *qkv, const void *cache, size_t T, size_t past, size_t H, size_t G, size_t D, size_t window)
{
    assert(G && H % G == 0);
    struct cached c = {out, qkv, cache, T, past, H, G, D, window};
    cpu_run(run_cached, &c, T * H * (past + T) * D);
}
