// Router, permutation and movement of rows.
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <cmocka.h>

static const size_t shapes[][3] = {
    {1, 1, 1}, {1, 16, 4}, {2, 3, 3}, {13, 5, 2}, {65, 16, 4}, {33, 64, 8}, {257, 7, 1}, {600, 17, 5}}; // T, E, K
enum { SHAPES = sizeof shapes / sizeof *shapes };

// dims: T, E, K, pre_softmax. The whole way: choice, counts and plan, so that integers are judged together with what they are made from.
static void run_router(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    size_t T = t->dims[0], E = t->dims[1], K = t->dims[2];
    bool pre_softmax = t->dims[3];
    ops->router_forward(r[0], i[0], r[1], r[2], T, E, K, pre_softmax);
    ops->router_counts(i[1], r[3], i[0], r[1], T, E, K);
    ops->permute_plan(i[2], i[3], i[4], i[0], i[1], T, E, K);
    ops->router_backward(r[4], r[5], r[0], i[0], r[1], i[1], 0.01, T, E, K, pre_softmax);
}

enum logits { LOGITS_NORMAL, LOGITS_80, LOGITS_10000, LOGITS_TIES, LOGITS_EQUAL, LOGITS_ONE_EXPERT, LOGITS_KINDS };

static double logit_of(enum logits kind, double x, size_t e)
{
    switch (kind) {
    case LOGITS_80:
        return (float)(80 * (x > 0 ? 1 : -1) + x);
    case LOGITS_10000:
        return (float)(x * 1e4);
    case LOGITS_TIES:
        return floor(x);
    case LOGITS_EQUAL:
        return 0.5;
    case LOGITS_ONE_EXPERT:
        return e ? x : x + 50;
    default:
        return x;
    }
}

static void test_router(void **test)
{
    (void)test;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t kind = 0; kind < LOGITS_KINDS; kind++)
            for (size_t pre = 0; pre < 2; pre++) {
                struct trial trial;
                size_t T = shapes[s][0], E = shapes[s][1], K = shapes[s][2];
                trial_begin(&trial, "router (T×E×K×pre_softmax)", 4, T, E, K, pre);
                trial_reals(&trial, T * K, 1);
                trial_reals(&trial, T * E, 1);
                double *logits = trial_reals(&trial, T * E, 1);
                for (size_t i = 0; i < T * E; i++)
                    logits[i] = logit_of((enum logits)kind, logits[i], i % E);
                trial_reals(&trial, 1, 1);
                trial_reals(&trial, T * E, 1);
                trial.terms[4] = 1;
                trial_reals(&trial, T * K, 1);
                trial_ints(&trial, T * K);
                trial_ints(&trial, E);
                for (size_t a = 0; a < 3; a++)
                    trial_ints(&trial, T * K);
                trial_end(&trial, run_router);
            }
}

// What the operations must mean, without any other device: order of choice, ties to the lower index, rows by expert and then token.
static void router_meaning(const struct device *device)
{
    struct trial t;
    trial_begin(&t, "router", 4, (size_t)3, (size_t)4, (size_t)2, (size_t)0);
    static const double logits[] = {1, 3, 3, 2, /* */ 5, 5, 5, 5, /* */ -1e4, 0, 1e4, 0};
    trial_reals(&t, 6, 1);
    trial_reals(&t, 12, 1);
    double *given = trial_reals(&t, 12, 1);
    for (size_t i = 0; i < 12; i++)
        given[i] = logits[i];
    trial_reals(&t, 1, 1);
    trial_reals(&t, 12, 1);
    trial_reals(&t, 6, 1);
    trial_ints(&t, 6);
    trial_ints(&t, 4);
    for (size_t a = 0; a < 3; a++)
        trial_ints(&t, 6);
    trial_on(&t, device, run_router);
    static const int32_t choice[] = {1, 2, 0, 1, 2, 1}, counts[] = {1, 3, 2, 0};
    static const int32_t row_token[] = {1, 0, 1, 2, 0, 2}, row_slot[] = {2, 0, 3, 5, 1, 4}, row_of[] = {1, 4, 0, 2, 5, 3};
    assert_memory_equal(t.ints[0], choice, sizeof choice);
    assert_memory_equal(t.ints[1], counts, sizeof counts);
    assert_memory_equal(t.ints[2], row_token, sizeof row_token);
    assert_memory_equal(t.ints[3], row_slot, sizeof row_slot);
    assert_memory_equal(t.ints[4], row_of, sizeof row_of);
    static const double probs[] = {0.5, 0.5, 0.5, 0.5, 1, 0};
    assert_true(same_bits(t.reals[0], probs, 6));
    trial_release(&t);
}

// One expert: probability and balance exactly 1, and no gradient, whatever the logits.
static void single_expert(const struct device *device)
{
    struct trial t;
    for (size_t T = 1; T < 400; T += 57) {
        trial_begin(&t, "router", 4, T, (size_t)1, (size_t)1, T % 2);
        trial_reals(&t, T, 1);
        trial_reals(&t, T, 1);
        trial_reals(&t, T, 30);
        trial_reals(&t, 1, 1);
        trial_reals(&t, T, 1);
        trial_reals(&t, T, 1);
        trial_ints(&t, T);
        trial_ints(&t, 1);
        for (size_t a = 0; a < 3; a++)
            trial_ints(&t, T);
        trial_on(&t, device, run_router);
        assert_true(t.reals[3][0] == 1);
        for (size_t i = 0; i < T; i++) {
            assert_true(t.reals[0][i] == 1 && t.reals[1][i] == 1);
            assert_true(t.reals[4][i] == 0);
        }
        trial_release(&t);
    }
}

// Logits that are no numbers still choose K different experts, so that the run lives to report its loss.
static void router_not_a_number(const struct device *device)
{
    enum { E = 19, K = 5 };
    for (size_t place = 0; place <= E; place++) {
        struct trial t;
        trial_begin(&t, "router", 4, (size_t)1, (size_t)E, (size_t)K, (size_t)0);
        trial_reals(&t, K, 1);
        trial_reals(&t, E, 1);
        double *logits = trial_reals(&t, E, 1);
        for (size_t e = 0; e < E; e++)
            logits[e] = place == E || e == place ? NAN : logits[e];
        trial_reals(&t, 1, 1);
        trial_reals(&t, E, 1);
        trial_reals(&t, K, 1);
        trial_ints(&t, K);
        trial_ints(&t, E);
        for (size_t a = 0; a < 3; a++)
            trial_ints(&t, K);
        trial_on(&t, device, run_router);
        bool seen[E] = {0};
        for (size_t j = 0; j < K; j++) {
            assert_in_range(t.ints[0][j], 0, E - 1);
            assert_false(seen[t.ints[0][j]]);
            seen[t.ints[0][j]] = true;
        }
        trial_release(&t);
    }
}

static void test_router_meaning(void **test)
{
    (void)test;
    router_meaning(device_reference());
    each_cpu(router_meaning);
    single_expert(device_reference());
    each_cpu(single_expert);
    router_not_a_number(device_reference());
    each_cpu(router_not_a_number);
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
                tokens[i] = (int32_t)below(T);
                rows[i] = (int32_t)below(T * K);
            }
            trial_end(&trial, run_movement);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_router_meaning),
        cmocka_unit_test(test_movement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
