// Causal attention in tiles of queries. A thread takes one sequence and one key head at a time, packs its keys and values once, and goes
// through the query heads that share them. A window or the begin of a document only shortens the range of keys of a tile, so that a
// document gets the bits that it would get alone. Memory: a few rows of S scores (forward) or one small tile (backward), never S × S.
// A query's sums run over keys in order, a key's gradient over query heads and then queries in order.
#include "worker/device/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { QUERIES = 32, KEYS = 64, SPARE = 64 };

struct attention {
    float *out, *lse, *dqkv;
    const float *dout, *qkv;
    const float *saved_out, *saved_lse;
    const struct attention_options *options;
    size_t B, S, H, G, D;
    size_t row;    // reals of a row of qkv
    size_t wide;   // D in whole strips
    size_t padded; // S in whole key tiles
    float scale;
};

static size_t rounded(size_t count, size_t unit)
{
    return (count + unit - 1) / unit * unit;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct attention attention_of(const struct attention_options *o)
{
    assert(o->G && o->H % o->G == 0 && KEYS % cpu.kernels->strip == 0 && KEYS % DROPOUT_RUN == 0);
    return (struct attention){.options = o,
        .B = o->B,
        .S = o->S,
        .H = o->H,
        .G = o->G,
        .D = o->D,
        .row = (o->H + 2 * o->G) * o->D,
        .wide = rounded(o->D, cpu.kernels->strip),
        .padded = rounded(o->S, KEYS),
        .scale = (float)(1 / sqrt((double)o->D))};
}

// The first key that query s of sequence b sees.
static size_t first_seen(const struct attention_options *o, size_t b, size_t s)
{
    size_t begin = o->window && s + 1 > o->window ? s + 1 - o->window : 0;
    size_t document = o->first_key ? (size_t)o->first_key[b * o->S + s] : 0;
    return document > begin ? document : begin;
}

// Of the tile of keys j0 …: how many are before what query s sees, and how many (of width) it sees.
static struct range seen(const struct attention *a, size_t b, size_t s, size_t j0, size_t width)
{
    size_t first = first_seen(a->options, b, s), to = s >= j0 ? smaller(s - j0 + 1, width) : 0;
    return (struct range){first > j0 ? smaller(first - j0, to) : 0, to};
}

static void drop(float *values, const float *factors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] *= factors[i];
}

// One query's scores of the keys from … into weights, zero where it does not see them; returns what they are to be divided by.
static float forward_row(const struct attention *a, size_t b, size_t h, size_t s, size_t from, size_t width, float *p)
{
    const struct dropout *dropout = &a->options->dropout;
    struct range keys = seen(a, b, s, from, width);
    memset(p, 0, keys.from * sizeof *p);
    float sum = cpu.kernels->softmax(p + keys.from, &a->lse[(b * a->H + h) * a->S + s], keys.to - keys.from, width - keys.from, a->scale);
    float factors[KEYS];
    for (size_t j = dropout->probability > 0 ? 0 : keys.to; j < keys.to; j += KEYS) {
        size_t count = smaller(KEYS, keys.to - j);
        cpu.kernels->dropout_factors(factors, dropout, b * a->S + s, (uint32_t)h, from + j, count);
        drop(p + j, factors, count);
    }
    return sum;
}

// Rows of one head, next to each other: in qkv they lie so far apart that they drive each other out of the first-level cache.
static struct left copied(float *to, const float *from, size_t row, size_t rows, size_t D)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * D, from + i * row, D * sizeof *to);
    return (struct left){to, D, 1, 0};
}

// What forward needs: one key head's packed keys (strips over positions) and values (strips over D), and one query tile.
struct forward {
    float *keys, *values;
    float *query, *out; // (QUERIES, D)
    float *scores;      // (QUERIES, padded)
};

static struct forward forward_of(const struct attention *a, int thread)
{
    size_t keys = (a->padded + SPARE) * a->D, values = a->S * a->wide, tile = QUERIES * a->D;
    float *at = cpu_scratch(thread, SCRATCH_ATTENTION, keys + values + 2 * tile + QUERIES * a->padded + SPARE);
    return (struct forward){at, at + keys, at + keys + values, at + keys + values + tile, at + keys + values + 2 * tile};
}

