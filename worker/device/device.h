// A device: a const struct of operations with memory of its own. `reference` (plain loops) is the meaning of every operation; `cpu` is
// judged by it; `guard` wraps another device and hands out addresses that nobody can dereference, to prove that nobody does.
//
// A real number is 4 bytes, or 8 on reference_f64 (for gradient checks); callers never look at it: they hold `void *` and use real_at().
// Weights of products (matrices, embeddings) have a format of their own: reals, or two bytes each in bf16 and fp16; where these are read,
// it says "weight format" below. A device of such a format has products whose operands and results are numbers of the format: operands
// are rounded to it (to the nearest, ties to even; subnormal numbers may count as zero), sums are made in fp32 (the reference: in double)
// and rounded to it once at the end. Gradients of weights are sums of such products in fp32, never rounded. Everything else (norms and
// their weights, biases, attention's own products, activation functions, the loss, the optimizer) works on reals.
// Notation: outputs first, then inputs, then dims. T tokens (rows), C hidden, H query heads, G key/value heads, D head size, F ffn width,
// V vocabulary, E experts, K top-k, B sequences, S positions, R dispatched rows. `d` before a name is its gradient. "+=" marks outputs
// that are accumulated into; all others are overwritten. Row-major everywhere.
//
// Every operation is deterministic: a row of a product has the same bits whatever the number of rows and threads, sums over rows run in
// row order in fixed blocks, ties go to the lower index.
#pragma once
#include "schema/shape/dropout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "worker/device/format.h"

struct device_memory {
    void *(*alloc)(size_t bytes);                                // zeroed; one arena per owner, never inside a step
    void (*free)(void *at, size_t bytes);
    void (*zero)(void *at, size_t bytes);
    void (*upload)(void *to, const void *host, size_t bytes);
    void (*read_back)(void *host, const void *from, size_t bytes); // waits
    void (*copy)(void *to, const void *from, size_t bytes);
    void *(*host_view)(void *at);                                // address a communicator may use directly; NULL: it must stage
};

// Attention over B sequences of S: query s sees keys j ≤ s, of them the last `window` (its own among them), none before first_key. The
// weight of key j is multiplied by value j of row b·S + s, head h, of the dropout.
struct attention_options {
    size_t B, S, H, G, D;
    size_t window;            // 0: all
    const int32_t *first_key; // (B,S), the first position in its sequence that a query may see; never falls from query to query. NULL: 0
    struct dropout dropout;
};

// What the router's products are made of: operands as they are, or rounded to bf16, with sums in fp32; or operands as they are and sums in
// double. (The reference adds up in double in any case.)
enum arithmetic { ARITHMETIC_FP32, ARITHMETIC_BF16, ARITHMETIC_FP64 };

enum score_function { SCORES_SOFTMAX, SCORES_SIGMOID, SCORES_SQRTSOFTPLUS };

// From the scores of a token's chosen experts to their weights: the scores themselves, or, normalised, divided by their sum + 1e-20 (softmax:
// a softmax over the chosen logits alone); then times scaling.
struct weighing {
    enum score_function function;
    bool normalised;
    double scaling;
};

enum { DWEIGHT_ROWS = 768 }; // the cpu device sums rows in blocks that divide this: gradients of weights and biases may be cut there

struct device_ops {
    // The three products of a linear layer with weight W [N,K] (weight format), as Hugging Face stores it: [out, in].
    void (*linear_forward)(void *out, const void *x, const void *weight, size_t T, size_t N, size_t K);    // out(T,N) = x(T,K) · Wᵀ
    void (*linear_dinput)(void *dx, const void *dout, const void *weight, size_t T, size_t N, size_t K);   // dx(T,K) = dout(T,N) · W
    void (*linear_dweight)(void *dweight, const void *dout, const void *x, size_t T, size_t N, size_t K);  // dW [N,K] += doutᵀ · x
    // The same for groups of rows: group g has counts[g] consecutive rows (counts is host memory), its matrix at weights + g·(rows of W · columns of W).
    // forward: out(R,N) = rows(R,K) · W_gᵀ, W_g [N,K].  dinput: out(R,K) = rows(R,N) · W_g.  dweight: dW_g [N,K] += drows_gᵀ(N,counts) · rows_g(counts,K).
    // A group's rows get exactly the bits that the linear products would give them.
    void (*grouped_forward)(void *out, const void *rows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K);
    void (*grouped_dinput)(void *out, const void *drows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K);
    void (*grouped_dweight)(void *dweights, const void *drows, const void *rows, const int64_t *counts, size_t groups, size_t N, size_t K); // +=

