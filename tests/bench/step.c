// The operations of one micro batch of the demo model, dense or with experts, forward and backward, on the cpu device: milliseconds of each
// kind and tokens a second. No model, no data: only what the device contributes. Usage: bench_step dense|moe [threads]
#include "tests/bench/seconds.h"
#include "worker/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    B = 8,
    S = 256,
    T = B * S,
    LAYERS = 4,
    C = 128,
    H = 4,
    G = 2,
    D = 32,
    F = 512,
    V = 257,
    E = 16,
    K = 4,
    WIDTH = 128,
    QKV = (H + 2 * G) * D,
    R = T * K,
    PARAMS_DENSE = 4 * (C * QKV + C * C + 3 * C * F + 2 * C) + 2 * V * C,
    LARGEST = 4 << 20, // reals of any array here
    PARAMS_MOE = 4 * (C * QKV + C * C + E * 3 * C * WIDTH + E * C + 2 * C) + 2 * V * C,
};

enum part { PRODUCTS, GROUPED, ATTENTION, NORMS, ROPE, SWIGLU, ADDS, ROUTER, ROWS, LOSS, OPTIMIZER, PARTS };
static const char *const part_names[] = {"products", "grouped products", "attention", "norms", "rope", "swiglu", "adds", "router, plan",
    "gather, combine", "loss, embedding", "optimizer, norm"};

static const struct device_ops *ops;
static double spent[PARTS], since;

static void start(void)
{
    since = seconds();
}

static void stop(enum part part)
{
    double now = seconds();
    spent[part] += now - since;
    since = now;
}

static float *x, *normed, *rstd, *qkv, *heads, *lse, *gate_up, *act, *big, *logits, *weights, *gradients, *first, *second, *probs, *scores,
    *rows;
static int32_t *choice, *counts, *row_token, *row_slot, *row_of, *tokens;
static int64_t host_counts[E];

// out(T,N) = in(T,K) · Wᵀ and what backward does with it.
static void linear(size_t N, size_t in, bool backward)
{
    if (!backward)
        ops->linear_forward(big, act, weights, T, N, in);
    else {
        ops->linear_dinput(act, big, weights, T, N, in);
        ops->linear_dweight(gradients, big, act, T, N, in);
    }
    stop(PRODUCTS);
}

static void ffn_dense(bool backward)
{
    linear(2 * F, C, backward);
    if (backward)
        ops->swiglu_backward(big, NULL, act, gate_up, NULL, T, F);
    else
        ops->swiglu_forward(act, gate_up, NULL, T, F);
    stop(SWIGLU);
    linear(C, F, backward);
}

static void grouped(size_t N, size_t in, bool backward)
{
    if (!backward)
        ops->grouped_forward(big, rows, weights, host_counts, E, N, in);
    else {
        ops->grouped_dinput(rows, big, weights, host_counts, E, N, in);
        ops->grouped_dweight(gradients, big, rows, host_counts, E, N, in);
    }
    stop(GROUPED);
}

static void ffn_experts(bool backward)
{
    linear(E, C, backward);
    if (!backward) {
        ops->router_forward(probs, choice, scores, logits, T, E, K, false);
        ops->router_counts(counts, rstd, choice, scores, T, E, K);
        ops->permute_plan(row_token, row_slot, row_of, choice, counts, T, E, K);
        for (size_t e = 0; e < E; e++)
            host_counts[e] = counts[e];
    } else
        ops->router_backward(scores, probs, probs, choice, scores, counts, 1e-9, T, E, K, false);
    stop(ROUTER);
    ops->gather_rows(rows, x, row_token, R, C);
    stop(ROWS);
    grouped(2 * WIDTH, C, backward);
    if (backward)
        ops->swiglu_backward(big, rstd, act, gate_up, rstd, R, WIDTH);
    else
        ops->swiglu_forward(act, gate_up, rstd, R, WIDTH);
    stop(SWIGLU);
    grouped(C, WIDTH, backward);
    ops->combine_rows(x, rows, row_of, x, T, K, C);
    stop(ROWS);
}

