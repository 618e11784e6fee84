// Products of matrices, plain and grouped.
#include "schema/base/text.h"
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const size_t odd[] = {1, 2, 3, 5, 7, 13, 17, 33, 65};
enum { ODD = sizeof odd / sizeof *odd };

// Arrays of every product here: out or dout (T,N), x or dx (T,K), W or dW (N,K).
static void run_linear_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->linear_forward(r[0], r[1], r[2], t->dims[0], t->dims[1], t->dims[2]);
}

static void run_linear_dinput(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->linear_dinput(r[1], r[0], r[2], t->dims[0], t->dims[1], t->dims[2]);
}

static void run_linear_dweight(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->linear_dweight(r[2], r[0], r[1], t->dims[0], t->dims[1], t->dims[2]);
}

static trial_function *const linear[] = {run_linear_forward, run_linear_dinput, run_linear_dweight};

static void linear_case(size_t T, size_t N, size_t K, size_t kind)
{
    static const char *const names[] = {"linear_forward (T×N×K)", "linear_dinput (T×N×K)", "linear_dweight (T×N×K)"};
    struct trial trial;
    trial_begin(&trial, names[kind], 3, T, N, K);
    trial_reals(&trial, T * N, 1);
    trial_reals(&trial, T * K, 1);
    trial_reals(&trial, N * K, 1);
    trial_end(&trial, linear[kind]);
}

static void test_linear_odd_shapes(void **test)
{
    (void)test;
    for (size_t t = 0; t < ODD; t++)
        for (size_t n = 0; n < ODD; n++)
            for (size_t k = 0; k < ODD; k++)
                linear_case(odd[t], odd[n], odd[k], (t * 5 + n * 3 + k) % 3);
}

// Every product on shapes that end inside a tile, a panel, a block of the sum and a block of columns.
static void test_linear_blocks(void **test)
{
    (void)test;
    for (size_t kind = 0; kind < 3; kind++) {
        linear_case(173, 40, 300, kind);
        linear_case(300, 173, 40, kind);
        linear_case(40, 300, 173, kind);
        linear_case(15, 530, 257, kind);
        linear_case(257, 15, 530, kind);
        linear_case(530, 257, 15, kind);
        linear_case(64, 48, 520, kind);
        linear_case(520, 64, 48, kind);
        linear_case(3, 5, 0, kind);
        linear_case(3, 0, 5, kind);
        linear_case(0, 5, 3, kind);
    }
}

static void run_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->grouped_forward(r[0], r[1], r[2], t->host, t->dims[0], t->dims[1], t->dims[2]);
}

static void run_dinput(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->grouped_dinput(r[1], r[0], r[2], t->host, t->dims[0], t->dims[1], t->dims[2]);
}

static void run_dweight(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->grouped_dweight(r[2], r[0], r[1], t->host, t->dims[0], t->dims[1], t->dims[2]);
}

static void grouped_case(const int64_t *counts, size_t groups, size_t N, size_t K)
{
    static trial_function *const functions[] = {run_forward, run_dinput, run_dweight};
    static const char *const names[] = {"grouped_forward (groups×N×K)", "grouped_dinput (groups×N×K)", "grouped_dweight (groups×N×K)"};
    size_t R = 0;
    for (size_t g = 0; g < groups; g++)
        R += (size_t)counts[g];
    for (size_t f = 0; f < 3; f++) {
        struct trial trial;
        trial_begin(&trial, names[f], 3, groups, N, K);
        trial_reals(&trial, R * N, 1);
        trial_reals(&trial, R * K, 1);
        trial_reals(&trial, groups * N * K, 1);
        trial.host = allocate(groups, sizeof *trial.host);
        for (size_t g = 0; g < groups; g++)
            trial.host[g] = counts[g];
        trial_end(&trial, functions[f]);
    }
}

static void test_grouped(void **test)
{
    (void)test;
    grouped_case((int64_t[]){5, 0, 1, 17}, 4, 13, 7);
    grouped_case((int64_t[]){0, 0, 0}, 3, 5, 5);
    grouped_case((int64_t[]){1}, 1, 1, 1);
    grouped_case((int64_t[]){0, 0, 0, 0, 0, 0, 0, 65, 0, 0, 0, 0}, 12, 33, 17);
    grouped_case((int64_t[]){3, 33, 0, 7, 65, 1, 2, 0, 13, 5, 90, 0, 4, 4, 1, 20}, 16, 40, 36);
    grouped_case((int64_t[]){300, 2}, 2, 37, 270);
    grouped_case((int64_t[]){10, 300, 5, 0, 0, 7, 9, 40}, 8, 70, 41); // a group that two threads share
    for (size_t i = 0; i < 3; i++) // long enough for two threads to be at work at once
        grouped_case((int64_t[]){200, 190, 210, 180, 200, 190, 210, 180}, 8, 96, 64);
}