static void forward_head(const struct attention *a, const struct forward *w, size_t b, size_t h)
{
    const struct kernels *kernels = cpu.kernels;
    const float *q = a->qkv + b * a->S * a->row + h * a->D;
    for (size_t s0 = 0; s0 < a->S; s0 += QUERIES) {
        size_t rows = smaller(QUERIES, a->S - s0), from = first_seen(a->options, b, s0) / KEYS * KEYS, width = s0 + rows - from;
        struct left left = copied(w->query, q + s0 * a->row, a->row, rows, a->D);
        kernels->multiply(w->scores, a->padded, left, w->keys + from * a->D, a->D * kernels->strip, rows, width, a->D, false);
        float sums[QUERIES];
        for (size_t i = 0; i < rows; i++)
            sums[i] = forward_row(a, b, h, s0 + i, from, width, w->scores + i * a->padded);
        left = (struct left){w->scores, a->padded, 1, 0};
        kernels->multiply(w->out, a->D, left, w->values + from * kernels->strip, a->S * kernels->strip, rows, a->D, width, false);
        float *out = a->out + ((b * a->S + s0) * a->H + h) * a->D;
        for (size_t i = 0; i < rows; i++) {
            kernels->scale(w->out + i * a->D, 1 / sums[i], a->D);
            memcpy(out + i * a->H * a->D, w->out + i * a->D, a->D * sizeof *out);
        }
    }
}

static void run_forward(const void *job, int thread, int threads)
{
    const struct attention *a = job;
    struct range part = cpu_part(a->B * a->G, thread, threads);
    struct forward w = forward_of(a, thread);
    for (size_t task = part.from; task < part.to; task++) {
        size_t b = task / a->G, g = task % a->G, share = a->H / a->G;
        const float *k = a->qkv + b * a->S * a->row + (a->H + g) * a->D, *v = k + a->G * a->D;
        cpu.kernels->pack_right(w.keys, k, 1, a->row, a->D, a->S);
        cpu.kernels->pack_right(w.values, v, a->row, 1, a->S, a->D);
        for (size_t h = g * share; h < (g + 1) * share; h++)
            forward_head(a, &w, b, h);
    }
}

void cpu_attention_forward(void *out, void *lse, const void *qkv, const struct attention_options *options)
{
    struct attention a = attention_of(options);
    a.out = out;
    a.lse = lse;
    a.qkv = qkv;
    cpu_run(run_forward, &a, a.B * a.S * a.S * a.H * a.D / 16);
}

// What backward needs of one key head: packed keys and values, the sums of their gradients, and one tile.
struct backward {
    float *keys_across;     // kᵀ, strips over positions: scores
    float *values_across;   // vᵀ, strips over positions: dp
    float *keys;            // key tiles, strips over D: dq
    float *queries, *douts; // the query tile's, strips over D: dk, dv
    float *query, *dout;    // the same, (QUERIES, D): scores, dp
    float *dq;              // (QUERIES, D)
    float *dk, *dv;         // (S, D)
    float *p, *dp;          // (QUERIES, KEYS)
};

static struct backward backward_of(const struct attention *a, int thread)
{
    size_t across = (a->padded + SPARE) * a->D, tiles = a->padded * a->wide, packed = QUERIES * a->wide, query = QUERIES * a->D,
           sums = a->S * a->D, tile = QUERIES * KEYS;
    float *at = cpu_scratch(thread, SCRATCH_ATTENTION, 2 * across + tiles + 2 * packed + 3 * query + 2 * sums + 2 * tile + SPARE);
    struct backward w = {.keys_across = at, .values_across = at + across, .keys = at + 2 * across};
    w.queries = w.keys + tiles;
    w.douts = w.queries + packed;
    w.query = w.douts + packed;
    w.dout = w.query + query;
    w.dq = w.dout + query;
    w.dk = w.dq + query;
    w.dv = w.dk + sums;
    w.p = w.dv + sums;
    w.dp = w.p + tile;
    return w;
}

// One query's scores p and products dp of the tile of keys j0 … into weights (as dv takes them) and gradients of scores.
static void backward_row(
    const struct attention *a, size_t b, size_t h, size_t s, size_t j0, size_t width, float *p, float *dp, float lse, float delta)
{
    const struct dropout *dropout = &a->options->dropout;
    struct range keys = seen(a, b, s, j0, width);
    float factors[KEYS];
    bool drops = dropout->probability > 0 && keys.to > keys.from;
    if (drops) {
        cpu.kernels->dropout_factors(factors, dropout, b * a->S + s, (uint32_t)h, j0, keys.to);
        drop(dp, factors, keys.to);
    }
    memset(p, 0, keys.from * sizeof *p);
    memset(dp, 0, keys.from * sizeof *dp);
    cpu.kernels->softmax_backward(p + keys.from, dp + keys.from, lse, delta, keys.to - keys.from, width - keys.from, a->scale);
    if (drops)
        drop(p, factors, keys.to);
}

