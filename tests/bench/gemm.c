// Products over the shapes of one training step: GF/s of the cpu device, each shape weighted by the FLOPs that the step spends in it, and the
// share of what bare multiply-adds reach in the same run (peak.c).
// Usage: bench_gemm [A|B|C|A-moe|B-moe|C-moe|demo|all] [fp32|bf16|fp16] [threads] [plain|avx2|avx512|avx512bf16] [each]
#include "schema/base/text.h"
#include "tests/bench/peak.h"
#include "tests/bench/seconds.h"
#include "worker/device/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum linear { FORWARD, DINPUT, DWEIGHT, KINDS };
static const char *const kind_names[] = {"forward", "dinput", "dweight"}, *const format_names[FORMATS] = {"fp32", "bf16", "fp16"};

// A linear layer over T rows with a weight [N,K], or groups of them: T rows in all, unevenly dealt.
struct shape {
    const char *name;
    size_t T, N, K, times, groups;
};

enum { SHAPES_MAX = 8 };

// The configurations of tests/bench/train and the demo's: one micro batch a step.
static const struct step {
    const char *name;
    struct shape shapes[SHAPES_MAX];
} steps[] = {
    {"A", {{"qkv", 4096, 512, 256, 6, 0}, {"out", 4096, 256, 256, 6, 0}, {"gate, up", 4096, 2048, 256, 6, 0}, {"down", 4096, 256, 1024, 6, 0},
              {"logits", 512, 8192, 256, 8, 0}}},
    {"B", {{"qkv", 4096, 256, 128, 4, 0}, {"out", 4096, 128, 128, 4, 0}, {"gate, up", 4096, 1024, 128, 4, 0}, {"down", 4096, 128, 512, 4, 0},
              {"logits", 4096, 256, 128, 1, 0}}},
    {"C", {{"qkv", 1024, 1280, 768, 12, 0}, {"out", 1024, 768, 768, 12, 0}, {"gate, up", 1024, 4096, 768, 12, 0},
              {"down", 1024, 768, 2048, 12, 0}, {"logits", 512, 8192, 768, 2, 0}}},
    {"A-moe", {{"gate, up", 16384, 512, 256, 6, 16}, {"down", 16384, 256, 256, 6, 16}}},
    {"B-moe", {{"gate, up", 8192, 512, 128, 4, 8}, {"down", 8192, 128, 256, 4, 8}}},
    {"C-moe", {{"gate, up", 4096, 1024, 768, 12, 16}, {"down", 4096, 768, 512, 12, 16}}},
    {"demo", {{"qkv", 2048, 256, 128, 4, 0}, {"out", 2048, 128, 128, 4, 0}, {"gate, up", 2048, 1024, 128, 4, 0},
                 {"down", 2048, 128, 512, 4, 0}, {"logits", 2048, 257, 128, 1, 0}, {"expert gate, up", 8192, 256, 128, 4, 16},
                 {"expert down", 8192, 128, 128, 4, 16}}},
};

// Operands large enough for any shape; weights lie in b.
static float *out, *a, *b;

// Rows of each group: around the mean, from half of it to one and a half.
static void deal(int64_t *counts, size_t rows, size_t groups)
{
    size_t left = rows, mean = rows / groups;
    for (size_t g = 0; g < groups; g++) {
        size_t count = g + 1 == groups ? left : mean / 2 + (g * 2654435761u >> 7) % (mean + 1);
        size_t most = left - (groups - 1 - g) * (mean / 2);
        counts[g] = (int64_t)(count < most ? count : most);
        left -= (size_t)counts[g];
    }
}

static void run(const struct device_ops *ops, const struct shape *s, enum linear kind, const int64_t *counts)
{
    void (*const linear[])(void *, const void *, const void *, size_t, size_t, size_t) = {
        ops->linear_forward, ops->linear_dinput, ops->linear_dweight};
    void (*const grouped[])(void *, const void *, const void *, const int64_t *, size_t, size_t, size_t) = {
        ops->grouped_forward, ops->grouped_dinput, ops->grouped_dweight};
    if (s->groups)
        grouped[kind](out, a, b, counts, s->groups, s->N, s->K);
    else
        linear[kind](out, a, b, s->T, s->N, s->K);
}

