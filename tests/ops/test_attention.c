// Causal attention: shapes that end inside tiles, shared key heads, sharp and flat scores, windows, documents, dropout; that the future does
// not show, and other documents neither.
#include "schema/base/text.h"
#include "tests/ops/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

// dims: B, S, H, G, D, window, documents, per mille dropped; the integers are first keys, used where documents is set
static struct attention_options options_of(const struct trial *t, int32_t **i)
{
    const size_t *d = t->dims;
    return (struct attention_options){d[0], d[1], d[2], d[3], d[4], d[5], d[6] ? i[0] : NULL,
        {(double)d[7] / 1000, 99, 0xfffffff0u, dropout_site(DROPOUT_SCORES, 2)}};
}

static void run_forward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    struct attention_options options = options_of(t, i);
    ops->attention_forward(r[0], r[1], r[2], &options);
}

static void run_backward(const struct device_ops *ops, void **r, int32_t **i, const struct trial *t)
{
    struct attention_options options = options_of(t, i);
    ops->attention_forward(r[0], r[1], r[2], &options);
    ops->attention_backward(r[3], r[4], r[2], r[0], r[1], &options);
}

// Documents of 1 to `longest` tokens.
static void set_documents(int32_t *first, size_t B, size_t S, size_t longest)
{
    for (size_t b = 0; b < B; b++)
        for (size_t s = 0, begin = 0, left = 0; s < S; s++, left--) {
            if (!left) {
                begin = s;
                left = 1 + below(longest);
            }
            first[b * S + s] = (int32_t)begin;
        }
}

static void attention_case(const size_t *d, size_t window, size_t longest, size_t per_mille, double scale, double tolerance)
{
    struct trial trial;
    size_t rows = d[0] * d[1], in = rows * (d[2] + 2 * d[3]) * d[4], out = rows * d[2] * d[4];
    trial_begin(&trial, "attention, forward and backward (B×S×H×G×D×window×documents×per mille)", 8, d[0], d[1], d[2], d[3], d[4], window,
        longest, per_mille);
    trial.tolerance = tolerance;
    trial_reals(&trial, out, 1);
    trial_reals(&trial, rows * d[2], 1);
    trial_reals(&trial, in, scale);
    trial_reals(&trial, in, 1);
    trial_reals(&trial, out, 1);
    int32_t *first = trial_ints(&trial, rows);
    if (longest)
        set_documents(first, d[0], d[1], longest);
    trial_end(&trial, run_backward);
}

static const size_t shapes[][5] = {{1, 1, 1, 1, 2}, {2, 3, 2, 1, 4}, {1, 17, 3, 3, 6}, {3, 33, 4, 2, 10}, {1, 65, 2, 2, 32},
    {2, 64, 4, 2, 32}, {1, 130, 6, 3, 16}, {1, 97, 2, 1, 34}, {1, 32, 8, 1, 66}, {1, 200, 2, 1, 8}, {1, 70, 1, 1, 5}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_shapes(void **test)
{
    (void)test;
    for (size_t s = 0; s < SHAPES; s++)
        attention_case(shapes[s], 0, 0, 0, 1, 6e-6);
}

static void test_sharp_and_flat(void **test)
{
    (void)test;
    attention_case((size_t[]){1, 65, 2, 1, 8}, 0, 0, 0, 1e-3, 6e-6);
    attention_case((size_t[]){1, 65, 2, 1, 8}, 0, 0, 0, 10, 3e-4); // scores of some hundreds: their rounding is multiplied by themselves
}

static void test_windows(void **test)
{
    static const size_t windows[] = {1, 2, 31, 64, 65, 1000};
    (void)test;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t w = s % 2; w < 6; w += 2)
            attention_case(shapes[s], windows[w], 0, 0, 1, 6e-6);
}

static void test_documents(void **test)
{
    static const size_t longest[] = {1, 3, 40, 150}; // 1: every token is a document
    (void)test;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t l = s % 2; l < 4; l += 2) {
            attention_case(shapes[s], 0, longest[l], 0, 1, 6e-6);
            attention_case(shapes[s], 9, longest[l], 0, 1, 6e-6);
        }
}

static void test_dropout(void **test)
{
    (void)test;
    for (size_t s = 0; s < SHAPES; s++) {
        attention_case(shapes[s], 0, 0, s % 2 ? 900 : 100, 1, 6e-6);
        attention_case(shapes[s], s % 3 ? 40 : 0, s % 2 ? 50 : 0, 500, 1, 6e-6);
    }
}

