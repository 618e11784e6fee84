// What the files of the cpu device share: the process's kernels and threads, scratch memory, and how work is spread. Every operation
// splits its work so that neither the number of threads nor the number of rows shows in the bits: by rows, or by blocks of fixed size
// whose sums are added in order.
#pragma once
#include "worker/device/device.h"
#include "worker/device/kernels.h"

enum scratch_use { SCRATCH_LEFT, SCRATCH_RIGHT, SCRATCH_WIDE, SCRATCH_ATTENTION, SCRATCH_ROUTER, SCRATCH_USES };

struct cpu {
    const struct kernels *kernels;
    const struct pair_kernels *pairs; // NULL: bf16 numbers are multiplied as floats
    int threads;
    size_t least_work; // less than this stays on one thread; tests set 0
    enum format format; // of weights and products
};

extern struct cpu cpu;

// count floats of memory that stays with this thread and use until asked for more; contents undefined. Grows rarely, never shrinks.
float *cpu_scratch(int thread, enum scratch_use use, size_t count);
// The same for sums of blocks, one for the whole device.
void *cpu_partials(size_t bytes);

// Runs body(job, thread, threads) on every thread, or alone if the work (about one unit an element touched) is too small to spread.
void cpu_run(void (*body)(const void *job, int thread, int threads), const void *job, size_t work);
// Waits for all threads of the body.
void cpu_barrier(int threads);

struct range {
    size_t from, to;
};

// This thread's part of 0..count.
struct range cpu_part(size_t count, int thread, int threads);

// One product of matrices in host memory: element (m, k) of a at m·a_row + k·a_column, one stride being 1; b likewise; c's rows N apart.
struct product {
    float *c;
    const float *a;
    const void *b;          // floats, or numbers of the format
    size_t a_row, a_column, b_row, b_column, M, N, K;
    enum format format;     // what operands are rounded to; FORMAT_FP32: taken as they are
    bool b_is_narrow;       // b is uint16_t
    bool round_result;      // to the format; else c is the sum
    bool accumulate;        // c +=
};

// cpu_matmul.c: on all threads of the device, or, within a parallel body, by one of its threads alone. The same bits.
void cpu_product(const struct product *product);
void cpu_product_alone(const struct product *product, int thread);

// cpu_linear.c
void cpu_linear_forward(void *out, const void *x, const void *weight, size_t T, size_t N, size_t K);
void cpu_linear_dinput(void *dx, const void *dout, const void *weight, size_t T, size_t N, size_t K);
void cpu_linear_dweight(void *dweight, const void *dout, const void *x, size_t T, size_t N, size_t K);
void cpu_grouped_forward(void *out, const void *rows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K);
void cpu_grouped_dinput(void *out, const void *drows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K);
void cpu_grouped_dweight(void *dweights, const void *drows, const void *rows, const int64_t *counts, size_t groups, size_t N, size_t K);

void cpu_router_linear_forward(
    void *logits, const void *x, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic);
void cpu_router_linear_dinput(
    void *dx, const void *dlogits, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic);
void cpu_router_linear_dweight(
    void *dweight, const void *dlogits, const void *x, size_t T, size_t E, size_t C, enum arithmetic arithmetic);

// cpu_format.c
void cpu_narrow_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C);
void cpu_widen_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C);
void cpu_round_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C);

// cpu_bias.c
void cpu_bias_add(void *out, const void *bias, size_t T, size_t N);
void cpu_bias_gradient(void *dbias, const void *dout, size_t T, size_t N);
void cpu_grouped_bias_add(void *out, const void *biases, const int64_t *counts, size_t groups, size_t N);
void cpu_weighted_bias_add(void *out, const void *biases, const void *scale, const int64_t *counts, size_t groups, size_t N);
void cpu_weighted_bias_backward(void *dbiases, void *dscale, const void *dout, const void *biases, const void *scale, const int64_t *counts,
    size_t groups, size_t N);
void cpu_grouped_bias_gradient(void *dbiases, const void *dout, const int64_t *counts, size_t groups, size_t N);

// cpu_attention.c
void cpu_attention_cached(void *out, const void *qkv, const void *cache, size_t T, size_t past, size_t H, size_t G, size_t D, size_t window);
void cpu_attention_forward(void *out, void *lse, const void *qkv, const struct attention_options *options);
void cpu_attention_backward(
    void *dqkv, const void *dout, const void *qkv, const void *out, const void *lse, const struct attention_options *options);

// cpu_positions.c
void cpu_piece_norm_forward(void *x, void *kept, void *rstd, const void *weight, size_t T, size_t stride, size_t first, size_t groups,
    size_t width, double eps);
void cpu_piece_norm_backward(void *dx, void *dweight, const void *kept, const void *weight, const void *rstd, size_t T, size_t stride,
    size_t first, size_t groups, size_t width);
void cpu_rope(void *x, const int32_t *positions, const double *frequencies, size_t T, size_t stride, size_t first, size_t heads, size_t D,
    int direction);
