// Routing: scores, choices, weights, what full experts drop, losses and their way back.
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const size_t shapes[][3] = {
    {1, 1, 1}, {1, 16, 4}, {2, 3, 3}, {13, 5, 2}, {65, 16, 4}, {33, 64, 8}, {257, 7, 1}, {600, 17, 5}}; // T, E, K
enum { SHAPES = sizeof shapes / sizeof *shapes, FUNCTIONS = 3 };

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

static double *add_logits(struct trial *trial, enum logits kind, size_t T, size_t E)
{
    double *logits = trial_reals(trial, T * E, 1);
    for (size_t i = 0; i < T * E; i++)
        logits[i] = logit_of(kind, logits[i], i % E);
    return logits;
}

// ---- choices ----

// dims: T, E, K
static void run_choose(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    size_t T = t->dims[0], E = t->dims[1], K = t->dims[2];
    ops->router_choose(i[0], r[0], T, E, K, 0, 0);
    ops->router_counts(i[1], i[0], 1, T, E, K);
    ops->router_choose_evenly(i[2], T, E, K);
}

static void test_choose(void **test)
{
    (void)test;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t kind = 0; kind < LOGITS_KINDS; kind++) {
            struct trial trial;
            size_t T = shapes[s][0], E = shapes[s][1], K = shapes[s][2];
            trial_begin(&trial, "choose (T×E×K)", 3, T, E, K);
            add_logits(&trial, (enum logits)kind, T, E);
            trial_ints(&trial, T * K);
            trial_ints(&trial, E);
            trial_ints(&trial, T * K);
            trial_end(&trial, run_choose);
        }
}

// dims: T, E, K, groups, group_topk
static void run_choose_groups(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    ops->router_choose(i[0], r[0], t->dims[0], t->dims[1], t->dims[2], t->dims[3], t->dims[4]);
}

static void test_choose_in_groups(void **test)
{
    static const size_t sizes[][5] = {{5, 4, 2, 2, 1}, {33, 8, 2, 4, 2}, {65, 16, 4, 4, 2}, {100, 24, 5, 3, 2}, {17, 64, 8, 8, 4}, {9, 6, 3, 3, 3}};
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t kind = 0; kind < LOGITS_KINDS; kind++) {
            struct trial trial;
            const size_t *d = sizes[s];
            trial_begin(&trial, "choose in groups (T×E×K×groups×group_topk)", 5, d[0], d[1], d[2], d[3], d[4]);
            add_logits(&trial, (enum logits)kind, d[0], d[1]);
            trial_ints(&trial, d[0] * d[2]);
            trial_end(&trial, run_choose_groups);
        }
}

// dims: T, E, capacity
static void run_choose_tokens(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    ops->router_choose_tokens(i[0], r[0], t->dims[0], t->dims[1], t->dims[2]);
}

static void test_choose_tokens(void **test)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {5, 3, 2}, {65, 8, 16}, {130, 5, 129}, {300, 3, 1}, {9, 4, 9}};
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t kind = 0; kind < LOGITS_KINDS; kind++) {
            struct trial trial;
            const size_t *d = sizes[s];
            trial_begin(&trial, "choose tokens (T×E×capacity)", 3, d[0], d[1], d[2]);
            add_logits(&trial, (enum logits)kind, d[0], d[1]);
            trial_ints(&trial, d[0] * d[1]);
            trial_end(&trial, run_choose_tokens);
        }
}

