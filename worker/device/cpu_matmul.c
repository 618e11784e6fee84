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
    WIDE = BLOCK_K * BLOCK_N,  // floats: a block of either operand
    SPARE = 64,                // floats: what packing writes beyond, and what products prefetch
};

struct hand { // who does a part of a product
    int thread, threads; // of those that work on it together
    int scratch;         // whose scratch memory is at hand
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Rows of an operand, as numbers of the product's format in floats, `to_row` floats apart.
static void to_format(
    float *to, size_t to_row, const struct product *p, const void *from, size_t from_row, bool is_narrow, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        if (is_narrow)
            cpu.kernels->widen(to + r * to_row, (const uint16_t *)from + r * from_row, columns, p->format);
        else
            cpu.kernels->rounded(to + r * to_row, (const float *)from + r * from_row, columns, p->format);
}

// Packs this thread's share of the strips of one block of b.
static void pack_block(const struct product *p, float *right, size_t k0, size_t K, size_t n0, size_t N, struct hand hand)
{
    size_t strip = cpu.kernels->strip, row = p->b_row, column = p->b_column;
    struct range part = cpu_part((N + strip - 1) / strip, hand.thread, hand.threads);
    size_t from = part.from * strip, to = smaller(part.to * strip, N), at = k0 * row + (n0 + from) * column;
    if (from >= to)
        return;
    const float *b = (const float *)p->b + at;
    if (p->format != FORMAT_FP32) {
        float *wide = cpu_scratch(hand.scratch, SCRATCH_WIDE, WIDE);
        const void *source = p->b_is_narrow ? (const void *)((const uint16_t *)p->b + at) : b;
        if (column == 1) {
            to_format(wide, to - from, p, source, row, p->b_is_narrow, K, to - from);
            row = to - from;
        } else {
            to_format(wide, K, p, source, column, p->b_is_narrow, to - from, K);
            column = K;
        }
        b = wide;
    }
    cpu.kernels->pack_right(right + from * K, b, row, column, K, to - from);
}

// A block of a as the kernels read it: where it lies, or packed, or copied. Rows a whole page apart fall into one set of the first-level
// cache and drive each other out: they are copied closer together.
static struct left left_block(const struct product *p, float *to, size_t m0, size_t M, size_t k0, size_t K, struct hand hand)
{
    const float *a = p->a + m0 * p->a_row + k0 * p->a_column;
    bool rounds = p->format != FORMAT_FP32;
    if (p->a_column != 1) {
        size_t column = p->a_column;
        if (rounds) {
            float *wide = cpu_scratch(hand.scratch, SCRATCH_WIDE, WIDE);
            to_format(wide, M, p, a, column, false, K, M);
            a = wide;
            column = M;
        }
        return cpu.kernels->pack_left(to, a, column, M, K);
    }
    if (!rounds && p->a_row % ALIASING)
        return (struct left){a, p->a_row, 1, 0};
    if (rounds)
        to_format(to, COPIED_ROW, p, a, p->a_row, false, M, K);
    for (size_t m = 0; m < M && !rounds; m++)
        memcpy(to + m * COPIED_ROW, a + m * p->a_row, K * sizeof *to);
    return (struct left){to, COPIED_ROW, 1, 0};
}

static void multiply_block(
    const struct product *p, float *left, const float *right, size_t k0, size_t K, size_t n0, size_t N, struct hand hand)
{
    struct range rows = cpu_part(p->M, hand.thread, hand.threads);
    for (size_t m0 = rows.from; m0 < rows.to; m0 += BLOCK_M) {
        size_t M = smaller(BLOCK_M, rows.to - m0);
        float *c = p->c + m0 * p->N + n0;
        struct left a = left_block(p, left, m0, M, k0, K, hand);
        cpu.kernels->multiply(c, p->N, a, right, K * cpu.kernels->strip, M, N, K, p->accumulate || k0);
        for (size_t m = 0; m < M && p->round_result && k0 + K == p->K; m++)
            cpu.kernels->rounded(c + m * p->N, c + m * p->N, N, p->format);
    }
}

// One thread's part of a product: left is its own, all threads of the call pack into `right` together.
static void product_part(const struct product *p, float *left, float *right, struct hand hand)
{
    if (!p->K && !p->accumulate && !hand.thread)
        memset(p->c, 0, p->M * p->N * sizeof *p->c);
    for (size_t n0 = 0; n0 < p->N; n0 += BLOCK_N)
        for (size_t k0 = 0; k0 < p->K; k0 += BLOCK_K) {
            size_t N = smaller(BLOCK_N, p->N - n0), K = smaller(BLOCK_K, p->K - k0);
            pack_block(p, right, k0, K, n0, N, hand);
            cpu_barrier(hand.threads);
            multiply_block(p, left, right, k0, K, n0, N, hand);
            cpu_barrier(hand.threads);
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
    product_part(shared->product, left_scratch(thread), shared->right, (struct hand){thread, threads, thread});
}

void cpu_product_alone(const struct product *product, int thread)
{
    product_part(product, left_scratch(thread), right_scratch(thread), (struct hand){0, 1, thread});
}

void cpu_product(const struct product *product)
{
    struct shared_product shared = {product, right_scratch(0)};
    cpu_run(run_shared, &shared, product->M * product->N * product->K / 16);
}
