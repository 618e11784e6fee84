// Products of bf16 numbers into fp32 sums, two at a time: an fp32 lane holds the numbers of two neighbouring k, a pair, and a step multiplies
// and adds both. Everything else is as in kernels_matmul.inc, with pairs where that has floats. Numbers are rounded on the way into a
// panel or a strip, so nothing is kept in bf16 but the weights that are.
#ifdef __x86_64__
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")
#include "worker/device/kernels.h"

#include <assert.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "worker/device/kernels_avx512.inc"

#include "worker/device/kernels_vector.inc"

static inline vec v_step(vec x, vec b, vec total)
{
    return _mm512_dpbf16_ps(total, (__m512bh)x, (__m512bh)b);
}

static inline vec nearest_bf16(vec x)
{
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)), 16);
}

#define V_RESULT(x) nearest_bf16(x)
#define FLOATS_A_LANE 2
#include "worker/device/kernels_panel.inc"

// Lane i is the pair (low[i], high[i]).
static inline vec pairs_of_floats(vec low, vec high)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2,
        17, 1, 16, 0);
    return (vec)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

// Pairs of two rows of floats into rows of pairs: n ≤ W lanes; high NULL: zeros.
static inline vec pairs_of_rows(const float *low, const float *high, size_t n)
{
    return pairs_of_floats(v_load_n(low, n), high ? v_load_n(high, n) : v_set(0));
}

// The same of two rows of bf16 numbers, 32 lanes of pairs from n ≤ 32 numbers.
static inline void pairs_of_numbers(float *out, const uint16_t *low, const uint16_t *high, size_t n)
{
    const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2,
        33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    __mmask32 lanes = (__mmask32)((1ull << n) - 1);
    __m512i a = _mm512_maskz_loadu_epi16(lanes, low), b = high ? _mm512_maskz_loadu_epi16(lanes, high) : _mm512_setzero_si512();
    v_store(out, (vec)_mm512_permutex2var_epi16(a, first, b));
    v_store(out + W, (vec)_mm512_permutex2var_epi16(a, second, b));
}

static void pack_number_rows(float *out, size_t spacing, const uint16_t *b, size_t row, size_t K, size_t N)
{
    for (size_t k = 0; k < K; k += 2, b += 2 * row) {
        const uint16_t *high = k + 1 < K ? b + row : NULL;
        float *to = out + k / 2 * STRIP;
        for (size_t j = 0; j < N; j += STRIP, to += spacing)
            pairs_of_numbers(to, b + j, high ? high + j : NULL, N - j < STRIP ? N - j : STRIP);
    }
}

static void pack_float_rows(float *out, size_t spacing, const float *b, size_t row, size_t K, size_t N)
{
    for (size_t k = 0; k < K; k += 2, b += 2 * row) {
        const float *high = k + 1 < K ? b + row : NULL;
        float *to = out + k / 2 * STRIP;
        for (size_t j = 0; j < N; j += STRIP, to += spacing)
            for (size_t half = 0; half < STRIP; half += W) {
                size_t from = j + half, n = N > from ? (N - from < W ? N - from : W) : 0;
                __builtin_prefetch(b + PACK_AHEAD * row + from);
                __builtin_prefetch(b + (PACK_AHEAD + 1) * row + from);
                if (n == W && high)
                    v_store(to + half, pairs_of_floats(v_load(b + from), v_load(high + from)));
                else
                    v_store(to + half, n ? pairs_of_rows(b + from, high ? high + from : NULL, n) : v_set(0));
            }
    }
}

// Rows along k hold their pairs already: they are turned as floats are.
static void pack_number_columns(float *out, size_t spacing, const uint16_t *b, size_t column, size_t K, size_t N)
{
    assert(K % 2 == 0 && column % 2 == 0);
    const float *pairs = (const float *)(const void *)b;
    for (size_t j = 0; j < N; j += STRIP, out += spacing)
        for (size_t half = 0; half < STRIP; half += W) {
            size_t from = j + half, n = N > from ? (N - from < W ? N - from : W) : 0;
            pack_turned(out + half, STRIP, pairs + from * (column / 2), column / 2, n, K / 2);
        }
}

