// The guard device wraps another one for tests. Its addresses are pages without access, with a page to spare on both sides: whoever
// dereferences device memory outside an operation faults at once. Each operation looks its addresses up with the length it will use, so
// that an operand reaching outside its allocation, or host memory passed for device memory (or the reverse), ends the test too.
#include "schema/base/text.h"
#include "worker/device/device.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REGIONS_MAX = 4096, PAGE = 4096 };

struct region {
    char *at;    // what the caller holds
    char *inner; // where the wrapped device has it
    size_t bytes;
};

static const struct device *inner; // one a process: operations carry no context
static struct region regions[REGIONS_MAX];
static size_t region_count;

static struct region *region_of(const void *at)
{
    for (size_t i = 0; i < region_count; i++)
        if ((const char *)at >= regions[i].at && (const char *)at <= regions[i].at + regions[i].bytes)
            return &regions[i];
    return NULL;
}

static void *translate(const void *at, size_t bytes, const char *operation)
{
    if (!bytes)
        return NULL;
    struct region *region = region_of(at);
    size_t offset = region ? (size_t)((const char *)at - region->at) : 0;
    if (!region || bytes > region->bytes - offset) {
        fprintf(stderr, "guard: %s uses %zu bytes at %p, which %s\n", operation, bytes, at,
            region ? "reach past the end of the allocation" : "is no device memory");
        abort();
    }
    return region->inner + offset;
}

static const void *host(const void *at, const char *operation)
{
    if (region_of(at)) {
        fprintf(stderr, "guard: %s takes host memory and got device memory\n", operation);
        abort();
    }
    return at;
}

#define BYTES(at, bytes) translate(at, bytes, __func__)
#define REALS(at, count) translate(at, (count)*inner->real_bytes, __func__)
#define WEIGHTS(at, count) translate(at, (count)*inner->weight_bytes, __func__)
#define REALS_OR_NULL(at, count) ((at) ? REALS(at, count) : NULL)
#define INTS(at, count) ((int32_t *)translate(at, (count) * sizeof(int32_t), __func__))
#define HOST(at) host(at, __func__)

static size_t guarded_bytes(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
}