// Seconds of one product: the least of several runs, what a quiet core does.
static double least_seconds(const struct device *device, const struct shape *s, enum linear kind)
{
    double flops = 2.0 * (double)s->T * (double)s->N * (double)s->K, least = 1e30;
    int64_t counts[64];
    if (s->groups)
        deal(counts, s->T, s->groups);
    size_t repeats = (size_t)(3e8 / flops) + 1;
    for (int round = 0; round < 7; round++) {
        double start = seconds();
        for (size_t i = 0; i < repeats; i++)
            run(device->ops, s, kind, counts);
        double now = (seconds() - start) / (double)repeats;
        least = now < least ? now : least;
    }
    return least;
}

static void measure(const struct device *device, const struct step *step, int threads, bool each)
{
    double flops = 0, spent = 0, peak = 0;
    for (const struct shape *s = step->shapes; s < step->shapes + SHAPES_MAX && s->name; s++) {
        double now = (device->format == FORMAT_BF16 && peak_rate_bf16() > 0 ? peak_rate_bf16() : peak_rate()) * threads;
        peak = now > peak ? now : peak; // measured again beside each shape: on a shared machine it wanders
        for (enum linear kind = FORWARD; kind < KINDS; kind++) {
            double once = least_seconds(device, s, kind), work = 2.0 * (double)s->T * (double)s->N * (double)s->K;
            flops += work * (double)s->times;
            spent += once * (double)s->times;
            if (each)
                printf("  %-16s %-8s %5zu %5zu %5zu  %6.1f GF/s\n", s->name, kind_names[kind], s->T, s->N, s->K, work / once / 1e9);
        }
    }
    printf("%-6s %s %s, %d threads: %6.1f GF/s, %.0f %% of the %.1f that multiply-adds alone reach\n", step->name, format_names[device->format],
        device->isa, threads, flops / spent / 1e9, 100 * flops / spent / 1e9 / peak, peak);
}

int main(int argc, char **argv)
{
    int threads = 1;
    const char *isa = NULL, *wanted = "all";
    enum format format = FORMAT_FP32;
    bool each = false, understood = true;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        bool known = !strcmp(word, "all"), is_format = false;
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            known = known || !strcmp(word, steps[s].name);
        for (enum format f = FORMAT_FP32; f < FORMATS; f++)
            if (!strcmp(word, format_names[f])) {
                format = f;
                is_format = true;
            }
        if (known)
            wanted = word;
        else if (!strcmp(word, "each"))
            each = true;
        else if (atoi(word) > 0)
            threads = atoi(word);
        else if (!is_format && (understood = understood && cpu_has(word)))
            isa = word;
    }
    if (!understood) {
        fprintf(stderr, "usage: bench_gemm [A|B|C|A-moe|B-moe|C-moe|demo|all] [fp32|bf16|fp16] [threads] [plain|avx2|avx512|avx512bf16] [each]\n");
        return 2;
    }
    const struct device *device = isa ? cpu_configure_in(threads, isa, format) : device_cpu_in(threads, format);
    seconds_of_cpu = threads <= 1;
    size_t most = 16 * 1024 * 768; // the experts of C
    float **const operands[] = {&out, &a, &b};
    for (size_t o = 0; o < 3; o++) {
        *operands[o] = device->memory->alloc(most * sizeof(float));
        for (size_t i = 0; i < most; i++)
            (*operands[o])[i] = (float)((i + o) % 97) / 97 - 0.5f;
    }
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        if (!strcmp(wanted, "all") || !strcmp(wanted, steps[s].name))
            measure(device, &steps[s], threads, each);
    return 0;
}
