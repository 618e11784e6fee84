// Operations on flat arrays, and sums that end on the host.
#include "worker/device/cpu.h"

#include <math.h>
#include <string.h>

enum { SUM_BLOCK = 4096 }; // elements taken together

struct elements {
    float *out;
    const float *a, *b;
    size_t ranks, count;
    float factor;
};

static void run_add(const void *job, int thread, int threads)
{
    const struct elements *e = job;
    struct range part = cpu_part(e->count, thread, threads);
    cpu.kernels->add(e->out + part.from, e->a + part.from, e->b + part.from, part.to - part.from);
}

void cpu_add(void *out, const void *a, const void *b, size_t count)
{
    cpu_run(run_add, &(struct elements){.out = out, .a = a, .b = b, .count = count}, count);
}

static void run_scale(const void *job, int thread, int threads)
{
    const struct elements *e = job;
    struct range part = cpu_part(e->count, thread, threads);
    cpu.kernels->scale(e->out + part.from, e->factor, part.to - part.from);
}

void cpu_scale(void *x, double factor, size_t count)
{
    cpu_run(run_scale, &(struct elements){.out = x, .factor = (float)factor, .count = count}, count);
}

// Rank after rank over a block that stays in cache.
static void run_add_ordered(const void *job, int thread, int threads)
{
    const struct elements *e = job;
    struct range part = cpu_part(e->count, thread, threads);
    for (size_t i = part.from; i < part.to; i += SUM_BLOCK) {
        size_t n = part.to - i < SUM_BLOCK ? part.to - i : SUM_BLOCK;
        if (e->ranks == 1)
            memmove(e->out + i, e->a + i, n * sizeof *e->out);
        for (size_t r = 1; r < e->ranks; r++)
            cpu.kernels->add(e->out + i, r == 1 ? e->a + i : e->out + i, e->a + r * e->count + i, n);
    }
}

void cpu_add_ordered(void *out, const void *parts, size_t ranks, size_t count)
{
    cpu_run(run_add_ordered, &(struct elements){.out = out, .a = parts, .ranks = ranks, .count = count}, ranks * count);
}

struct adamw_job {
    float *param, *m, *v;
    void *weights;
    const float *gradient;
    size_t count;
    struct adamw with;
};

static void run_adamw(const void *job, int thread, int threads)
{
    const struct adamw_job *a = job;
    struct range part = cpu_part(a->count, thread, threads);
    for (size_t at = part.from; at < part.to; at += SUM_BLOCK) { // a block's new values are rounded while they are near
        size_t n = part.to - at < SUM_BLOCK ? part.to - at : SUM_BLOCK;
        cpu.kernels->adamw(a->param + at, a->m + at, a->v + at, a->gradient + at, n, &a->with);
        if (a->weights && cpu.format == FORMAT_FP32)
            memcpy((float *)a->weights + at, a->param + at, n * sizeof *a->param);
        else if (a->weights)
            cpu.kernels->narrow((uint16_t *)a->weights + at, a->param + at, n, cpu.format);
    }
}

void cpu_adamw(void *param, void *weights, void *m, void *v, const void *gradient, size_t count, double gradient_factor, double rate,
    double beta1, double beta2, double eps, double decay, int64_t step)
{
    struct adamw with = {.gradient_factor = (float)gradient_factor,
        .rate = (float)rate,
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .one_minus1 = (float)(1 - beta1),
        .one_minus2 = (float)(1 - beta2),
        .correct1 = (float)(1 - pow(beta1, (double)step)),
        .correct2 = (float)(1 - pow(beta2, (double)step)),
        .eps = (float)eps,
        .decay = (float)decay};
    cpu_run(run_adamw, &(struct adamw_job){param, m, v, weights, gradient, count, with}, 4 * count);
}

struct sums {
    struct block_sum {
        double sum;
        int64_t zeros;
    } *blocks;
    const float *x;
    size_t count;
    double (*of)(const float *x, size_t count, int64_t *zeros);
};

static size_t sum_blocks(size_t count)
{
    return (count + SUM_BLOCK - 1) / SUM_BLOCK;
}

static void run_sums(const void *job, int thread, int threads)
{
    const struct sums *s = job;
    struct range part = cpu_part(sum_blocks(s->count), thread, threads);
    for (size_t block = part.from; block < part.to; block++) {
        size_t at = block * SUM_BLOCK;
        struct block_sum *sum = &s->blocks[block];
        sum->zeros = 0;
        sum->sum = s->of(s->x + at, s->count - at < SUM_BLOCK ? s->count - at : SUM_BLOCK, &sum->zeros);
    }
}

static struct block_sum summed(const float *x, size_t count, double (*of)(const float *x, size_t count, int64_t *zeros))
{
    struct sums s = {cpu_partials((sum_blocks(count) + 1) * sizeof *s.blocks), x, count, of};
    struct block_sum total = {0};
    cpu_run(run_sums, &s, count);
    for (size_t block = 0; block < sum_blocks(count); block++) {
        total.sum += s.blocks[block].sum;
        total.zeros += s.blocks[block].zeros;
    }
    return total;
}

double cpu_sum_of_squares(const void *x, size_t count, int64_t *zeros)
{
    struct block_sum total = summed(x, count, cpu.kernels->sum_of_squares);
    *zeros = total.zeros;
    return total.sum;
}

double cpu_sum(const void *x, size_t count)
{
    return summed(x, count, cpu.kernels->sum).sum;
}

void cpu_from_double(void *to, const double *host, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((float *)to)[i] = (float)host[i];
}

void cpu_to_double(double *host, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        host[i] = ((const float *)from)[i];
}
