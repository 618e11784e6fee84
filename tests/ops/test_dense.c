// Operations of a dense model other than products.
#include "schema/base/text.h"
#include "tests/ops/trial.h"
#include "worker/device/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

static const size_t odd[] = {1, 2, 3, 5, 7, 13, 17, 33, 65};
enum { ODD = sizeof odd / sizeof *odd };

static void run_embedding_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    ops->embedding_forward(r[0], r[1], i[0], t->dims[0], t->dims[2]);
}

static void run_embedding_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    ops->embedding_backward(r[1], r[0], i[0], t->dims[0], t->dims[1], t->dims[2]);
}

static void test_embedding(void **test)
{
    (void)test;
    for (size_t n = 0; n < ODD; n++)
        for (size_t kind = 0; kind < 2; kind++) {
            struct trial trial;
            size_t T = n == 8 ? 600 : odd[n], V = odd[(n * 4 + 1) % ODD], C = odd[(n * 2 + 3) % ODD];
            trial_begin(&trial, kind ? "embedding_backward (T×V×C)" : "embedding_forward (T×V×C)", 3, T, V, C);
            trial_reals(&trial, T * C, 1);
            trial_reals(&trial, V * C, 1);
            int32_t *tokens = trial_ints(&trial, T);
            for (size_t t = 0; t < T; t++)
                tokens[t] = (int32_t)below(V);
            trial_end(&trial, kind ? run_embedding_backward : run_embedding_forward);
        }
}

static void run_bias(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->bias_add(r[0], r[1], t->dims[0], t->dims[1]);
    ops->bias_gradient(r[1], r[2], t->dims[0], t->dims[1]);
}

static void run_grouped_bias(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->grouped_bias_add(r[0], r[1], t->host, 4, t->dims[1]);
    ops->grouped_bias_gradient(r[1], r[2], t->host, 4, t->dims[1]);
}

static void test_bias(void **test)
{
    (void)test;
    for (size_t n = 0; n < 2 * ODD * ODD; n++) {
        struct trial trial;
        size_t T = n % ODD == 8 ? 330 : odd[n % ODD], N = odd[n / ODD % ODD], grouped = n / (ODD * ODD);
        trial_begin(&trial, grouped ? "grouped_bias (T×N)" : "bias (T×N)", 2, T, N);
        trial_reals(&trial, T * N, 1);
        trial_reals(&trial, 4 * N, 1);
        trial_reals(&trial, T * N, 1);
        trial.host = allocate(4, sizeof *trial.host); // one group without rows
        for (size_t t = 0; t < T; t++)
            trial.host[(size_t[]){0, 1, 3}[below(3)]]++;
        trial_end(&trial, grouped ? run_grouped_bias : run_bias);
    }
}

// A group's bits are those of the plain operations on its rows.
static void grouped_is_plain(const struct device *device)
{
    enum { N = 37, ROWS = 130 };
    static const int64_t counts[] = {70, 0, 1, 59};
    struct trial grouped, plain;
    trial_begin(&grouped, "grouped_bias", 2, (size_t)ROWS, (size_t)N);
    trial_reals(&grouped, ROWS * N, 1);
    trial_reals(&grouped, 4 * N, 1);
    trial_reals(&grouped, ROWS * N, 1);
    grouped.host = allocate(4, sizeof *grouped.host);
    double before[3][ROWS * N];
    for (size_t a = 0; a < 3; a++)
        memcpy(before[a], grouped.reals[a], grouped.real_counts[a] * sizeof(double));
    memcpy(grouped.host, counts, sizeof counts);
    trial_on(&grouped, device, run_grouped_bias);
    for (size_t g = 0, row = 0; g < 4; row += (size_t)counts[g++]) {
        size_t rows = (size_t)counts[g];
        trial_begin(&plain, "bias", 2, rows, (size_t)N);
        for (size_t a = 0; a < 3; a++)
            memcpy(trial_reals(&plain, a == 1 ? N : (rows + !rows) * N, 1), before[a] + (a == 1 ? g : row % ROWS) * N, (a == 1 ? 1 : rows) * N * sizeof(double));
        trial_on(&plain, device, run_bias);
        assert_true(same_bits(plain.reals[0], grouped.reals[0] + row * N, rows * N));
        assert_true(same_bits(plain.reals[1], grouped.reals[1] + g * N, N));
        trial_release(&plain);
    }
    trial_release(&grouped);
}