// dims: T, E, J, capacity, by position
static void run_drop(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    ops->router_choose(i[0], r[0], t->dims[0], t->dims[1], t->dims[2], 0, 0);
    ops->router_drop(i[1], i[0], t->dims[4] ? NULL : r[1], t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
}

static void test_drop(void **test)
{
    static const size_t sizes[][4] = {{1, 1, 1, 1}, {9, 3, 2, 4}, {65, 8, 2, 12}, {200, 5, 3, 1}, {257, 4, 4, 200}, {30, 4, 1, 100}};
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t kind = 0; kind < 4; kind++) { // half of the probabilities rounded, so that many are equal
            struct trial trial;
            size_t T = sizes[s][0], E = sizes[s][1], J = sizes[s][2];
            trial_begin(&trial, "drop (T×E×J×capacity×by position)", 5, T, E, J, sizes[s][3], kind % 2);
            add_logits(&trial, LOGITS_NORMAL, T, E);
            double *probs = trial_reals(&trial, T * J, 1);
            for (size_t i = 0; i < T * J; i++)
                probs[i] = kind < 2 ? fabs(probs[i]) : floor(2 * probs[i]) / 2;
            trial_ints(&trial, T * J);
            trial_ints(&trial, T * J);
            trial_end(&trial, run_drop);
        }
}

// Logits that are no numbers still choose K different experts, and full experts stay as full, so that the run lives to report its loss.
static void not_a_number(const struct device *device)
{
    enum { T = 6, E = 19, K = 5, CAPACITY = 2 };
    for (size_t place = 0; place <= E; place++) {
        struct trial t;
        trial_begin(&t, "drop", 5, (size_t)T, (size_t)E, (size_t)K, (size_t)CAPACITY, (size_t)0);
        double *logits = trial_reals(&t, T * E, 1);
        for (size_t i = 0; i < T * E; i++)
            logits[i] = place == E || i % E == place ? NAN : logits[i];
        double *probs = trial_reals(&t, T * K, 1);
        for (size_t i = 0; i < T * K; i += 2)
            probs[i] = NAN;
        trial_ints(&t, T * K);
        trial_ints(&t, T * K);
        trial_on(&t, device, run_drop);
        int kept[E] = {0};
        for (size_t token = 0; token < T; token++) {
            bool seen[E] = {0};
            for (size_t j = 0; j < K; j++) {
                int32_t e = t.ints[0][token * K + j];
                assert_in_range(e, 0, E - 1);
                assert_false(seen[e]);
                seen[e] = true;
                if (t.ints[1][token * K + j] >= 0)
                    assert_true(++kept[e] <= CAPACITY);
            }
        }
        trial_release(&t);
    }
}

// What the choices must mean, without any other device.
static void choices_mean(const struct device *device)
{
    struct trial t;
    static const double logits[] = {1, 3, 3, 2, /* */ 5, 5, 5, 5, /* */ -1e4, 0, 1e4, 0, /* */ 0, -0.0, -1, -1};
    static const int32_t best[] = {1, 2, 0, 1, 2, 1, 0, 1}, evenly[] = {0, 1, 2, 3, 0, 1, 2, 3}, counts[] = {2, 4, 2, 0};
    trial_begin(&t, "choose", 3, (size_t)4, (size_t)4, (size_t)2);
    memcpy(trial_reals(&t, 16, 1), logits, sizeof logits);
    trial_ints(&t, 8);
    trial_ints(&t, 4);
    trial_ints(&t, 8);
    trial_on(&t, device, run_choose);
    assert_memory_equal(t.ints[0], best, sizeof best);
    assert_memory_equal(t.ints[1], counts, sizeof counts);
    assert_memory_equal(t.ints[2], evenly, sizeof evenly);
    trial_release(&t);

    // Two groups of two: the better by its largest alone, although the other's sum is larger; then equal groups.
    static const double grouped[] = {9, 0, 8, 7, /* */ 1, 1, 1, 1};
    trial_begin(&t, "choose in groups", 5, (size_t)2, (size_t)4, (size_t)2, (size_t)2, (size_t)1);
    memcpy(trial_reals(&t, 8, 1), grouped, sizeof grouped);
    trial_ints(&t, 4);
    trial_on(&t, device, run_choose_groups);
    static const int32_t by_sum[] = {2, 3, 0, 1}; // K / group_topk = 2 count: 8 + 7 beats 9 + 0
    assert_memory_equal(t.ints[0], by_sum, sizeof by_sum);
    trial_release(&t);

    // Expert 0 is wanted most by token 2, then by 0 and 1 alike: the lower goes first. Expert 1: token 1, then 0.
    static const double keys[] = {1, 2, /* */ 1, 3, /* */ 2, 0};
    static const int32_t taken[] = {0, 1, -1, 1, 0, -1};
    trial_begin(&t, "choose tokens", 3, (size_t)3, (size_t)2, (size_t)2);
    memcpy(trial_reals(&t, 6, 1), keys, sizeof keys);
    trial_ints(&t, 6);
    trial_on(&t, device, run_choose_tokens);
    assert_memory_equal(t.ints[0], taken, sizeof taken);
    trial_release(&t);
}

