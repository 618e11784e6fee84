// Biases of linear layers, plain and of groups of rows: added to rows, and gathered from their gradients.
#include "worker/device/cpu.h"

#include <string.h>

enum { ROW_BLOCK = 64 }; // rows that are summed together

struct bias {
    float *out;
    const float *in;
    const int64_t *counts; // rows of each group
    size_t groups, N;
    const float *scale;    // of each row, or NULL: 1
    const float *biases;   // for the gradient of scale
    float *dscale;
};

static size_t rows_of(const struct bias *b)
{
    size_t rows = 0;
    for (size_t g = 0; g < b->groups; g++)
        rows += (size_t)b->counts[g];
    return rows;
}

// to += row · its scale.
static void add_row(const struct bias *b, float *to, const float *row, size_t t, size_t count)
{
    if (b->scale)
        cpu.kernels->add_scaled(to, row, b->scale[t], count);
    else
        cpu.kernels->add(to, to, row, count);
}

static void run_add(const void *job, int thread, int threads)
{
    const struct bias *b = job;
    struct range part = cpu_part(rows_of(b), thread, threads);
    size_t begin = 0;
    for (size_t g = 0; g < b->groups; g++) {
        size_t end = begin + (size_t)b->counts[g], to = part.to < end ? part.to : end;
        for (size_t t = part.from > begin ? part.from : begin; t < to; t++) {
            add_row(b, b->out + t * b->N, b->in + g * b->N, t, b->N);
            if (cpu.format != FORMAT_FP32)
                cpu.kernels->rounded(b->out + t * b->N, b->out + t * b->N, b->N, cpu.format);
        }
        begin = end;
    }
}

void cpu_grouped_bias_add(void *out, const void *biases, const int64_t *counts, size_t groups, size_t N)
{
    struct bias b = {.out = out, .in = biases, .counts = counts, .groups = groups, .N = N};
    cpu_run(run_add, &b, rows_of(&b) * N);
}

void cpu_weighted_bias_add(void *out, const void *biases, const void *scale, const int64_t *counts, size_t groups, size_t N)
{
    struct bias b = {.out = out, .in = biases, .counts = counts, .groups = groups, .N = N, .scale = scale};
    cpu_run(run_add, &b, rows_of(&b) * N);
}

void cpu_bias_add(void *out, const void *bias, size_t T, size_t N)
{
    cpu_grouped_bias_add(out, bias, &(int64_t){(int64_t)T}, 1, N);
}

// Threads share columns, so that the rows of a block, and then the blocks, are added in order whatever their number.
static void run_gradient(const void *job, int thread, int threads)
{
    const struct bias *b = job;
    struct range part = cpu_part(b->N, thread, threads);
    size_t width = part.to - part.from, row = 0;
    float *block = cpu_scratch(thread, SCRATCH_LEFT, width);
    for (size_t g = 0; g < b->groups; g++) {
        float *out = b->out + g * b->N + part.from;
        for (size_t left = (size_t)b->counts[g], rows; left; left -= rows) {
            rows = left < ROW_BLOCK ? left : ROW_BLOCK;
            memset(block, 0, width * sizeof *block);
            for (size_t end = row + rows; row < end; row++)
                add_row(b, block, b->in + row * b->N + part.from, row, width);
            cpu.kernels->add(out, out, block, width);
        }
    }
}

void cpu_grouped_bias_gradient(void *dbiases, const void *dout, const int64_t *counts, size_t groups, size_t N)
{
    struct bias b = {.out = dbiases, .in = dout, .counts = counts, .groups = groups, .N = N};
    cpu_run(run_gradient, &b, rows_of(&b) * N);
}

static void run_scale_gradient(const void *job, int thread, int threads)
{
    const struct bias *b = job;
    struct range part = cpu_part(rows_of(b), thread, threads);
    size_t begin = 0;
    for (size_t g = 0; g < b->groups; g++) {
        size_t end = begin + (size_t)b->counts[g], to = part.to < end ? part.to : end;
        for (size_t t = part.from > begin ? part.from : begin; t < to; t++)
            b->dscale[t] += cpu.kernels->dot(b->in + t * b->N, b->biases + g * b->N, b->N);
        begin = end;
    }
}

void cpu_weighted_bias_backward(void *dbiases, void *dscale, const void *dout, const void *biases, const void *scale, const int64_t *counts,
    size_t groups, size_t N)
{
    struct bias b = {
        .out = dbiases, .in = dout, .counts = counts, .groups = groups, .N = N, .scale = scale, .biases = biases, .dscale = dscale};
    cpu_run(run_gradient, &b, rows_of(&b) * N);
    cpu_run(run_scale_gradient, &b, rows_of(&b) * N);
}

void cpu_bias_gradient(void *dbias, const void *dout, size_t T, size_t N)
{
    cpu_grouped_bias_gradient(dbias, dout, &(int64_t){(int64_t)T}, 1, N);
}
