#include "tests/bench/timed.h"
#include "tests/bench/seconds.h"

#include "schema/base/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part { PRODUCTS, EXPERTS, ATTENTION, NORMS, ROPE, SWIGLU, ADDS, ROUTER, ROWS, EMBEDDING, LOSS, OPTIMIZER, NORM, MEMORY, PARTS };
static const char *const part_names[] = {"products", "expert products", "attention", "norms", "rope", "swiglu", "adds", "router", "move rows",
    "embedding", "cross-entropy", "adamw", "gradient norm", "zero, copy"};

static const struct device *inner;
static double spent[PARTS];

// TIMED(operation, part, (parameters), (arguments)): the operation, timed.
#define TIMED(operation, part, parameters, arguments) TIMED_IN(ops, operation, part, parameters, arguments)
#define TIMED_IN(table, operation, part, parameters, arguments)                                                                            \
    static void timed_##operation parameters                                                                                               \
    {                                                                                                                                      \
        double began = seconds();                                                                                                          \
        inner->table->operation arguments;                                                                                                 \
        spent[part] += seconds() - began;                                                                                                  \
    }

// ---- products: noted by shape ----

enum product_kind { FORWARD, DINPUT, DWEIGHT, KINDS };

struct noted {
    enum product_kind kind;
    size_t M, N, K, times;  // M rows, a weight of [N,K]
    size_t groups;          // 0: a linear layer's; else of grouped rows, counts[groups]
    int64_t *counts;
};

enum { NOTED_MAX = 4096 };
static struct noted noted[NOTED_MAX];
static size_t noted_count;

static void note(enum product_kind kind, const int64_t *counts, size_t groups, size_t M, size_t N, size_t K)
{
    for (size_t i = 0; i < noted_count; i++) {
        struct noted *n = &noted[i];
        if (n->kind == kind && n->M == M && n->N == N && n->K == K && n->groups == groups) {
            n->times++;
            return;
        }
    }
    assert(noted_count < NOTED_MAX);
    struct noted *added = &noted[noted_count++];
    *added = (struct noted){.kind = kind, .M = M, .N = N, .K = K, .times = 1, .groups = groups};
    if (groups)
        added->counts = memcpy(allocate(groups, sizeof *counts), counts, groups * sizeof *counts);
}

static size_t rows_of(const int64_t *counts, size_t groups)
{
    size_t rows = 0;
    for (size_t g = 0; g < groups; g++)
        rows += (size_t)counts[g];
    return rows;
}

#define TIMED_LINEAR(operation, kind)                                                                                                      \
    static void timed_linear_##operation(void *out, const void *a, const void *b, size_t T, size_t N, size_t K)                            \
    {                                                                                                                                      \
        note(kind, NULL, 0, T, N, K);                                                                                                      \
        double began = seconds();                                                                                                          \
        inner->ops->linear_##operation(out, a, b, T, N, K);                                                                                \
        spent[PRODUCTS] += seconds() - began;                                                                                              \
    }                                                                                                                                      \
    static void timed_grouped_##operation(                                                                                                 \
        void *out, const void *a, const void *b, const int64_t *counts, size_t groups, size_t N, size_t K)                                 \
    {                                                                                                                                      \
        note(kind, counts, groups, rows_of(counts, groups), N, K);                                                                         \
        double began = seconds();                                                                                                          \
        inner->ops->grouped_##operation(out, a, b, counts, groups, N, K);                                                                  \
        spent[EXPERTS] += seconds() - began;                                                                                               \
    }
TIMED_LINEAR(forward, FORWARD)
TIMED_LINEAR(dinput, DINPUT)
TIMED_LINEAR(dweight, DWEIGHT)

// ---- everything else ----

TIMED(embedding_forward, EMBEDDING, (void *out, const void *weight, const int32_t *tokens, size_t T, size_t C), (out, weight, tokens, T, C))
TIMED(embedding_backward, EMBEDDING, (void *dweight, const void *dout, const int32_t *tokens, size_t T, size_t V, size_t C),
    (dweight, dout, tokens, T, V, C))
TIMED(rmsnorm_forward, NORMS, (void *out, void *rstd, const void *x, const void *weight, size_t T, size_t C, double eps),
    (out, rstd, x, weight, T, C, eps))
TIMED(rmsnorm_backward, NORMS,
    (void *dx, void *dweight, const void *dout, const void *x, const void *weight, const void *rstd, size_t T, size_t C),
    (dx, dweight, dout, x, weight, rstd, T, C))
TIMED(rope, ROPE,
    (void *x, const int32_t *positions, const double *frequencies, size_t T, size_t stride, size_t first, size_t heads, size_t D, int direction),
    (x, positions, frequencies, T, stride, first, heads, D, direction))
