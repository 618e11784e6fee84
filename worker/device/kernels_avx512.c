// The kernels over vectors of 16 floats: 14 × 32 accumulators fill 28 of 32 registers.
#ifdef __x86_64__
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#include <immintrin.h>
#include <stdint.h>

#define ISA "avx512"
#define KERNELS kernels_avx512
#define PANEL 14
enum { W = 16 };

typedef __m512 vec;

static inline vec v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec v_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void v_store(float *to, vec x)
{
    _mm512_storeu_ps(to, x);
}

// The first n lanes (n ≤ W); the others are `fill`.
static inline vec v_load_part(const float *from, unsigned long n, float fill)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)((1u << n) - 1), from);
}

static inline void v_store_part(float *to, vec x, unsigned long n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), x);
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

// The larger of each lane; b where one is not a number.
static inline vec v_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline vec v_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

// rows[i] becomes lane i of every row: pairs, fours, then quarters of registers change places.
static inline void v_transpose(vec rows[W])
{
    vec next[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; i += 2) {
        next[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        next[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i += 4)
        for (int half = 0; half < 2; half++) {
            __m512d low = _mm512_castps_pd(next[i + half]), high = _mm512_castps_pd(next[i + 2 + half]);
            rows[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            rows[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    // rows[4·g + c] holds columns c, c + 4, c + 8, c + 12 of rows 4·g … 4·g + 3.
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        vec low_even = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0x88), low_odd = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0xdd);
        vec high_even = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0x88);
        vec high_odd = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0xdd);
        next[c] = _mm512_shuffle_f32x4(low_even, high_even, 0x88);
        next[4 + c] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
        next[8 + c] = _mm512_shuffle_f32x4(low_even, high_even, 0xdd);
        next[12 + c] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i++)
        rows[i] = next[i];
}

// Lanes added in halves: i + (i + 8), then + (i + 4), …
static inline float v_sum(vec x)
{
    return _mm512_reduce_add_ps(x);
}

// The largest lane; lanes that are not numbers may or may not show.
static inline float v_top(vec x)
{
    return _mm512_reduce_max_ps(x);
}

static inline vec v_one_if_zero(vec x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ), _mm512_set1_ps(1));
}

static inline vec v_sqrt(vec x)
{
    return _mm512_sqrt_ps(x);
}

static inline vec v_round(vec x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// x · 2ⁿ for whole n.
static inline vec v_power(vec x, vec n)
{
    return _mm512_scalef_ps(x, n);
}

static inline void v_store_fp16(uint16_t *to, vec x)
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vec v_load_fp16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

#include "worker/device/kernels_all.inc"
#endif
