// The router and the movement of rows. Routing is a few numbers a token: choices by plain loops, exponentials by the kernels.
#include "worker/device/cpu.h"

#include <assert.h>
#include <string.h>

enum { TOKEN_BLOCK = 256 }; // tokens whose scores are summed together

struct router {
    float *probs, *scores, *dlogits;
    int32_t *choice;
    const float *logits, *dprobs, *saved_probs, *saved_scores;
    const int32_t *saved_choice, *counts;
    double aux_factor;
    size_t T, E, K;
    bool pre_softmax;
};

// The K largest of x[0..E), the lower index among equals: a place is found by insertion, and only what is larger moves ahead.
static void choose(int32_t *choice, const float *x, size_t E, size_t K)
{
    for (size_t e = 0; e < E; e++) {
        size_t taken = e < K ? e : K, at = taken;
        while (at && x[e] > x[choice[at - 1]])
            at--;
        if (at == K)
            continue;
        for (size_t j = taken < K ? taken : K - 1; j > at; j--)
            choice[j] = choice[j - 1];
        choice[at] = (int32_t)e;
    }
}

static void run_router_forward(const void *job, int thread, int threads)
{
    const struct router *r = job;
    struct range part = cpu_part(r->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        const float *logits = r->logits + t * r->E;
        float *scores = r->scores + t * r->E, *probs = r->probs + t * r->K, all = 0, some = 0;
        int32_t *choice = r->choice + t * r->K;
        choose(choice, logits, r->E, r->K);
        cpu.kernels->exponents(scores, logits, logits[choice[0]], r->E);
        for (size_t e = 0; e < r->E; e++)
            all += scores[e];
        for (size_t j = 0; j < r->K; j++)
            some += scores[choice[j]];
        for (size_t j = 0; j < r->K; j++)
            probs[j] = scores[choice[j]] / (r->pre_softmax ? all : some);
        for (size_t e = 0; e < r->E; e++)
            scores[e] /= all;
    }
}

void cpu_router_forward(void *probs, int32_t *choice, void *scores, const void *logits, size_t T, size_t E, size_t K, bool pre_softmax)
{
    assert(K >= 1 && K <= E);
    struct router r = {
        .probs = probs, .choice = choice, .scores = scores, .logits = logits, .T = T, .E = E, .K = K, .pre_softmax = pre_softmax};
    cpu_run(run_router_forward, &r, T * (E * K + 64));
}

static void run_router_backward(const void *job, int thread, int threads)
{
    const struct router *r = job;
    struct range part = cpu_part(r->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        const float *scores = r->saved_scores + t * r->E, *probs = r->saved_probs + t * r->K, *dprobs = r->dprobs + t * r->K;
        const int32_t *choice = r->saved_choice + t * r->K;
        float *dlogits = r->dlogits + t * r->E;
        double mean = 0, chosen_mean = 0;
        for (size_t e = 0; e < r->E; e++)
            mean += scores[e] * (r->aux_factor * r->counts[e]);
        for (size_t j = 0; j < r->K; j++)
            chosen_mean += (double)probs[j] * dprobs[j];
        if (r->pre_softmax)
            mean += chosen_mean; // probs are the scores of the chosen
        for (size_t e = 0; e < r->E; e++)
            dlogits[e] = (float)(scores[e] * (r->aux_factor * r->counts[e] - mean));
        for (size_t j = 0; j < r->K; j++)
            dlogits[choice[j]] += (float)(probs[j] * (r->pre_softmax ? (double)dprobs[j] : dprobs[j] - chosen_mean));
    }
}

void cpu_router_backward(void *dlogits, const void *dprobs, const void *probs, const int32_t *choice, const void *scores,
    const int32_t *counts, double aux_factor, size_t T, size_t E, size_t K, bool pre_softmax)
{
    struct router r = {.dlogits = dlogits,
        .dprobs = dprobs,
        .saved_probs = probs,
        .saved_choice = choice,
        .saved_scores = scores,
        .counts = counts,
        .aux_factor = aux_factor,
        .T = T,
        .E = E,
        .K = K,
        .pre_softmax = pre_softmax};
    cpu_run(run_router_backward, &r, T * E);
}

// Σ_e counts[e] · Σ_t scores[t,e], over t in blocks.
static double weighted_scores(const int32_t *counts, const float *scores, size_t T, size_t E)
{
    double total = 0;
    for (size_t t0 = 0; t0 < T; t0 += TOKEN_BLOCK) {
        double block = 0;
        for (size_t t = t0; t < T && t < t0 + TOKEN_BLOCK; t++)
            for (size_t e = 0; e < E; e++)
                block += (double)counts[e] * scores[t * E + e];
        total += block;
    }
    return total;
}

void cpu_router_counts(int32_t *counts, void *balance, const int32_t *choice, const void *scores, size_t T, size_t E, size_t K)
{
    memset(counts, 0, E * sizeof *counts);
    for (size_t i = 0; i < T * K; i++)
        counts[choice[i]]++;
    double sum = weighted_scores(counts, scores, T, E), tokens = (double)T;
    *(float *)balance = T ? (float)((double)E * sum / ((double)K * tokens * tokens)) : 0;
}

struct movement {
    float *out;
    const float *rows, *residual;
    const int32_t *index;
    size_t T, K, C;
};

static void run_gather(const void *job, int thread, int threads)
{
    const struct movement *m = job;
    struct range part = cpu_part(m->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++)
        memcpy(m->out + t * m->C, m->rows + (size_t)m->index[t] * m->C, m->C * sizeof *m->out);
}

void cpu_gather_rows(void *out, const void *in, const int32_t *index, size_t R, size_t C)
{
    cpu_run(run_gather, &(struct movement){out, in, NULL, index, R, 1, C}, R * C);
}

static void run_combine(const void *job, int thread, int threads)
{
    const struct movement *m = job;
    struct range part = cpu_part(m->T, thread, threads);
    for (size_t t = part.from; t < part.to; t++) {
        float *out = m->out + t * m->C;
        const int32_t *row_of = m->index + t * m->K;
        const float *first = m->rows + (size_t)row_of[0] * m->C;
        if (m->K == 1 && !m->residual) {
            memcpy(out, first, m->C * sizeof *out);
            continue;
        }
        for (size_t j = 1; j < m->K; j++)
            cpu.kernels->add(out, j == 1 ? first : out, m->rows + (size_t)row_of[j] * m->C, m->C);
        if (m->residual)
            cpu.kernels->add(out, m->K == 1 ? first : out, m->residual + t * m->C, m->C);
    }
}

void cpu_combine_rows(void *out, const void *rows, const int32_t *row_of, const void *residual, size_t T, size_t K, size_t C)
{
    cpu_run(run_combine, &(struct movement){out, rows, residual, row_of, T, K, C}, T * K * C);
}