void cpu_dropout(void *out, const void *in, const struct dropout *dropout, size_t T, size_t C);

// cpu_rows.c
void cpu_embedding_forward(void *out, const void *weight, const int32_t *tokens, size_t T, size_t C);
void cpu_embedding_backward(void *dweight, const void *dout, const int32_t *tokens, size_t T, size_t V, size_t C);
void cpu_rmsnorm_forward(void *out, void *rstd, const void *x, const void *weight, size_t T, size_t C, double eps);
void cpu_rmsnorm_backward(
    void *dx, void *dweight, const void *dout, const void *x, const void *weight, const void *rstd, size_t T, size_t C);
void cpu_layernorm_forward(
    void *out, void *mean, void *rstd, const void *x, const void *weight, const void *bias, size_t T, size_t C, double eps);
void cpu_layernorm_backward(void *dx, void *dweight, void *dbias, const void *dout, const void *x, const void *weight, const void *mean,
    const void *rstd, size_t T, size_t C);
void cpu_swiglu_forward(void *out, const void *gate_up, const void *scale, size_t T, size_t F);
void cpu_swiglu_backward(void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale, size_t T, size_t F);
void cpu_cross_entropy(void *losses, void *logits, const int32_t *targets, size_t T, size_t V, double factor);

// cpu_gates.c
void cpu_gelu_forward(void *out, const void *x, const void *scale, size_t T, size_t F);
void cpu_gelu_backward(void *dx, void *dscale, const void *dout, const void *x, const void *scale, size_t T, size_t F);
void cpu_sigmoid_forward(void *out, const void *x, size_t count);
void cpu_sigmoid_backward(void *dx, const void *dout, const void *out, size_t count);
void cpu_mix_forward(void *first, void *second, const void *logits, size_t T);
void cpu_mix_backward(void *dlogits, const void *dfirst, const void *dsecond, const void *first, const void *second, size_t T);
void cpu_scale_rows(void *out, const void *x, const void *factor, size_t T, size_t C);
void cpu_scale_rows_backward(void *dx, void *dfactor, const void *dout, const void *x, const void *factor, size_t T, size_t C);

// cpu_router.c
void cpu_jitter(void *out, const void *in, const struct dropout *jitter, size_t T, size_t C);
void cpu_router_scores(void *scores, const void *logits, const void *bias, size_t T, size_t E, enum score_function function);
void cpu_router_weights(void *probs, const int32_t *choice, const void *logits, size_t T, size_t E, size_t J, const struct weighing *weighing);
void cpu_router_masses(double *masses, const void *logits, size_t B, size_t S, size_t E, enum score_function function);
double cpu_router_z(const void *logits, size_t T, size_t E);
void cpu_router_backward(void *dlogits, const void *dprobs, const int32_t *choice, const void *logits, const void *pull, double z_pull,
    size_t B, size_t S, size_t E, size_t J, const struct weighing *weighing);

// cpu_double.c
void cpu_double_forward(float *logits, const float *x, const float *weight, size_t T, size_t E, size_t C);
void cpu_double_dinput(float *dx, const float *dlogits, const float *weight, size_t T, size_t E, size_t C);
void cpu_double_dweight(float *dweight, const float *dlogits, const float *x, size_t T, size_t E, size_t C);

// cpu_choose.c
void cpu_router_choose(int32_t *choice, const void *keys, size_t T, size_t E, size_t K, size_t groups, size_t group_topk);
void cpu_router_choose_tokens(int32_t *choice, const void *keys, size_t T, size_t E, size_t capacity);
void cpu_router_drop(int32_t *kept, const int32_t *choice, const void *probs, size_t T, size_t E, size_t J, size_t capacity);

// cpu_movement.c
void cpu_gather_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C);
void cpu_combine_rows(void *out, const void *rows, const int32_t *row_of, const void *residual, size_t T, size_t J, size_t C);

// cpu_elements.c
void cpu_add(void *out, const void *a, const void *b, size_t count);
void cpu_scale(void *x, double factor, size_t count);
void cpu_add_ordered(void *out, const void *parts, size_t ranks, size_t count);
void cpu_adamw(void *param, void *weights, void *m, void *v, const void *gradient, size_t count, double gradient_factor, double rate,
    double beta1, double beta2, double eps, double decay, int64_t step);
double cpu_sum_of_squares(const void *x, size_t count, int64_t *zeros);
double cpu_sum(const void *x, size_t count);
void cpu_from_double(void *to, const double *host, size_t count);
void cpu_to_double(double *host, const void *from, size_t count);

// Whether this machine can run kernels "plain", "avx2", "avx512", or "avx512bf16": those of "avx512" and pairs of bf16 numbers.
bool cpu_has(const char *isa);
// The cpu device with threads and kernels of the caller's choice, for tests: replaces what the process had.
const struct device *cpu_configure(int threads, const char *isa);
const struct device *cpu_configure_in(int threads, const char *isa, enum format format);