    // The same for the router, in an arithmetic of its own. W (E,C) and results are reals on every device.
    void (*router_linear_forward)(void *logits, const void *x, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic);
    void (*router_linear_dinput)(void *dx, const void *dlogits, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic);
    void (*router_linear_dweight)(void *dweight, const void *dlogits, const void *x, size_t T, size_t E, size_t C, enum arithmetic arithmetic); // +=

    // Rows of reals to rows of the weight format, back, and there and back: out[r] = in[index[r]], zeros
    // where index is −1; index NULL: in[r].
    void (*narrow_rows)(void *out, const void *in, const int32_t *index, size_t R, size_t C);
    void (*widen_rows)(void *out, const void *in, const int32_t *index, size_t R, size_t C);
    void (*round_rows)(void *out, const void *in, const int32_t *index, size_t R, size_t C);

    // Biases. out(T,N) += bias(N) in every row, in place, and rounded to the format as a product's result is; dbias(N) += column sums of dout(T,N), rows in order within fixed blocks. Grouped: group
    // g's rows have biases + g·N and get exactly the bits that the plain operations would give them.
    void (*bias_add)(void *out, const void *bias, size_t T, size_t N);
    void (*bias_gradient)(void *dbias, const void *dout, size_t T, size_t N); // +=
    void (*grouped_bias_add)(void *out, const void *biases, const int64_t *counts, size_t groups, size_t N);
    void (*grouped_bias_gradient)(void *dbiases, const void *dout, const int64_t *counts, size_t groups, size_t N); // +=

    // A bias that counts as much as its row does: out(R,N) += scale(R) · bias of the row's group, rounded likewise. Backward: dbiases += Σ scale · dout, dscale(R) +=
    // dout · bias.
    void (*weighted_bias_add)(void *out, const void *biases, const void *scale, const int64_t *counts, size_t groups, size_t N);
    void (*weighted_bias_backward)(void *dbiases, void *dscale, const void *dout, const void *biases, const void *scale, const int64_t *counts,
        size_t groups, size_t N);

    void (*embedding_forward)(void *out, const void *weight, const int32_t *tokens, size_t T, size_t C); // weight format
    void (*embedding_backward)(void *dweight, const void *dout, const int32_t *tokens, size_t T, size_t V, size_t C); // +=, tokens in order

    // out = x · rstd · weight, rstd(T) = 1/sqrt(mean(x²) + eps).
    void (*rmsnorm_forward)(void *out, void *rstd, const void *x, const void *weight, size_t T, size_t C, double eps);
    void (*rmsnorm_backward)(void *dx, void *dweight, const void *dout, const void *x, const void *weight, const void *rstd, size_t T,
        size_t C); // dx +=, dweight +=

    // out = (x − mean) · rstd · weight + bias, rstd(T) = 1/sqrt(mean((x − mean)²) + eps).
    void (*layernorm_forward)(
        void *out, void *mean, void *rstd, const void *x, const void *weight, const void *bias, size_t T, size_t C, double eps);
    void (*layernorm_backward)(void *dx, void *dweight, void *dbias, const void *dout, const void *x, const void *weight, const void *mean,
        const void *rstd, size_t T, size_t C); // all three +=

    // RMSNorm inside rows of `stride` reals, in place: each of `groups` pieces of `width` reals, the first at real `first`, is normalised by
    // itself, all with weight(width). kept(T, groups·width): the pieces as they were; rstd(T, groups). Backward turns the pieces' gradients
    // in dx into those of what they were.
    void (*piece_norm_forward)(void *x, void *kept, void *rstd, const void *weight, size_t T, size_t stride, size_t first, size_t groups,
        size_t width, double eps);
    void (*piece_norm_backward)(void *dx, void *dweight, const void *kept, const void *weight, const void *rstd, size_t T, size_t stride,
        size_t first, size_t groups, size_t width); // dweight +=, pieces in order, rows in fixed blocks

    // Rotates heads `first..first+heads` of rows of `stride` reals in place, pairs (i, i + D/2) by positions(T) · frequencies(D/2); these are
    // host memory. direction +1 forward, −1 for the gradient.
    void (*rope)(void *x, const int32_t *positions, const double *frequencies, size_t T, size_t stride, size_t first, size_t heads, size_t D,
        int direction);

