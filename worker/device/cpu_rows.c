// Operations over rows of tokens, and embedding.
#include "worker/device/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { ROW_BLOCK = 64 }; // rows whose contributions to a weight's gradient are summed together

struct embedding {
    float *out;
    const void *in; // forward: weights; backward: reals
    const int32_t *tokens;
    size_t T, V, C;
};

void cpu_embedding_forward(void *out, const void *weight, const int32_t *tokens, size_t T, size_t C)
{
    cpu_widen_rows(out, weight, tokens, T, C);
}

// Threads share columns, not tokens, so that each sum keeps the order of tokens.
static void run_embedding_backward(const void *job, int thread, int threads)
{
    const struct embedding *e = job;
    struct range part = cpu_part(e->C, thread, threads);
    for (size_t t = 0; t < e->T; t++) {
        assert(e->tokens[t] >= 0 && (size_t)e->tokens[t] < e->V);
        float *to = e->out + (size_t)e->tokens[t] * e->C + part.from;
        cpu.kernels->add(to, to, (const float *)e->in + t * e->C + part.from, part.to - part.from);
    }
}

void cpu_embedding_backward(void *dweight, const void *dout, const int32_t *tokens, size_t T, size_t V, size_t C)
{
    cpu_run(run_embedding_backward, &(struct embedding){dweight, dout, tokens, T, V, C}, T * C);
}

struct rmsnorm {
    float *out, *rstd, *partials;
    const float *dout, *x, *weight, *saved_rstd;
    size_t T, C;
    float eps;
};

static void run_rmsnorm_forward(const void *job, int thread, int threads)
{
    const struct rmsnorm *n = job;
    struct range part = cpu_part(n->T, thread, threads);
    size_t at = part.from * n->C;
    cpu.kernels->rmsnorm_forward(n->out + at, n->rstd + part.from, n->x + at, n->weight, part.to - part.from, n->C, n->eps);
}

void cpu_rmsnorm_forward(void *out, void *rstd, const void *x, const void *weight, size_t T, size_t C, double eps)
{
    struct rmsnorm n = {.out = out, .rstd = rstd, .x = x, .weight = weight, .T = T, .C = C, .eps = (float)eps};
    cpu_run(run_rmsnorm_forward, &n, T * C);
}

static size_t row_blocks(size_t T)
{
    return (T + ROW_BLOCK - 1) / ROW_BLOCK;
}

static void run_rmsnorm_backward(const void *job, int thread, int threads)
{
    const struct rmsnorm *n = job;
    struct range part = cpu_part(row_blocks(n->T), thread, threads);
    for (size_t block = part.from; block < part.to; block++) {
        size_t row = block * ROW_BLOCK, rows = n->T - row < ROW_BLOCK ? n->T - row : ROW_BLOCK, at = row * n->C;
        float *dweight = n->partials + block * n->C;
        memset(dweight, 0, n->C * sizeof *dweight);
        cpu.kernels->rmsnorm_backward(n->out + at, dweight, n->dout + at, n->x + at, n->weight, n->saved_rstd + row, rows, n->C);
    }
}

void cpu_rmsnorm_backward(
    void *dx, void *dweight, const void *dout, const void *x, const void *weight, const void *rstd, size_t T, size_t C)
{
    struct rmsnorm n = {.out = dx, .dout = dout, .x = x, .weight = weight, .saved_rstd = rstd, .T = T, .C = C};
    n.partials = cpu_partials((row_blocks(T) + 1) * C * sizeof(float));
    cpu_run(run_rmsnorm_backward, &n, T * C);
    for (size_t block = 1; block < row_blocks(T); block++)
        cpu.kernels->add(n.partials, n.partials, n.partials + block * C, C);
    if (T)
        cpu.kernels->add(dweight, dweight, n.partials, C);
}

struct layernorm {
    float *out, *mean, *rstd, *partials;
    const float *dout, *x, *weight, *bias, *saved_mean, *saved_rstd;
    size_t T, C;
    float eps;
};

static void run_layernorm_forward(const void *job, int thread, int threads)
{
    const struct layernorm *n = job;
    struct range part = cpu_part(n->T, thread, threads);
    size_t at = part.from * n->C;
    cpu.kernels->layernorm_forward(n->out + at, n->mean + part.from, n->rstd + part.from, n->x + at, n->weight, n->bias,
        part.to - part.from, n->C, n->eps);
}

