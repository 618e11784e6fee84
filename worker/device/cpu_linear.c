// The products of linear layers, plain, of groups of rows, and the router's, as products of matrices.
#include "worker/device/cpu.h"

enum linear { LINEAR_FORWARD, LINEAR_DINPUT, LINEAR_DWEIGHT };

// One of the three products of a linear layer over T rows with a weight [N,K]. forward: left = x, right = W; dinput: dout, W; dweight:
// dout, x.
static struct product product_of(enum linear kind, float *out, const float *left, const void *right, size_t T, size_t N, size_t K)
{
    struct product product = {.c = out, .a = left, .b = right, .a_column = 1, .b_column = 1, .format = cpu.format};
    product.b_is_narrow = product.round_result = cpu.format != FORMAT_FP32;
    switch (kind) {
    case LINEAR_FORWARD:
        product.a_row = product.b_column = product.K = K;
        product.b_row = 1;
        product.M = T;
        product.N = N;
        break;
    case LINEAR_DINPUT:
        product.a_row = product.K = N;
        product.b_row = product.N = K;
        product.M = T;
        break;
    case LINEAR_DWEIGHT:
        product.a_row = 1;
        product.a_column = product.M = N;
        product.b_row = product.N = K;
        product.K = T;
        product.accumulate = true;
        product.b_is_narrow = product.round_result = false;
        break;
    }
    return product;
}

static void run_linear(enum linear kind, void *out, const void *left, const void *right, size_t T, size_t N, size_t K)
{
    struct product product = product_of(kind, out, left, right, T, N, K);
    cpu_product(&product);
}

void cpu_linear_forward(void *out, const void *x, const void *weight, size_t T, size_t N, size_t K)
{
    run_linear(LINEAR_FORWARD, out, x, weight, T, N, K);
}

void cpu_linear_dinput(void *dx, const void *dout, const void *weight, size_t T, size_t N, size_t K)
{
    run_linear(LINEAR_DINPUT, dx, dout, weight, T, N, K);
}

void cpu_linear_dweight(void *dweight, const void *dout, const void *x, size_t T, size_t N, size_t K)
{
    run_linear(LINEAR_DWEIGHT, dweight, dout, x, T, N, K);
}

// The router's weight is reals, and so are its results.
static void run_router(
    enum linear kind, void *out, const void *left, const void *right, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    struct product product = product_of(kind, out, left, right, T, E, C);
    product.format = arithmetic == ARITHMETIC_BF16 ? FORMAT_BF16 : FORMAT_FP32;
    product.b_is_narrow = product.round_result = false;
    cpu_product(&product);
}

void cpu_router_linear_forward(
    void *logits, const void *x, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    if (arithmetic == ARITHMETIC_FP64)
        cpu_double_forward(logits, x, weight, T, E, C);
    else
        run_router(LINEAR_FORWARD, logits, x, weight, T, E, C, arithmetic);
}

void cpu_router_linear_dinput(
    void *dx, const void *dlogits, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    if (arithmetic == ARITHMETIC_FP64)
        cpu_double_dinput(dx, dlogits, weight, T, E, C);
    else
        run_router(LINEAR_DINPUT, dx, dlogits, weight, T, E, C, arithmetic);
}

void cpu_router_linear_dweight(
    void *dweight, const void *dlogits, const void *x, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    if (arithmetic == ARITHMETIC_FP64)
        cpu_double_dweight(dweight, dlogits, x, T, E, C);
    else
        run_router(LINEAR_DWEIGHT, dweight, dlogits, x, T, E, C, arithmetic);
}

struct grouped {
    enum linear kind;
    float *out;
    const float *left;
    const void *right; // forward: rows, weights; dinput: drows, weights; dweight: drows, rows
    const int64_t *counts;
    size_t groups, N, K;
};

static struct product group_product(const struct grouped *g, size_t group, size_t row)
{
    size_t N = g->N, K = g->K, count = (size_t)g->counts[group], matrix = group * N * K;
    const void *weight = (const char *)g->right + matrix * (cpu.format == FORMAT_FP32 ? sizeof(float) : sizeof(uint16_t));
    switch (g->kind) {
    case LINEAR_FORWARD:
        return product_of(g->kind, g->out + row * N, g->left + row * K, weight, count, N, K);
    case LINEAR_DINPUT:
        return product_of(g->kind, g->out + row * K, g->left + row * N, weight, count, N, K);
    default:
        return product_of(g->kind, g->out + matrix, g->left + row * N, (const float *)g->right + row * K, count, N, K);
    }
}

// Of a group's product, what its rows from … to stand for: those rows, or of the gradient of its weight as large a part.
static struct product part_of_group(const struct grouped *g, size_t group, size_t row, size_t from, size_t to)
{
    struct product product = group_product(g, group, row);
    size_t count = (size_t)g->counts[group], first = product.M * from / count;
    product.M = product.M * to / count - first;
    product.c += first * product.N;
    product.a += first * product.a_row;
    return product;
}

// Where in the groups' rows this thread's part begins: the parts are equal, but a group's first or last few rows stay with the others, for
// whoever takes a part of a group packs its whole weight.
static size_t first_row(const struct grouped *g, size_t total, int thread, int threads)
{
    enum { TOO_FEW = 32 };
    size_t at = total * (size_t)thread / (size_t)threads, row = 0;
    for (size_t i = 0; i < g->groups && thread < threads; i++) {
        size_t next = row + (size_t)g->counts[i];
        if (at < row + TOO_FEW && at >= row)
            return row;
        if (at + TOO_FEW > next && at < next)
            return next;
        row = next;
    }
    return at;
}

static void run_groups(const void *job, int thread, int threads)
{
    const struct grouped *g = job;
    size_t total = 0, row = 0;
    for (size_t i = 0; i < g->groups; i++)
        total += (size_t)g->counts[i];
    size_t from = first_row(g, total, thread, threads), to = first_row(g, total, thread + 1, threads);
    for (size_t i = 0; i < g->groups; row += (size_t)g->counts[i++]) {
        size_t count = (size_t)g->counts[i], begin = from > row ? from - row : 0, end = to > row ? to - row : 0;
        end = end < count ? end : count;
        if (begin >= end)
            continue;
        struct product product = part_of_group(g, i, row, begin, end);
        cpu_product_alone(&product, thread);
    }
}

// Each thread takes equal parts of the rows, and of at most two groups only a part. Few rows: all threads in each group, since a weight
// that everybody packs costs too much. The bits are the same.
static void run_grouped(const struct grouped *g)
{
    enum { ROWS_WORTH_PACKING = 256 };
    size_t total = 0;
    for (size_t i = 0; i < g->groups; i++)
        total += (size_t)g->counts[i];
    if (cpu.threads == 1 || g->groups >= 4 * (size_t)cpu.threads || total >= ROWS_WORTH_PACKING * (size_t)cpu.threads) {
        cpu_run(run_groups, g, SIZE_MAX);
        return;
    }
    size_t row = 0;
    for (size_t i = 0; i < g->groups; row += (size_t)g->counts[i++]) {
        struct product product = group_product(g, i, row);
        if (g->counts[i])
            cpu_product(&product);
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
