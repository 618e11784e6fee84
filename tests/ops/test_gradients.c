// Every backward against central differences of its forward, in double: for outputs y of inputs x and a fixed weight w of each output,
// the gradient of Σ w·y is what backward computes from dy = w.
#include "schema/base/text.h"
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX = 4096 };

// A forward reads x (all its inputs in one array), and writes y; a backward reads x and dy, and adds to dx (zero before).
struct gradient_case {
    const char *name;
    void (*forward)(const struct device_ops *ops, double *y, double *x, const size_t *d);
    void (*backward)(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d);
    size_t x, y, d[6]; // counts, dims
    double scale;      // of x
};

static int32_t tokens[MAX], choice[MAX];
static double other[MAX], saved[MAX], second[MAX]; // what a forward keeps for its backward

static void linear_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->linear_forward(y, x, x + d[0] * d[2], d[0], d[1], d[2]);
}

static void linear_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    ops->linear_dinput(dx, dy, x + d[0] * d[2], d[0], d[1], d[2]);
    ops->linear_dweight(dx + d[0] * d[2], dy, x, d[0], d[1], d[2]);
}

static const int64_t group_counts[] = {3, 0, 4};

static void grouped_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->grouped_forward(y, x, x + 7 * d[1], group_counts, 3, d[0], d[1]);
}

static void grouped_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    ops->grouped_dinput(dx, dy, x + 7 * d[1], group_counts, 3, d[0], d[1]);
    ops->grouped_dweight(dx + 7 * d[1], dy, x, group_counts, 3, d[0], d[1]);
}

static void bias_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    memcpy(y, x, d[0] * d[1] * sizeof *y);
    ops->bias_add(y, x + d[0] * d[1], d[0], d[1]);
}

static void bias_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    (void)x;
    memcpy(dx, dy, d[0] * d[1] * sizeof *dx);
    ops->bias_gradient(dx + d[0] * d[1], dy, d[0], d[1]);
}

static void grouped_bias_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    memcpy(y, x, 7 * d[1] * sizeof *y);
    ops->grouped_bias_add(y, x + 7 * d[1], group_counts, 3, d[1]);
}

static void grouped_bias_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    (void)x;
    memcpy(dx, dy, 7 * d[1] * sizeof *dx);
    ops->grouped_bias_gradient(dx + 7 * d[1], dy, group_counts, 3, d[1]);
}

// x: rows, biases, scale.
static void weighted_bias_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    memcpy(y, x, 7 * d[0] * sizeof *y);
    ops->weighted_bias_add(y, x + 7 * d[0], x + 10 * d[0], group_counts, 3, d[0]);
}

static void weighted_bias_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    memcpy(dx, dy, 7 * d[0] * sizeof *dx);
    ops->weighted_bias_backward(dx + 7 * d[0], dx + 10 * d[0], dy, x + 7 * d[0], x + 10 * d[0], group_counts, 3, d[0]);
}

static void embedding_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    for (size_t t = 0; t < d[0]; t++)
        tokens[t] = (int32_t)(t * 3 % d[1]);
    ops->embedding_forward(y, x, tokens, d[0], d[2]);
}

static void embedding_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    (void)x;
    ops->embedding_backward(dx, dy, tokens, d[0], d[1], d[2]);
}

static void rmsnorm_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->rmsnorm_forward(y, saved, x, x + d[0] * d[1], d[0], d[1], 1e-2);
}

static void rmsnorm_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    ops->rmsnorm_backward(dx, dx + d[0] * d[1], dy, x, x + d[0] * d[1], saved, d[0], d[1]);
}

static void layernorm_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    size_t weight = d[0] * d[1], bias = weight + d[1];
    ops->layernorm_forward(y, saved, second, x, x + weight, x + bias, d[0], d[1], 1e-2);
}

static void layernorm_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    size_t weight = d[0] * d[1], bias = weight + d[1];
    layernorm_forward(ops, other, x, d); // of this x: the last one may have been another
    ops->layernorm_backward(dx, dx + weight, dx + bias, dy, x, x + weight, saved, second, d[0], d[1]);
}
static const double frequencies[] = {1, 0.1};
static const int32_t positions[] = {0, 1, 2, 0, 7, 1};

static void rope_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    memcpy(y, x, d[0] * d[1] * sizeof *y);
    ops->rope(y, positions, frequencies, d[0], d[1], d[2], d[3], d[4], 1);
}