static void test_grouped_bias(void **test)
{
    (void)test;
    grouped_is_plain(device_reference());
    each_cpu(grouped_is_plain);
}

static void run_rmsnorm_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->rmsnorm_forward(r[0], r[1], r[2], r[3], t->dims[0], t->dims[1], 1e-5);
}

static void run_rmsnorm_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->rmsnorm_backward(r[0], r[1], r[2], r[3], r[4], r[5], t->dims[0], t->dims[1]);
}

static void test_rmsnorm(void **test)
{
    (void)test;
    for (size_t n = 0; n < ODD * ODD; n++) {
        struct trial trial;
        size_t T = n % ODD == 8 ? 330 : odd[n % ODD], C = odd[n / ODD];
        trial_begin(&trial, "rmsnorm_forward (T×C)", 2, T, C);
        trial_reals(&trial, T * C, 0);
        trial_reals(&trial, T, 0);
        trial_reals(&trial, T * C, n % 3 ? 1 : 1e-3);
        trial_reals(&trial, C, 1);
        trial_end(&trial, run_rmsnorm_forward);
        trial_begin(&trial, "rmsnorm_backward (T×C)", 2, T, C);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, C, 1);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, C, 1);
        double *rstd = trial_reals(&trial, T, 1);
        for (size_t t = 0; t < T; t++)
            rstd[t] = (float)(0.5 + fabs(rstd[t]));
        trial_end(&trial, run_rmsnorm_backward);
    }
}

static double frequencies[64];

static void run_rope(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    const size_t *d = t->dims; // T, stride, first, heads, D, positions, direction
    for (size_t k = 0; k < d[4] / 2; k++)
        frequencies[k] = pow(10000, -2.0 * (double)k / (double)d[4]);
    ops->rope(r[0], i[0], frequencies, d[0], d[1], d[2], d[3], d[4], d[6] ? 1 : -1);
}

static void test_rope(void **test)
{
    static const size_t shapes[][6] = {
        {1, 2, 0, 1, 2, 1}, {7, 30, 1, 2, 6, 7}, {26, 200, 2, 3, 34, 13}, {300, 96, 0, 3, 32, 100}, {5, 66, 0, 1, 66, 5}, {40, 8, 0, 2, 4, 5000}};
    (void)test;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t direction = 0; direction < 2; direction++) {
            struct trial trial;
            const size_t *d = shapes[s];
            trial_begin(&trial, "rope (T×stride×first×heads×D×positions×forward)", 7, d[0], d[1], d[2], d[3], d[4], d[5], direction);
            trial_reals(&trial, d[0] * d[1], 1);
            int32_t *positions = trial_ints(&trial, d[0]);
            for (size_t t = 0; t < d[0]; t++)
                positions[t] = (int32_t)(s % 2 ? t % d[5] : below(d[5]));
            trial_end(&trial, run_rope);
        }
}

static void run_piece_norm(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    const size_t *d = t->dims; // T, stride, first, groups, width
    (void)i;
    ops->piece_norm_forward(r[0], r[1], r[2], r[3], d[0], d[1], d[2], d[3], d[4], 1e-5);
    ops->piece_norm_backward(r[4], r[5], r[1], r[3], r[2], d[0], d[1], d[2], d[3], d[4]);
}

