// The kernels in plain C over the compiler's own vectors of 4 floats: what any machine can run.
#include "worker/device/format.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ISA "plain"
#define KERNELS kernels_plain
#define PANEL 4
enum { W = 4 };

typedef float vec __attribute__((vector_size(16)));
typedef int32_t ivec __attribute__((vector_size(16)));

static inline vec v_set(float x)
{
    return (vec){x, x, x, x};
}

static inline vec v_load(const float *from)
{
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void v_store(float *to, vec x)
{
    memcpy(to, &x, sizeof x);
}

// The first n lanes (n ≤ W); the others are `fill`.
static inline vec v_load_part(const float *from, unsigned long n, float fill)
{
    vec x = v_set(fill);
    for (unsigned long i = 0; i < n; i++)
        x[i] = from[i];
    return x;
}

static inline void v_store_part(float *to, vec x, unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        to[i] = x[i];
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

// The larger of each lane; b where one is not a number.
static inline vec v_max(vec a, vec b)
{
    ivec first = a > b;
    return (vec)((first & (ivec)a) | (~first & (ivec)b));
}

static inline vec v_min(vec a, vec b)
{
    ivec first = a < b;
    return (vec)((first & (ivec)a) | (~first & (ivec)b));
}

// rows[i] becomes lane i of every row.
static inline void v_transpose(vec rows[W])
{
    for (int i = 0; i < W; i++)
        for (int j = 0; j < i; j++) {
            float kept = rows[i][j];
            rows[i][j] = rows[j][i];
            rows[j][i] = kept;
        }
}

// Lanes added in halves.
static inline float v_sum(vec x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}

// The largest lane; lanes that are not numbers may or may not show.
static inline float v_top(vec x)
{
    float even = x[0] > x[2] ? x[0] : x[2], odd = x[1] > x[3] ? x[1] : x[3];
    return even > odd ? even : odd;
}

static inline vec v_one_if_zero(vec x)
{
    return (vec)((x == v_set(0)) & (ivec)v_set(1));
}

static inline vec v_sqrt(vec x)
{
    return (vec){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}

// To the nearest whole number, for |x| < 2²²: adding 1.5·2²³ leaves no room for a fraction.
static inline vec v_round(vec x)
{
    vec magic = v_set(12582912.0f);
    return x + magic - magic;
}

// x · 2ⁿ for whole n in −150…129, in two steps since 2ⁿ itself may not be a float.
static inline vec v_power(vec x, vec n)
{
    ivec whole = __builtin_convertvector(n, ivec), half = whole >> 1;
    ivec first = (half + 127) << 23, second = (whole - half + 127) << 23;
    return x * (vec)first * (vec)second;
}

static inline void v_store_fp16(uint16_t *to, vec x)
{
    for (size_t i = 0; i < W; i++)
        to[i] = fp16_of(x[i]);
}

static inline vec v_load_fp16(const uint16_t *from)
{
    return (vec){float_of_fp16(from[0]), float_of_fp16(from[1]), float_of_fp16(from[2]), float_of_fp16(from[3])};
}

#include "worker/device/kernels_all.inc"
