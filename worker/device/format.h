// Formats of two bytes, and a number's way there (to the nearest, ties to even; what is too large becomes infinite) and back (exact).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum format { FORMAT_FP32, FORMAT_BF16, FORMAT_FP16, FORMATS };

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t bf16_of(float x)
{
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); // not a number, and a quiet one
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float float_of_bf16(uint16_t x)
{
    return float_of_bits((uint32_t)x << 16);
}

static inline uint16_t fp16_of(float x)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x1ffu));
    if (size >= 0x477ff000u) // 65520 and more
        return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) // below 2^-14 steps are 2^-24, which is what a float next to 0.5 has: the addition rounds
        return (uint16_t)(sign | (float_bits(float_of_bits(size) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13);
}

static inline float float_of_fp16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = (uint32_t)(x & 0x7fffu) << 13;
    if (size >= 0x0f800000u) // infinite, or not a number
        return float_of_bits(sign | (size + 0x70000000u));
    float scaled = float_of_bits(size) * 0x1p112f; // exact, subnormal or not
    return float_of_bits(sign | float_bits(scaled));
}

// One number through the format and back, and its two bytes; format is not FORMAT_FP32.
static inline uint16_t narrowed(float x, enum format format)
{
    return format == FORMAT_BF16 ? bf16_of(x) : fp16_of(x);
}

static inline float widened(uint16_t x, enum format format)
{
    return format == FORMAT_BF16 ? float_of_bf16(x) : float_of_fp16(x);
}
