// Operations of shapes other than Llama's: layer norm, GELU, and the gates of branches.
#include "schema/base/text.h"
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <cmocka.h>

static const size_t odd[] = {1, 2, 3, 5, 7, 13, 17, 33, 65};
enum { ODD = sizeof odd / sizeof *odd };

static void run_layernorm_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->layernorm_forward(r[0], r[1], r[2], r[3], r[4], r[5], t->dims[0], t->dims[1], 1e-5);
}

static void run_layernorm_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->layernorm_backward(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], t->dims[0], t->dims[1]);
}

static void test_layernorm(void **test)
{
    (void)test;
    for (size_t n = 0; n < ODD * ODD; n++) {
        struct trial trial;
        size_t T = n % ODD == 8 ? 330 : odd[n % ODD], C = odd[n / ODD];
        trial_begin(&trial, "layernorm_forward (T×C)", 2, T, C);
        trial_reals(&trial, T * C, 0);
        trial_reals(&trial, T, 0);
        trial_reals(&trial, T, 0);
        double *x = trial_reals(&trial, T * C, 1);
        for (size_t i = 0; i < T * C; i++)
            x[i] = (float)(x[i] + (C > 2 ? 3 : 0)); // away from zero; of one or two numbers little is left but rounding
        trial_reals(&trial, C, 1);
        trial_reals(&trial, C, 1);
        trial.tolerance = C > 2 ? 4e-6 : 2e-5;
        trial_end(&trial, run_layernorm_forward);
        trial_begin(&trial, "layernorm_backward (T×C)", 2, T, C);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, C, 1);
        trial_reals(&trial, C, 1);
        for (size_t a = 0; a < 2; a++)
            trial_reals(&trial, T * C, 1);
        trial_reals(&trial, C, 1);
        trial_reals(&trial, T, 1);
        double *rstd = trial_reals(&trial, T, 1);
        for (size_t t = 0; t < T; t++)
            rstd[t] = (float)(0.5 + fabs(rstd[t]));
        trial.terms[0] = 10; // dx adds terms that cancel
        trial_end(&trial, run_layernorm_backward);
    }
}

static void run_gelu_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->gelu_forward(r[0], r[1], t->dims[2] ? r[2] : NULL, t->dims[0], t->dims[1]);
}

static void run_gelu_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->gelu_backward(r[3], t->dims[2] ? r[4] : NULL, r[0], r[1], t->dims[2] ? r[2] : NULL, t->dims[0], t->dims[1]);
}

static void test_gelu(void **test)
{
    static const double scales[] = {1, 8, 1e4};
    (void)test;
    for (size_t n = 0; n < 2 * 3 * ODD; n++) {
        struct trial trial;
        size_t T = odd[n % ODD], F = odd[(n * 7 + 2) % ODD] * (n % ODD == 4 ? 40 : 1), scaled = n & 1;
        trial_begin(&trial, "gelu (T×F×scaled)", 3, T, F, scaled);
        trial_reals(&trial, T * F, 1);
        trial_reals(&trial, T * F, scales[n % 3]);
        trial_reals(&trial, T, 1);
        trial_end(&trial, run_gelu_forward);
        trial_begin(&trial, "gelu_backward (T×F×scaled)", 3, T, F, scaled);
        trial_reals(&trial, T * F, 1);
        trial_reals(&trial, T * F, scales[n % 3]);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, T * F, 1);
        trial_reals(&trial, T, 1);
        trial_end(&trial, run_gelu_backward);
    }
}

// Values of the tanh form, computed with 30 digits; the form with the error function gives 0.8413447 at 1.
static void known_gelu(const struct device *device)
{
    static const double x[] = {-3, -1, -0.5, 0, 0.5, 1, 3};
    static const double expected[] = {-0.0036373920817730191, -0.15880800939172329, -0.15428599017485609, 0, 0.34571400982514394, 0.84119199060827665,
        2.9963626079182268};
    struct trial trial;
    trial_begin(&trial, "gelu", 3, (size_t)1, (size_t)7, (size_t)0);
    trial_reals(&trial, 7, 0);
    double *given = trial_reals(&trial, 7, 0);
    trial_reals(&trial, 1, 0);
    for (size_t i = 0; i < 7; i++)
        given[i] = x[i];
    trial_on(&trial, device, run_gelu_forward);
    for (size_t i = 0; i < 7; i++)
        assert_true(fabs(trial.reals[0][i] - expected[i]) <= (device->real_bytes == 8 ? 1e-15 : 3e-7));
    trial_release(&trial);
}