static void *guard_alloc(size_t bytes)
{
    assert(region_count < REGIONS_MAX);
    char *map = mmap(NULL, guarded_bytes(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(map != MAP_FAILED);
    regions[region_count++] = (struct region){map + PAGE, inner->memory->alloc(bytes), bytes};
    return map + PAGE;
}

static void guard_free(void *at, size_t bytes)
{
    if (!at)
        return;
    struct region *region = region_of(at);
    assert(region && region->at == at && region->bytes == bytes);
    inner->memory->free(region->inner, bytes);
    munmap(region->at - PAGE, guarded_bytes(bytes));
    *region = regions[--region_count];
}

static void guard_zero(void *at, size_t bytes)
{
    if (bytes)
        inner->memory->zero(BYTES(at, bytes), bytes);
}

static void guard_upload(void *to, const void *from, size_t bytes)
{
    if (bytes)
        inner->memory->upload(BYTES(to, bytes), HOST(from), bytes);
}

static void guard_read_back(void *to, const void *from, size_t bytes)
{
    HOST(to);
    if (bytes)
        inner->memory->read_back(to, BYTES(from, bytes), bytes);
}

static void guard_copy(void *to, const void *from, size_t bytes)
{
    if (bytes)
        inner->memory->copy(BYTES(to, bytes), BYTES(from, bytes), bytes);
}

static void *guard_host_view(void *at)
{
    return inner->memory->host_view(BYTES(at, 1));
}

static void guard_linear_forward(void *out, const void *x, const void *weight, size_t T, size_t N, size_t K)
{
    inner->ops->linear_forward(REALS(out, T * N), REALS(x, T * K), WEIGHTS(weight, N * K), T, N, K);
}

static void guard_linear_dinput(void *dx, const void *dout, const void *weight, size_t T, size_t N, size_t K)
{
    inner->ops->linear_dinput(REALS(dx, T * K), REALS(dout, T * N), WEIGHTS(weight, N * K), T, N, K);
}

static void guard_linear_dweight(void *dweight, const void *dout, const void *x, size_t T, size_t N, size_t K)
{
    inner->ops->linear_dweight(REALS(dweight, N * K), REALS(dout, T * N), REALS(x, T * K), T, N, K);
}

static size_t total(const int64_t *counts, size_t groups)
{
    size_t rows = 0;
    for (size_t g = 0; g < groups; g++) {
        assert(counts[g] >= 0);
        rows += (size_t)counts[g];
    }
    return rows;
}

static void guard_grouped_forward(
    void *out, const void *rows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K)
{
    HOST(counts);
    size_t R = total(counts, groups);
    inner->ops->grouped_forward(REALS(out, R * N), REALS(rows, R * K), WEIGHTS(weights, groups * N * K), counts, groups, N, K);
}

static void guard_grouped_dinput(
    void *out, const void *drows, const void *weights, const int64_t *counts, size_t groups, size_t N, size_t K)
{
    HOST(counts);
    size_t R = total(counts, groups);
    inner->ops->grouped_dinput(REALS(out, R * K), REALS(drows, R * N), WEIGHTS(weights, groups * N * K), counts, groups, N, K);
}

static void guard_grouped_dweight(
    void *dweights, const void *drows, const void *rows, const int64_t *counts, size_t groups, size_t N, size_t K)
{
    HOST(counts);
    size_t R = total(counts, groups);
    inner->ops->grouped_dweight(REALS(dweights, groups * N * K), REALS(drows, R * N), REALS(rows, R * K), counts, groups, N, K);
}

static void guard_router_linear_forward(
    void *logits, const void *x, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    inner->ops->router_linear_forward(REALS(logits, T * E), REALS(x, T * C), REALS(weight, E * C), T, E, C, arithmetic);
}

static void guard_router_linear_dinput(
    void *dx, const void *dlogits, const void *weight, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    inner->ops->router_linear_dinput(REALS(dx, T * C), REALS(dlogits, T * E), REALS(weight, E * C), T, E, C, arithmetic);
}

static void guard_router_linear_dweight(
    void *dweight, const void *dlogits, const void *x, size_t T, size_t E, size_t C, enum arithmetic arithmetic)
{
    inner->ops->router_linear_dweight(REALS(dweight, E * C), REALS(dlogits, T * E), REALS(x, T * C), T, E, C, arithmetic);
}

static void guard_bias_add(void *out, const void *bias, size_t T, size_t N)
{
    inner->ops->bias_add(REALS(out, T * N), REALS(bias, N), T, N);
}

static void guard_bias_gradient(void *dbias, const void *dout, size_t T, size_t N)
{
    inner->ops->bias_gradient(REALS(dbias, N), REALS(dout, T * N), T, N);
}

static void guard_grouped_bias_add(void *out, const void *biases, const int64_t *counts, size_t groups, size_t N)
{
    HOST(counts);
    inner->ops->grouped_bias_add(REALS(out, total(counts, groups) * N), REALS(biases, groups * N), counts, groups, N);
}

static void guard_grouped_bias_gradient(void *dbiases, const void *dout, const int64_t *counts, size_t groups, size_t N)
{
    HOST(counts);
    inner->ops->grouped_bias_gradient(REALS(dbiases, groups * N), REALS(dout, total(counts, groups) * N), counts, groups, N);
}

static void guard_weighted_bias_add(void *out, const void *biases, const void *scale, const int64_t *counts, size_t groups, size_t N)
{
    HOST(counts);
    size_t R = total(counts, groups);
    inner->ops->weighted_bias_add(REALS(out, R * N), REALS(biases, groups * N), REALS(scale, R), counts, groups, N);
}

static void guard_weighted_bias_backward(void *dbiases, void *dscale, const void *dout, const void *biases, const void *scale,
    const int64_t *counts, size_t groups, size_t N)
{
    HOST(counts);
    size_t R = total(counts, groups);
    inner->ops->weighted_bias_backward(REALS(dbiases, groups * N), REALS(dscale, R), REALS(dout, R * N), REALS(biases, groups * N),
        REALS(scale, R), counts, groups, N);
}

// How many rows of the table the tokens can reach is not known to the operation: its first row must be there.
static void guard_embedding_forward(void *out, const void *weight, const int32_t *tokens, size_t T, size_t C)
{
    inner->ops->embedding_forward(REALS(out, T * C), WEIGHTS(weight, C), INTS(tokens, T), T, C);
}

static void guard_embedding_backward(void *dweight, const void *dout, const int32_t *tokens, size_t T, size_t V, size_t C)
{
    inner->ops->embedding_backward(REALS(dweight, V * C), REALS(dout, T * C), INTS(tokens, T), T, V, C);
}

static void guard_rmsnorm_forward(void *out, void *rstd, const void *x, const void *weight, size_t T, size_t C, double eps)
{
    inner->ops->rmsnorm_forward(REALS(out, T * C), REALS(rstd, T), REALS(x, T * C), REALS(weight, C), T, C, eps);
}

static void guard_rmsnorm_backward(
    void *dx, void *dweight, const void *dout, const void *x, const void *weight, const void *rstd, size_t T, size_t C)
{
    inner->ops->rmsnorm_backward(
        REALS(dx, T * C), REALS(dweight, C), REALS(dout, T * C), REALS(x, T * C), REALS(weight, C), REALS(rstd, T), T, C);
}

static void guard_layernorm_forward(
    void *out, void *mean, void *rstd, const void *x, const void *weight, const void *bias, size_t T, size_t C, double eps)
{
    inner->ops->layernorm_forward(
        REALS(out, T * C), REALS(mean, T), REALS(rstd, T), REALS(x, T * C), REALS(weight, C), REALS(bias, C), T, C, eps);
}

static void guard_layernorm_backward(void *dx, void *dweight, void *dbias, const void *dout, const void *x, const void *weight,
    const void *mean, const void *rstd, size_t T, size_t C)
{
    inner->ops->layernorm_backward(REALS(dx, T * C), REALS(dweight, C), REALS(dbias, C), REALS(dout, T * C), REALS(x, T * C),
        REALS(weight, C), REALS(mean, T), REALS(rstd, T), T, C);
}

#include "worker/device/guard_attention.inc"

static void guard_swiglu_forward(void *out, const void *gate_up, const void *scale, size_t T, size_t F)
{
    inner->ops->swiglu_forward(REALS(out, T * F), REALS(gate_up, T * 2 * F), REALS_OR_NULL(scale, T), T, F);
}

static void guard_swiglu_backward(
    void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale, size_t T, size_t F)
{
    inner->ops->swiglu_backward(REALS(dgate_up, T * 2 * F), scale ? REALS(dscale, T) : NULL, REALS(dout, T * F), REALS(gate_up, T * 2 * F),
        REALS_OR_NULL(scale, T), T, F);
}

static void guard_gelu_forward(void *out, const void *x, const void *scale, size_t T, size_t F)
{
    inner->ops->gelu_forward(REALS(out, T * F), REALS(x, T * F), REALS_OR_NULL(scale, T), T, F);
}

static void guard_gelu_backward(void *dx, void *dscale, const void *dout, const void *x, const void *scale, size_t T, size_t F)
{
    inner->ops->gelu_backward(
        REALS(dx, T * F), scale ? REALS(dscale, T) : NULL, REALS(dout, T * F), REALS(x, T * F), REALS_OR_NULL(scale, T), T, F);
}

static void guard_sigmoid_forward(void *out, const void *x, size_t count)
{
    inner->ops->sigmoid_forward(REALS(out, count), REALS(x, count), count);
}

static void guard_sigmoid_backward(void *dx, const void *dout, const void *out, size_t count)
{
    inner->ops->sigmoid_backward(REALS(dx, count), REALS(dout, count), REALS(out, count), count);
}

static void guard_mix_forward(void *first, void *second, const void *logits, size_t T)
{
    inner->ops->mix_forward(REALS(first, T), REALS(second, T), REALS(logits, 2 * T), T);
}

static void guard_mix_backward(void *dlogits, const void *dfirst, const void *dsecond, const void *first, const void *second, size_t T)
{
    inner->ops->mix_backward(REALS(dlogits, 2 * T), REALS(dfirst, T), REALS(dsecond, T), REALS(first, T), REALS(second, T), T);
}

static void guard_scale_rows(void *out, const void *x, const void *factor, size_t T, size_t C)
{
    inner->ops->scale_rows(REALS(out, T * C), REALS(x, T * C), REALS(factor, T), T, C);
}

static void guard_scale_rows_backward(void *dx, void *dfactor, const void *dout, const void *x, const void *factor, size_t T, size_t C)
{
    inner->ops->scale_rows_backward(REALS(dx, T * C), REALS(dfactor, T), REALS(dout, T * C), REALS(x, T * C), REALS(factor, T), T, C);
}

static void guard_add(void *out, const void *a, const void *b, size_t count)
{
    inner->ops->add(REALS(out, count), REALS(a, count), REALS(b, count), count);
}

static void guard_scale(void *x, double factor, size_t count)
{
    inner->ops->scale(REALS(x, count), factor, count);
}

static void guard_add_ordered(void *out, const void *parts, size_t ranks, size_t count)
{
    inner->ops->add_ordered(REALS(out, count), REALS(parts, ranks * count), ranks, count);
}

static void guard_cross_entropy(void *losses, void *logits, const int32_t *targets, size_t T, size_t V, double factor)
{
    inner->ops->cross_entropy(REALS(losses, T), REALS(logits, T * V), INTS(targets, T), T, V, factor);
}

static void guard_router_scores(void *scores, const void *logits, const void *bias, size_t T, size_t E, enum score_function function)
{
    inner->ops->router_scores(REALS(scores, T * E), REALS(logits, T * E), REALS_OR_NULL(bias, E), T, E, function);
}

static void guard_router_choose(int32_t *choice, const void *keys, size_t T, size_t E, size_t K, size_t groups, size_t group_topk)
{
    assert(groups <= 1 || (E % groups == 0 && group_topk >= 1 && group_topk <= K && K <= group_topk * (E / groups)));
    inner->ops->router_choose(INTS(choice, T * K), REALS(keys, T * E), T, E, K, groups, group_topk);
}

static void guard_router_choose_tokens(int32_t *choice, const void *keys, size_t T, size_t E, size_t capacity)
{
    inner->ops->router_choose_tokens(INTS(choice, T * E), REALS(keys, T * E), T, E, capacity);
}

static void guard_router_choose_evenly(int32_t *choice, size_t T, size_t E, size_t K)
{
    inner->ops->router_choose_evenly(INTS(choice, T * K), T, E, K);
}

static void guard_router_weights(
    void *probs, const int32_t *choice, const void *logits, size_t T, size_t E, size_t J, const struct weighing *weighing)
{
    inner->ops->router_weights(REALS(probs, T * J), INTS(choice, T * J), REALS(logits, T * E), T, E, J, HOST(weighing));
}

static void guard_router_drop(int32_t *kept, const int32_t *choice, const void *probs, size_t T, size_t E, size_t J, size_t capacity)
{
    assert(kept != choice);
    inner->ops->router_drop(INTS(kept, T * J), INTS(choice, T * J), REALS_OR_NULL(probs, T * J), T, E, J, capacity);
}

static void guard_router_counts(int32_t *counts, const int32_t *choice, size_t B, size_t S, size_t E, size_t J)
{
    inner->ops->router_counts(INTS(counts, B * E), INTS(choice, B * S * J), B, S, E, J);
}

static void guard_router_masses(double *masses, const void *logits, size_t B, size_t S, size_t E, enum score_function function)
{
    HOST(masses);
    inner->ops->router_masses(masses, REALS(logits, B * S * E), B, S, E, function);
}

static double guard_router_z(const void *logits, size_t T, size_t E)
{
    return inner->ops->router_z(REALS(logits, T * E), T, E);
}

static void guard_router_backward(void *dlogits, const void *dprobs, const int32_t *choice, const void *logits, const void *pull, double z_pull,
    size_t B, size_t S, size_t E, size_t J, const struct weighing *weighing)
{
    size_t T = B * S;
    inner->ops->router_backward(REALS(dlogits, T * E), REALS(dprobs, T * J), INTS(choice, T * J), REALS(logits, T * E),
        REALS_OR_NULL(pull, B * E), z_pull, B, S, E, J, HOST(weighing));
}

static void guard_permute_plan(int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T,
    size_t E, size_t J, size_t R)
{
    inner->ops->permute_plan(INTS(row_token, R), INTS(row_slot, R), INTS(row_of, T * J), INTS(choice, T * J), INTS(counts, E), T, E, J, R);
}

// The rows that an index reaches are in the index: read it back and ask for the last one.
static size_t rows_reached(const int32_t *index, size_t count)
{
    int32_t *copy = allocate(count, sizeof *copy), last = -1;
    if (count)
        inner->memory->read_back(copy, index, count * sizeof *copy);
    for (size_t i = 0; i < count; i++) {
        assert(copy[i] >= -1);
        last = copy[i] > last ? copy[i] : last;
    }
    free(copy);
    return (size_t)(last + 1);
}

static void guard_gather_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    const int32_t *known = INTS(index, R);
    inner->ops->gather_rows(REALS(out, R * C), REALS(in, rows_reached(known, R) * C), known, R, C);
}

static void guard_narrow_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    const int32_t *known = index ? INTS(index, R) : NULL;
    inner->ops->narrow_rows(WEIGHTS(out, R * C), REALS(in, (index ? rows_reached(known, R) : R) * C), known, R, C);
}

