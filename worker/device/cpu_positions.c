// What is done to queries, keys and rows around attention: norms of their pieces, rotary positions, dropout.
#include "worker/device/cpu.h"
#include "worker/device/host_memory.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { ROW_BLOCK = 64, DROPOUT_CHUNK = 1024 }; // rows whose parts of a weight's gradient are summed together; values dropped at a time

struct piece_norm {
    float *x, *kept, *rstd, *partials;
    const float *saved, *weight, *saved_rstd;
    size_t T, stride, first, groups, width;
    float eps;
};

static void run_piece_norm_forward(const void *job, int thread, int threads)
{
    const struct piece_norm *n = job;
    struct range part = cpu_part(n->T, thread, threads);
    size_t wide = n->groups * n->width;
    for (size_t t = part.from; t < part.to; t++) {
        float *piece = n->x + t * n->stride + n->first, *kept = n->kept + t * wide;
        memcpy(kept, piece, wide * sizeof *kept);
        cpu.kernels->rmsnorm_forward(piece, n->rstd + t * n->groups, kept, n->weight, n->groups, n->width, n->eps);
    }
}

void cpu_piece_norm_forward(void *x, void *kept, void *rstd, const void *weight, size_t T, size_t stride, size_t first, size_t groups,
    size_t width, double eps)
{
    struct piece_norm n = {.x = x, .kept = kept, .rstd = rstd, .weight = weight, .T = T, .stride = stride, .first = first, .groups = groups,
        .width = width, .eps = (float)eps};
    cpu_run(run_piece_norm_forward, &n, T * groups * width);
}

static size_t row_blocks(size_t T)
{
    return (T + ROW_BLOCK - 1) / ROW_BLOCK;
}

static void run_piece_norm_backward(const void *job, int thread, int threads)
{
    const struct piece_norm *n = job;
    struct range part = cpu_part(row_blocks(n->T), thread, threads);
    size_t wide = n->groups * n->width;
    float *dout = cpu_scratch(thread, SCRATCH_LEFT, wide);
    for (size_t block = part.from; block < part.to; block++) {
        float *dweight = n->partials + block * n->width;
        memset(dweight, 0, n->width * sizeof *dweight);
        for (size_t t = block * ROW_BLOCK; t < n->T && t < (block + 1) * ROW_BLOCK; t++) {
            float *piece = n->x + t * n->stride + n->first;
            memcpy(dout, piece, wide * sizeof *dout);
            memset(piece, 0, wide * sizeof *piece); // the kernel adds
            cpu.kernels->rmsnorm_backward(piece, dweight, dout, n->saved + t * wide, n->weight, n->saved_rstd + t * n->groups, n->groups, n->width);
        }
    }
}

void cpu_piece_norm_backward(void *dx, void *dweight, const void *kept, const void *weight, const void *rstd, size_t T, size_t stride,
    size_t first, size_t groups, size_t width)
{
    struct piece_norm n = {.x = dx, .saved = kept, .weight = weight, .saved_rstd = rstd, .T = T, .stride = stride, .first = first,
        .groups = groups, .width = width};
    n.partials = cpu_partials((row_blocks(T) + 1) * width * sizeof(float));
    cpu_run(run_piece_norm_backward, &n, T * groups * width);
    for (size_t block = 1; block < row_blocks(T); block++)
        cpu.kernels->add(n.partials, n.partials, n.partials + block * width, width);
    if (T)
        cpu.kernels->add(dweight, dweight, n.partials, width);
}

// Cosines (positions, D/2) and then sines for one set of frequencies, kept from call to call: a model uses one, an evaluation perhaps
// another. Grows by doubling when a higher position comes.
struct rope_table {
    size_t positions, D;
    double *frequencies;
    float *cosines, *sines;
};

static void rope_table_fill(struct rope_table *table, const double *frequencies, size_t positions, size_t D)
{
    size_t half = D / 2, count = positions * half;
    if (table->cosines) {
        host_memory.free(table->cosines, 2 * table->positions * (table->D / 2) * sizeof(float));
        host_memory.free(table->frequencies, table->D / 2 * sizeof(double));
    }
    double *kept = host_memory.alloc(half * sizeof(double));
    float *block = host_memory.alloc(2 * count * sizeof(float));
    memcpy(kept, frequencies, half * sizeof *kept);
    *table = (struct rope_table){positions, D, kept, block, block + count};
    for (size_t s = 0; s < positions; s++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)s * frequencies[i];
            table->cosines[s * half + i] = (float)cos(angle);
            table->sines[s * half + i] = (float)sin(angle);
        }
}

static const struct rope_table *rope_table_of(const double *frequencies, size_t positions, size_t D)
{
    enum { TABLES = 4 };
    static struct rope_table tables[TABLES];
    static size_t next;
    struct rope_table *table = NULL;
    for (size_t i = 0; i < TABLES && !table; i++)
        if (tables[i].D == D && !memcmp(tables[i].frequencies, frequencies, D / 2 * sizeof *frequencies))
            table = &tables[i];
    if (!table)
        table = &tables[next++ % TABLES];
    else if (positions <= table->positions)
        return table;
    size_t wanted = 1;
    while (wanted < positions)
        wanted *= 2;
    rope_table_fill(table, frequencies, wanted, D);
    return table;
}

struct rope {
    float *x;
    const int32_t *positions;
    const struct rope_table *table;
    size_t T, stride, first, heads;
    int direction;
};

static void run_rope(const void *job, int thread, int threads)
{
    const struct rope *r = job;
    size_t D = r->table->D;
    struct range part = cpu_part(r->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        size_t at = (size_t)r->positions[t] * (D / 2);
        cpu.kernels->rope(
            r->x + t * r->stride + r->first * D, r->table->cosines + at, r->table->sines + at, r->heads, D, (float)r->direction);
    }
}

void cpu_rope(void *x, const int32_t *positions, const double *frequencies, size_t T, size_t stride, size_t first, size_t heads, size_t D,
    int direction)
{
    int32_t last = 0;
    for (size_t t = 0; t < T; t++) {
        assert(positions[t] >= 0);
        last = positions[t] > last ? positions[t] : last;
    }
    struct rope r = {x, positions, rope_table_of(frequencies, (size_t)last + 1, D), T, stride, first, heads, direction};
    cpu_run(run_rope, &r, T * heads * D);
}

struct dropped {
    float *out;
    const float *in;
    const struct dropout *dropout;
    size_t T, C;
};

static void run_dropout(const void *job, int thread, int threads)
{
    const struct dropped *d = job;
    struct range part = cpu_part(d->T, thread, threads);
    float factors[DROPOUT_CHUNK];
    for (size_t t = part.from; t < part.to; t++)
        for (size_t c = 0; c < d->C; c += DROPOUT_CHUNK) {
            size_t at = t * d->C + c, count = d->C - c < DROPOUT_CHUNK ? d->C - c : DROPOUT_CHUNK;
            cpu.kernels->dropout_factors(factors, d->dropout, t, 0, c, count);
            for (size_t i = 0; i < count; i++)
                d->out[at + i] = d->in[at + i] * factors[i];
        }
}

void cpu_dropout(void *out, const void *in, const struct dropout *dropout, size_t T, size_t C)
{
    cpu_run(run_dropout, &(struct dropped){out, in, dropout, T, C}, 4 * T * C);
}