    // qkv(T, (H+2G)·D): q heads, then k heads, then v heads. out(T, H·D), lse(B,H,S): of the scores that are seen, whether dropped or not.
    // Scale 1/sqrt(D).
    void (*attention_forward)(void *out, void *lse, const void *qkv, const struct attention_options *options);
    void (*attention_backward)(void *dqkv, const void *dout, const void *qkv, const void *out, const void *lse,
        const struct attention_options *options);

    // out(T,C) = in · factor of each value: row t is row t of the dropout, channel c its value c. out may be in; its own gradient.
    void (*dropout)(void *out, const void *in, const struct dropout *dropout, size_t T, size_t C);
    void (*jitter)(void *out, const void *in, const struct dropout *jitter, size_t T, size_t C); // the same with the factors of jitter

    // Attention of T new positions of one sequence, past .. past + T − 1, over its cache (past + T, 2G·D): keys, then values of each position, the new
    // ones' among them. qkv(T, (H+2G)·D), of which only the queries are read; out(T, H·D). A position sees the last `window`, its own among them; 0: all.
    void (*attention_cached)(void *out, const void *qkv, const void *cache, size_t T, size_t past, size_t H, size_t G, size_t D, size_t window);

    // gate_up(T, 2F) = [gate | up]; out(T,F) = silu(gate) · up · scale(T). scale NULL: 1. Backward writes dgate_up and, if scale, dscale(T).
    void (*swiglu_forward)(void *out, const void *gate_up, const void *scale, size_t T, size_t F);
    void (*swiglu_backward)(void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale, size_t T, size_t F);

    // out(T,F) = gelu(x(T,F)) · scale(T), scale as in swiglu. gelu(x) = x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))): the form of GPT-2 and of
    // Megatron's fused kernel, not the one with the error function.
    void (*gelu_forward)(void *out, const void *x, const void *scale, size_t T, size_t F);
    void (*gelu_backward)(void *dx, void *dscale, const void *dout, const void *x, const void *scale, size_t T, size_t F);

    // Gates of a branch: a number or two for each token.
    void (*sigmoid_forward)(void *out, const void *x, size_t count);                       // out = 1/(1 + e⁻ˣ); out may be x
    void (*sigmoid_backward)(void *dx, const void *dout, const void *out, size_t count);   // dx = dout · out · (1 − out); dx may be dout
    // Shares of two branches: first(T) and second(T) = softmax over the two logits(T,2).
    void (*mix_forward)(void *first, void *second, const void *logits, size_t T);
    void (*mix_backward)(void *dlogits, const void *dfirst, const void *dsecond, const void *first, const void *second, size_t T);
    // out(T,C) = x(T,C) · factor(T). Backward: dx = dout · factor (dx may be dout), dfactor(T) = Σ_c dout · x.
    void (*scale_rows)(void *out, const void *x, const void *factor, size_t T, size_t C);
    void (*scale_rows_backward)(void *dx, void *dfactor, const void *dout, const void *x, const void *factor, size_t T, size_t C);

    void (*add)(void *out, const void *a, const void *b, size_t count);       // out = a + b; out may be a or b
    void (*scale)(void *x, double factor, size_t count);                      // x *= factor
    void (*add_ordered)(void *out, const void *parts, size_t ranks, size_t count); // out = parts[0] + parts[1] + …, in that order; parts(ranks, count)

    // Cross-entropy of logits(T,V) against targets(T): losses(T) = logsumexp − logit; logits become dlogits = (softmax − onehot) · factor.
    // A target < 0 has loss 0 and gradient 0.
    void (*cross_entropy)(void *losses, void *logits, const int32_t *targets, size_t T, size_t V, double factor);

