// Routing by numbers: scores, weights, losses and the way back. A few numbers a token: exponentials by the kernels, the rest by
// plain loops.
#include "worker/device/cpu.h"

#include <math.h>
#include <string.h>

enum { TOKEN_BLOCK = 256 }; // tokens whose sums are made together

struct jittered {
    float *out;
    const float *in;
    const struct dropout *jitter;
    size_t T, C;
};

static void run_jitter(const void *job, int thread, int threads)
{
    const struct jittered *j = job;
    struct range part = cpu_part(j->T, thread, threads);
    double *factors = (double *)cpu_scratch(thread, SCRATCH_ROUTER, 2 * j->C);
    for (size_t t = part.from; t < part.to; t++) {
        jitter_factors(factors, j->jitter, t, j->C);
        for (size_t c = 0; c < j->C; c++)
            j->out[t * j->C + c] = (float)(j->in[t * j->C + c] * factors[c]);
    }
}

void cpu_jitter(void *out, const void *in, const struct dropout *jitter, size_t T, size_t C)
{
    cpu_run(run_jitter, &(struct jittered){out, in, jitter, T, C}, 16 * T * C);
}

// ---- scores and weights ----

struct routing {
    float *out;
    double *sums;               // (B,E) or a number a block
    const float *logits, *dprobs, *pull, *bias;
    const int32_t *choice;
    double z_pull;
    size_t B, S, T, E, J;
    enum score_function function;
    const struct weighing *weighing;
};