static void guard_round_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    const int32_t *known = index ? INTS(index, R) : NULL;
    inner->ops->round_rows(REALS(out, R * C), REALS(in, (index ? rows_reached(known, R) : R) * C), known, R, C);
}

static void guard_widen_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    const int32_t *known = index ? INTS(index, R) : NULL;
    inner->ops->widen_rows(REALS(out, R * C), WEIGHTS(in, (index ? rows_reached(known, R) : R) * C), known, R, C);
}

static void guard_combine_rows(void *out, const void *rows, const int32_t *row_of, const void *residual, size_t T, size_t J, size_t C)
{
    const int32_t *known = INTS(row_of, T * J);
    inner->ops->combine_rows(
        REALS(out, T * C), REALS(rows, rows_reached(known, T * J) * C), known, REALS_OR_NULL(residual, T * C), T, J, C);
}

static void guard_adamw(void *param, void *weights, void *m, void *v, const void *gradient, size_t count, double gradient_factor,
    double rate, double beta1, double beta2, double eps, double decay, int64_t step)
{
    inner->ops->adamw(REALS(param, count), weights ? WEIGHTS(weights, count) : NULL, REALS(m, count), REALS(v, count),
        REALS(gradient, count), count, gradient_factor, rate, beta1, beta2, eps, decay, step);
}