static void test_piece_norm(void **test)
{
    static const size_t shapes[][5] = {{1, 1, 0, 1, 1}, {1, 9, 2, 2, 3}, {7, 40, 5, 3, 7}, {65, 33, 0, 1, 33}, {130, 96, 32, 2, 16}, {200, 24, 4, 5, 4}};
    (void)test;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct trial trial;
        const size_t *d = shapes[s];
        trial_begin(&trial, "piece_norm (T×stride×first×groups×width)", 5, d[0], d[1], d[2], d[3], d[4]);
        trial_reals(&trial, d[0] * d[1], 1);
        trial_reals(&trial, d[0] * d[3] * d[4], 1);
        trial_reals(&trial, d[0] * d[3], 1);
        trial_reals(&trial, d[4], 1);
        trial_reals(&trial, d[0] * d[1], 1);
        trial_reals(&trial, d[4], 1);
        trial.terms[4] = 1; // a piece of one value has no gradient
        trial_end(&trial, run_piece_norm);
    }
}

// dims: T, C, per mille
static void run_dropout(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    struct dropout dropout = {(double)t->dims[2] / 1000, 0x123456789abcdef0u, 0xfffffffau, dropout_site(DROPOUT_MLP, 3)};
    (void)i;
    ops->dropout(r[0], r[1], &dropout, t->dims[0], t->dims[1]);
    ops->dropout(r[1], r[1], &dropout, t->dims[0], t->dims[1]);
}

static void test_dropout(void **test)
{
    (void)test;
    for (size_t n = 0; n < ODD * 4; n++) {
        struct trial trial;
        size_t T = odd[n % ODD], C = n % 3 ? odd[(n * 5 + 3) % ODD] : 1500 + n, per_mille = (size_t[]){0, 1, 500, 900}[n / ODD];
        trial_begin(&trial, "dropout (T×C×per mille)", 3, T, C, per_mille);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, T * C, 1);
        trial_end(&trial, run_dropout);
    }
}

// A row's factors do not depend on the rows around it, the share that is dropped is what was asked, and kept values make up for it.
static void test_dropout_is_of_its_place(void **test)
{
    enum { T = 40, C = 1000 };
    (void)test;
    for (size_t p = 0; p < 3; p++) {
        struct dropout whole = {(double[]){0.1, 0.5, 0.9}[p], 7, 0xffffffffffu, dropout_site(DROPOUT_ATTENTION, 1)};
        static double ones[T * C], out[T * C], row[C];
        double sum = 0;
        for (size_t i = 0; i < T * C; i++)
            ones[i] = 1;
        device_reference_f64()->ops->dropout(out, ones, &whole, T, C);
        size_t dropped = 0;
        for (size_t i = 0; i < T * C; i++) {
            assert_true(out[i] == 0 || out[i] == 1 / (1 - whole.probability));
            dropped += out[i] == 0;
            sum += out[i];
        }
        double deviation = sqrt(T * C * whole.probability * (1 - whole.probability));
        assert_true(fabs((double)dropped - T * C * whole.probability) < 4 * deviation);
        assert_true(fabs(sum - T * C) < 4 * deviation / (1 - whole.probability));
        for (size_t t = 0; t < T; t++) {
            struct dropout one = whole;
            one.token += t;
            device_reference_f64()->ops->dropout(row, ones, &one, 1, C);
            assert_memory_equal(row, out + t * C, sizeof row);
            one.site++;
            device_reference_f64()->ops->dropout(row, ones, &one, 1, C);
            assert_memory_not_equal(row, out + t * C, sizeof row);
        }
    }
}

static void run_swiglu_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->swiglu_forward(r[0], r[1], t->dims[2] ? r[2] : NULL, t->dims[0], t->dims[1]);
}

static void run_swiglu_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->swiglu_backward(r[3], t->dims[2] ? r[4] : NULL, r[0], r[1], t->dims[2] ? r[2] : NULL, t->dims[0], t->dims[1]);
}

static void test_swiglu(void **test)
{
    static const double scales[] = {1, 80, 1e4}; // of the gate
    (void)test;
    for (size_t n = 0; n < 2 * 3 * ODD; n++) {
        struct trial trial;
        size_t T = odd[n % ODD], F = odd[(n * 7 + 2) % ODD] * (n % ODD == 4 ? 40 : 1), scaled = n & 1;
        trial_begin(&trial, "swiglu (T×F×scaled)", 3, T, F, scaled);
        trial_reals(&trial, T * F, 1);
        trial_reals(&trial, T * 2 * F, scales[n % 3]);
        trial_reals(&trial, T, 1);
        trial_end(&trial, run_swiglu_forward);
        trial_begin(&trial, "swiglu_backward (T×F×scaled)", 3, T, F, scaled);
        trial_reals(&trial, T * F, 1);
        trial_reals(&trial, T * 2 * F, scales[n % 3]);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, T * 2 * F, 1);
        trial_reals(&trial, T, 1);
        trial_end(&trial, run_swiglu_backward);
    }
}

