// Attention over a cache: shapes that end inside vectors, shared key heads, windows; positions at once or one by one have the same bits; and
// what it computes is attention as training has it.
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <math.h>
#include <cmocka.h>

enum { T, PAST, H, G, D, WINDOW };

// out, qkv, cache
static void run(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->attention_cached(r[0], r[1], r[2], t->dims[T], t->dims[PAST], t->dims[H], t->dims[G], t->dims[D], t->dims[WINDOW]);
}

static void begin(struct trial *trial, const size_t *d, double scale)
{
    trial_begin(trial, "attention_cached (T×past×H×G×D×window)", 6, d[T], d[PAST], d[H], d[G], d[D], d[WINDOW]);
    trial_reals(trial, d[T] * d[H] * d[D], 1);
    trial_reals(trial, d[T] * (d[H] + 2 * d[G]) * d[D], scale);
    trial_reals(trial, (d[PAST] + d[T]) * 2 * d[G] * d[D], 1);
}

static const size_t shapes[][6] = {{1, 0, 1, 1, 2, 0}, {1, 1, 2, 1, 4, 0}, {3, 0, 3, 3, 6, 0}, {5, 7, 4, 2, 10, 0}, {1, 129, 6, 3, 34, 0},
    {2, 64, 8, 1, 66, 0}, {1, 50, 2, 1, 8, 1}, {9, 20, 4, 2, 16, 7}, {9, 2, 2, 2, 16, 100}, {17, 30, 2, 1, 12, 30}};

static void test_shapes(void **test)
{
    (void)test;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct trial trial;
        begin(&trial, shapes[s], s % 2 ? 1 : 6);
        trial.tolerance = s % 2 ? 6e-6 : 1e-4;
        trial_end(&trial, run);
    }
}

// The same positions, one at a time.
static void one_by_one(const struct device *device)
{
    static const size_t whole_dims[] = {11, 6, 4, 2, 10, 0};
    struct trial whole, one;
    begin(&whole, whole_dims, 1);
    trial_on(&whole, device, run);
    for (size_t t = 0; t < 11; t++) {
        size_t d[] = {1, 6 + t, 4, 2, 10, 0}, row = 8 * 10;
        begin(&one, d, 1);
        for (size_t i = 0; i < row; i++)
            one.reals[1][i] = whole.reals[1][t * row + i];
        for (size_t i = 0; i < (7 + t) * 40; i++)
            one.reals[2][i] = whole.reals[2][i];
        trial_on(&one, device, run);
        assert_true(same_bits(one.reals[0], whole.reals[0] + t * 40, 40));
        trial_release(&one);
    }
    trial_release(&whole);
}

static void test_one_by_one(void **test)
{
    (void)test;
    each_cpu(one_by_one);
    one_by_one(device_reference());
}

// Every key alike: the values' mean; and with a window of one, the own value.
static void test_known(void **test)
{
    (void)test;
    const size_t dims[] = {1, 3, 1, 1, 2, 0};
    struct trial trial;
    begin(&trial, dims, 1);
    for (size_t j = 0; j < 4; j++)
        for (size_t i = 0; i < 2; i++) {
            trial.reals[2][j * 4 + i] = 0.5;
            trial.reals[2][j * 4 + 2 + i] = (double)(j + 4 * i);
        }
    trial_on(&trial, device_reference_f64(), run);
    assert_true(fabs(trial.reals[0][0] - 1.5) < 1e-12 && fabs(trial.reals[0][1] - 5.5) < 1e-12);
    trial.dims[WINDOW] = 1;
    trial_on(&trial, device_reference_f64(), run);
    assert_true(fabs(trial.reals[0][0] - 3) < 1e-12 && fabs(trial.reals[0][1] - 7) < 1e-12);
    trial_release(&trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