TIMED(attention_forward, ATTENTION, (void *out, void *lse, const void *qkv, const struct attention_options *options),
    (out, lse, qkv, options))
TIMED(attention_backward, ATTENTION,
    (void *dqkv, const void *dout, const void *qkv, const void *out, const void *lse, const struct attention_options *options),
    (dqkv, dout, qkv, out, lse, options))
TIMED(swiglu_forward, SWIGLU, (void *out, const void *gate_up, const void *scale, size_t T, size_t F), (out, gate_up, scale, T, F))
TIMED(swiglu_backward, SWIGLU,
    (void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale, size_t T, size_t F),
    (dgate_up, dscale, dout, gate_up, scale, T, F))
TIMED(add, ADDS, (void *out, const void *a, const void *b, size_t count), (out, a, b, count))
TIMED(scale, ADDS, (void *x, double factor, size_t count), (x, factor, count))
TIMED(cross_entropy, LOSS, (void *losses, void *logits, const int32_t *targets, size_t T, size_t V, double factor),
    (losses, logits, targets, T, V, factor))
TIMED(router_choose, ROUTER, (int32_t *choice, const void *keys, size_t T, size_t E, size_t K, size_t groups, size_t group_topk),
    (choice, keys, T, E, K, groups, group_topk))
TIMED(router_weights, ROUTER,
    (void *probs, const int32_t *choice, const void *logits, size_t T, size_t E, size_t J, const struct weighing *weighing),
    (probs, choice, logits, T, E, J, weighing))
TIMED(router_counts, ROUTER, (int32_t *counts, const int32_t *choice, size_t B, size_t S, size_t E, size_t J), (counts, choice, B, S, E, J))
TIMED(router_masses, ROUTER, (double *masses, const void *logits, size_t B, size_t S, size_t E, enum score_function function),
    (masses, logits, B, S, E, function))
TIMED(router_backward, ROUTER,
    (void *dlogits, const void *dprobs, const int32_t *choice, const void *logits, const void *pull, double z_pull, size_t B, size_t S,
        size_t E, size_t J, const struct weighing *weighing),
    (dlogits, dprobs, choice, logits, pull, z_pull, B, S, E, J, weighing))
TIMED(permute_plan, ROUTER,
    (int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T, size_t E, size_t J,
        size_t R),
    (row_token, row_slot, row_of, choice, counts, T, E, J, R))
TIMED(gather_rows, ROWS, (void *out, const void *in, const int32_t *index, size_t R, size_t C), (out, in, index, R, C))
TIMED(combine_rows, ROWS,
    (void *out, const void *rows, const int32_t *row_of, const void *residual, size_t T, size_t K, size_t C),
    (out, rows, row_of, residual, T, K, C))
TIMED(round_rows, ROWS, (void *out, const void *in, const int32_t *index, size_t R, size_t C), (out, in, index, R, C))
TIMED(adamw, OPTIMIZER,
    (void *param, void *weights, void *m, void *v, const void *gradient, size_t count, double gradient_factor, double rate, double beta1, double beta2,
        double eps, double decay, int64_t step),
    (param, weights, m, v, gradient, count, gradient_factor, rate, beta1, beta2, eps, decay, step))
TIMED_IN(memory, zero, MEMORY, (void *at, size_t bytes), (at, bytes))
TIMED_IN(memory, copy, MEMORY, (void *to, const void *from, size_t bytes), (to, from, bytes))

static double timed_sum_of_squares(const void *x, size_t count, int64_t *zeros)
{
    double began = seconds(), sum = inner->ops->sum_of_squares(x, count, zeros);
    spent[NORM] += seconds() - began;
    return sum;
}

