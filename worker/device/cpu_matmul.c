// Products: blocks of k and columns that stay in the second-level cache, each packed once, times blocks of rows. A block of k starts a new
// chain whose sum is added to the output, so the blocks of k, and with them the bits, depend on K alone.
#include "worker/device/cpu.h"

#include <assert.h>
#include <string.h>

enum {
    BLOCK_K = 256,
    BLOCK_N = 512,
    BLOCK_M = 168,
    ALIASING = 1024,           // floats: a page
    COPIED_ROW = BLOCK_K + 16, // floats: a block's row and a cache line
    SPARE = 64,                // floats: what packing writes beyond, and what products prefetch
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Packs this thread's share of the strips of one block of b.
static void pack_block(const struct product *p, float *right, size_t k0, size_t K, size_t n0, size_t N, int thread, int threads)
{
    size_t strip = cpu.kernels->strip;
    struct range part = cpu_part((N + strip - 1) / strip, thread, threads);
    size_t from = part.from * strip, to = smaller(part.to * strip, N);
    if (from < to)
        cpu.kernels->pack_right(right + from * K, p->b + k0 * p->b_row + (n0 + from) * p->b_column, p->b_row, p->b_column, K, to - from);
}

// Rows a whole page apart fall into one set of the first-level cache and drive each other out: they are copied closer together.
static struct left copied_rows(float *to, struct left rows, size_t M, size_t K)
{
    for (size_t m = 0; m < M; m++)
        memcpy(to + m * COPIED_ROW, rows.at + m * rows.row, K * sizeof *to);
    return (struct left){to, COPIED_ROW, 1, 0};
}

static void multiply_block(
    const struct product *p, float *left_block, const float *right, size_t k0, size_t K, size_t n0, size_t N, int thread, int threads)
{
    struct range rows = cpu_part(p->M, thread, threads);
    for (size_t m0 = rows.from; m0 < rows.to; m0 += BLOCK_M) {
        size_t M = smaller(BLOCK_M, rows.to - m0);
        struct left left = {p->a + m0 * p->a_row + k0 * p->a_column, p->a_row, p->a_column, 0};
        if (p->a_column != 1)
            left = cpu.kernels->pack_left(left_block, left.at, p->a_column, M, K);
        else if (p->a_row % ALIASING == 0)
            left = copied_rows(left_block, left, M, K);
        cpu.kernels->multiply(p->c + m0 * p->N + n0, p->N, left, right, K * cpu.kernels->strip, M, N, K, p->accumulate || k0);
    }
}

// One thread's part of a product: left is its own, all threads of the call pack into `right` together.
static void product_part(const struct product *p, float *left, float *right, int thread, int threads)
{
    if (!p->K && !p->accumulate && !thread)
        memset(p->c, 0, p->M * p->N * sizeof *p->c);
    for (size_t n0 = 0; n0 < p->N; n0 += BLOCK_N)
        for (size_t k0 = 0; k0 < p->K; k0 += BLOCK_K) {
            size_t N = smaller(BLOCK_N, p->N - n0), K = smaller(BLOCK_K, p->K - k0);
            pack_block(p, right, k0, K, n0, N, thread, threads);
            cpu_barrier(threads);
            multiply_block(p, left, right, k0, K, n0, N, thread, threads);
            cpu_barrier(threads);
        }
}

// Rows of a block in panels, the last ones padded to whole panels of at most SPARE rows in all.
static float *left_scratch(int thread)
{
    return cpu_scratch(thread, SCRATCH_LEFT, (BLOCK_M + SPARE) * COPIED_ROW);
}

static float *right_scratch(int thread)
{
    return cpu_scratch(thread, SCRATCH_RIGHT, BLOCK_K * (BLOCK_N + SPARE) + SPARE);
}

struct shared_product {
    const struct product *product;
    float *right;
};

static void run_shared(const void *job, int thread, int threads)
{
    const struct shared_product *shared = job;
    product_part(shared->product, left_scratch(thread), shared->right, thread, threads);
}

static void run_product(const struct product *product)
{
    struct shared_product shared = {product, right_scratch(0)};
    cpu_run(run_shared, &shared, product->M * product->N * product->K / 16);
}

enum linear { LINEAR_FORWARD, LINEAR_DINPUT, LINEAR_DWEIGHT };

// One of the three products of a linear layer over T rows with a weight [N,K]. forward: left = x, right = W; dinput: dout, W; dweight:
// dout, x.
static struct product product_of(enum linear kind, float *out, const float *left, const float *right, size_t T, size_t N, size_t K)
{
    switch (kind) {
    case LINEAR_FORWARD:
        return (struct product){
            .c = out, .a = left, .b = right, .a_row = K, .a_column = 1, .b_row = 1, .b_column = K, .M = T, .N = N, .K = K};
    case LINEAR_DINPUT:
        return (struct product){
            .c = out, .a = left, .b = right, .a_row = N, .a_column = 1, .b_row = K, .b_column = 1, .M = T, .N = K, .K = N};
    default:
        return (struct product){.c = out,
            .a = left,
            .b = right,
            .a_row = 1,
            .a_column = N,
            .b_row = K,
            .b_column = 1,
            .M = N,
            .N = K,
            .K = T,
            .accumulate = true};
    }
}

void cpu_linear_forward(void *out, const void *x, const void *weight, size_t T, size_t N, size_t K)
{
    struct product product = product_of(LINEAR_FORWARD, out, x, weight, T, N, K);
    run_product(&product);
}

void cpu_linear_dinput(void *dx, const void *dout, const void *weight, size_t T, size_t N, size_t K)
{
    struct product product = product_of(LINEAR_DINPUT, dx, dout, weight, T, N, K);
    run_product(&product);
}

void cpu_linear_dweight(void *dweight, const void *dout, const void *x, size_t T, size_t N, size_t K)
{
    struct product product = product_of(LINEAR_DWEIGHT, dweight, dout, x, T, N, K);
    run_product(&product);
}

struct grouped {
    enum linear kind;
    float *out;
    const float *left, *right; // forward: rows, weights; dinput: drows, weights; dweight: drows, rows
    const int64_t *counts;
    size_t groups, N, K;
};

static struct product group_product(const struct grouped *g, size_t group, size_t row)
{
    size_t N = g->N, K = g->K, count = (size_t)g->counts[group], matrix = group * N * K;
    switch (g->kind) {
    case LINEAR_FORWARD:
        return product_of(g->kind, g->out + row * N, g->left + row * K, g->right + matrix, count, N, K);
    case LINEAR_DINPUT:
        return product_of(g->kind, g->out + row * K, g->left + row * N, g->right + matrix, count, N, K);
    default:
        return product_of(g->kind, g->out + matrix, g->left + row * N, g->right + row * K, count, N, K);
    }
}

// Groups are dealt in rows: a thread takes the groups whose middle row lies in its part, so that work is even when groups are not.
static void run_groups(const void *job, int thread, int threads)
{
    const struct grouped *g = job;
    size_t total = 0, row = 0;
    for (size_t i = 0; i < g->groups; i++)
        total += (size_t)g->counts[i];
    struct range part = cpu_part(2 * total, thread, threads);
    for (size_t i = 0; i < g->groups; row += (size_t)g->counts[i++]) {
        size_t middle = 2 * row + (size_t)g->counts[i];
        if (!g->counts[i] || middle < part.from || middle >= part.to)
            continue;
        struct product product = group_product(g, i, row);
        product_part(&product, left_scratch(thread), right_scratch(thread), 0, 1);
    }
}

// Many groups: a group a thread. Few: all threads in each, since one group may hold most rows. The bits are the same.
static void run_grouped(const struct grouped *g)
{
    if (cpu.threads == 1 || g->groups >= 4 * (size_t)cpu.threads) {
        cpu_run(run_groups, g, SIZE_MAX);
        return;
    }
    size_t row = 0;
    for (size_t i = 0; i < g->groups; row += (size_t)g->counts[i++]) {
        struct product product = group_product(g, i, row);
        if (g->counts[i])
            run_product(&product);
    }
}

void cpu_grouped_forward(void *out, const void *rows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K)
{
    run_grouped(&(struct grouped){LINEAR_FORWARD, out, rows, weights, counts, groups, N, K});
}

void cpu_grouped_dinput(void *out, const void *drows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K)
{
    run_grouped(&(struct grouped){LINEAR_DINPUT, out, drows, weights, counts, groups, N, K});
}

void cpu_grouped_dweight(void *dweights, const void *drows, const void *rows, const int64_t *counts, size_t groups, size_t N, size_t K)
{
    run_grouped(&(struct grouped){LINEAR_DWEIGHT, dweights, drows, rows, counts, groups, N, K});
}
