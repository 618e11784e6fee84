// Which token comes next. Drawing is without state: the n-th token of a seed is the same whatever came before it, wherever it is made.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct sampling_options {
    double temperature; // 0: the likeliest, of equals the lowest
    double top_p;       // of the likeliest tokens that together have this share; 1: all
    int64_t top_k;      // of so many of the likeliest; 0: all
    uint64_t seed;
};

// logits(V) of the n-th new token, n from 0. order(V) is room to work in. Temperature first, then top_k, then top_p, as transformers does.
int32_t sample_token(const double *logits, size_t V, const struct sampling_options *options, uint64_t n, int32_t *order);
