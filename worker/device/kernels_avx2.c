// The kernels over vectors of 8 floats: 6 × 16 accumulators fill 12 of 16 registers.
#ifdef __x86_64__
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>
#include <stdint.h>

#define ISA "avx2"
#define KERNELS kernels_avx2
#define PANEL 6
enum { W = 8 };

typedef __m256 vec;

static inline vec v_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec v_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void v_store(float *to, vec x)
{
    _mm256_storeu_ps(to, x);
}

static inline __m256i first_lanes(unsigned long n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// The first n lanes (n ≤ W); the others are `fill`.
static inline vec v_load_part(const float *from, unsigned long n, float fill)
{
    __m256i lanes = first_lanes(n);
    return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(from, lanes), _mm256_castsi256_ps(lanes));
}

static inline void v_store_part(float *to, vec x, unsigned long n)
{
    _mm256_maskstore_ps(to, first_lanes(n), x);
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

// The larger of each lane; b where one is not a number.
static inline vec v_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec v_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

// rows[i] becomes lane i of every row: pairs, fours, then halves of registers change places.
static inline void v_transpose(vec rows[W])
{
    vec next[W];
#pragma GCC unroll 8
    for (int i = 0; i < W; i += 2) {
        next[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        next[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < W; i += 4)
        for (int half = 0; half < 2; half++) {
            rows[i + 2 * half] = _mm256_shuffle_ps(next[i + half], next[i + 2 + half], 0x44);
            rows[i + 2 * half + 1] = _mm256_shuffle_ps(next[i + half], next[i + 2 + half], 0xee);
        }
#pragma GCC unroll 8
    for (int c = 0; c < 4; c++) {
        next[c] = _mm256_permute2f128_ps(rows[c], rows[4 + c], 0x20);
        next[4 + c] = _mm256_permute2f128_ps(rows[c], rows[4 + c], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
        rows[i] = next[i];
}

// Lanes added in halves: i + (i + 4), then + (i + 2), …
static inline float v_sum(vec x)
{
    __m128 half = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
    half += _mm_movehl_ps(half, half);
    return half[0] + half[1];
}

// The largest lane; lanes that are not numbers may or may not show.
static inline float v_top(vec x)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return half[0] > half[1] ? half[0] : half[1];
}

static inline vec v_one_if_zero(vec x)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ), _mm256_set1_ps(1));
}

static inline vec v_sqrt(vec x)
{
    return _mm256_sqrt_ps(x);
}

static inline vec v_round(vec x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// x · 2ⁿ for whole n in −150…129, in two steps since 2ⁿ itself may not be a float.
static inline vec v_power(vec x, vec n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return x * _mm256_castsi256_ps(first) * _mm256_castsi256_ps(second);
}

static inline void v_store_fp16(uint16_t *to, vec x)
{
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vec v_load_fp16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

#include "worker/device/kernels_all.inc"
#endif
