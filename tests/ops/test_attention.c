// Causal attention: shapes that end inside tiles, shared key heads, sharp and flat scores, and that the future does not show.
#include "schema/base/text.h"
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <math.h>
#include <cmocka.h>

// dims: B, S, H, G, D
static void run_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->attention_forward(r[0], r[1], r[2], t->dims[0], t->dims[1], t->dims[2], t->dims[3], t->dims[4]);
}

static void run_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    run_forward(ops, r, i, t);
    ops->attention_backward(r[3], r[4], r[2], r[0], r[1], t->dims[0], t->dims[1], t->dims[2], t->dims[3], t->dims[4]);
}

static void attention_case(const size_t *d, double scale, double tolerance)
{
    struct trial trial;
    size_t rows = d[0] * d[1], in = rows * (d[2] + 2 * d[3]) * d[4], out = rows * d[2] * d[4];
    trial_begin(&trial, "attention, forward and backward (B×S×H×G×D)", 5, d[0], d[1], d[2], d[3], d[4]);
    trial.tolerance = tolerance;
    trial_reals(&trial, out, 1);
    trial_reals(&trial, rows * d[2], 1);
    trial_reals(&trial, in, scale);
    trial_reals(&trial, in, 1);
    trial_reals(&trial, out, 1);
    trial_end(&trial, run_backward);
}

static const size_t shapes[][5] = {{1, 1, 1, 1, 2}, {2, 3, 2, 1, 4}, {1, 17, 3, 3, 6}, {3, 33, 4, 2, 10}, {1, 65, 2, 2, 32},
    {2, 64, 4, 2, 32}, {1, 130, 6, 3, 16}, {1, 97, 2, 1, 34}, {1, 32, 8, 1, 66}, {1, 200, 2, 1, 8}};

static void test_shapes(void **test)
{
    (void)test;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        attention_case(shapes[s], 1, 6e-6);
}

static void test_sharp_and_flat(void **test)
{
    (void)test;
    attention_case((size_t[]){1, 65, 2, 1, 8}, 1e-3, 6e-6);
    attention_case((size_t[]){1, 65, 2, 1, 8}, 10, 3e-4); // scores of some hundreds: their rounding is multiplied by themselves
}

// Positions before s have the same bits whatever comes after, and a shorter sequence is a prefix of a longer one.
static void prefix(const struct device *device)
{
    enum { S = 77, H = 2, G = 1, D = 12, ROW = (H + 2 * G) * D };
    struct trial whole, part;
    trial_begin(&whole, "attention_forward", 5, (size_t)1, (size_t)S, (size_t)H, (size_t)G, (size_t)D);
    trial_reals(&whole, S * H * D, 1);
    trial_reals(&whole, S * H, 1);
    trial_reals(&whole, S * ROW, 1);
    trial_on(&whole, device, run_forward);
    for (size_t s = 1; s < S; s += 6) {
        trial_begin(&part, "attention_forward", 5, (size_t)1, s, (size_t)H, (size_t)G, (size_t)D);
        trial_reals(&part, s * H * D, 1);
        trial_reals(&part, s * H, 1);
        double *qkv = trial_reals(&part, s * ROW, 1);
        for (size_t i = 0; i < s * ROW; i++)
            qkv[i] = whole.reals[2][i];
        trial_on(&part, device, run_forward);
        if (!same_bits(part.reals[0], whole.reals[0], s * H * D))
            fail_msg("attention_forward on %s: the first %zu positions have other bits when %d follow", device->isa, s, S);
        trial_release(&part);
    }
    trial_release(&whole);
}

static void test_prefix(void **test)
{
    (void)test;
    each_cpu(prefix);
    prefix(device_reference());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_sharp_and_flat),
        cmocka_unit_test(test_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
