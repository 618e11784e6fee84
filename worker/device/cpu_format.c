// Rows of reals to rows of the weight format and back, gathered on the way where an index says so.
#include "worker/device/cpu.h"

#include <string.h>

struct conversion {
    void *out;
    const void *in;
    const int32_t *index;
    size_t R, C;
};

static size_t source_row(const struct conversion *c, size_t r)
{
    return c->index ? (size_t)c->index[r] : r;
}

static bool is_empty(const struct conversion *c, size_t r)
{
    return c->index && c->index[r] < 0;
}

static void run_narrow(const void *job, int thread, int threads)
{
    const struct conversion *c = job;
    size_t out_bytes = cpu.format == FORMAT_FP32 ? sizeof(float) : sizeof(uint16_t);
    struct range part = cpu_part(c->R, thread, threads);
    for (size_t r = part.from; r < part.to; r++) {
        if (is_empty(c, r)) {
            memset((char *)c->out + r * c->C * out_bytes, 0, c->C * out_bytes);
            continue;
        }
        const float *in = (const float *)c->in + source_row(c, r) * c->C;
        if (cpu.format == FORMAT_FP32)
            memcpy((float *)c->out + r * c->C, in, c->C * sizeof *in);
        else
            cpu.kernels->narrow((uint16_t *)c->out + r * c->C, in, c->C, cpu.format);
    }
}

static void run_widen(const void *job, int thread, int threads)
{
    const struct conversion *c = job;
    struct range part = cpu_part(c->R, thread, threads);
    for (size_t r = part.from; r < part.to; r++) {
        float *out = (float *)c->out + r * c->C;
        if (is_empty(c, r))
            memset(out, 0, c->C * sizeof *out);
        else if (cpu.format == FORMAT_FP32)
            memcpy(out, (const float *)c->in + source_row(c, r) * c->C, c->C * sizeof *out);
        else
            cpu.kernels->widen(out, (const uint16_t *)c->in + source_row(c, r) * c->C, c->C, cpu.format);
    }
}

static void run_round(const void *job, int thread, int threads)
{
    const struct conversion *c = job;
    struct range part = cpu_part(c->R, thread, threads);
    for (size_t r = part.from; r < part.to; r++) {
        float *out = (float *)c->out + r * c->C;
        const float *in = is_empty(c, r) ? NULL : (const float *)c->in + source_row(c, r) * c->C;
        if (is_empty(c, r))
            memset(out, 0, c->C * sizeof *out);
        else if (cpu.format == FORMAT_FP32)
            memcpy(out, in, c->C * sizeof *in);
        else
            cpu.kernels->rounded(out, in, c->C, cpu.format);
    }
}

void cpu_round_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    cpu_run(run_round, &(struct conversion){out, in, index, R, C}, R * C);
}

void cpu_narrow_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    cpu_run(run_narrow, &(struct conversion){out, in, index, R, C}, R * C);
}

void cpu_widen_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    cpu_run(run_widen, &(struct conversion){out, in, index, R, C}, R * C);
}
