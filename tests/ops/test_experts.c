// Permutation and movement of rows. Slots that are not used and rows that are empty have index −1.
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

// dims: T, E, J, rows that each expert has beyond its tokens
static void run_plan(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)r;
    ops->permute_plan(i[2], i[3], i[4], i[0], i[1], t->dims[0], t->dims[1], t->dims[2], t->int_counts[2]);
}

// Rows by expert, then token; the way there and back; empty rows behind an expert's tokens.
static void plan_means(const struct device *device)
{
    struct trial t;
    trial_begin(&t, "permute_plan", 4, (size_t)4, (size_t)3, (size_t)2, (size_t)0);
    static const int32_t choice[] = {2, 0, /* */ -1, 2, /* */ 0, -1, /* */ -1, -1}, counts[] = {3, 1, 2};
    static const int32_t row_token[] = {0, 2, -1, -1, 0, 1}, row_slot[] = {1, 4, -1, -1, 0, 3}, row_of[] = {4, 0, -1, 5, 1, -1, -1, -1};
    memcpy(trial_ints(&t, 8), choice, sizeof choice);
    memcpy(trial_ints(&t, 3), counts, sizeof counts);
    trial_ints(&t, 6);
    trial_ints(&t, 6);
    trial_ints(&t, 8);
    trial_on(&t, device, run_plan);
    assert_memory_equal(t.ints[2], row_token, sizeof row_token);
    assert_memory_equal(t.ints[3], row_slot, sizeof row_slot);
    assert_memory_equal(t.ints[4], row_of, sizeof row_of);
    trial_release(&t);
}

static void test_plan(void **test)
{
    (void)test;
    plan_means(device_reference());
    each_cpu(plan_means);
}

// dims: T, K, C, with a residual
static void run_movement(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    size_t T = t->dims[0], K = t->dims[1], C = t->dims[2];
    ops->gather_rows(r[0], r[1], i[0], T * K, C);
    ops->combine_rows(r[2], r[0], i[1], t->dims[3] ? r[1] : NULL, T, K, C);
}

static void test_movement(void **test)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 2, 5}, {17, 4, 33}, {65, 1, 13}, {130, 8, 65}};
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t residual = 0; residual < 2; residual++) {
            struct trial trial;
            size_t T = sizes[s][0], K = sizes[s][1], C = sizes[s][2];
            trial_begin(&trial, "gather_rows, combine_rows (T×K×C×residual)", 4, T, K, C, residual);
            trial_reals(&trial, T * K * C, 1);
            trial_reals(&trial, T * C, 1);
            trial_reals(&trial, T * C, 1);
            int32_t *tokens = trial_ints(&trial, T * K), *rows = trial_ints(&trial, T * K);
            for (size_t i = 0; i < T * K; i++) {
                tokens[i] = (int32_t)below(T + 1) - 1;
                rows[i] = (int32_t)below(T * K + 2) - 2;
                rows[i] = rows[i] < -1 ? -1 : rows[i];
            }
            trial_end(&trial, run_movement);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_movement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