static void rope_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    (void)x;
    memcpy(dx, dy, d[0] * d[1] * sizeof *dx);
    ops->rope(dx, positions, frequencies, d[0], d[1], d[2], d[3], d[4], -1);
}

// x: rows, then the weight. d: T, stride, first, groups, width.
static void piece_norm_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    memcpy(y, x, d[0] * d[1] * sizeof *y);
    ops->piece_norm_forward(y, other, saved, x + d[0] * d[1], d[0], d[1], d[2], d[3], d[4], 1e-2);
}

static void piece_norm_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    memcpy(dx, dy, d[0] * d[1] * sizeof *dx);
    ops->piece_norm_backward(dx, dx + d[0] * d[1], other, x + d[0] * d[1], saved, d[0], d[1], d[2], d[3], d[4]);
}

static void dropout_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->dropout(y, x, &(struct dropout){0.4, 5, 77, dropout_site(DROPOUT_EMBEDDING, 0)}, d[0], d[1]);
}

static void dropout_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    (void)x;
    ops->dropout(dx, dy, &(struct dropout){0.4, 5, 77, dropout_site(DROPOUT_EMBEDDING, 0)}, d[0], d[1]);
}

// d: B, S, H, G, D, and what is seen: 0 all, 1 a window of 3, 2 documents, 3 both, with dropout from 4 on.
static struct attention_options options_of(const size_t *d)
{
    static const int32_t first[] = {0, 0, 2, 3, 3, 0, 1, 2, 2, 2};
    return (struct attention_options){d[0], d[1], d[2], d[3], d[4], d[5] & 1 ? 3 : 0, d[5] & 2 ? first : NULL,
        {d[5] & 4 ? 0.4 : 0, 5, 77, dropout_site(DROPOUT_SCORES, 0)}};
}

static void attention_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    struct attention_options options = options_of(d);
    ops->attention_forward(y, saved, x, &options);
}

static void attention_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    struct attention_options options = options_of(d);
    ops->attention_forward(other, saved, x, &options);
    ops->attention_backward(dx, dy, x, other, saved, &options);
}

// x: gate_up, then scale if d[2].
static void swiglu_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->swiglu_forward(y, x, d[2] ? x + d[0] * 2 * d[1] : NULL, d[0], d[1]);
}

static void swiglu_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    size_t inputs = d[0] * 2 * d[1];
    ops->swiglu_backward(dx, d[2] ? dx + inputs : NULL, dy, x, d[2] ? x + inputs : NULL, d[0], d[1]);
}

// x: then scale if d[2].
static void gelu_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->gelu_forward(y, x, d[2] ? x + d[0] * d[1] : NULL, d[0], d[1]);
}

static void gelu_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    size_t inputs = d[0] * d[1];
    ops->gelu_backward(dx, d[2] ? dx + inputs : NULL, dy, x, d[2] ? x + inputs : NULL, d[0], d[1]);
}

static void sigmoid_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->sigmoid_forward(y, x, d[0]);
}

static void sigmoid_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    ops->sigmoid_forward(other, x, d[0]);
    ops->sigmoid_backward(dx, dy, other, d[0]);
}

static void mix_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->mix_forward(y, y + d[0], x, d[0]);
}

static void mix_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    mix_forward(ops, other, x, d);
    ops->mix_backward(dx, dy, dy + d[0], other, other + d[0], d[0]);
}

static void scale_rows_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    ops->scale_rows(y, x, x + d[0] * d[1], d[0], d[1]);
}

static void scale_rows_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    ops->scale_rows_backward(dx, dx + d[0] * d[1], dy, x, x + d[0] * d[1], d[0], d[1]);
}

// The loss is one number, so dy may be anything but must be the same for all rows: factor.
static void cross_entropy_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    memcpy(other, x, d[0] * d[1] * sizeof *x);
    for (size_t t = 0; t < d[0]; t++)
        tokens[t] = t % 3 == 2 ? -1 : (int32_t)(t * 5 % d[1]);
    ops->cross_entropy(saved, other, tokens, d[0], d[1], 1);
    *y = ops->sum(saved, d[0]);
}

static void cross_entropy_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    memcpy(dx, x, d[0] * d[1] * sizeof *x);
    ops->cross_entropy(saved, dx, tokens, d[0], d[1], *dy);
}

