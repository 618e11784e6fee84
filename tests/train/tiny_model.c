#include "tests/train/tiny_model.h"

#include "schema/base/text.h"

#include <math.h>
#include <stdlib.h>

void tiny_spec(struct spec *spec, const struct tiny *tiny)
{
    *spec = (struct spec){.project = "tests", .name = "tiny"};
    spec->model = (struct spec_model){
        .layers = TINY_LAYERS, .hidden_size = TINY_HIDDEN, .ffn_hidden_size = TINY_FFN, .attention_heads = TINY_HEADS,
        .kv_heads = TINY_GROUPS, .head_dim = TINY_HEAD_DIM, .vocab_size = TINY_VOCAB, .tied_embeddings = !tiny->untied,
        .norm_epsilon = 1e-5, .rope_base = 10000, .init = {0.02},
    };
    if (tiny->experts) {
        spec->model.moe = (struct spec_moe){
            .experts = tiny->experts, .top_k = tiny->top_k, .expert_ffn_hidden_size = TINY_FFN / 2, .pre_softmax = tiny->pre_softmax,
            .grouped_gemm = tiny->grouped_gemm, .layer_frequency = tiny->layer_frequency ? tiny->layer_frequency : 1,
            .losses = {{MOE_LOSS_AUX, tiny->balance}}, .losses_count = tiny->balance != 0,
        };
    }
    int64_t ranks = tiny->ranks ? tiny->ranks : 1;
    spec->data.sequence_length = TINY_SEQUENCE;
    spec->training.micro_batch_size = tiny->micro_batch ? tiny->micro_batch : 2;
    spec->training.global_batch_size = spec->training.micro_batch_size * ranks;
    spec->training.seed = 1234;
    spec->parallelism = (struct spec_parallelism){
        .tensor = 1, .pipeline = 1, .context = 1, .expert = tiny->expert_parallel ? tiny->expert_parallel : 1, .virtual_pipeline = 1};
    spec->resources.nodes = 1;
    spec->resources.ranks_per_node = ranks;
    if (tiny->change)
        tiny->change(spec);
}

double tiny_random(uint64_t seed, uint64_t index)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + index + 1; // SplitMix64 of a combined counter
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = z * 0x9E3779B97F4A7C15u + seed;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static uint64_t name_seed(const char *name)
{
    uint64_t hash = 14695981039346656037u; // FNV-1a
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash;
}

void tiny_values(struct model *model, double deviation)
{
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        if (!param->resident)
            continue;
        size_t count = param_elements(param);
        double *values = allocate(count, sizeof *values);
        for (size_t j = 0; j < count; j++) {
            double centred = (tiny_random(name_seed(param->name), j) - 0.5) * sqrt(12);
            values[j] = param->init == INIT_ONES ? 1 + 0.2 * centred : deviation * centred;
        }
        model->device->ops->from_double(model_param(model, param), values, count);
        free(values);
    }
    model_refresh_weights(model);
    for (size_t layer = 0; layer < (size_t)model->spec->model.layers; layer++) {
        float *bias = model_expert_bias(model, layer);
        for (int64_t e = 0; bias && e < spec_layer_experts(model->spec, (int64_t)layer); e++)
            bias[e] = (float)(0.4 * (tiny_random(layer + 1, (uint64_t)e) - 0.5));
    }
}

void tiny_tokens(const struct spec *spec, int32_t *tokens, int32_t *targets, int64_t first, int64_t count)
{
    int64_t S = spec->data.sequence_length;
    double vocabulary = (double)spec->model.vocab_size;
    for (int64_t b = 0; b < count; b++)
        for (int64_t s = 0; s < S; s++) {
            uint64_t at = (uint64_t)((first + b) * (S + 1) + s);
            tokens[b * S + s] = (int32_t)(tiny_random(7, at) * vocabulary);
            targets[b * S + s] = at % 7 == 3 ? -1 : (int32_t)(tiny_random(7, at + 1) * vocabulary);
        }
}

struct micro_batch *tiny_batch(const struct spec *spec, int64_t first)
{
    int64_t S = spec->data.sequence_length, B = spec->training.micro_batch_size, T = B * S;
    struct micro_batch *batch = allocate(1, sizeof *batch + 4 * (size_t)T * sizeof(int32_t));
    int32_t *tokens = (int32_t *)(batch + 1), *targets = tokens + T, *first_key = targets + T, *positions = first_key + T;
    tiny_tokens(spec, tokens, targets, first, B);
    for (int64_t t = 0, begin = 0, length = 1; t < T; t++) {
        if (t % S == 0) {
            begin = 0;
            length = 1;
        } else if (t % S == begin + length) {
            begin += length++;
        }
        first_key[t] = (int32_t)begin;
        positions[t] = (int32_t)(t % S - begin);
    }
    *batch = (struct micro_batch){tokens, targets, spec->data.reset_position_ids ? positions : NULL,
        spec->data.reset_attention_mask ? first_key : NULL, first};
    return batch;
}

double *tiny_read(const struct model *model, const void *at, size_t count)
{
    double *values = allocate(count, sizeof *values);
    model->device->ops->to_double(values, at, count);
    return values;
}