static float top_of(const float *x, size_t count)
{
    float top = x[0];
    for (size_t i = 1; i < count; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

static float sum_of(const float *x, size_t count)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += x[i];
    return sum;
}

// A token's scores. From exp(−|x|) for the two that score each expert alone: it never overflows.
static void score(float *scores, const float *logits, size_t E, enum score_function function)
{
    if (function == SCORES_SOFTMAX) {
        cpu.kernels->exponents(scores, logits, top_of(logits, E), E);
        float sum = sum_of(scores, E);
        for (size_t e = 0; e < E; e++)
            scores[e] /= sum;
        return;
    }
    for (size_t e = 0; e < E; e++)
        scores[e] = -fabsf(logits[e]);
    cpu.kernels->exponents(scores, scores, 0, E);
    for (size_t e = 0; e < E; e++) {
        float x = logits[e], small = scores[e];
        scores[e] = function == SCORES_SIGMOID ? (x > 0 ? 1 : small) / (1 + small) : sqrtf((x > 0 ? x : 0) + log1pf(small));
    }
}

static float normaliser(const float *scores, size_t E, enum score_function function)
{
    return function == SCORES_SOFTMAX ? 1 : sum_of(scores, E) + 1e-20f;
}

static void run_scores(const void *job, int thread, int threads)
{
    const struct routing *r = job;
    struct range part = cpu_part(r->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        float *scores = r->out + t * r->E;
        score(scores, r->logits + t * r->E, r->E, r->function);
        for (size_t e = 0; e < r->E && r->bias; e++)
            scores[e] += r->bias[e];
    }
}

void cpu_router_scores(void *scores, const void *logits, const void *bias, size_t T, size_t E, enum score_function function)
{
    cpu_run(run_scores, &(struct routing){.out = scores, .logits = logits, .bias = bias, .T = T, .E = E, .function = function}, T * (E + 64));
}

// A token's weights before scaling, and scores(E) unless they are a softmax over the chosen. Returns what they were divided by.
static float weigh(float *probs, float *scores, const int32_t *choice, const float *logits, size_t E, size_t J, const struct weighing *w)
{
    bool over_chosen = w->normalised && w->function == SCORES_SOFTMAX;
    const float *from = over_chosen ? logits : scores;
    float sum = 0, top = -INFINITY;
    if (!over_chosen)
        score(scores, logits, E, w->function);
    for (size_t j = 0; j < J; j++) {
        probs[j] = choice[j] < 0 ? over_chosen ? -INFINITY : 0 : from[choice[j]];
        top = probs[j] > top ? probs[j] : top;
    }
    if (over_chosen)
        cpu.kernels->exponents(probs, probs, top, J);
    for (size_t j = 0; j < J; j++) {
        probs[j] = choice[j] < 0 ? 0 : probs[j];
        sum += probs[j];
    }
    float divisor = !w->normalised ? 1 : over_chosen ? sum : sum + 1e-20f;
    for (size_t j = 0; j < J; j++)
        probs[j] = choice[j] < 0 ? 0 : probs[j] / divisor;
    return divisor;
}

static void run_weights(const void *job, int thread, int threads)
{
    const struct routing *r = job;
    struct range part = cpu_part(r->T, thread, threads);
    float *scores = cpu_scratch(thread, SCRATCH_ROUTER, r->E);
    for (size_t t = part.from; t < part.to; t++) {
        float *probs = r->out + t * r->J;
        weigh(probs, scores, r->choice + t * r->J, r->logits + t * r->E, r->E, r->J, r->weighing);
        for (size_t j = 0; j < r->J && r->weighing->scaling != 1; j++)
            probs[j] *= (float)r->weighing->scaling;
    }
}

void cpu_router_weights(void *probs, const int32_t *choice, const void *logits, size_t T, size_t E, size_t J, const struct weighing *weighing)
{
    cpu_run(run_weights, &(struct routing){.out = probs, .choice = choice, .logits = logits, .T = T, .E = E, .J = J, .weighing = weighing},
        T * (E + J + 64));
}

// ---- losses: sums over blocks of tokens, then of the blocks in order ----

static size_t blocks_of(size_t tokens)
{
    return (tokens + TOKEN_BLOCK - 1) / TOKEN_BLOCK;
}

static struct range block_tokens(const struct routing *r, size_t block)
{
    size_t each = blocks_of(r->S), first = block / each * r->S, from = block % each * TOKEN_BLOCK;
    return (struct range){first + from, first + (from + TOKEN_BLOCK < r->S ? from + TOKEN_BLOCK : r->S)};
}

static void run_masses(const void *job, int thread, int threads)
{
    const struct routing *r = job;
    struct range part = cpu_part(r->B * blocks_of(r->S), thread, threads);
    float *scores = cpu_scratch(thread, SCRATCH_ROUTER, r->E);
    for (size_t block = part.from; block < part.to; block++) {
        struct range tokens = block_tokens(r, block);
        double *sums = r->sums + block * r->E;
        memset(sums, 0, r->E * sizeof *sums);
        for (size_t t = tokens.from; t < tokens.to; t++) {
            score(scores, r->logits + t * r->E, r->E, r->function);
            double divisor = normaliser(scores, r->E, r->function);
            for (size_t e = 0; e < r->E; e++)
                sums[e] += scores[e] / divisor;
        }
    }
}

void cpu_router_masses(double *masses, const void *logits, size_t B, size_t S, size_t E, enum score_function function)
{
    size_t each = blocks_of(S);
    double *sums = cpu_partials(B * each * E * sizeof *sums);
    cpu_run(run_masses, &(struct routing){.sums = sums, .logits = logits, .B = B, .S = S, .E = E, .function = function}, B * S * (E + 64));
    memset(masses, 0, B * E * sizeof *masses);
    for (size_t block = 0; block < B * each; block++)
        for (size_t e = 0; e < E; e++)
            masses[block / each * E + e] += sums[block * E + e];
}

// softmax(E) becomes the softmax. Returns the logsumexp.
static float log_sum(float *softmax, const float *logits, size_t E)
{
    float top = top_of(logits, E);
    cpu.kernels->exponents(softmax, logits, top, E);
    float sum = sum_of(softmax, E);
    for (size_t e = 0; e < E; e++)
        softmax[e] /= sum;
    return top + logf(sum);
}

static void run_z(const void *job, int thread, int threads)
{
    const struct routing *r = job;
    struct range part = cpu_part(blocks_of(r->S), thread, threads);
    float *scratch = cpu_scratch(thread, SCRATCH_ROUTER, r->E);
    for (size_t block = part.from; block < part.to; block++) {
        struct range tokens = block_tokens(r, block);
        r->sums[block] = 0;
        for (size_t t = tokens.from; t < tokens.to; t++) {
            double lse = log_sum(scratch, r->logits + t * r->E, r->E);
            r->sums[block] += lse * lse;
        }
    }
}

double cpu_router_z(const void *logits, size_t T, size_t E)
{
    size_t blocks = blocks_of(T);
    double *sums = cpu_partials(blocks * sizeof *sums), sum = 0;
    cpu_run(run_z, &(struct routing){.sums = sums, .logits = logits, .B = 1, .S = T, .E = E}, T * (E + 64));
    for (size_t block = 0; block < blocks; block++)
        sum += sums[block];
    return sum;
}

// ---- backward ----

// The part of one token through its weights: into dlogits where they are a softmax over the chosen, else into dscores.
static void through_weights(const struct routing *r, double *dlogits, double *dscores, const float *probs, double divisor, const float *dprobs,
    const int32_t *choice)
{
    const struct weighing *w = r->weighing;
    double mean = 0;
    for (size_t j = 0; j < r->J; j++)
        mean += (double)probs[j] * (dprobs[j] * w->scaling);
    for (size_t j = 0; j < r->J; j++) {
        double upstream = dprobs[j] * w->scaling;
        if (choice[j] < 0)
            continue;
        if (!w->normalised)
            dscores[choice[j]] += upstream;
        else if (w->function == SCORES_SOFTMAX)
            dlogits[choice[j]] += probs[j] * (upstream - mean);
        else
            dscores[choice[j]] += (upstream - mean) / divisor;
    }
}

// dscores += the part through the scores that the losses see.
static void through_losses(double *dscores, const float *scores, const float *pull, size_t E, enum score_function function)
{
    double divisor = normaliser(scores, E, function), mean = 0;
    for (size_t e = 0; e < E && function != SCORES_SOFTMAX; e++)
        mean += scores[e] / divisor * pull[e];
    for (size_t e = 0; e < E; e++)
        dscores[e] += (pull[e] - mean) / divisor;
}

static void through_scores(double *dlogits, const double *dscores, const float *scores, const float *logits, size_t E, enum score_function function)
{
    double mean = 0;
    for (size_t e = 0; e < E && function == SCORES_SOFTMAX; e++)
        mean += scores[e] * dscores[e];
    for (size_t e = 0; e < E; e++) {
        double s = scores[e];
        if (function == SCORES_SOFTMAX)
            dlogits[e] += s * (dscores[e] - mean);
        else if (function == SCORES_SIGMOID) // 1 − s loses its digits where s is near 1
            dlogits[e] += dscores[e] * s / (1 + exp((double)logits[e]));
        else
            dlogits[e] += s > 0 ? dscores[e] * -expm1(-s * s) / (2 * s) : 0; // sigmoid(logit) = 1 − exp(−s²)
    }
}

static void run_backward(const void *job, int thread, int threads)
{
    const struct routing *r = job;
    struct range part = cpu_part(r->T, thread, threads);
    size_t E = r->E, J = r->J;
    double *dlogits = (double *)cpu_scratch(thread, SCRATCH_ROUTER, 5 * E + J), *dscores = dlogits + E;
    float *scores = (float *)(dscores + E), *probs = scores + E;
    enum score_function function = r->weighing->function;
    for (size_t t = part.from; t < part.to; t++) {
        const float *logits = r->logits + t * E;
        memset(dlogits, 0, 2 * E * sizeof *dlogits);
        double divisor = weigh(probs, scores, r->choice + t * J, logits, E, J, r->weighing);
        through_weights(r, dlogits, dscores, probs, divisor, r->dprobs + t * J, r->choice + t * J);
        score(scores, logits, E, function);
        if (r->pull)
            through_losses(dscores, scores, r->pull + t / r->S * E, E, function);
        through_scores(dlogits, dscores, scores, logits, E, function);
        double lse = r->z_pull != 0 ? log_sum(scores, logits, E) : 0;
        for (size_t e = 0; e < E; e++)
            r->out[t * E + e] = (float)(dlogits[e] + (r->z_pull != 0 ? 2 * r->z_pull * lse * scores[e] : 0));
    }
}

void cpu_router_backward(void *dlogits, const void *dprobs, const int32_t *choice, const void *logits, const void *pull, double z_pull,
    size_t B, size_t S, size_t E, size_t J, const struct weighing *weighing)
{
    struct routing r = {.out = dlogits, .dprobs = dprobs, .choice = choice, .logits = logits, .pull = pull, .z_pull = z_pull, .B = B,
        .S = S, .T = B * S, .E = E, .J = J, .weighing = weighing};
    cpu_run(run_backward, &r, r.T * (E + J + 64));
}
