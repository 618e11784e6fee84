#include "tests/bench/peak.h"
#include "tests/bench/seconds.h"

#include <stddef.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { CHAINS = 12, STEPS = 2000000 };

// Twelve chains of multiply-adds that never leave registers, so that neither latency nor memory shows. What they start from is unknown to
// the compiler, and their sum is kept, so that it can leave nothing out.
static volatile float start_value = 0.5f, kept;

#define CHAINS_OF(name, isa, lanes)                                                                                                        \
    typedef float name##_vector __attribute__((vector_size(lanes * 4)));                                                                   \
    __attribute__((target(isa), noinline, optimize("fp-contract=fast"))) static double name(void)                                          \
    {                                                                                                                                      \
        name##_vector sums[CHAINS], by = (name##_vector){0} + start_value, total = {0};                                                    \
        double start = seconds();                                                                                                          \
        for (size_t i = 0; i < CHAINS; i++)                                                                                                \
            sums[i] = by * (float)i;                                                                                                       \
        for (size_t step = 0; step < STEPS; step++)                                                                                        \
            _Pragma("GCC unroll 12") for (size_t i = 0; i < CHAINS; i++) sums[i] = sums[i] * by + by;                                      \
        double took = seconds() - start;                                                                                                   \
        for (size_t i = 0; i < CHAINS; i++)                                                                                                \
            total += sums[i];                                                                                                              \
        kept = total[0];                                                                                                                   \
        return 2.0 * lanes * CHAINS * STEPS / took / 1e9;                                                                                  \
    }

#ifdef __x86_64__
CHAINS_OF(chains_avx512, "avx512f", 16)
CHAINS_OF(chains_avx2, "avx2,fma", 8)

double peak_rate(void)
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        double now = __builtin_cpu_supports("avx512f") ? chains_avx512() : __builtin_cpu_supports("fma") ? chains_avx2() : 0;
        best = now > best ? now : best;
    }
    return best;
}
// The same with pairs of bf16: two multiply-adds an fp32 lane.
__attribute__((target("avx512f,avx512bf16"), noinline)) static double chains_bf16(void)
{
    __m512 sums[CHAINS], total = _mm512_setzero_ps();
    __m512bh by = (__m512bh)_mm512_set1_ps(start_value);
    double start = seconds();
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    for (size_t step = 0; step < STEPS; step++)
#pragma GCC unroll 12
        for (size_t i = 0; i < CHAINS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], by, by);
    double took = seconds() - start;
    for (size_t i = 0; i < CHAINS; i++)
        total += sums[i];
    kept = total[0];
    return 4.0 * 16 * CHAINS * STEPS / took / 1e9;
}

double peak_rate_bf16(void)
{
    double best = 0;
    for (int round = 0; round < 5 && __builtin_cpu_supports("avx512bf16"); round++) {
        double now = chains_bf16();
        best = now > best ? now : best;
    }
    return best;
}
#else
double peak_rate(void)
{
    return 0;
}

double peak_rate_bf16(void)
{
    return 0;
}
#endif
