// The movement of rows: copies by index, and their sums.
#include "worker/device/cpu.h"

#include <string.h>

struct movement {
    float *out;
    const float *rows, *residual;
    const int32_t *index;
    size_t T, J, C;
};

static void run_gather(const void *job, int thread, int threads)
{
    const struct movement *m = job;
    struct range part = cpu_part(m->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        if (m->index[t] < 0)
            memset(m->out + t * m->C, 0, m->C * sizeof *m->out);
        else
            memcpy(m->out + t * m->C, m->rows + (size_t)m->index[t] * m->C, m->C * sizeof *m->out);
    }
}

void cpu_gather_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    cpu_run(run_gather, &(struct movement){out, in, NULL, index, R, 1, C}, R * C);
}

static void run_combine(const void *job, int thread, int threads)
{
    const struct movement *m = job;
    struct range part = cpu_part(m->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        float *out = m->out + t * m->C;
        const int32_t *row_of = m->index + t * m->J;
        const float *sum = NULL; // what has been added up so far
        for (size_t j = 0; j <= m->J; j++) {
            const float *next = j == m->J ? m->residual ? m->residual + t * m->C : NULL : row_of[j] < 0 ? NULL : m->rows + (size_t)row_of[j] * m->C;
            if (next && sum)
                cpu.kernels->add(out, sum, next, m->C);
            if (next)
                sum = sum ? out : next;
        }
        if (!sum)
            memset(out, 0, m->C * sizeof *out);
        else if (sum != out)
            memcpy(out, sum, m->C * sizeof *out);
    }
}

void cpu_combine_rows(void *out, const void *rows, const int32_t *row_of, const void *residual, size_t T, size_t J, size_t C)
{
    cpu_run(run_combine, &(struct movement){out, rows, residual, row_of, T, J, C}, T * J * C);
}