static void run_cross_entropy(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    ops->cross_entropy(r[0], r[1], i[0], t->dims[0], t->dims[1], 0.25);
}

static void test_cross_entropy(void **test)
{
    static const double scales[] = {1, 80, 1e4};
    (void)test;
    for (size_t n = 0; n < 3 * ODD; n++) {
        struct trial trial;
        size_t T = n == 4 ? 200 : odd[n % ODD], V = n % 7 == 3 ? 257 : odd[(n * 5 + 1) % ODD];
        trial_begin(&trial, "cross_entropy (T×V)", 2, T, V);
        trial_reals(&trial, T, 1);
        double *logits = trial_reals(&trial, T * V, scales[n / ODD]);
        int32_t *targets = trial_ints(&trial, T);
        for (size_t t = 0; t < T; t++) {
            targets[t] = t % 4 == 3 ? -1 : (int32_t)below(V);
            for (size_t v = 0; t % 5 == 1 && v < V; v++)
                logits[t * V + v] = 3; // a row of equal logits
            if (t % 5 == 2 && V > 1 && targets[t] != (int32_t)V / 2)
                logits[t * V + V / 2] = -INFINITY;
        }
        trial_end(&trial, run_cross_entropy);
    }
}

static void run_flat(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    size_t count = t->dims[0];
    (void)i;
    ops->add(r[0], r[1], r[2], count);
    ops->add(r[1], r[1], r[2], count);
    ops->scale(r[2], -0.37, count);
    ops->add_ordered(r[4], r[3], 3, count);
}

static void run_adamw(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    for (int64_t step = 1; step <= 3; step++)
        ops->adamw(r[0], NULL, r[1], r[2], r[3], t->dims[0], 0.5, 1e-2, 0.9, 0.95, 1e-8, 0.1, step + (int64_t)t->dims[1]);
}

// A real may be a float: a double result is handed on as three of them, so that all of its bits are compared.
static void run_sums(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    int64_t found;
    double sums[2] = {ops->sum_of_squares(r[1], t->dims[0], &found), ops->sum(r[1], t->dims[0])}, rest[4];
    for (size_t k = 0; k < 2; k++) {
        rest[k] = sums[k] - (float)sums[k];
        rest[2 + k] = rest[k] - (float)rest[k];
    }
    (void)i;
    ops->from_double(r[0], sums, 2);
    ops->from_double(r[3], rest, 4);
    double zeros = (double)found;
    ops->from_double(r[2], &zeros, 1);
}

static void test_elements(void **test)
{
    (void)test;
    for (size_t n = 0; n <= ODD; n++) {
        struct trial trial;
        size_t count = n == ODD ? 40013 : odd[n];
        trial_begin(&trial, "add, scale, add_ordered (count)", 1, count);
        for (size_t a = 0; a < 5; a++)
            trial_reals(&trial, a == 3 ? 3 * count : count, 1);
        trial_end(&trial, run_flat);
        trial_begin(&trial, "adamw (count×step)", 2, count, n * 100);
        trial_reals(&trial, count, 1);
        trial_reals(&trial, count, 0);
        trial_reals(&trial, count, 0);
        trial_reals(&trial, count, n & 1 ? 1 : 1e-4);
        trial_end(&trial, run_adamw);
        trial_begin(&trial, "sum_of_squares with zeros, sum (count)", 1, count);
        trial_reals(&trial, 2, 0);
        double *x = trial_reals(&trial, count, 1);
        for (size_t i = 0; i < count; i++) // of many sizes, so that the order of additions shows in the last bits
            x[i] = i % 7 ? ldexp(x[i], -(int)(i % 19)) : i % 2 ? 0.0 : -0.0;
        trial_reals(&trial, 1, 0);
        trial_reals(&trial, 4, 0);
        trial.terms[3] = 1;
        trial_end(&trial, run_sums);
    }
}

