// Specs made by hand, for tests of pure arithmetic: the two flagship models, and random ones.
#pragma once
#include "schema/shape/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline struct spec flagship(bool moe)
{
    struct spec spec = {0};
    spec.name = moe ? "moe" : "dense";
    spec.data.sequence_length = 4096;
    spec.model = (struct spec_model){.layers = 16, .hidden_size = 2048, .ffn_hidden_size = 8192, .attention_heads = 32, .kv_heads = 4,
        .head_dim = 64, .vocab_size = 128256, .tied_embeddings = true, .init.std = 0.02};
    spec.training = (struct spec_training){.iterations = 120, .micro_batch_size = 8, .global_batch_size = 512,
        .precision = PRECISION_BF16, .distributed_optimizer = true, .seed = 1234};
    spec.training.recompute = (struct spec_recompute_keys){RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 1};
    spec.training.learning_rate = (struct spec_learning_rate){.schedule = SCHEDULE_WSD, .peak = 5e-4, .minimum = 5e-5,
        .warmup_iterations = 50, .decay_iterations = 1000, .decay_style = DECAY_EXPONENTIAL, .total_iterations = 10000};
    spec.parallelism = (struct spec_parallelism){.tensor = 1, .pipeline = 1, .context = 1, .expert = moe ? 8 : 1, .virtual_pipeline = 1};
    spec.resources = (struct spec_resources){.nodes = 1, .gpus_per_node = 8, .ranks_per_node = 8, .gpu_memory = 80000000000};
    if (moe)
        spec.model.moe = (struct spec_moe){.experts = 64, .top_k = 8, .expert_ffn_hidden_size = 1024,
            .grouped_gemm = true, .layer_frequency = 1};
    return spec;
}

// The small one that two CPU cores train.
static inline struct spec small(bool moe)
{
    struct spec spec = {0};
    spec.name = moe ? "moe" : "dense";
    spec.data.sequence_length = 256;
    spec.model = (struct spec_model){.layers = 4, .hidden_size = 128, .ffn_hidden_size = 512, .attention_heads = 4, .kv_heads = 2,
        .head_dim = 32, .vocab_size = 257, .tied_embeddings = true, .norm_epsilon = 1e-5, .rope_base = 10000, .init.std = 0.02};
    spec.training = (struct spec_training){.iterations = 300, .micro_batch_size = 8, .global_batch_size = 32, .seed = 1234};
    spec.training.learning_rate = (struct spec_learning_rate){.schedule = SCHEDULE_WSD, .peak = 3e-3, .minimum = 3e-4,
        .warmup_iterations = 20, .decay_iterations = 60, .total_iterations = 300};
    spec.parallelism = (struct spec_parallelism){.tensor = 1, .pipeline = 1, .context = 1, .expert = moe ? 2 : 1, .virtual_pipeline = 1};
    spec.resources = (struct spec_resources){.nodes = 1, .ranks_per_node = 2, .threads_per_rank = 1};
    if (moe)
        spec.model.moe = (struct spec_moe){.experts = 16, .top_k = 4, .expert_ffn_hidden_size = 128, .layer_frequency = 1};
    return spec;
}

// A random number in [least, most], the same in every run of the tests.
static inline int64_t pick(uint64_t *state, int64_t least, int64_t most)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((*state >> 33) % (uint64_t)(most - least + 1));
}
