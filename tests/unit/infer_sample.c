// Drawing the next token: greedy ties, the order of temperature, top-k and top-p, and that a draw depends on the seed and its number alone.
#include "worker/infer/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { V = 6, DRAWS = 20000 };

static const double logits[V] = {1, 3, 0, 3, 2, -50};

static void draw(int counts[V], struct sampling_options options)
{
    int32_t order[V];
    for (int v = 0; v < V; v++)
        counts[v] = 0;
    for (uint64_t n = 0; n < DRAWS; n++)
        counts[sample_token(logits, V, &options, n, order)]++;
}

static void test_greedy(void **state)
{
    (void)state;
    int32_t order[V];
    assert_int_equal(sample_token(logits, V, &(struct sampling_options){.top_p = 1, .seed = 5}, 9, order), 1); // the lower of equals
    assert_int_equal(sample_token(logits + 2, V - 2, &(struct sampling_options){.top_p = 1}, 0, order), 1);
}

// The shares are the softmax's, at several temperatures.
static void test_shares(void **state)
{
    (void)state;
    static const double temperatures[] = {0.5, 1, 2};
    for (int i = 0; i < 3; i++) {
        int counts[V];
        double sum = 0;
        draw(counts, (struct sampling_options){.temperature = temperatures[i], .top_p = 1, .seed = 7});
        for (int v = 0; v < V; v++)
            sum += exp(logits[v] / temperatures[i]);
        for (int v = 0; v < V; v++) {
            double share = exp(logits[v] / temperatures[i]) / sum;
            assert_true(fabs(counts[v] / (double)DRAWS - share) < 5 * sqrt(share / DRAWS) + 1e-9);
        }
    }
}

static void test_top_k(void **state)
{
    (void)state;
    int counts[V];
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 1, .top_k = 3});
    assert_true(counts[1] > 0 && counts[3] > 0 && counts[4] > 0 && counts[1] + counts[3] + counts[4] == DRAWS);
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 1, .top_k = 1});
    assert_int_equal(counts[1], DRAWS); // of equals the lower
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 1, .top_k = 100});
    assert_true(counts[0] > 0 && counts[2] > 0);
}

// Shares of the two best: 0.39 each, of the third 0.14. Top-p after top-k is of what top-k left, whose two best have 0.42 each.
static void test_top_p(void **state)
{
    (void)state;
    int counts[V];
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 0.38});
    assert_int_equal(counts[1], DRAWS);
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 0.7});
    assert_true(counts[1] > 0 && counts[3] > 0 && counts[1] + counts[3] == DRAWS);
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 0.8});
    assert_true(counts[4] > 0 && counts[1] + counts[3] + counts[4] == DRAWS);
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 0.8, .top_k = 3});
    assert_int_equal(counts[4], 0);
    draw(counts, (struct sampling_options){.temperature = 1, .top_p = 0});
    assert_int_equal(counts[1], DRAWS); // the likeliest at least
}

static void test_stateless(void **state)
{
    (void)state;
    int32_t order[V], forth[50], other = 0;
    struct sampling_options options = {.temperature = 1, .top_p = 1, .seed = 3}, seed = {.temperature = 1, .top_p = 1, .seed = (uint64_t)3 << 32};
    for (uint64_t n = 0; n < 50; n++)
        forth[n] = sample_token(logits, V, &options, n, order);
    for (uint64_t n = 50; n-- > 0;) {
        assert_int_equal(sample_token(logits, V, &options, n, order), forth[n]);
        other += sample_token(logits, V, &seed, n, order) != forth[n];
    }
    assert_true(other > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy), cmocka_unit_test(test_shares), cmocka_unit_test(test_top_k), cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_stateless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
