// The cpu device: float32, a format of weights and OpenMP threads fixed at creation, kernels chosen at creation by what the machine has.
#include "worker/device/cpu.h"
#include "worker/device/host_memory.h"
#include "worker/device/permute.h"

#include <assert.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { THREADS_MAX = 256, WORK_WORTH_THREADS = 16384 };

struct cpu cpu;

struct scratch {
    void *at;
    size_t bytes;
};

static struct scratch scratches[THREADS_MAX][SCRATCH_USES], partials;

static void *grown(struct scratch *scratch, size_t bytes)
{
    if (bytes > scratch->bytes) {
        if (scratch->at)
            host_memory.free(scratch->at, scratch->bytes);
        *scratch = (struct scratch){host_memory.alloc(bytes), bytes};
    }
    return scratch->at;
}

float *cpu_scratch(int thread, enum scratch_use use, size_t count)
{
    return grown(&scratches[thread][use], count * sizeof(float));
}

void *cpu_partials(size_t bytes)
{
    return grown(&partials, bytes);
}

void cpu_run(void (*body)(const void *job, int thread, int threads), const void *job, size_t work)
{
    if (cpu.threads == 1 || work < cpu.least_work) {
        body(job, 0, 1);
        return;
    }
#pragma omp parallel num_threads(cpu.threads)
    body(job, omp_get_thread_num(), omp_get_num_threads());
}

void cpu_barrier(int threads)
{
    if (threads > 1) {
#pragma omp barrier
    }
}

struct range cpu_part(size_t count, int thread, int threads)
{
    size_t i = (size_t)thread, n = (size_t)threads;
    return (struct range){count * i / n, count * (i + 1) / n};
}

static const struct device_ops ops = {
    .linear_forward = cpu_linear_forward,
    .linear_dinput = cpu_linear_dinput,
    .linear_dweight = cpu_linear_dweight,
    .grouped_forward = cpu_grouped_forward,
    .grouped_dinput = cpu_grouped_dinput,
    .grouped_dweight = cpu_grouped_dweight,
    .router_linear_forward = cpu_router_linear_forward,
    .router_linear_dinput = cpu_router_linear_dinput,
    .router_linear_dweight = cpu_router_linear_dweight,
    .narrow_rows = cpu_narrow_rows,
    .widen_rows = cpu_widen_rows,
    .round_rows = cpu_round_rows,
    .bias_add = cpu_bias_add,
    .bias_gradient = cpu_bias_gradient,
    .grouped_bias_add = cpu_grouped_bias_add,
    .grouped_bias_gradient = cpu_grouped_bias_gradient,
    .weighted_bias_add = cpu_weighted_bias_add,
    .weighted_bias_backward = cpu_weighted_bias_backward,
    .embedding_forward = cpu_embedding_forward,
    .embedding_backward = cpu_embedding_backward,
    .rmsnorm_forward = cpu_rmsnorm_forward,
    .rmsnorm_backward = cpu_rmsnorm_backward,
    .layernorm_forward = cpu_layernorm_forward,
    .layernorm_backward = cpu_layernorm_backward,
    .piece_norm_forward = cpu_piece_norm_forward,
    .piece_norm_backward = cpu_piece_norm_backward,
    .rope = cpu_rope,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .attention_cached = cpu_attention_cached,
    .dropout = cpu_dropout,
    .jitter = cpu_jitter,
    .swiglu_forward = cpu_swiglu_forward,
    .swiglu_backward = cpu_swiglu_backward,
    .gelu_forward = cpu_gelu_forward,
    .gelu_backward = cpu_gelu_backward,
    .sigmoid_forward = cpu_sigmoid_forward,
    .sigmoid_backward = cpu_sigmoid_backward,
    .mix_forward = cpu_mix_forward,
    .mix_backward = cpu_mix_backward,
    .scale_rows = cpu_scale_rows,
    .scale_rows_backward = cpu_scale_rows_backward,
    .add = cpu_add,
    .scale = cpu_scale,
    .add_ordered = cpu_add_ordered,
    .cross_entropy = cpu_cross_entropy,
    .router_scores = cpu_router_scores,
    .router_choose = cpu_router_choose,
    .router_choose_tokens = cpu_router_choose_tokens,
    .router_choose_evenly = router_choose_evenly_host,
    .router_weights = cpu_router_weights,
    .router_drop = cpu_router_drop,
    .router_counts = router_counts_host,
    .router_masses = cpu_router_masses,
    .router_z = cpu_router_z,
    .router_backward = cpu_router_backward,
    .permute_plan = permute_plan_host,
    .gather_rows = cpu_gather_rows,
    .combine_rows = cpu_combine_rows,
    .adamw = cpu_adamw,
    .sum_of_squares = cpu_sum_of_squares,
    .sum = cpu_sum,
    .from_double = cpu_from_double,
    .to_double = cpu_to_double,
};

static const struct kernels *kernels_named(const char *isa)
{
#ifdef __x86_64__
    bool pairs = !strcmp(isa, "avx512bf16") && __builtin_cpu_supports("avx512bf16");
    if ((!strcmp(isa, "avx512") || pairs) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &kernels_avx512;
    if (!strcmp(isa, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        return &kernels_avx2;
#endif
    return strcmp(isa, "plain") ? NULL : &kernels_plain;
}

bool cpu_has(const char *isa)
{
    return kernels_named(isa) != NULL;
}

const struct device *cpu_configure_in(int threads, const char *isa, enum format format)
{
    static struct device device;
    assert(threads >= 1 && threads <= THREADS_MAX && cpu_has(isa));
    cpu = (struct cpu){.kernels = kernels_named(isa), .threads = threads, .least_work = WORK_WORTH_THREADS, .format = format};
#ifdef __x86_64__
    if (!strcmp(isa, "avx512bf16"))
        cpu.pairs = &pairs_avx512bf16;
#endif
    size_t weight_bytes = format == FORMAT_FP32 ? sizeof(float) : sizeof(uint16_t);
    device = (struct device){"cpu", cpu.pairs ? "avx512bf16" : cpu.kernels->isa, sizeof(float), format, weight_bytes, &host_memory, &ops};
    return &device;
}

const struct device *cpu_configure(int threads, const char *isa)
{
    return cpu_configure_in(threads, isa, FORMAT_FP32);
}

const struct device *device_cpu_in(int threads, enum format format)
{
    assert(!cpu.threads || (cpu.threads == threads && cpu.format == format));
    static const char *const best[] = {"avx512bf16", "avx512", "avx2", "plain"};
    size_t i = format == FORMAT_BF16 ? 0 : 1;
    while (!cpu_has(best[i]))
        i++;
    return cpu_configure_in(threads, best[i], format);
}

const struct device *device_cpu(int threads)
{
    return device_cpu_in(threads, FORMAT_FP32);
}