// Many ones and one large number: sums in double lose nothing that float would.
static void test_sums_in_double(void **test)
{
    (void)test;
    struct trial trial;
    trial_begin(&trial, "sum (large and small)", 1, (size_t)30000);
    trial_reals(&trial, 2, 0);
    double *x = trial_reals(&trial, 30000, 0);
    for (size_t i = 0; i < 30000; i++)
        x[i] = i ? 1 : 16777216.0; // 2²⁴: its square is exact in double, one more is lost in float
    trial_reals(&trial, 1, 0);
    trial_reals(&trial, 4, 0);
    trial.tolerance = 6e-8; // the result passes through one float
    trial_end(&trial, run_sums);
}

// The exponential behind softmax, silu and loss, over its whole range.
static void exponents(const struct device *device)
{
    enum { COUNT = 20000 };
    static float x[COUNT], y[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        x[i] = i ? (float)i / COUNT * 191.0f - 103.0f : 0.0f;
    cpu.kernels->exponents(y, x, 0, COUNT);
    assert_true(y[0] == 1);
    for (size_t i = 0; i < COUNT; i++) {
        double expected = exp((double)x[i]), error = fabs(y[i] - expected);
        if (!(error <= 2.5e-7 * expected + 1.5e-45))
            fail_msg("exp(%.9g) on %s: %.9g, expected %.9g", (double)x[i], device->isa, (double)y[i], expected);
    }
    static const float ends[] = {-104, -1e4f, -INFINITY, 89, 1e4f, INFINITY};
    cpu.kernels->exponents(y, ends, 0, 6);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0 && isinf(y[3]) && isinf(y[4]) && isinf(y[5]));
}

static void test_exponents(void **test)
{
    (void)test;
    each_cpu(exponents);
}

// What is not a number must not be lost on the way to the loss, wherever in a row it stands.
static void not_a_number(const struct device *device)
{
    enum { C = 37 };
    for (size_t place = 0; place < C; place++) {
        struct trial loss, norm, gated;
        trial_begin(&loss, "cross_entropy", 2, (size_t)2, (size_t)C);
        trial_reals(&loss, 2, 1);
        trial_reals(&loss, 2 * C, 1)[C + place] = NAN;
        trial_ints(&loss, 2)[1] = 3;
        trial_on(&loss, device, run_cross_entropy);
        assert_true(isfinite(loss.reals[0][0]) && isnan(loss.reals[0][1]) && isnan(loss.reals[1][C + place]));
        trial_release(&loss);
        trial_begin(&norm, "rmsnorm_forward", 2, (size_t)2, (size_t)C);
        trial_reals(&norm, 2 * C, 0);
        trial_reals(&norm, 2, 0);
        trial_reals(&norm, 2 * C, 1)[place] = NAN;
        trial_reals(&norm, C, 1);
        trial_on(&norm, device, run_rmsnorm_forward);
        for (size_t i = 0; i < C; i++)
            assert_true(isnan(norm.reals[0][i]) && isfinite(norm.reals[0][C + i]));
        trial_release(&norm);
        trial_begin(&gated, "swiglu", 3, (size_t)1, (size_t)C, (size_t)0);
        trial_reals(&gated, C, 1);
        trial_reals(&gated, 2 * C, 1)[place] = NAN;
        trial_reals(&gated, 1, 1);
        trial_on(&gated, device, run_swiglu_forward);
        for (size_t i = 0; i < C; i++)
            assert_true((i == place) == !!isnan(gated.reals[0][i]));
        trial_release(&gated);
    }
}

static void test_not_a_number(void **test)
{
    (void)test;
    not_a_number(device_reference());
    each_cpu(not_a_number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_grouped_bias),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_piece_norm),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_is_of_its_place),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_sums_in_double),
        cmocka_unit_test(test_exponents),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