// y: probs (T,K) and, last, the balance loss. d: T, E, K, pre_softmax.
// d: sequences, positions, experts, top-k, score function, normalised. y: weights of the chosen, of which some are dropped; masses of each
// sequence; the sum of squares of logsumexp.
static struct weighing weighing_of(const size_t *d)
{
    return (struct weighing){(enum score_function)d[4], d[5], 2.5};
}

static void router_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    size_t T = d[0] * d[1], E = d[2], K = d[3];
    struct weighing weighing = weighing_of(d);
    ops->router_choose(choice, x, T, E, K, 0, 0);
    for (size_t slot = 4; slot < T * K; slot += 5)
        choice[slot] = -1;
    ops->router_weights(y, choice, x, T, E, K, &weighing);
    ops->router_masses(y + T * K, x, d[0], d[1], E, weighing.function);
    y[T * K + d[0] * E] = ops->router_z(x, T, E);
}

static void router_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    size_t T = d[0] * d[1], E = d[2], K = d[3];
    struct weighing weighing = weighing_of(d);
    router_forward(ops, other, x, d);
    ops->router_backward(dx, dy, choice, x, dy + T * K, dy[T * K + d[0] * E], d[0], d[1], E, K, &weighing);
}

// combine's adjoint is gather: y = Σ_j rows[row_of[t,j]], each row used once.
static void combine_forward(const struct device_ops *ops, double *y, double *x, const size_t *d)
{
    for (size_t i = 0; i < d[0] * d[1]; i++)
        tokens[i] = (int32_t)(i * 5 % (d[0] * d[1]));
    ops->combine_rows(y, x, tokens, NULL, d[0], d[1], d[2]);
}

static void combine_backward(const struct device_ops *ops, double *dx, const double *dy, double *x, const size_t *d)
{
    (void)x;
    for (size_t i = 0; i < d[0] * d[1]; i++)
        choice[tokens[i]] = (int32_t)(i / d[1]);
    ops->gather_rows(dx, dy, choice, d[0] * d[1], d[2]);
}