static double guard_sum_of_squares(const void *x, size_t count, int64_t *zeros)
{
    HOST(zeros);
    return inner->ops->sum_of_squares(REALS(x, count), count, zeros);
}

static double guard_sum(const void *x, size_t count)
{
    return inner->ops->sum(REALS(x, count), count);
}

static void guard_from_double(void *to, const double *from, size_t count)
{
    inner->ops->from_double(REALS(to, count), HOST(from), count);
}

static void guard_to_double(double *to, const void *from, size_t count)
{
    HOST(to);
    inner->ops->to_double(to, REALS(from, count), count);
}

static const struct device_memory memory = {
    .alloc = guard_alloc,
    .free = guard_free,
    .zero = guard_zero,
    .upload = guard_upload,
    .read_back = guard_read_back,
    .copy = guard_copy,
    .host_view = guard_host_view,
};

static const struct device_ops ops = {
    .linear_forward = guard_linear_forward,
    .linear_dinput = guard_linear_dinput,
    .linear_dweight = guard_linear_dweight,
    .grouped_forward = guard_grouped_forward,
    .grouped_dinput = guard_grouped_dinput,
    .grouped_dweight = guard_grouped_dweight,
    .router_linear_forward = guard_router_linear_forward,
    .router_linear_dinput = guard_router_linear_dinput,
    .router_linear_dweight = guard_router_linear_dweight,
    .narrow_rows = guard_narrow_rows,
    .widen_rows = guard_widen_rows,
    .round_rows = guard_round_rows,
    .bias_add = guard_bias_add,
    .bias_gradient = guard_bias_gradient,
    .grouped_bias_add = guard_grouped_bias_add,
    .grouped_bias_gradient = guard_grouped_bias_gradient,
    .weighted_bias_add = guard_weighted_bias_add,
    .weighted_bias_backward = guard_weighted_bias_backward,
    .embedding_forward = guard_embedding_forward,
    .embedding_backward = guard_embedding_backward,
    .rmsnorm_forward = guard_rmsnorm_forward,
    .rmsnorm_backward = guard_rmsnorm_backward,
    .layernorm_forward = guard_layernorm_forward,
    .layernorm_backward = guard_layernorm_backward,
    .piece_norm_forward = guard_piece_norm_forward,
    .piece_norm_backward = guard_piece_norm_backward,
    .rope = guard_rope,
    .attention_forward = guard_attention_forward,
    .attention_backward = guard_attention_backward,
    .attention_cached = guard_attention_cached,
    .dropout = guard_dropout,
    .jitter = guard_jitter,
    .swiglu_forward = guard_swiglu_forward,
    .swiglu_backward = guard_swiglu_backward,
    .gelu_forward = guard_gelu_forward,
    .gelu_backward = guard_gelu_backward,
    .sigmoid_forward = guard_sigmoid_forward,
    .sigmoid_backward = guard_sigmoid_backward,
    .mix_forward = guard_mix_forward,
    .mix_backward = guard_mix_backward,
    .scale_rows = guard_scale_rows,
    .scale_rows_backward = guard_scale_rows_backward,
    .add = guard_add,
    .scale = guard_scale,
    .add_ordered = guard_add_ordered,
    .cross_entropy = guard_cross_entropy,
    .router_scores = guard_router_scores,
    .router_choose = guard_router_choose,
    .router_choose_tokens = guard_router_choose_tokens,
    .router_choose_evenly = guard_router_choose_evenly,
    .router_weights = guard_router_weights,
    .router_drop = guard_router_drop,
    .router_counts = guard_router_counts,
    .router_masses = guard_router_masses,
    .router_z = guard_router_z,
    .router_backward = guard_router_backward,
    .permute_plan = guard_permute_plan,
    .gather_rows = guard_gather_rows,
    .combine_rows = guard_combine_rows,
    .adamw = guard_adamw,
    .sum_of_squares = guard_sum_of_squares,
    .sum = guard_sum,
    .from_double = guard_from_double,
    .to_double = guard_to_double,
};

const struct device *device_guard(const struct device *wrapped)
{
    static struct device device;
    static char name[64];
    assert(!region_count || inner == wrapped);
    inner = wrapped;
    snprintf(name, sizeof name, "guard(%s)", wrapped->name);
    device = *wrapped;
    device.name = name;
    device.memory = &memory;
    device.ops = &ops;
    return &device;
}
