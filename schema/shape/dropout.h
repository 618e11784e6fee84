// Dropout and jitter as pure functions: whether a value is dropped follows from the run's seed, the place in the model, the token's place in the run
// and the value's index, by Philox. So no layout, micro-batch size, recomputation or resume changes a bit of it.
//
// Of a row of values (the channels of a token, or the keys of a query) value i takes word i / 16 % 4 of the block of four words with
// number i / 64 · 16 + i % 16: sixteen blocks make 64 neighbours. Counter: (block, site, token); key: the seed, its upper half inverted, so
// that initial values, which count from names, share nothing with it. A value is dropped where its word is less than p · 2³²; jitter
// multiplies it by what lies as far between 1 − p and 1 + p as the middle of its word does between 0 and 2³².
#pragma once
#include <stdint.h>

enum { DROPOUT_RUN = 64, DROPOUT_BLOCKS = DROPOUT_RUN / 4 };

enum dropout_kind {
    DROPOUT_EMBEDDING, // the sum of token and position embeddings
    DROPOUT_SCORES,    // attention weights, head by head
    DROPOUT_ATTENTION, // the attention's output, before the residual sum
    DROPOUT_MLP,       // the ffn's or the experts' output, before the residual sum
    JITTER_ROUTER,     // the router's input: jitter
};

struct dropout {
    double probability; // 0: nothing is dropped; less than 1. Jitter: how far factors are from 1
    uint64_t seed;      // training.seed
    uint64_t token;     // of the first row: index of its sample in the order of the run · sequence length + position
    uint32_t site;      // dropout_site(); head h of attention is site + h
};

// Layers below 1024, heads below 16384: the limits of their keys.
static inline uint32_t dropout_site(enum dropout_kind kind, int64_t layer)
{
    return (uint32_t)kind << 24 | (uint32_t)layer << 14;
}

// What a kept value is multiplied by.
static inline double dropout_scale(const struct dropout *dropout)
{
    return 1 / (1 - dropout->probability);
}

// Words below this drop their value.
static inline uint32_t dropout_threshold(const struct dropout *dropout)
{
    return (uint32_t)(dropout->probability * 0x1p32);
}

// The factor of value `index` in row `row` of a site: 0 or dropout_scale().
double dropout_factor(const struct dropout *dropout, uint64_t row, uint32_t head, uint64_t index);

// Of jitter: factors(count) of the values of a row, from the first.
void jitter_factors(double *factors, const struct dropout *jitter, uint64_t row, uint64_t count);