static const struct gradient_case cases[] = {
    {"linear", linear_forward, linear_backward, 5 * 4 + 3 * 4, 5 * 3, {5, 3, 4}, 1},
    {"grouped", grouped_forward, grouped_backward, 7 * 5 + 3 * 2 * 5, 7 * 2, {2, 5}, 1},
    {"bias", bias_forward, bias_backward, 5 * 3 + 3, 5 * 3, {5, 3}, 1},
    {"grouped bias", grouped_bias_forward, grouped_bias_backward, 7 * 3 + 3 * 3, 7 * 3, {7, 3}, 1},
    {"weighted_bias", weighted_bias_forward, weighted_bias_backward, 10 * 5 + 7, 7 * 5, {5}, 1},
    {"embedding", embedding_forward, embedding_backward, 5 * 3, 7 * 3, {7, 5, 3}, 1},
    {"rmsnorm", rmsnorm_forward, rmsnorm_backward, 4 * 6 + 6, 4 * 6, {4, 6}, 1},
    {"layernorm", layernorm_forward, layernorm_backward, 4 * 6 + 2 * 6, 4 * 6, {4, 6}, 1},
    {"layernorm, one column", layernorm_forward, layernorm_backward, 3 + 2, 3, {3, 1}, 1},
    {"rope", rope_forward, rope_backward, 6 * 14, 6 * 14, {6, 14, 1, 2, 4}, 1},
    {"piece_norm", piece_norm_forward, piece_norm_backward, 4 * 14 + 3, 4 * 14, {4, 14, 2, 3, 3}, 1},
    {"piece_norm, one piece", piece_norm_forward, piece_norm_backward, 4 * 9 + 8, 4 * 9, {4, 9, 1, 1, 8}, 1},
    {"dropout", dropout_forward, dropout_backward, 5 * 30, 5 * 30, {5, 30}, 1},
    {"attention", attention_forward, attention_backward, 2 * 5 * 8 * 4, 2 * 5 * 4 * 4, {2, 5, 4, 2, 4}, 1},
    {"attention, window", attention_forward, attention_backward, 2 * 5 * 8 * 4, 2 * 5 * 4 * 4, {2, 5, 4, 2, 4, 1}, 1},
    {"attention, documents", attention_forward, attention_backward, 2 * 5 * 8 * 4, 2 * 5 * 4 * 4, {2, 5, 4, 2, 4, 2}, 1},
    {"attention, dropout", attention_forward, attention_backward, 2 * 5 * 8 * 4, 2 * 5 * 4 * 4, {2, 5, 4, 2, 4, 4}, 1},
    {"attention, all of it", attention_forward, attention_backward, 2 * 5 * 8 * 4, 2 * 5 * 4 * 4, {2, 5, 4, 2, 4, 7}, 1},
    {"attention, one head", attention_forward, attention_backward, 7 * 3 * 2, 7 * 2, {1, 7, 1, 1, 2}, 2},
    {"swiglu", swiglu_forward, swiglu_backward, 3 * 2 * 4, 3 * 4, {3, 4, 0}, 2},
    {"swiglu, scaled", swiglu_forward, swiglu_backward, 3 * 2 * 4 + 3, 3 * 4, {3, 4, 1}, 2},
    {"gelu", gelu_forward, gelu_backward, 3 * 4, 3 * 4, {3, 4, 0}, 2},
    {"gelu, scaled", gelu_forward, gelu_backward, 3 * 4 + 3, 3 * 4, {3, 4, 1}, 2},
    {"sigmoid", sigmoid_forward, sigmoid_backward, 9, 9, {9}, 2},
    {"mix", mix_forward, mix_backward, 2 * 5, 2 * 5, {5}, 2},
    {"scale_rows", scale_rows_forward, scale_rows_backward, 4 * 3 + 4, 4 * 3, {4, 3}, 1},
    {"cross_entropy", cross_entropy_forward, cross_entropy_backward, 7 * 5, 1, {7, 5}, 2},
    {"router, softmax", router_forward, router_backward, 9 * 6, 9 * 2 + 3 * 6 + 1, {3, 3, 6, 2, SCORES_SOFTMAX, 0}, 2},
    {"router, softmax, normalised", router_forward, router_backward, 9 * 6, 9 * 2 + 3 * 6 + 1, {3, 3, 6, 2, SCORES_SOFTMAX, 1}, 2},
    {"router, sigmoid", router_forward, router_backward, 9 * 6, 9 * 2 + 3 * 6 + 1, {3, 3, 6, 2, SCORES_SIGMOID, 0}, 2},
    {"router, sigmoid, normalised", router_forward, router_backward, 9 * 6, 9 * 2 + 3 * 6 + 1, {3, 3, 6, 2, SCORES_SIGMOID, 1}, 2},
    {"router, sqrtsoftplus", router_forward, router_backward, 9 * 6, 9 * 2 + 3 * 6 + 1, {3, 3, 6, 2, SCORES_SQRTSOFTPLUS, 0}, 2},
    {"router, sqrtsoftplus, normalised", router_forward, router_backward, 9 * 6, 9 * 2 + 3 * 6 + 1, {3, 3, 6, 2, SCORES_SQRTSOFTPLUS, 1}, 2},
    {"router, all chosen", router_forward, router_backward, 4 * 3, 4 * 3 + 3 + 1, {1, 4, 3, 3, SCORES_SOFTMAX, 1}, 1},
    {"combine_rows", combine_forward, combine_backward, 6 * 2 * 3, 6 * 3, {6, 2, 3}, 1},
};

static void check_gradient(const struct gradient_case *c)
{
    const struct device_ops *ops = device_reference_f64()->ops;
    double *x = allocate(c->x, sizeof *x), *dx = allocate(c->x, sizeof *dx), *y = allocate(c->y, sizeof *y),
           *dy = allocate(c->y, sizeof *dy);
    for (size_t i = 0; i < c->x; i++)
        x[i] = normal() * c->scale;
    for (size_t i = 0; i < c->y; i++)
        dy[i] = normal();
    c->forward(ops, y, x, c->d);
    c->backward(ops, dx, dy, x, c->d);
    for (size_t i = 0; i < c->x; i++) {
        double kept = x[i], step = 1e-5, sums[2];
        for (int side = 0; side < 2; side++) {
            x[i] = side ? kept + step : kept - step;
            c->forward(ops, y, x, c->d);
            sums[side] = 0;
            for (size_t k = 0; k < c->y; k++)
                sums[side] += dy[k] * y[k];
        }
        x[i] = kept;
        double numeric = (sums[1] - sums[0]) / (2 * step), error = fabs(dx[i] - numeric);
        if (!(error <= 1e-7 * (1 + fabs(numeric))))
            fail_msg("gradient of %s at %zu: %.10g, by differences %.10g", c->name, i, dx[i], numeric);
    }
    free(x);
    free(dx);
    free(y);
    free(dy);
}

static void test_gradients(void **test)
{
    (void)test;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_gradient(&cases[c]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