// A row of a product is the same alone and among others, in a group and without.
static void rows_alone(const struct device *device)
{
    enum { M = 67, N = 45, K = 301 };
    struct trial all, one;
    trial_begin(&all, "linear_forward", 3, (size_t)M, (size_t)N, (size_t)K);
    trial_reals(&all, M * N, 1);
    trial_reals(&all, M * K, 1);
    trial_reals(&all, K * N, 1);
    trial_on(&all, device, run_linear_forward);
    for (size_t row = 0; row < M; row += 3)
        for (size_t rows = 1; rows + row <= M; rows += 13) {
            trial_begin(&one, "linear_forward", 3, rows, (size_t)N, (size_t)K);
            double *out = trial_reals(&one, rows * N, 1), *a = trial_reals(&one, rows * K, 1), *b = trial_reals(&one, K * N, 1);
            for (size_t i = 0; i < rows * K; i++)
                a[i] = all.reals[1][row * K + i];
            for (size_t i = 0; i < K * N; i++)
                b[i] = all.reals[2][i];
            (void)out;
            trial_on(&one, device, run_linear_forward);
            if (!same_bits(one.reals[0], all.reals[0] + row * N, rows * N))
                fail_msg("linear_forward on %s: rows %zu…%zu of %d have other bits alone", device->isa, row, row + rows - 1, M);
            trial_release(&one);
        }
    trial_release(&all);
}

static void test_rows_alone(void **test)
{
    (void)test;
    each_cpu(rows_alone);
    rows_alone(device_reference());
}

// Each group of a grouped operation has the bits of the linear product of its rows; dweight's accumulation included.
static void groups_alone(const struct device *device)
{
    enum { GROUPS = 9, N = 37, K = 29 };
    static const int64_t counts[GROUPS] = {70, 0, 1, 300, 14, 15, 0, 33, 2};
    static trial_function *const functions[] = {run_forward, run_dinput, run_dweight};
    for (size_t kind = 0; kind < 3; kind++) {
        struct trial grouped, plain;
        trial_begin(&grouped, "grouped", 3, (size_t)GROUPS, (size_t)N, (size_t)K);
        size_t R = 435, counts_of[3] = {R * N, R * K, GROUPS * N * K}, row = 0;
        double *before[3];
        for (size_t a = 0; a < 3; a++) {
            double *made = trial_reals(&grouped, counts_of[a], 1);
            before[a] = allocate(counts_of[a], sizeof(double));
            for (size_t i = 0; i < counts_of[a]; i++)
                before[a][i] = made[i];
        }
        grouped.host = allocate(GROUPS, sizeof(int64_t));
        for (size_t g = 0; g < GROUPS; g++)
            grouped.host[g] = counts[g];
        trial_on(&grouped, device, functions[kind]);
        for (size_t g = 0; g < GROUPS; row += (size_t)counts[g++]) {
            size_t n = (size_t)counts[g], at[3] = {row * N, row * K, g * N * K}, size[3] = {n * N, n * K, (size_t)N * K};
            trial_begin(&plain, "linear", 3, n, (size_t)N, (size_t)K);
            for (size_t a = 0; a < 3; a++) {
                double *reals = trial_reals(&plain, size[a], 1);
                for (size_t i = 0; i < size[a]; i++)
                    reals[i] = before[a][at[a] + i];
            }
            trial_on(&plain, device, linear[kind]);
            if (!same_bits(plain.reals[kind], grouped.reals[kind] + at[kind], size[kind]))
                fail_msg("grouped operation %zu on %s: group %zu has other bits than the linear product", kind, device->isa, g);
            trial_release(&plain);
        }
        for (size_t a = 0; a < 3; a++)
            free(before[a]);
        trial_release(&grouped);
    }
}

static void test_groups_alone(void **test)
{
    (void)test;
    each_cpu(groups_alone);
    groups_alone(device_reference());
}

// The gradient of a weight from some rows after others, cut where device.h says.
static void run_cut(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    size_t T = t->dims[0], N = t->dims[1], K = t->dims[2], cut = 2 * DWEIGHT_ROWS;
    ops->linear_dweight(r[2], r[0], r[1], cut, N, K);
    ops->linear_dweight(r[2], (float *)r[0] + cut * N, (float *)r[1] + cut * K, DWEIGHT_ROWS, N, K);
    cut += DWEIGHT_ROWS;
    ops->linear_dweight(r[2], (float *)r[0] + cut * N, (float *)r[1] + cut * K, T - cut, N, K);
}

static void rows_cut(const struct device *device)
{
    struct trial whole, cut;
    size_t T = 4 * DWEIGHT_ROWS + 77, N = 37, K = 29, counts[3] = {T * N, T * K, N * K};
    trial_begin(&whole, "linear_dweight", 3, T, N, K);
    trial_begin(&cut, "linear_dweight in pieces", 3, T, N, K);
    for (size_t a = 0; a < 3; a++) {
        double *values = trial_reals(&whole, counts[a], 1);
        memcpy(trial_reals(&cut, counts[a], 1), values, counts[a] * sizeof *values);
    }
    trial_on(&whole, device, linear[2]);
    trial_on(&cut, device, run_cut);
    if (!same_bits(whole.reals[2], cut.reals[2], counts[2]))
        fail_msg("a weight's gradient in pieces has other bits on %s", device->isa);
    trial_release(&whole);
    trial_release(&cut);
}

static void test_rows_cut(void **test)
{
    (void)test;
    each_cpu(rows_cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_odd_shapes),
        cmocka_unit_test(test_linear_blocks),
        cmocka_unit_test(test_grouped),
        cmocka_unit_test(test_rows_alone),
        cmocka_unit_test(test_groups_alone),
        cmocka_unit_test(test_rows_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