static void layer(bool moe, bool backward)
{
    for (int i = 0; i < 2; i++)
        if (backward)
            ops->rmsnorm_backward(act, gradients, normed, x, weights, rstd, T, C);
        else
            ops->rmsnorm_forward(normed, rstd, x, weights, T, C, 1e-5);
    stop(NORMS);
    linear(QKV, C, backward);
    ops->rope(qkv, T, QKV, 0, H + G, D, S, 10000, backward ? -1 : 1);
    stop(ROPE);
    if (backward)
        ops->attention_backward(big, heads, qkv, heads, lse, B, S, H, G, D);
    else
        ops->attention_forward(heads, lse, qkv, B, S, H, G, D);
    stop(ATTENTION);
    linear(C, C, backward);
    ops->add(normed, normed, heads, T * C);
    ops->add(normed, normed, heads, T * C);
    stop(ADDS);
    if (moe)
        ffn_experts(backward);
    else
        ffn_dense(backward);
}

static void step(bool moe)
{
    size_t params = moe ? PARAMS_MOE : PARAMS_DENSE;
    start();
    ops->embedding_forward(act, weights, tokens, T, C);
    stop(LOSS);
    for (int l = 0; l < LAYERS; l++)
        layer(moe, false);
    linear(V, C, false);
    memcpy(big, logits, T * V * sizeof *big);
    start();
    ops->cross_entropy(rstd, big, tokens, T, V, 1.0 / T);
    stop(LOSS);
    linear(V, C, true);
    for (int l = 0; l < LAYERS; l++)
        layer(moe, true);
    ops->embedding_backward(gradients, act, tokens, T, V, C);
    stop(LOSS);
    ops->sum_of_squares(gradients, params);
    ops->count_zeros(gradients, params);
    ops->adamw(weights, first, second, gradients, params, 1, 1e-9, 0.9, 0.95, 1e-8, 0.1, 1);
    stop(OPTIMIZER);
    memset(gradients, 0, params * sizeof *gradients);
}

static float *reals(const struct device *device, size_t count)
{
    float *at = device->memory->alloc(count * sizeof *at);
    for (size_t i = 0; i < count; i++)
        at[i] = (float)((i * 7919) % 1013) / 1013 - 0.5f;
    return at;
}

static void allocate_all(const struct device *device)
{
    float **const arrays[] = {&x, &normed, &rstd, &qkv, &heads, &lse, &gate_up, &act, &big, &logits, &weights, &gradients, &first, &second,
        &probs, &scores, &rows};
    int32_t **const integers[] = {&choice, &counts, &row_token, &row_slot, &row_of, &tokens};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = reals(device, LARGEST);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        *integers[i] = device->memory->alloc(R * sizeof(int32_t));
    memset(second, 0, LARGEST * sizeof *second);
    for (size_t t = 0; t < T; t++)
        tokens[t] = (int32_t)(t * 31 % V);
}

int main(int argc, char **argv)
{
    bool moe = argc > 1 && !strcmp(argv[1], "moe");
    int threads = argc > 2 ? atoi(argv[2]) : 1, steps = 12;
    const struct device *device = device_cpu(threads < 1 ? 1 : threads);
    seconds_of_cpu = threads <= 1;
    ops = device->ops;
    allocate_all(device);
    double best = 1e30, kept[PARTS] = {0};
    for (int i = 0; i < steps; i++) {
        memset(spent, 0, sizeof spent);
        double begin = seconds();
        step(moe);
        double took = seconds() - begin;
        if (took < best) {
            best = took;
            memcpy(kept, spent, sizeof kept);
        }
    }
    printf("%s, %s, %d threads: %.1f ms a micro batch of %d tokens, %.0f tokens/s\n", moe ? "moe" : "dense", device->isa, threads,
        best * 1e3, T, T / best);
    for (size_t p = 0; p < PARTS; p++)
        printf("%-18s %7.2f ms %5.1f %%\n", part_names[p], kept[p] * 1e3, 100 * kept[p] / best);
    return 0;
}
