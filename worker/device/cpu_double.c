// The router's products with sums in double, of operands in float. They are small: plain loops over what stays in the cache.
#include "worker/device/cpu.h"

#include <string.h>

enum { LANES = 8 }; // sums side by side

struct double_product {
    float *out;
    const float *left, *right;
    size_t T, E, C;
};

static double dot(const float *a, const float *b, size_t count)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += (double)a[i + lane] * b[i + lane];
    for (; i < count; i++)
        lanes[i % LANES] += (double)a[i] * b[i];
    for (size_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static void run_forward(const void *job, int thread, int threads)
{
    const struct double_product *p = job;
    struct range part = cpu_part(p->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++)
        for (size_t e = 0; e < p->E; e++)
            p->out[t * p->E + e] = (float)dot(p->left + t * p->C, p->right + e * p->C, p->C);
}

static void run_dinput(const void *job, int thread, int threads)
{
    const struct double_product *p = job;
    struct range part = cpu_part(p->T, thread, threads);
    double *sums = (double *)cpu_scratch(thread, SCRATCH_ROUTER, 2 * p->C);
    for (size_t t = part.from; t < part.to; t++) {
        memset(sums, 0, p->C * sizeof *sums);
        for (size_t e = 0; e < p->E; e++)
            for (size_t c = 0; c < p->C; c++)
                sums[c] += (double)p->left[t * p->E + e] * p->right[e * p->C + c];
        for (size_t c = 0; c < p->C; c++)
            p->out[t * p->C + c] = (float)sums[c];
    }
}

// Each thread has some experts' rows, and walks all tokens in order.
static void run_dweight(const void *job, int thread, int threads)
{
    const struct double_product *p = job;
    struct range part = cpu_part(p->E, thread, threads);
    size_t count = (part.to - part.from) * p->C;
    double *sums = (double *)cpu_scratch(thread, SCRATCH_ROUTER, 2 * count);
    memset(sums, 0, count * sizeof *sums);
    for (size_t t = 0; t < p->T; t++)
        for (size_t e = part.from; e < part.to; e++)
            for (size_t c = 0; c < p->C; c++)
                sums[(e - part.from) * p->C + c] += (double)p->left[t * p->E + e] * p->right[t * p->C + c];
    for (size_t i = 0; i < count; i++)
        p->out[part.from * p->C + i] = (float)(p->out[part.from * p->C + i] + sums[i]);
}

void cpu_double_forward(float *logits, const float *x, const float *weight, size_t T, size_t E, size_t C)
{
    cpu_run(run_forward, &(struct double_product){logits, x, weight, T, E, C}, T * E * C);
}

void cpu_double_dinput(float *dx, const float *dlogits, const float *weight, size_t T, size_t E, size_t C)
{
    cpu_run(run_dinput, &(struct double_product){dx, dlogits, weight, T, E, C}, T * E * C);
}

void cpu_double_dweight(float *dweight, const float *dlogits, const float *x, size_t T, size_t E, size_t C)
{
    cpu_run(run_dweight, &(struct double_product){dweight, dlogits, x, T, E, C}, T * E * C);
}
