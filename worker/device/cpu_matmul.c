// Products: blocks of k and columns that stay in the second-level cache, each packed once, times the rows, a panel after another. A block of
// k starts a new chain whose sum is added to the output, so the blocks of k, and with them the bits, depend on K alone.
//
// Three ways, chosen by the format alone: floats as they are; numbers of a format of two bytes, rounded on the way and multiplied as floats,
// which is exact; and pairs of bf16 numbers where the machine multiplies these (cpu.pairs).
#include "worker/device/cpu.h"

#include <assert.h>
#include <string.h>

enum {
    BLOCK_K = 384, // floats; twice as many bf16 numbers in pairs
    BLOCK_N = 512,
    BLOCK_M = 168,
    LINE = 16,       // floats of a cache line: a block of k is whole lines
    ALIASING = 1024, // floats: a page. Rows a whole page apart fall into one set of the first-level cache and drive each other out
    SPARE = 64,      // floats: what packing writes beyond, and what products prefetch
    WIDE = BLOCK_K * BLOCK_N,
};

struct hand { // who does a part of a product
    int thread, threads; // of those that work on it together
    int scratch;         // whose scratch memory is at hand
};

struct block { // k0…k0 + K of n0…n0 + N columns
    size_t k0, K, n0, N;
    size_t spacing; // floats from strip to strip: no power of two, so that strips do not fall into one set of a cache
    bool pairs;
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Pairs along k must lie together in memory already, or come from two rows.
static bool by_pairs(const struct product *p)
{
    bool columns = p->b_column != 1;
    return cpu.pairs && p->format == FORMAT_BF16 && (!columns || (p->b_is_narrow && p->K % 2 == 0));
}

// Blocks of k are as even as whole lines allow; of a sum over rows that others may add to, they are what divides DWEIGHT_ROWS.
static size_t block_k(const struct product *p, bool pairs)
{
    static_assert(DWEIGHT_ROWS <= 2 * BLOCK_K && DWEIGHT_ROWS / 2 % (2 * LINE) == 0, "whole lines of what scratch memory holds");
    if (p->accumulate)
        return pairs ? DWEIGHT_ROWS : DWEIGHT_ROWS / 2;
    size_t most = pairs ? 2 * BLOCK_K : BLOCK_K, count = (p->K + most - 1) / most, even = count ? (p->K + count - 1) / count : 1;
    return (even + 2 * LINE - 1) / (2 * LINE) * (2 * LINE);
}

// ---- the right operand ----

// A block of b as floats of the product's format, in scratch memory; row and column become its strides.
static const float *widened_block(const struct product *p, const struct block *block, size_t from, size_t to, size_t *row, size_t *column, struct hand hand)
{
    float *wide = cpu_scratch(hand.scratch, SCRATCH_WIDE, WIDE);
    bool columns = *column != 1;
    size_t rows = columns ? to - from : block->K, width = columns ? block->K : to - from, stride = columns ? *column : *row;
    size_t at = block->k0 * *row + (block->n0 + from) * *column;
    for (size_t r = 0; r < rows; r++, at += stride)
        if (p->b_is_narrow)
            cpu.kernels->widen(wide + r * width, (const uint16_t *)p->b + at, width, p->format);
        else
            cpu.kernels->rounded(wide + r * width, (const float *)p->b + at, width, p->format);
    *(columns ? column : row) = width;
    return wide;
}

// Packs this thread's share of the strips of one block.
static void pack_block(const struct product *p, const struct block *block, float *right, struct hand hand)
{
    size_t strip = block->pairs ? cpu.pairs->strip : cpu.kernels->strip, row = p->b_row, column = p->b_column;
    struct range part = cpu_part((block->N + strip - 1) / strip, hand.thread, hand.threads);
    size_t from = part.from * strip, to = smaller(part.to * strip, block->N), at = block->k0 * row + (block->n0 + from) * column;
    if (from >= to)
        return;
    right += part.from * block->spacing;
    if (block->pairs) {
        const void *b = p->b_is_narrow ? (const void *)((const uint16_t *)p->b + at) : (const void *)((const float *)p->b + at);
        cpu.pairs->pack_right(right, block->spacing, b, p->b_is_narrow, row, column, block->K, to - from);
        return;
    }
    const float *b = (const float *)p->b + at;
    if (p->format != FORMAT_FP32)
        b = widened_block(p, block, from, to, &row, &column, hand);
    cpu.kernels->pack_right_apart(right, block->spacing, b, row, column, block->K, to - from);
}

// ---- rows ----

static void multiply_by_rows(const struct product *p, const struct block *block, float *c, size_t m0, size_t M, float *own, const float *right,
    enum finish finish)
{
    const float *a = p->a + m0 * p->a_row + block->k0;
    if (block->pairs)
        cpu.pairs->multiply_rows(c, p->N, a, p->a_row, own, right, block->spacing, M, block->N, block->K, finish);
    else if (p->format == FORMAT_FP32 && p->a_row % ALIASING)
        cpu.kernels->multiply(c, p->N, (struct left){a, p->a_row, 1, 0}, right, block->spacing, M, block->N, block->K, finish);
    else
        cpu.kernels->multiply_rows(c, p->N, a, p->a_row, own, p->format, right, block->spacing, M, block->N, block->K, finish);
}

// Rows of a lie along its columns: they are packed.
static void multiply_by_columns(const struct product *p, const struct block *block, float *c, size_t m0, size_t M, float *own,
    const float *right, enum finish finish, struct hand hand)
{
    const float *a = p->a + m0 + block->k0 * p->a_column;
    size_t column = p->a_column;
    if (block->pairs) {
        struct left left = cpu.pairs->pack_left(own, a, column, M, block->K);
        cpu.pairs->multiply(c, p->N, left, right, block->spacing, M, block->N, block->K, finish);
        return;
    }
    if (p->format != FORMAT_FP32) {
        float *wide = cpu_scratch(hand.scratch, SCRATCH_WIDE, WIDE);
        for (size_t k = 0; k < block->K; k++)
            cpu.kernels->rounded(wide + k * M, a + k * column, M, p->format);
        a = wide;
        column = M;
    }
    struct left left = cpu.kernels->pack_left(own, a, column, M, block->K);
    cpu.kernels->multiply(c, p->N, left, right, block->spacing, M, block->N, block->K, finish);
}

static void multiply_block(const struct product *p, const struct block *block, float *own, const float *right, struct hand hand)
{
    struct range rows = cpu_part(p->M, hand.thread, hand.threads);
    bool rounds = p->round_result && block->k0 + block->K == p->K;
    enum finish finish = p->accumulate || block->k0 ? FINISH_ADD : FINISH_STORE;
    if (rounds && block->pairs)
        finish |= FINISH_ROUND;
    for (size_t m0 = rows.from; m0 < rows.to; m0 += BLOCK_M) {
        size_t M = smaller(BLOCK_M, rows.to - m0);
        float *c = p->c + m0 * p->N + block->n0;
        if (p->a_column == 1)
            multiply_by_rows(p, block, c, m0, M, own, right, finish);
        else
            multiply_by_columns(p, block, c, m0, M, own, right, finish, hand);
        for (size_t m = 0; m < M && rounds && !block->pairs; m++)
            cpu.kernels->rounded(c + m * p->N, c + m * p->N, block->N, p->format);
    }
}

// ---- all of it ----

// One thread's part of a product: `own` is its own, all threads of the call pack into `right` together.
static void product_part(const struct product *p, float *own, float *right, struct hand hand)
{
    if (!p->K && !p->accumulate && !hand.thread)
        memset(p->c, 0, p->M * p->N * sizeof *p->c);
    bool pairs = by_pairs(p);
    size_t step = block_k(p, pairs);
    for (size_t n0 = 0; n0 < p->N; n0 += BLOCK_N)
        for (size_t k0 = 0; k0 < p->K; k0 += step) {
            struct block block = {k0, smaller(step, p->K - k0), n0, smaller(BLOCK_N, p->N - n0), 0, pairs};
            size_t lanes = pairs ? (block.K + 1) / 2 : block.K;
            block.spacing = lanes * (pairs ? cpu.pairs->strip : cpu.kernels->strip) + LINE;
            pack_block(p, &block, right, hand);
            cpu_barrier(hand.threads);
            multiply_block(p, &block, own, right, hand);
            cpu_barrier(hand.threads);
        }
}

// A block's rows in panels, the last ones padded to whole panels of at most SPARE rows in all.
static float *own_scratch(int thread)
{
    return cpu_scratch(thread, SCRATCH_LEFT, (BLOCK_M + SPARE) * (BLOCK_K + LINE));
}

static float *right_scratch(int thread)
{
    return cpu_scratch(thread, SCRATCH_RIGHT, BLOCK_K * (BLOCK_N + SPARE) + BLOCK_N * LINE + SPARE);
}

struct shared_product {
    const struct product *product;
    float *right;
};

static void run_shared(const void *job, int thread, int threads)
{
    const struct shared_product *shared = job;
    product_part(shared->product, own_scratch(thread), shared->right, (struct hand){thread, threads, thread});
}

void cpu_product_alone(const struct product *product, int thread)
{
    product_part(product, own_scratch(thread), right_scratch(thread), (struct hand){0, 1, thread});
}

void cpu_product(const struct product *product)
{
    struct shared_product shared = {product, right_scratch(0)};
    cpu_run(run_shared, &shared, product->M * product->N * product->K / 16);
}