static void pack_right(float *out, size_t spacing, const void *b, bool narrow, size_t row, size_t column, size_t K, size_t N)
{
    if (column != 1)
        pack_number_columns(out, spacing, b, column, K, N);
    else if (narrow)
        pack_number_rows(out, spacing, b, row, K, N);
    else
        pack_float_rows(out, spacing, b, row, K, N);
}

static void pack_panels(float *out, size_t spacing, const float *a, size_t column, const struct panel_starts *starts, size_t K)
{
    for (size_t k = 0; k < K; k += 2, a += 2 * column)
        for (size_t p = 0; p < starts->count; p++) {
            size_t from = starts->at[p];
            float *to = out + p * spacing + k / 2 * PANEL;
            __mmask16 rows = (__mmask16)((1u << (starts->at[p + 1] - from)) - 1);
            vec low = _mm512_maskz_loadu_ps(rows, a + from);
            vec high = k + 1 < K ? _mm512_maskz_loadu_ps(rows, a + column + from) : v_set(0);
            __builtin_prefetch(a + PACK_AHEAD * column + from);
            __builtin_prefetch(a + (PACK_AHEAD + 1) * column + from);
            if (k + 2 < K)
                v_store(to, pairs_of_floats(low, high));
            else
                v_store_part(to, pairs_of_floats(low, high), PANEL);
        }
}

static struct left pack_left(float *out, const float *a, size_t column, size_t M, size_t K)
{
    size_t spacing = PANEL * ((K + 1) / 2) + PANEL_SPARE;
    struct panel_starts starts;
    for (size_t p = 0; next_starts(&starts, M, p); p += starts.count)
        pack_panels(out + p * spacing, spacing, a, column, &starts, K);
    return (struct left){out, 1, PANEL, spacing};
}

// A row of K floats as (K + 1)/2 pairs.
static void pairs_of_row(float *out, const float *row, size_t K)
{
    size_t k = 0;
    for (; k + 2 * W <= K; k += 2 * W)
        v_store(out + k / 2, (vec)_mm512_cvtne2ps_pbh(v_load(row + k + W), v_load(row + k)));
    if (k < K) {
        size_t n = K - k, first = n < W ? n : W;
        vec low = v_load_n(row + k, first), high = n > W ? v_load_n(row + k + W, n - W) : v_set(0);
        v_store_n(out + k / 2, (vec)_mm512_cvtne2ps_pbh(high, low), (n + 1) / 2);
    }
}

static void multiply(
    float *c, size_t c_row, struct left a, const float *b, size_t spacing, size_t M, size_t N, size_t K, enum finish finish)
{
    assert(a.panel);
    for (size_t p = 0; p < panel_count(M); p++) {
        size_t from = panel_start(M, p), rows = panel_start(M, p + 1) - from;
        panel_times_strips(
            c + from * c_row, c_row, a.at + p * a.panel, a.column, false, rows, NULL, 0, b, spacing, N, (K + 1) / 2, finish);
    }
}

static void multiply_rows(float *c, size_t c_row, const float *a, size_t row, float *own, const float *b, size_t spacing, size_t M, size_t N,
    size_t K, enum finish finish)
{
    size_t pairs = (K + 1) / 2, own_row = pairs + OWN_ROW_SPARE;
    for (size_t p = 0; p < panel_count(M); p++) {
        size_t from = panel_start(M, p), rows = panel_start(M, p + 1) - from;
        for (size_t i = 0; i < rows; i++)
            pairs_of_row(own + i * own_row, a + (from + i) * row, K);
        panel_times_strips(c + from * c_row, c_row, own, own_row, true, rows, a + (from + rows) * row, row, b, spacing, N, pairs, finish);
    }
}

const struct pair_kernels pairs_avx512bf16 = {
    .strip = STRIP, .pack_right = pack_right, .pack_left = pack_left, .multiply = multiply, .multiply_rows = multiply_rows};
#endif