// Keys j0 … of one tile against the query tile s0 …: p and dscore, then their three products. `first`: the query tile's first tile of keys.
static void backward_tile(
    const struct attention *a, const struct backward *w, size_t b, size_t h, size_t s0, size_t j0, bool first, const float *deltas)
{
    const struct kernels *kernels = cpu.kernels;
    size_t rows = smaller(QUERIES, a->S - s0), width = smaller(KEYS, s0 + rows - j0), D = a->D, across = D * kernels->strip;
    kernels->multiply(w->p, KEYS, (struct left){w->query, D, 1, 0}, w->keys_across + j0 * D, across, rows, width, D, false);
    kernels->multiply(w->dp, KEYS, (struct left){w->dout, D, 1, 0}, w->values_across + j0 * D, across, rows, width, D, false);
    const float *lse = a->saved_lse + (b * a->H + h) * a->S + s0;
    for (size_t i = 0; i < rows; i++)
        backward_row(a, b, h, s0 + i, j0, width, w->p + i * KEYS, w->dp + i * KEYS, lse[i], deltas[i]);
    size_t keys = smaller(KEYS, a->S - j0); // as packed
    kernels->multiply(w->dq, D, (struct left){w->dp, KEYS, 1, 0}, w->keys + j0 * a->wide, keys * kernels->strip, rows, D, width, !first);
    kernels->multiply(w->dk + j0 * D, D, (struct left){w->dp, 1, KEYS, 0}, w->queries, rows * kernels->strip, width, D, rows, true);
    kernels->multiply(w->dv + j0 * D, D, (struct left){w->p, 1, KEYS, 0}, w->douts, rows * kernels->strip, width, D, rows, true);
}

static void backward_head(const struct attention *a, const struct backward *w, size_t b, size_t h)
{
    for (size_t s0 = 0; s0 < a->S; s0 += QUERIES) {
        size_t rows = smaller(QUERIES, a->S - s0), D = a->D, at = ((b * a->S + s0) * a->H + h) * D;
        size_t in_qkv = (b * a->S + s0) * a->row + h * D;
        float deltas[QUERIES];
        copied(w->query, a->qkv + in_qkv, a->row, rows, D);
        copied(w->dout, a->dout + at, a->H * D, rows, D);
        for (size_t i = 0; i < rows; i++)
            deltas[i] = cpu.kernels->dot(w->dout + i * D, a->saved_out + at + i * a->H * D, D);
        cpu.kernels->pack_right(w->queries, w->query, D, 1, rows, D);
        cpu.kernels->pack_right(w->douts, w->dout, D, 1, rows, D);
        size_t from = first_seen(a->options, b, s0) / KEYS * KEYS;
        for (size_t j0 = from; j0 < s0 + rows; j0 += KEYS)
            backward_tile(a, w, b, h, s0, j0, j0 == from, deltas);
        for (size_t i = 0; i < rows; i++)
            memcpy(a->dqkv + in_qkv + i * a->row, w->dq + i * D, D * sizeof(float));
    }
}

static void run_backward(const void *job, int thread, int threads)
{
    const struct attention *a = job;
    struct range part = cpu_part(a->B * a->G, thread, threads);
    struct backward w = backward_of(a, thread);
    size_t D = a->D, share = a->H / a->G;
    for (size_t task = part.from; task < part.to; task++) {
        size_t b = task / a->G, g = task % a->G, at = b * a->S * a->row + (a->H + g) * D;
        const float *k = a->qkv + at, *v = k + a->G * D;
        cpu.kernels->pack_right(w.keys_across, k, 1, a->row, D, a->S);
        cpu.kernels->pack_right(w.values_across, v, 1, a->row, D, a->S);
        for (size_t j0 = 0; j0 < a->S; j0 += KEYS)
            cpu.kernels->pack_right(w.keys + j0 * a->wide, k + j0 * a->row, a->row, 1, smaller(KEYS, a->S - j0), D);
        memset(w.dk, 0, 2 * a->S * D * sizeof *w.dk);
        for (size_t h = g * share; h < (g + 1) * share; h++)
            backward_head(a, &w, b, h);
        for (size_t s = 0; s < a->S; s++) {
            memcpy(a->dqkv + at + s * a->row, w.dk + s * D, D * sizeof(float));
            memcpy(a->dqkv + at + a->G * D + s * a->row, w.dv + s * D, D * sizeof(float));
        }
    }
}

void cpu_attention_backward(
    void *dqkv, const void *dout, const void *qkv, const void *out, const void *lse, const struct attention_options *options)
{
    struct attention a = attention_of(options);
    a.dqkv = dqkv;
    a.dout = dout;
    a.qkv = qkv;
    a.saved_out = out;
    a.saved_lse = lse;
    cpu_run(run_backward, &a, a.B * a.S * a.S * a.H * a.D / 16);
}