static void known_layernorm(const struct device *device)
{
    struct trial trial;
    trial_begin(&trial, "layernorm", 2, (size_t)1, (size_t)4);
    for (size_t a = 0; a < 6; a++)
        trial_reals(&trial, a == 1 || a == 2 ? 1 : 4, 0);
    for (size_t i = 0; i < 4; i++) { // mean 1003, variance 5: the mean is far larger than the distances from it
        trial.reals[3][i] = 1000 + 2 * (double)i;
        trial.reals[4][i] = 2;
        trial.reals[5][i] = 0.5;
    }
    trial_on(&trial, device, run_layernorm_forward);
    assert_true(trial.reals[1][0] == 1003 && fabs(trial.reals[2][0] - 1 / sqrt(5 + 1e-5)) < 1e-7);
    for (size_t i = 0; i < 4; i++)
        assert_true(fabs(trial.reals[0][i] - (2 * (2 * (double)i - 3) / sqrt(5 + 1e-5) + 0.5)) < 1e-6);
    trial_release(&trial);
}

static void test_known_values(void **test)
{
    (void)test;
    known_gelu(device_reference_f64());
    known_gelu(device_reference());
    each_cpu(known_gelu);
    known_layernorm(device_reference_f64());
    known_layernorm(device_reference());
    each_cpu(known_layernorm);
}

static void run_gates(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    size_t T = t->dims[0];
    (void)i;
    ops->sigmoid_forward(r[1], r[0], 2 * T);
    ops->sigmoid_backward(r[2], r[2], r[1], 2 * T);
    ops->mix_forward(r[3], r[4], r[0], T);
    ops->mix_backward(r[5], r[6], r[7], r[3], r[4], T);
}

static void run_scale_rows(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->scale_rows(r[0], r[1], r[2], t->dims[0], t->dims[1]);
    ops->scale_rows_backward(r[3], r[4], r[3], r[1], r[2], t->dims[0], t->dims[1]);
}

static void test_gates(void **test)
{
    static const double scales[] = {1, 20, 1e3};
    (void)test;
    for (size_t n = 0; n < 3 * ODD; n++) {
        struct trial trial;
        size_t T = odd[n % ODD], C = odd[(n * 5 + 1) % ODD];
        trial_begin(&trial, "sigmoid, mix (T)", 1, T);
        for (size_t a = 0; a < 3; a++)
            trial_reals(&trial, 2 * T, a ? 1 : scales[n / ODD]);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, 2 * T, 1);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, T, 1);
        trial.terms[2] = trial.terms[5] = 1; // out · (1 − out) near an end: as exact as `out` is
        trial_end(&trial, run_gates);
        trial_begin(&trial, "scale_rows (T×C)", 2, T, C);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, T * C, 1);
        trial_reals(&trial, T, 1);
        trial_end(&trial, run_scale_rows);
    }
}

static void run_weighted_bias(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    ops->weighted_bias_add(r[0], r[1], r[3], t->host, 4, t->dims[1]);
    ops->weighted_bias_backward(r[4], r[5], r[2], r[1], r[3], t->host, 4, t->dims[1]);
}

static void test_weighted_bias(void **test)
{
    (void)test;
    for (size_t n = 0; n < ODD * ODD; n++) {
        struct trial trial;
        size_t T = n % ODD == 8 ? 330 : odd[n % ODD], N = odd[n / ODD];
        trial_begin(&trial, "weighted_bias (T×N)", 2, T, N);
        trial_reals(&trial, T * N, 1);
        trial_reals(&trial, 4 * N, 1);
        trial_reals(&trial, T * N, 1);
        trial_reals(&trial, T, 1);
        trial_reals(&trial, 4 * N, 1);
        trial_reals(&trial, T, 1);
        trial.host = allocate(4, sizeof *trial.host); // one group without rows
        for (size_t t = 0; t < T; t++)
            trial.host[(size_t[]){0, 1, 3}[below(3)]]++;
        trial_end(&trial, run_weighted_bias);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_weighted_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