void cpu_layernorm_forward(
    void *out, void *mean, void *rstd, const void *x, const void *weight, const void *bias, size_t T, size_t C, double eps)
{
    struct layernorm n = {
        .out = out, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .T = T, .C = C, .eps = (float)eps};
    cpu_run(run_layernorm_forward, &n, T * C);
}

// Each block's part of the weight's gradient, and behind it of the bias's.
static void run_layernorm_backward(const void *job, int thread, int threads)
{
    const struct layernorm *n = job;
    struct range part = cpu_part(row_blocks(n->T), thread, threads);
    for (size_t block = part.from; block < part.to; block++) {
        size_t row = block * ROW_BLOCK, rows = n->T - row < ROW_BLOCK ? n->T - row : ROW_BLOCK, at = row * n->C;
        float *dweight = n->partials + block * 2 * n->C;
        memset(dweight, 0, 2 * n->C * sizeof *dweight);
        cpu.kernels->layernorm_backward(n->out + at, dweight, dweight + n->C, n->dout + at, n->x + at, n->weight, n->saved_mean + row,
            n->saved_rstd + row, rows, n->C);
    }
}

void cpu_layernorm_backward(void *dx, void *dweight, void *dbias, const void *dout, const void *x, const void *weight, const void *mean,
    const void *rstd, size_t T, size_t C)
{
    struct layernorm n = {
        .out = dx, .dout = dout, .x = x, .weight = weight, .saved_mean = mean, .saved_rstd = rstd, .T = T, .C = C};
    n.partials = cpu_partials((row_blocks(T) + 1) * 2 * C * sizeof(float));
    cpu_run(run_layernorm_backward, &n, T * C);
    for (size_t block = 1; block < row_blocks(T); block++)
        cpu.kernels->add(n.partials, n.partials, n.partials + block * 2 * C, 2 * C);
    if (!T)
        return;
    cpu.kernels->add(dweight, dweight, n.partials, C);
    cpu.kernels->add(dbias, dbias, n.partials + C, C);
}

struct swiglu {
    float *out, *dscale;
    const float *dout, *gate_up, *scale;
    size_t T, F;
};

static void run_swiglu_forward(const void *job, int thread, int threads)
{
    const struct swiglu *s = job;
    struct range part = cpu_part(s->T, thread, threads);
    const float *scale = s->scale ? s->scale + part.from : NULL;
    cpu.kernels->swiglu_forward(s->out + part.from * s->F, s->gate_up + part.from * 2 * s->F, scale, part.to - part.from, s->F);
}

void cpu_swiglu_forward(void *out, const void *gate_up, const void *scale, size_t T, size_t F)
{
    cpu_run(run_swiglu_forward, &(struct swiglu){.out = out, .gate_up = gate_up, .scale = scale, .T = T, .F = F}, T * F);
}

static void run_swiglu_backward(const void *job, int thread, int threads)
{
    const struct swiglu *s = job;
    struct range part = cpu_part(s->T, thread, threads);
    const float *scale = s->scale ? s->scale + part.from : NULL;
    float *dscale = s->scale ? s->dscale + part.from : NULL;
    size_t at = part.from * s->F;
    cpu.kernels->swiglu_backward(s->out + 2 * at, dscale, s->dout + at, s->gate_up + 2 * at, scale, part.to - part.from, s->F);
}

void cpu_swiglu_backward(void *dgate_up, void *dscale, const void *dout, const void *gate_up, const void *scale, size_t T, size_t F)
{
    struct swiglu s = {.out = dgate_up, .dscale = dscale, .dout = dout, .gate_up = gate_up, .scale = scale, .T = T, .F = F};
    cpu_run(run_swiglu_backward, &s, T * F);
}

struct cross_entropy {
    float *losses, *logits;
    const int32_t *targets;
    size_t T, V;
    float factor;
};

static void run_cross_entropy(const void *job, int thread, int threads)
{
    const struct cross_entropy *c = job;
    struct range part = cpu_part(c->T, thread, threads);
    cpu.kernels->cross_entropy(
        c->losses + part.from, c->logits + part.from * c->V, c->targets + part.from, part.to - part.from, c->V, c->factor);
}

void cpu_cross_entropy(void *losses, void *logits, const int32_t *targets, size_t T, size_t V, double factor)
{
    cpu_run(run_cross_entropy, &(struct cross_entropy){losses, logits, targets, T, V, (float)factor}, T * V);
}