    // Routing. A token has J slots: K where it chooses its experts, E where experts choose their tokens; choice(T,J) holds experts, −1 in
    // a slot that is not used. Logits are kept and all else is made from them, so that backward needs nothing more.
    // scores(T,E): softmax over all E, sigmoid, or sqrt(log(1 + exp(logit))) of each; plus bias(E) if bias is not NULL.
    void (*router_scores)(void *scores, const void *logits, const void *bias, size_t T, size_t E, enum score_function function);
    // choice(T,K): the K largest of keys(T,E), higher first, then lower index. groups > 1: only from the group_topk best of `groups` equal runs
    // of experts; a run is as good as the sum of its K / group_topk largest keys, the lower of equal runs first.
    void (*router_choose)(int32_t *choice, const void *keys, size_t T, size_t E, size_t K, size_t groups, size_t group_topk);
    // choice(T,E): e in slot e of the `capacity` tokens with the largest keys[t,e], the lower token of equal ones first; −1 elsewhere.
    void (*router_choose_tokens)(int32_t *choice, const void *keys, size_t T, size_t E, size_t capacity);
    // choice(T,K) = (t·K + j) mod E.
    void (*router_choose_evenly)(int32_t *choice, size_t T, size_t E, size_t K);
    // probs(T,J) of the chosen, 0 in unused slots.
    void (*router_weights)(void *probs, const int32_t *choice, const void *logits, size_t T, size_t E, size_t J, const struct weighing *weighing);
    // kept(T,J) = choice, with −1 where an expert has more than `capacity` tokens: it keeps those with the largest probs(T,J), the lower token
    // of equal ones first, or, where probs is NULL, the first.
    void (*router_drop)(int32_t *kept, const int32_t *choice, const void *probs, size_t T, size_t E, size_t J, size_t capacity);
    // counts(B,E): tokens of each of B sequences of S that chose each expert.
    void (*router_counts)(int32_t *counts, const int32_t *choice, size_t B, size_t S, size_t E, size_t J);
    // masses(B,E), host memory: sums over each sequence of the scores, of each token normalised to sum 1 (s / (Σ s + 1e-20)).
    void (*router_masses)(double *masses, const void *logits, size_t B, size_t S, size_t E, enum score_function function);
    double (*router_z)(const void *logits, size_t T, size_t E); // Σ over tokens of logsumexp²
    // dlogits(T,E): the gradient that flows through probs(T,J), given dprobs(T,J) and the choice they were made with; plus that of
    // Σ pull[b,e]·masses[b,e] with pull(B,E), or NULL; plus that of z_pull · router_z.
    void (*router_backward)(void *dlogits, const void *dprobs, const int32_t *choice, const void *logits, const void *pull, double z_pull,
        size_t B, size_t S, size_t E, size_t J, const struct weighing *weighing);

    // The permutation, rows by expert then token. counts(E): rows that each expert has, R their sum; those it has beyond its tokens come last
    // and are empty. row_token(R) = t and row_slot(R) = t·J + j of each row, −1 if empty; row_of(T,J) = row of (t,j), −1 where choice is.
    void (*permute_plan)(int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T,
        size_t E, size_t J, size_t R);
    void (*gather_rows)(void *out, const void *in, const int32_t *index, size_t R, size_t C); // out[r] = in[index[r]], zeros where index is −1
    // out[t] = rows[row_of[t,0]] + … in order j = 0..J−1, without those of −1, then + residual[t] if residual is not NULL. The adjoint of
    // gather_rows.
    void (*combine_rows)(void *out, const void *rows, const int32_t *row_of, const void *residual, size_t T, size_t J, size_t C);

    // AdamW, in place: g = gradient · gradient_factor; param −= rate · (m̂/(sqrt(v̂)+eps) + decay·param). step counts from 1. weights, if not
    // NULL, are the new values in the weight format.
    void (*adamw)(void *param, void *weights, void *m, void *v, const void *gradient, size_t count, double gradient_factor, double rate, double beta1,
        double beta2, double eps, double decay, int64_t step);

    // Host results. Squares are added in double, in element order within fixed blocks.
    double (*sum_of_squares)(const void *x, size_t count, int64_t *zeros); // zeros: how many elements are exactly 0
    double (*sum)(const void *x, size_t count);

    // Conversion at the edge: host doubles to device reals and back.
    void (*from_double)(void *to, const double *host, size_t count);
    void (*to_double)(double *host, const void *from, size_t count);
};

struct device {
    const char *name;   // "reference", "reference_f64", "cpu", "guard(…)"
    const char *isa;    // what its kernels use: "plain", "avx2", "avx512"
    size_t real_bytes;  // 4 or 8
    enum format format; // of weights, and of what products read and write
    size_t weight_bytes; // real_bytes, or 2
    const struct device_memory *memory;
    const struct device_ops *ops;
};

static inline void *real_at(const struct device *device, void *base, size_t index)
{
    return (char *)base + index * device->real_bytes;
}

static inline void *weight_at(const struct device *device, void *base, size_t index)
{
    return (char *)base + index * device->weight_bytes;
}

// Devices of FORMAT_FP32, and of the format given.
const struct device *device_reference(void);
const struct device *device_reference_f64(void);
const struct device *device_reference_in(enum format format);
const struct device *device_cpu(int threads);                      // threads ≥ 1; threads and format are fixed for the process
const struct device *device_cpu_in(int threads, enum format format);
const struct device *device_guard(const struct device *inner);     // for tests
