// GELU, and the gates of branches: a number or two for each token.
#include "worker/device/cpu.h"

#include <math.h>

struct gelu {
    float *out, *dscale;
    const float *dout, *x, *scale;
    size_t T, F;
};

static void run_gelu_forward(const void *job, int thread, int threads)
{
    const struct gelu *g = job;
    struct range part = cpu_part(g->T, thread, threads);
    const float *scale = g->scale ? g->scale + part.from : NULL;
    cpu.kernels->gelu_forward(g->out + part.from * g->F, g->x + part.from * g->F, scale, part.to - part.from, g->F);
}

void cpu_gelu_forward(void *out, const void *x, const void *scale, size_t T, size_t F)
{
    cpu_run(run_gelu_forward, &(struct gelu){.out = out, .x = x, .scale = scale, .T = T, .F = F}, T * F);
}

static void run_gelu_backward(const void *job, int thread, int threads)
{
    const struct gelu *g = job;
    struct range part = cpu_part(g->T, thread, threads);
    const float *scale = g->scale ? g->scale + part.from : NULL;
    float *dscale = g->scale ? g->dscale + part.from : NULL;
    size_t at = part.from * g->F;
    cpu.kernels->gelu_backward(g->out + at, dscale, g->dout + at, g->x + at, scale, part.to - part.from, g->F);
}

void cpu_gelu_backward(void *dx, void *dscale, const void *dout, const void *x, const void *scale, size_t T, size_t F)
{
    cpu_run(run_gelu_backward, &(struct gelu){.out = dx, .dscale = dscale, .dout = dout, .x = x, .scale = scale, .T = T, .F = F}, T * F);
}

// So few numbers that one thread and the C library's functions do.

void cpu_sigmoid_forward(void *out_, const void *x_, size_t count)
{
    float *out = out_;
    const float *x = x_;
    for (size_t i = 0; i < count; i++)
        out[i] = 1 / (1 + expf(-x[i]));
}

void cpu_sigmoid_backward(void *dx_, const void *dout_, const void *out_, size_t count)
{
    float *dx = dx_;
    const float *dout = dout_, *out = out_;
    for (size_t i = 0; i < count; i++)
        dx[i] = dout[i] * out[i] * (1 - out[i]);
}

void cpu_mix_forward(void *first_, void *second_, const void *logits_, size_t T)
{
    float *first = first_, *second = second_;
    const float *logits = logits_;
    for (size_t t = 0; t < T; t++) {
        float difference = logits[2 * t] - logits[2 * t + 1];
        first[t] = 1 / (1 + expf(-difference));
        second[t] = 1 / (1 + expf(difference));
    }
}

void cpu_mix_backward(void *dlogits_, const void *dfirst_, const void *dsecond_, const void *first_, const void *second_, size_t T)
{
    float *dlogits = dlogits_;
    const float *dfirst = dfirst_, *dsecond = dsecond_, *first = first_, *second = second_;
    for (size_t t = 0; t < T; t++) {
        float d = (dfirst[t] - dsecond[t]) * first[t] * second[t];
        dlogits[2 * t] = d;
        dlogits[2 * t + 1] = -d;
    }
}

void cpu_scale_rows(void *out_, const void *x_, const void *factor_, size_t T, size_t C)
{
    float *out = out_;
    const float *x = x_, *factor = factor_;
    for (size_t t = 0; t < T; t++)
        for (size_t c = 0; c < C; c++)
            out[t * C + c] = x[t * C + c] * factor[t];
}

void cpu_scale_rows_backward(void *dx_, void *dfactor_, const void *dout_, const void *x_, const void *factor_, size_t T, size_t C)
{
    float *dx = dx_, *dfactor = dfactor_;
    const float *dout = dout_, *x = x_, *factor = factor_;
    for (size_t t = 0; t < T; t++) {
        dfactor[t] = cpu.kernels->dot(dout + t * C, x + t * C, C); // before dx takes the place of dout
        for (size_t c = 0; c < C; c++)
            dx[t * C + c] = dout[t * C + c] * factor[t];
    }
}