// Four tokens want the same expert, which has room for two.
static void drops_mean(const struct device *device)
{
    for (size_t by_position = 0; by_position < 2; by_position++) {
        struct trial t;
        static const double probs[] = {0.2, 0.5, 0.9, 0.5};
        static const int32_t by_size[] = {-1, 0, 0, -1}, first[] = {0, 0, -1, -1};
        trial_begin(&t, "drop", 5, (size_t)4, (size_t)1, (size_t)1, (size_t)2, by_position);
        trial_reals(&t, 4, 1);
        memcpy(trial_reals(&t, 4, 1), probs, sizeof probs);
        trial_ints(&t, 4);
        trial_ints(&t, 4);
        trial_on(&t, device, run_drop);
        assert_memory_equal(t.ints[1], by_position ? first : by_size, sizeof first);
        trial_release(&t);
    }
}

static void test_choices_mean(void **test)
{
    static void (*const each[])(const struct device *device) = {choices_mean, drops_mean, not_a_number};
    (void)test;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        each[i](device_reference());
        each_cpu(each[i]);
    }
}

// ---- numbers ----

// dims: B, S, E, J, function, normalised, with a bias, where experts choose (J = E)
static void run_weights(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    size_t B = t->dims[0], S = t->dims[1], E = t->dims[2], J = t->dims[3], T = B * S;
    struct weighing weighing = {(enum score_function)t->dims[4], t->dims[5], 1.5};
    if (t->dims[7])
        ops->router_choose_tokens(i[0], r[0], T, E, (T + 1) / 2);
    else
        ops->router_choose(i[0], r[0], T, E, J, 0, 0);
    if (T * J <= 600) // the reference's way takes the square of it
        ops->router_drop(i[1], i[0], NULL, T, E, J, (T * J + E - 1) / E);
    int32_t *choice = T * J <= 600 ? i[1] : i[0];
    ops->router_scores(r[1], r[0], t->dims[6] ? r[6] : NULL, T, E, weighing.function);
    ops->router_weights(r[2], choice, r[0], T, E, J, &weighing);
    double *masses = malloc(B * E * sizeof *masses), z = ops->router_z(r[0], T, E);
    ops->router_masses(masses, r[0], B, S, E, weighing.function);
    ops->from_double(r[3], masses, B * E);
    ops->from_double(r[4], &z, 1);
    free(masses);
    ops->router_backward(r[5], r[7], choice, r[0], t->dims[6] ? r[3] : NULL, t->dims[6] ? 0.01 : 0, B, S, E, J, &weighing);
}

static void weights_trial(enum logits kind, size_t B, size_t S, size_t E, size_t K, size_t function, size_t bits)
{
    struct trial trial;
    bool experts_choose = bits & 4;
    size_t T = B * S, J = experts_choose ? E : K;
    trial_begin(&trial, "weights (B×S×E×J×function×normalised×bias×experts choose)", 8, B, S, E, J, function, bits & 1, bits >> 1 & 1, bits >> 2);
    add_logits(&trial, kind, T, E);
    trial_reals(&trial, T * E, 1);
    trial_reals(&trial, T * J, 1);
    trial_reals(&trial, B * E, 1);
    trial_reals(&trial, 1, 1);
    trial_reals(&trial, T * E, 1);
    trial_reals(&trial, E, 1);
    trial_reals(&trial, T * J, 1);
    trial_ints(&trial, T * J);
    trial_ints(&trial, T * J);
    trial.terms[5] = 3; // differences of what flows in
    if (kind == LOGITS_10000)
        trial.terms[5] = 1e4;
    trial_end(&trial, run_weights);
}