const struct device *timed_device(const struct device *device)
{
    static struct device_ops ops;
    static struct device_memory memory;
    static struct device timed;
    inner = device;
    ops = *device->ops; // what is not named below is timed as the rest of a step
    ops.linear_forward = timed_linear_forward;
    ops.linear_dinput = timed_linear_dinput;
    ops.linear_dweight = timed_linear_dweight;
    ops.grouped_forward = timed_grouped_forward;
    ops.grouped_dinput = timed_grouped_dinput;
    ops.grouped_dweight = timed_grouped_dweight;
    ops.embedding_forward = timed_embedding_forward;
    ops.embedding_backward = timed_embedding_backward;
    ops.rmsnorm_forward = timed_rmsnorm_forward;
    ops.rmsnorm_backward = timed_rmsnorm_backward;
    ops.rope = timed_rope;
    ops.attention_forward = timed_attention_forward;
    ops.attention_backward = timed_attention_backward;
    ops.swiglu_forward = timed_swiglu_forward;
    ops.swiglu_backward = timed_swiglu_backward;
    ops.add = timed_add;
    ops.scale = timed_scale;
    ops.cross_entropy = timed_cross_entropy;
    ops.router_choose = timed_router_choose;
    ops.router_weights = timed_router_weights;
    ops.router_counts = timed_router_counts;
    ops.router_masses = timed_router_masses;
    ops.router_backward = timed_router_backward;
    ops.permute_plan = timed_permute_plan;
    ops.gather_rows = timed_gather_rows;
    ops.combine_rows = timed_combine_rows;
    ops.round_rows = timed_round_rows;
    ops.adamw = timed_adamw;
    ops.sum_of_squares = timed_sum_of_squares;
    memory = *device->memory;
    memory.zero = timed_zero;
    memory.copy = timed_copy;
    timed = *device;
    timed.ops = &ops;
    timed.memory = &memory;
    return &timed;
}

void timed_reset(void)
{
    for (size_t i = 0; i < noted_count; i++)
        free(noted[i].counts);
    noted_count = 0;
    memset(spent, 0, sizeof spent);
}

void timed_print(int steps)
{
    for (size_t part = 0; part < PARTS; part++)
        if (spent[part] > 0)
            printf("part %.6f %s\n", spent[part] / steps, part_names[part]);
}

// ---- the noted products again, alone ----

static void repeat(const struct noted *n, void *out, const void *a, const void *b)
{
    const struct device_ops *ops = inner->ops;
    void (*const linear[KINDS])(void *, const void *, const void *, size_t, size_t, size_t) = {
        ops->linear_forward, ops->linear_dinput, ops->linear_dweight};
    void (*const grouped[KINDS])(void *, const void *, const void *, const int64_t *, size_t, size_t, size_t) = {
        ops->grouped_forward, ops->grouped_dinput, ops->grouped_dweight};
    if (n->groups)
        grouped[n->kind](out, a, b, n->counts, n->groups, n->N, n->K);
    else
        linear[n->kind](out, a, b, n->M, n->N, n->K);
}

// Reals of the largest operand that any noted product has.
static size_t largest_operand(void)
{
    size_t most = 0;
    for (size_t i = 0; i < noted_count; i++) {
        const struct noted *n = &noted[i];
        size_t matrices[] = {n->M * n->N, n->M * n->K, n->N * n->K * (n->groups ? n->groups : 1)};
        for (size_t m = 0; m < 3; m++)
            most = matrices[m] > most ? matrices[m] : most;
    }
    return most;
}

static void *filled(size_t count, double first)
{
    enum { CHUNK = 4096 };
    double values[CHUNK];
    for (size_t i = 0; i < CHUNK; i++)
        values[i] = first + (double)(i * 7919 % 1013) / 1013;
    char *at = inner->memory->alloc(count * inner->real_bytes);
    for (size_t i = 0; i < count; i += CHUNK)
        inner->ops->from_double(at + i * inner->real_bytes, values, count - i < CHUNK ? count - i : CHUNK);
    return at;
}

// The best of the samples taken in `limit` seconds, at least three: what this product takes when nothing disturbs it.
static double best_seconds(const struct noted *n, void *out, const void *a, const void *b, double limit)
{
    double best = 1e30, end = seconds() + limit;
    repeat(n, out, a, b);
    for (int round = 0; round < 3 || seconds() < end; round++) {
        double began = seconds();
        repeat(n, out, a, b);
        double took = seconds() - began;
        best = took < best ? took : best;
    }
    return best;
}

void timed_products(int steps, double limit)
{
    static const char *const names[KINDS] = {"forward", "dinput", "dweight"};
    size_t most = largest_operand();
    void *out = filled(most, 0), *a = filled(most, -0.5), *b = filled(most, -0.5);
    double work = 0, time = 0;
    for (size_t i = 0; i < noted_count; i++) {
        const struct noted *n = &noted[i];
        double flops = 2.0 * (double)n->M * (double)n->N * (double)n->K, times = (double)n->times / steps;
        double took = best_seconds(n, out, a, b, limit / (double)noted_count);
        printf("product %s%s %zu %zu %zu %.2f %.1f %.6f\n", n->groups ? "grouped_" : "", names[n->kind], n->M, n->N, n->K, times,
            flops / took / 1e9, took);
        work += flops * times;
        time += took * times;
    }
    printf("rate %.1f\n", work / time / 1e9);
    inner->memory->free(out, most * inner->real_bytes);
    inner->memory->free(a, most * inner->real_bytes);
    inner->memory->free(b, most * inner->real_bytes);
}
