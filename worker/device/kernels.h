// The inner loops of the cpu device, one table an instruction set: kernels_avx512.c, kernels_avx2.c and kernels_plain.c each compile
// kernels_*.inc over their own vector type. A kernel works on the calling thread, allocates nothing, and gives an element the same bits
// whatever the number of rows it is called with. Names and shapes as in device.h.
#pragma once
#include "schema/shape/dropout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "worker/device/format.h"

// The left operand of a product: element (i, k) at at[i·row + k·column], one of the strides being 1. panel > 0: packed by pack_left,
// panels that many floats apart.
struct left {
    const float *at;
    size_t row, column, panel;
};

// What becomes of the sum of a block of k: stored; added to what is there; and, by kernels that know how, rounded.
enum finish { FINISH_STORE = 0, FINISH_ADD = 1, FINISH_ROUND = 2 };

// What AdamW needs for every element: one_minus are 1 − β, correct are 1 − βᵗ.
struct adamw {
    float gradient_factor, rate, beta1, beta2, one_minus1, one_minus2, correct1, correct2, eps, decay;
};

struct kernels {
    const char *isa;
    size_t panel; // rows a product computes at a time, at most
    size_t strip; // columns a packed right operand has together

    // out = strips of b(K,N), element (k, n) at b[k·row + n·column], one of the strides being 1: strip j is K rows of `strip` columns, one
    // after another, or spacing apart.
    void (*pack_right)(float *out, const float *b, size_t row, size_t column, size_t K, size_t N);
    void (*pack_right_apart)(float *out, size_t spacing, const float *b, size_t row, size_t column, size_t K, size_t N);
    // out = panels of a(M,K), element (i, k) at a[i + k·column]. Returns how to read it.
    struct left (*pack_left)(float *out, const float *a, size_t column, size_t M, size_t K);
    // c(M,N), rows c_row apart, = or += a(M,K) · b(K,N), of packed strips. Each element is one chain of multiply-adds over k in order, then
    // finished.
    void (*multiply)(
        float *c, size_t c_row, struct left a, const float *b, size_t spacing, size_t M, size_t N, size_t K, enum finish finish);
    // The same for a left operand of rows `row` apart, which are brought into `own`, a panel at a time, and rounded to format on the way.
    // own: `panel` rows of K + OWN_ROW_SPARE floats.
    void (*multiply_rows)(float *c, size_t c_row, const float *a, size_t row, float *own, enum format format, const float *b, size_t spacing,
        size_t M, size_t N, size_t K, enum finish finish);

    // To a format of two bytes, back, and there and back. rounded: out may be in.
    void (*narrow)(uint16_t *out, const float *in, size_t count, enum format format);
    void (*widen)(float *out, const uint16_t *in, size_t count, enum format format);
    void (*rounded)(float *out, const float *in, size_t count, enum format format);

    void (*rmsnorm_forward)(float *out, float *rstd, const float *x, const float *weight, size_t rows, size_t C, float eps);
    void (*rmsnorm_backward)(float *dx, float *dweight, const float *dout, const float *x, const float *weight, const float *rstd,
        size_t rows,
        size_t C); // dweight: += over these rows
    void (*layernorm_forward)(
        float *out, float *mean, float *rstd, const float *x, const float *weight, const float *bias, size_t rows, size_t C, float eps);
    void (*layernorm_backward)(float *dx, float *dweight, float *dbias, const float *dout, const float *x, const float *weight,
        const float *mean, const float *rstd, size_t rows, size_t C); // dweight, dbias: += over these rows
    // One row's heads; cosines and sines (D/2) of its position.
    void (*rope)(float *heads, const float *cosines, const float *sines, size_t count, size_t D, float direction);
    // p(width) = exp(scale·(p − largest)) up to `visible`, then 0; returns the sum, writes the logarithm of Σ exp(scale·p).
    float (*softmax)(float *p, float *lse, size_t visible, size_t width, float scale);
    // p = exp(scale·p − lse), dp = scale·p·(dp − delta) up to `visible`, then both 0.
    void (*softmax_backward)(float *p, float *dp, float lse, float delta, size_t visible, size_t width, float scale);
    // out(count) = factors of values first … of a row and head of the dropout; first is a multiple of DROPOUT_RUN.
    void (*dropout_factors)(float *out, const struct dropout *dropout, uint64_t row, uint32_t head, size_t first, size_t count);
    float (*dot)(const float *a, const float *b, size_t count);
    void (*swiglu_forward)(float *out, const float *gate_up, const float *scale, size_t rows, size_t F);
    void (*swiglu_backward)(
        float *dgate_up, float *dscale, const float *dout, const float *gate_up, const float *scale, size_t rows, size_t F);
    void (*gelu_forward)(float *out, const float *x, const float *scale, size_t rows, size_t F);
    void (*gelu_backward)(float *dx, float *dscale, const float *dout, const float *x, const float *scale, size_t rows, size_t F);
    void (*cross_entropy)(float *losses, float *logits, const int32_t *targets, size_t rows, size_t V, float factor);
    void (*exponents)(float *out, const float *x, float top, size_t count); // out = exp(x − top)

    void (*add)(float *out, const float *a, const float *b, size_t count);
    void (*add_scaled)(float *out, const float *x, float factor, size_t count); // out += x · factor
    void (*scale)(float *x, float factor, size_t count);
    void (*adamw)(float *param, float *m, float *v, const float *gradient, size_t count, const struct adamw *with);
    // Of at most 2²⁴ elements; zeros: how many are exactly 0, NULL where a kernel counts none.
    double (*sum_of_squares)(const float *x, size_t count, int64_t *zeros);
    double (*sum)(const float *x, size_t count, int64_t *zeros);
};

// Products of bf16 numbers where the machine multiplies pairs of them: K counts numbers, but strips and panels hold pairs (two neighbouring
// k) where the others hold floats, (K + 1)/2 in a row; an odd last number is paired with 0. Operands are rounded on the way; narrow: they
// are bf16 numbers (uint16_t) already. Not packed: a floats' right operand with columns along k, nor a narrow one whose K is odd.
struct pair_kernels {
    size_t strip;
    void (*pack_right)(float *out, size_t spacing, const void *b, bool narrow, size_t row, size_t column, size_t K, size_t N);
    struct left (*pack_left)(float *out, const float *a, size_t column, size_t M, size_t K);
    void (*multiply)(
        float *c, size_t c_row, struct left a, const float *b, size_t spacing, size_t M, size_t N, size_t K, enum finish finish);
    void (*multiply_rows)(float *c, size_t c_row, const float *a, size_t row, float *own, const float *b, size_t spacing, size_t M, size_t N,
        size_t K, enum finish finish);
};

enum { OWN_ROW_SPARE = 16 }; // floats

extern const struct kernels kernels_plain;
#ifdef __x86_64__
extern const struct kernels kernels_avx2, kernels_avx512;
extern const struct pair_kernels pairs_avx512bf16;
#endif
