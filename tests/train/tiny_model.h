// A model small enough to check every gradient of, and what tests of the model share: its spec, its values, its tokens.
#pragma once
#include "worker/model/model.h"

struct tiny { // what tests vary; the rest is fixed
    int64_t experts, top_k;     // 0 experts: dense
    int64_t layer_frequency;    // 0: every layer is MoE
    bool pre_softmax, untied, grouped_gemm;
    double balance;             // coefficient of the balance loss
    int64_t micro_batch;        // sequences; 0: 2
    int64_t ranks, expert_parallel; // 0: 1
    void (*change)(struct spec *spec); // last; may be NULL
};

enum { TINY_LAYERS = 2, TINY_HIDDEN = 12, TINY_FFN = 20, TINY_HEADS = 2, TINY_GROUPS = 1, TINY_HEAD_DIM = 6, TINY_VOCAB = 19, TINY_SEQUENCE = 5 };

void tiny_spec(struct spec *spec, const struct tiny *tiny); // owns nothing: no release

// Every resident tensor gets values that depend on its name and the element alone: norms around 1, matrices with this deviation. So do the
// biases that experts are chosen with.
void tiny_values(struct model *model, double deviation);

// Tokens and targets of the sequences first … first + count − 1 of an endless supply; every seventh target is not counted.
void tiny_tokens(const struct spec *spec, int32_t *tokens, int32_t *targets, int64_t first, int64_t count);

// A micro batch of the sequences from `first` on, in one block: free(). Where the spec's attention or positions end at documents, these have
// 1, 2, 3, … tokens.
struct micro_batch *tiny_batch(const struct spec *spec, int64_t first);

// The same pseudo-random number in [0,1) for the same seed and index.
double tiny_random(uint64_t seed, uint64_t index);

// Host copies of one tensor.
double *tiny_read(const struct model *model, const void *at, size_t count); // free()
