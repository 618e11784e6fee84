// Rotary frequencies, and which values dropout drops, by known values.
#include "tests/unit/shape_support.h"
#include "schema/shape/dropout.h"
#include "schema/shape/philox.h"
#include "schema/shape/rope.h"

#include <math.h>

static struct spec rotary(int64_t head_dim, double base)
{
    struct spec spec = {0};
    spec.model.attention_heads = 1;
    spec.model.hidden_size = spec.model.head_dim = head_dim;
    spec.model.rope_base = base;
    return spec;
}

static void test_plain_frequencies(void **state)
{
    (void)state;
    struct spec spec = rotary(8, 10000);
    double frequencies[4];
    static const double expected[] = {1, 0.1, 0.01, 0.001};
    rope_frequencies(frequencies, &spec);
    for (size_t i = 0; i < 4; i++)
        assert_true(fabs(frequencies[i] / expected[i] - 1) < 1e-15);
}

// Of transformers 5.24.0 for Llama 3.1 (theta 500000, factor 8, low 1, high 4, original length 8192), which computes in float32: on both
// sides of both borders and between them.
static void test_scaling_of_llama(void **state)
{
    static const struct { size_t at; double frequency; } expected[] = {{0, 1}, {1, 0.814617217}, {10, 0.128687382}, {28, 0.00321144611},
        {29, 0.00216657063}, {30, 0.00137189368}, {32, 0.000524846022}, {34, 0.000178507791}, {35, 9.55621217e-05}, {36, 7.78465546e-05},
        {40, 3.42810235e-05}, {50, 4.41153452e-06}, {63, 3.06892588e-07}};
    (void)state;
    struct spec spec = rotary(128, 500000);
    double frequencies[64], plain[64];
    rope_frequencies(plain, &spec);
    spec.model.rope_scaling_factor = 8;
    spec.model.rope_scaling_low_freq_factor = 1;
    spec.model.rope_scaling_high_freq_factor = 4;
    spec.model.rope_scaling_original_length = 8192;
    rope_frequencies(frequencies, &spec);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (fabs(frequencies[expected[i].at] / expected[i].frequency - 1) > 2e-6)
            fail_msg("frequency %zu: %.9g, transformers %.9g", expected[i].at, frequencies[expected[i].at], expected[i].frequency);
    for (size_t i = 0; i < 64; i++)
        assert_true(frequencies[i] <= plain[i] && frequencies[i] >= plain[i] / 8 && (i == 0 || frequencies[i] < frequencies[i - 1]));
    assert_true(frequencies[28] == plain[28] && frequencies[63] == plain[63] / 8);
}

// Value i of a row is dropped where word i / 16 % 4 of block i / 64 · 16 + i % 16 is small.
static void test_dropout_draws_by_place(void **state)
{
    (void)state;
    struct dropout dropout = {0.25, 0x0000000500000007u, 0x300000001u, dropout_site(DROPOUT_SCORES, 3)};
    assert_int_equal(dropout.site, (1 << 24) + (3 << 14));
    assert_int_equal(dropout_threshold(&dropout), 1u << 30);
    static const uint64_t indices[] = {0, 15, 16, 63, 64, 100, 1000};
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        uint64_t index = indices[i];
        uint32_t words[4], counter[] = {(uint32_t)(index / 64 * 16 + index % 16), dropout.site + 2, 0x6, 0x3}, key[] = {7, ~5u};
        philox4x32(words, counter, key);
        double expected = words[index / 16 % 4] < 1u << 30 ? 0 : 4.0 / 3;
        assert_true(dropout_factor(&dropout, 5, 2, index) == expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_frequencies), cmocka_unit_test(test_scaling_of_llama), cmocka_unit_test(test_dropout_draws_by_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