static void test_weights(void **test)
{
    static const size_t sizes[][4] = {{1, 1, 1, 1}, {2, 3, 5, 2}, {1, 65, 16, 4}, {3, 11, 64, 8}, {2, 300, 7, 3}}; // B, S, E, K
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t function = 0; function < FUNCTIONS; function++)
            for (size_t kind = 0; kind < LOGITS_KINDS; kind++)
                for (size_t bits = 0; bits < 8; bits++)
                    weights_trial((enum logits)kind, sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], function, bits);
}

// One expert: weight and mass exactly 1 a token, and no gradient, whatever the logits and whatever pulls.
static void single_expert(const struct device *device)
{
    for (size_t T = 1; T < 400; T += 57)
        for (size_t normalised = 0; normalised < 2; normalised++) {
            struct trial t;
            trial_begin(&t, "weights", 8, (size_t)1, T, (size_t)1, (size_t)1, (size_t)SCORES_SOFTMAX, normalised, (size_t)0, (size_t)0);
            trial_reals(&t, T, 30);
            for (size_t a = 1; a < 8; a++)
                trial_reals(&t, a == 3 || a == 4 || a == 6 ? 1 : T, 1);
            trial_ints(&t, T);
            trial_ints(&t, T);
            trial_on(&t, device, run_weights);
            assert_true(t.reals[3][0] == (double)T);
            for (size_t i = 0; i < T; i++)
                assert_true(t.reals[1][i] == 1 && t.reals[2][i] == 1.5 && t.reals[5][i] == 0);
            trial_release(&t);
        }
}

// At logits of zero: softmax 1/E, sigmoid 1/2, softplus ln 2; a token's logsumexp is ln E.
static void zero_logits(const struct device *device)
{
    static const double scores[] = {0.25, 0.5, 0.83255461115769775635}; // the last: sqrt(ln 2)
    for (size_t function = 0; function < FUNCTIONS; function++) {
        struct trial t;
        trial_begin(&t, "weights", 8, (size_t)1, (size_t)3, (size_t)4, (size_t)2, function, (size_t)1, (size_t)0, (size_t)0);
        for (size_t a = 0; a < 8; a++)
            trial_reals(&t, a == 3 || a == 6 ? 4 : a == 4 ? 1 : a == 2 || a == 7 ? 6 : 12, a ? 1 : 0);
        trial_ints(&t, 6);
        trial_ints(&t, 6);
        trial_on(&t, device, run_weights);
        for (size_t i = 0; i < 12; i++)
            assert_true(fabs(t.reals[1][i] - scores[function]) < 1e-7);
        for (size_t e = 0; e < 4; e++)
            assert_true(fabs(t.reals[3][e] - 0.75) < 1e-6); // normalised: 1/4 of each of 3 tokens
        assert_true(fabs(t.reals[4][0] - 3 * log(4) * log(4)) < 1e-5);
        trial_release(&t);
    }
}

static void test_numbers_mean(void **test)
{
    (void)test;
    single_expert(device_reference());
    each_cpu(single_expert);
    zero_logits(device_reference());
    each_cpu(zero_logits);
}

// ---- jitter ----

// dims: T, C
static void run_jitter(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    struct dropout jitter = {0.3, 0x123456789abcdef0u, 0xfffffffau, dropout_site(JITTER_ROUTER, 3)};
    ops->jitter(r[0], r[1], &jitter, t->dims[0], t->dims[1]);
    ops->jitter(r[1], r[1], &jitter, t->dims[0], t->dims[1]);
}

static void test_jitter(void **test)
{
    static const size_t sizes[][2] = {{1, 1}, {3, 17}, {12, 64}, {9, 130}};
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct trial trial;
        trial_begin(&trial, "jitter (T×C)", 2, sizes[s][0], sizes[s][1]);
        trial_reals(&trial, sizes[s][0] * sizes[s][1], 1);
        trial_reals(&trial, sizes[s][0] * sizes[s][1], 1);
        trial_end(&trial, run_jitter);
    }
}

