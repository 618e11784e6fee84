// The kernels over vectors of 16 floats: 14 × 32 accumulators fill 28 of 32 registers.
#ifdef __x86_64__
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#include <immintrin.h>
#include <stdint.h>

#define ISA "avx512"
#define KERNELS kernels_avx512
#include "worker/device/kernels_avx512.inc"
#include "worker/device/kernels_all.inc"
#endif