// Positions before s have the same bits whatever comes after, and a shorter sequence is a prefix of a longer one.
static void prefix(const struct device *device)
{
    enum { S = 77, H = 2, G = 1, D = 12, ROW = (H + 2 * G) * D };
    struct trial whole, part;
    size_t window = 0, documents = 0, per_mille = 200;
    trial_begin(&whole, "attention_forward", 8, (size_t)1, (size_t)S, (size_t)H, (size_t)G, (size_t)D, window, documents, per_mille);
    trial_reals(&whole, S * H * D, 1);
    trial_reals(&whole, S * H, 1);
    trial_reals(&whole, S * ROW, 1);
    trial_on(&whole, device, run_forward);
    for (size_t s = 1; s < S; s += 6) {
        trial_begin(&part, "attention_forward", 8, (size_t)1, s, (size_t)H, (size_t)G, (size_t)D, window, documents, per_mille);
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

// A document among others has the bits, forward and backward, that it has alone.
static void document_alone(const struct device *device)
{
    enum { S = 150, H = 2, G = 1, D = 12, ROW = (H + 2 * G) * D };
    static const size_t begins[] = {0, 1, 2, 40, 64, 65, 131, S};
    size_t none = 0, some = 1;
    struct trial whole, part;
    for (size_t window = 0; window <= 20; window += 20) {
        trial_begin(&whole, "attention", 8, (size_t)1, (size_t)S, (size_t)H, (size_t)G, (size_t)D, window, some, none);
        const size_t sizes[] = {S * H * D, S * H, S * ROW, S * ROW, S * H * D};
        for (size_t a = 0; a < 5; a++)
            trial_reals(&whole, sizes[a], 1);
        int32_t *first = trial_ints(&whole, S);
        for (size_t n = 0; n < 7; n++)
            for (size_t s = begins[n]; s < begins[n + 1]; s++)
                first[s] = (int32_t)begins[n];
        double dout[S * H * D];
        memcpy(dout, whole.reals[4], sizeof dout);
        trial_on(&whole, device, run_backward);
        for (size_t n = 0; n < 7; n++) {
            size_t at = begins[n], length = begins[n + 1] - at;
            trial_begin(&part, "attention", 8, (size_t)1, length, (size_t)H, (size_t)G, (size_t)D, window, none, none);
            trial_reals(&part, length * H * D, 1);
            trial_reals(&part, length * H, 1);
            memcpy(trial_reals(&part, length * ROW, 1), whole.reals[2] + at * ROW, length * ROW * sizeof(double));
            trial_reals(&part, length * ROW, 1);
            memcpy(trial_reals(&part, length * H * D, 1), dout + at * H * D, length * H * D * sizeof(double));
            trial_ints(&part, length);
            trial_on(&part, device, run_backward);
            assert_true(same_bits(part.reals[0], whole.reals[0] + at * H * D, length * H * D));
            for (size_t h = 0; h < H; h++)
                assert_true(same_bits(part.reals[1] + h * length, whole.reals[1] + h * S + at, length));
            for (size_t i = 0; i < length * ROW; i++) // sums over keys and queries go by tiles of the whole, and these begin elsewhere
                assert_true(fabs(part.reals[3][i] - whole.reals[3][at * ROW + i]) < 1e-5);
            trial_release(&part);
        }
        trial_release(&whole);
    }
}

static void test_document_alone(void **test)
{
    (void)test;
    each_cpu(document_alone);
    document_alone(device_reference());
}

// Hand-made: with scores all equal, a query's output is the mean of the values that it sees.
static void test_known_values(void **test)
{
    enum { S = 6, D = 2, ROW = 3 * D };
    static const double expected[2][S] = {{0, 0.5, 1.5, 2.5, 3.5, 4.5}, {0, 0.5, 1.5, 3, 3.5, 4.5}}; // window 2; then with a document from 3 on
    int32_t first[S] = {0, 0, 0, 3, 3, 3};
    double qkv[S * ROW] = {0}, out[S * D], lse[S];
    (void)test;
    for (size_t s = 0; s < S; s++)
        qkv[s * ROW + 2 * D] = (double)s;
    for (size_t documents = 0; documents < 2; documents++) {
        struct attention_options options = {1, S, 1, 1, D, 2, documents ? first : NULL, {.probability = 0}};
        device_reference_f64()->ops->attention_forward(out, lse, qkv, &options);
        for (size_t s = 0; s < S; s++) {
            assert_true(fabs(out[s * D] - expected[documents][s]) < 1e-15);
            assert_true(fabs(lse[s] - log(s && !(documents && s == 3) ? 2 : 1)) < 1e-15);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_sharp_and_flat),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_document_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