// Factors of one value each, spread evenly between 1 − p and 1 + p, and those of a token stay its own wherever its row lies.
static void test_jitter_is_of_its_place(void **test)
{
    enum { C = 1000, T = 20 };
    (void)test;
    double factors[C], again[C], sum = 0, squares = 0, least = 2, most = 0;
    struct dropout jitter = {0.25, 7, 0xffffffffu, dropout_site(JITTER_ROUTER, 1)};
    for (uint64_t t = 0; t < T; t++) {
        struct dropout later = jitter;
        jitter_factors(factors, &jitter, t, C);
        later.token += t;
        jitter_factors(again, &later, 0, C / 3);
        assert_true(same_bits(factors, again, C / 3));
        for (size_t c = 0; c < C; c++) {
            sum += factors[c] - 1;
            squares += (factors[c] - 1) * (factors[c] - 1);
            least = fmin(least, factors[c]);
            most = fmax(most, factors[c]);
        }
    }
    assert_true(least > 0.75 && least < 0.751 && most < 1.25 && most > 1.249);
    assert_true(fabs(sum / (C * T)) < 5e-3 && fabs(squares / (C * T) - 0.25 * 0.25 / 3) < 1e-3);
}

// ---- products ----

// dims: T, E, C, arithmetic
static void run_products(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    (void)i;
    size_t T = t->dims[0], E = t->dims[1], C = t->dims[2];
    enum arithmetic arithmetic = (enum arithmetic)t->dims[3];
    ops->router_linear_forward(r[0], r[1], r[2], T, E, C, arithmetic);
    ops->router_linear_dinput(r[3], r[4], r[2], T, E, C, arithmetic);
    ops->router_linear_dweight(r[5], r[4], r[1], T, E, C, arithmetic);
}

static void test_products(void **test)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {5, 4, 7}, {65, 16, 33}, {130, 9, 64}, {3, 64, 129}};
    (void)test;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t arithmetic = 0; arithmetic < 3; arithmetic++) {
            struct trial trial;
            size_t T = sizes[s][0], E = sizes[s][1], C = sizes[s][2];
            trial_begin(&trial, "router's products (T×E×C×arithmetic)", 4, T, E, C, arithmetic);
            trial_reals(&trial, T * E, 1);
            trial_reals(&trial, T * C, 1);
            trial_reals(&trial, E * C, 1);
            trial_reals(&trial, T * C, 1);
            trial_reals(&trial, T * E, 1);
            trial_reals(&trial, E * C, 1);
            if (arithmetic == ARITHMETIC_FP64)
                trial.tolerance = 1.2e-7; // one rounding
            trial_end(&trial, run_products);
        }
}

// An operand that bf16 cannot hold is rounded to what it can: 1 + 2⁻⁹ is 1.
static void rounds_operands(const struct device *device)
{
    for (size_t arithmetic = 0; arithmetic < 3; arithmetic++) {
        struct trial t;
        trial_begin(&t, "router's products", 4, (size_t)1, (size_t)1, (size_t)1, arithmetic);
        for (size_t a = 0; a < 6; a++)
            trial_reals(&t, 1, 1)[0] = a == 5 ? 0 : a == 2 ? 3 : 1 + 0x1p-9;
        trial_on(&t, device, run_products);
        double x = arithmetic == ARITHMETIC_BF16 ? 1 : 1 + 0x1p-9;
        assert_true(t.reals[0][0] == 3 * x && t.reals[3][0] == 3 * x && t.reals[5][0] == (float)(x * x));
        trial_release(&t);
    }
}

static void test_products_mean(void **test)
{
    (void)test;
    rounds_operands(device_reference());
    each_cpu(rounds_operands);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choose),
        cmocka_unit_test(test_choose_in_groups),
        cmocka_unit_test(test_choose_tokens),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_choices_mean),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_numbers_mean),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_jitter_is_of_its_place),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_products_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
