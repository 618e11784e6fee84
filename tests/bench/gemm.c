// Products over the demo model's shapes: GF/s of the cpu device, and the share of what bare multiply-adds reach in the same run (peak.c).
// Usage: bench_gemm [threads [plain|avx2|avx512]]
#include "tests/bench/peak.h"
#include "tests/bench/seconds.h"
#include "worker/device/cpu.h"

#include <stdio.h>
#include <stdlib.h>

enum linear { FORWARD, DINPUT, DWEIGHT };
static const char *const product_names[] = {"forward", "dinput", "dweight"};

// A linear layer over T rows with a weight [N,K].
struct shape {
    const char *name;
    size_t T, N, K;
};

// Hidden 128, ffn 512, qkv 256, vocabulary 257; experts: 512 rows, width 128.
static const struct shape shapes[] = {
    {"qkv", 2048, 256, 128},
    {"attention out", 2048, 128, 128},
    {"gate, up", 2048, 1024, 128},
    {"down", 2048, 128, 512},
    {"logits", 2048, 257, 128},
    {"expert gate, up", 512, 256, 128},
    {"expert down", 512, 128, 128},
    {"large", 2048, 1024, 1024},
};

// Best of several runs, in GF/s: what a quiet core does.
static double rate(const struct device *device, const struct shape *s, enum linear product, float *out, const float *a, const float *b)
{
    double flops = 2.0 * (double)s->T * (double)s->N * (double)s->K, best = 0;
    void (*const products[])(void *, const void *, const void *, size_t, size_t, size_t) = {
        device->ops->linear_forward, device->ops->linear_dinput, device->ops->linear_dweight};
    size_t repeats = (size_t)(5e8 / flops) + 1;
    for (int round = 0; round < 12; round++) {
        double start = seconds();
        for (size_t i = 0; i < repeats; i++)
            products[product](out, a, b, s->T, s->N, s->K);
        double now = flops * (double)repeats / (seconds() - start) / 1e9;
        best = now > best ? now : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    const char *isa = argc > 2 ? argv[2] : NULL;
    if (threads < 1 || (isa && !cpu_has(isa))) {
        fprintf(stderr, "usage: bench_gemm [threads [plain|avx2|avx512]], with what this machine has\n");
        return 2;
    }
    const struct device *device = isa ? cpu_configure(threads, isa) : device_cpu(threads);
    seconds_of_cpu = threads <= 1;
    size_t most = 2048 * 1024;
    float *out = device->memory->alloc(most * 4), *a = device->memory->alloc(most * 4), *b = device->memory->alloc(most * 4);
    for (size_t i = 0; i < most; i++) {
        a[i] = (float)(i % 97) / 97 - 0.5f;
        b[i] = (float)(i % 89) / 89 - 0.5f;
    }
    // The ceiling is measured again beside each shape: on a shared machine it wanders.
    enum { COUNT = 3 * sizeof shapes / sizeof *shapes };
    double rates[COUNT], best = 0, inverse = 0, count = COUNT;
    for (size_t i = 0; i < COUNT; i++) {
        double now = peak_rate() * threads;
        best = now > best ? now : best;
        rates[i] = rate(device, &shapes[i / 3], (enum linear)(i % 3), out, a, b);
        inverse += 1 / rates[i];
    }
    printf("%s, %d threads; multiply-adds alone %.1f GF/s\n", device->isa, threads, best);
    for (size_t i = 0; i < COUNT; i++) {
        const struct shape *s = &shapes[i / 3];
        printf("%-16s %-8s %5zu %5zu %5zu  %6.1f GF/s  %3.0f %%\n", s->name, product_names[i % 3], s->T, s->N, s->K, rates[i],
            100 * rates[i] / best);
    }
    printf("harmonic mean %.1f GF/s, %.0f %%\n", count / inverse, 100 * count / inverse / best);
    return 0;
}
