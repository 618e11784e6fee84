// From Hugging Face to a spec: what a config.json says in the spec's words, and whether a spec says the same.
#include "schema/base/file.h"
#include "worker/weights/hugging_face.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 16 << 20 };

// What the classes of transformers take where the file says nothing.
struct kind {
    const char *model_type, *name;
    bool moe, qk_norm;
    const char *experts;      // key of their number
    double epsilon, theta;
};

static const struct kind kinds[] = {
    {"llama", "LlamaForCausalLM", false, false, NULL, 1e-6, 10000},
    {"mistral", "MistralForCausalLM", false, false, NULL, 1e-6, 10000},
    {"mixtral", "MixtralForCausalLM", true, false, "num_local_experts", 1e-5, 1e6},
    {"olmoe", "OlmoeForCausalLM", true, true, "num_experts", 1e-5, 10000},
};

static const struct kind *kind_of(const struct json *config, struct error *err)
{
    const char *type = js_string_of(js_get(config, "model_type"), NULL);
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].model_type, type) == 0)
            return &kinds[i];
    error_set(err, "model_type is \"%s\"; this build reads llama, mistral, mixtral and olmoe", type ? type : "(absent)");
    return NULL;
}

static int whole(int64_t *out, const struct json *config, const char *key, int64_t fallback, struct error *err)
{
    const struct json *value = js_get(config, key);
    *out = js_kind(value) == JSON_KIND_NULL ? fallback : js_integer_of(value, -1);
    if (*out < 0)
        return error_set(err, "%s must be a whole number%s", key, js_kind(value) == JSON_KIND_NULL ? ", and it is absent" : "");
    return 0;
}

static int read_sizes(struct spec *spec, const struct json *config, const struct kind *kind, struct error *err)
{
    struct spec_model *model = &spec->model;
    int64_t width, positions;
    if (whole(&model->layers, config, "num_hidden_layers", -1, err) != 0 || whole(&model->hidden_size, config, "hidden_size", -1, err) != 0 ||
        whole(&width, config, "intermediate_size", -1, err) != 0 || whole(&model->vocab_size, config, "vocab_size", -1, err) != 0 ||
        whole(&model->attention_heads, config, "num_attention_heads", -1, err) != 0 ||
        whole(&model->kv_heads, config, "num_key_value_heads", model->attention_heads, err) != 0)
        return -1;
    if (!model->attention_heads)
        return error_set(err, "num_attention_heads is 0");
    if (whole(&model->head_dim, config, "head_dim", model->hidden_size / model->attention_heads, err) != 0 ||
        whole(&positions, config, "max_position_embeddings", 0, err) != 0 ||
        whole(&model->attention_window, config, "sliding_window", 0, err) != 0)
        return -1;
    model->ffn_hidden_size = width;
    spec->data.sequence_length = positions;
    if (!kind->moe)
        return 0;
    model->moe.expert_ffn_hidden_size = width;
    model->moe.pre_softmax = kind->qk_norm && !js_boolean_of(js_get(config, "norm_topk_prob"), false);
    model->moe.losses[0] = (struct spec_moe_loss_term){MOE_LOSS_AUX, js_real_of(js_get(config, "router_aux_loss_coef"), 0)};
    model->moe.losses_count = model->moe.losses[0].coefficient != 0;
    return whole(&model->moe.experts, config, kind->experts, -1, err) != 0 ? -1 : whole(&model->moe.top_k, config, "num_experts_per_tok", -1, err);
}

// Llama 3's scaling, which has no fallbacks.
static int read_scaling(struct spec_model *model, const struct json *rope, struct error *err)
{
    model->rope_scaling_factor = js_real_of(js_get(rope, "factor"), 0);
    model->rope_scaling_low_freq_factor = js_real_of(js_get(rope, "low_freq_factor"), 0);
    model->rope_scaling_high_freq_factor = js_real_of(js_get(rope, "high_freq_factor"), 0);
    model->rope_scaling_original_length = js_integer_of(js_get(rope, "original_max_position_embeddings"), 0);
    if (!(model->rope_scaling_factor >= 1) || !(model->rope_scaling_low_freq_factor > 0) || model->rope_scaling_original_length < 1 ||
        !(model->rope_scaling_high_freq_factor > model->rope_scaling_low_freq_factor))
        return error_set(err, "rope_type llama3 needs a factor of at least 1, low_freq_factor, a larger high_freq_factor and original_max_position_embeddings");
    return 0;
}

// "rope_parameters" of transformers 5, or "rope_theta" and "rope_scaling" of those before.
static int read_rope(struct spec *spec, const struct json *config, const struct kind *kind, struct error *err)
{
    const struct json *rope = js_get(config, "rope_parameters"), *scaling = js_get(config, "rope_scaling");
    if (js_kind(rope) != JSON_KIND_OBJECT)
        rope = scaling;
    double theta = js_real_of(js_get(rope, "rope_theta"), js_real_of(js_get(config, "rope_theta"), kind->theta));
    const char *type = js_string_of(js_get(rope, "rope_type"), js_string_of(js_get(rope, "type"), "default"));
    spec->model.position = POSITION_ROPE;
    spec->model.rope_base = theta;
    if (js_real_of(js_get(rope, "partial_rotary_factor"), js_real_of(js_get(config, "partial_rotary_factor"), 1)) != 1)
        return error_set(err, "partial_rotary_factor: heads that are rotated in part are not known here");
    if (strcmp(type, "llama3") == 0)
        return read_scaling(&spec->model, rope, err);
    if (strcmp(type, "default") != 0)
        return error_set(err, "rope_type is \"%s\"; this build reads \"default\" and \"llama3\"", type);
    return 0;
}

// What these classes can be told to do and a spec cannot.
static int refuse_others(const struct json *config, const struct kind *kind, struct error *err)
{
    const char *activation = js_string_of(js_get(config, "hidden_act"), "silu");
    bool attention = js_boolean_of(js_get(config, "attention_bias"), false), mlp = js_boolean_of(js_get(config, "mlp_bias"), false);
    if (strcmp(activation, "silu") != 0)
        return error_set(err, "hidden_act is \"%s\"; a spec's swiglu is \"silu\"", activation);
    if (js_kind(js_get(config, "clip_qkv")) != JSON_KIND_NULL)
        return error_set(err, "clip_qkv: clipped queries, keys and values are not known here");
    if (attention != mlp)
        return error_set(err, "attention_bias is %s and mlp_bias %s; a spec's `model.bias` is for all linear layers or none", attention ? "true" : "false",
            kind->moe ? "(there is none with experts)" : mlp ? "true" : "false");
    return 0;
}

static int read_model(struct spec *spec, const char **name, const struct json *config, struct error *err)
{
    const struct kind *kind = kind_of(config, err);
    if (!kind || read_sizes(spec, config, kind, err) != 0 || read_rope(spec, config, kind, err) != 0 || refuse_others(config, kind, err) != 0)
        return -1;
    struct spec_model *model = &spec->model;
    model->norm = NORM_RMSNORM;
    model->norm_epsilon = js_real_of(js_get(config, "rms_norm_eps"), kind->epsilon);
    model->activation = ACTIVATION_SWIGLU;
    model->tied_embeddings = js_boolean_of(js_get(config, "tie_word_embeddings"), false);
    model->bias = js_boolean_of(js_get(config, "attention_bias"), false);
    model->qk_norm = kind->qk_norm;
    model->qk_norm_over = QK_NORM_PROJECTION; // OLMoE's
    model->init.std = js_real_of(js_get(config, "initializer_range"), model->init.std);
    if (name)
        *name = kind->name;
    return 0;
}

int hf_config_read(struct spec *spec, const char **name, const char *directory, struct error *err)
{
    char *path = path_join(directory, HF_CONFIG_FILE);
    struct json *config = js_read_file(path, CONFIG_MAX, err);
    int status = config ? read_model(spec, name, config, err) : -1;
    if (status != 0 && config)
        error_context(err, "%s", path);
    js_free(config);
    free(path);
    return status;
}

int64_t hf_end_of_text(const char *directory)
{
    struct error err;
    char *path = path_join(directory, HF_CONFIG_FILE);
    struct json *config = js_read_file(path, CONFIG_MAX, &err);
    const struct json *token = js_get(config, "eos_token_id");
    int64_t end = js_integer_of(js_kind(token) == JSON_KIND_ARRAY ? js_at(token, 0) : token, -1);
    js_free(config);
    free(path);
    return end;
}

// ---- against a spec ----

struct comparison {
    const char *directory;
    struct error *err;
    int status; // of the first difference
};

static void same_whole(struct comparison *c, const char *key, int64_t theirs, const char *path, int64_t ours)
{
    if (c->status == 0 && theirs != ours)
        c->status = error_set(c->err, "%s/%s: %s is %" PRId64 ", but %s is %" PRId64, c->directory, HF_CONFIG_FILE, key, theirs, path, ours);
}

static void same_real(struct comparison *c, const char *key, double theirs, const char *path, double ours)
{
    if (c->status == 0 && fabs(theirs - ours) > 1e-6 * fabs(ours)) // what went through a float is the same
        c->status = error_set(c->err, "%s/%s: %s is %.15g, but %s is %.15g", c->directory, HF_CONFIG_FILE, key, theirs, path, ours);
}

static void same_truth(struct comparison *c, const char *key, bool theirs, const char *path, bool ours)
{
    if (c->status == 0 && theirs != ours)
        c->status = error_set(c->err, "%s/%s: %s is %s, but %s is %s", c->directory, HF_CONFIG_FILE, key, theirs ? "true" : "false", path,
            ours ? "true" : "false");
}

static void same_choice(struct comparison *c, const char *theirs, const char *path, bool same, const char *ours)
{
    if (c->status == 0 && !same)
        c->status = error_set(c->err, "%s/%s: the model has %s, but %s is %s", c->directory, HF_CONFIG_FILE, theirs, path, ours);
}

static void compare_trunk(struct comparison *c, const struct spec_model *theirs, const struct spec *spec)
{
    struct dims d = dims_of(spec);
    const struct spec_model *ours = &spec->model;
    same_whole(c, "num_hidden_layers", theirs->layers, "model.layers", d.L);
    same_whole(c, "hidden_size", theirs->hidden_size, "model.hidden_size", d.C);
    same_whole(c, "num_attention_heads", theirs->attention_heads, "model.attention_heads", d.H);
    same_whole(c, "num_key_value_heads", theirs->kv_heads, "model.kv_heads", d.G);
    same_whole(c, "head_dim", theirs->head_dim, "model.head_dim", d.D);
    same_whole(c, "vocab_size", theirs->vocab_size, "model.vocab_size", d.V);
    same_whole(c, "sliding_window", theirs->attention_window, "model.attention_window", ours->attention_window);
    same_truth(c, "tie_word_embeddings", theirs->tied_embeddings, "model.tied_embeddings", ours->tied_embeddings);
    same_truth(c, "attention_bias", theirs->bias, "model.bias", ours->bias);
    same_choice(c, "RMSNorm", "model.norm", ours->norm == NORM_RMSNORM, "layernorm");
    same_choice(c, "SwiGLU", "model.activation", ours->activation == ACTIVATION_SWIGLU, "gelu");
    same_choice(c, "rotary positions", "model.position", ours->position == POSITION_ROPE, ours->position == POSITION_LEARNED ? "learned" : "none");
    same_choice(c, theirs->qk_norm ? "normalised queries and keys" : "no norms of queries and keys", "model.qk_norm",
        theirs->qk_norm == ours->qk_norm, ours->qk_norm ? "true" : "false");
    same_choice(c, "norms over all of a token's heads", "model.qk_norm_over",
        !theirs->qk_norm || theirs->qk_norm_over == ours->qk_norm_over, ours->qk_norm_over == QK_NORM_HEAD ? "head" : "projection");
    same_real(c, "rms_norm_eps", theirs->norm_epsilon, "model.norm_epsilon", ours->norm_epsilon);
    same_real(c, "rope_theta", theirs->rope_base, "model.rope_base", ours->rope_base);
    same_real(c, "the factor of rope_parameters", theirs->rope_scaling_factor, "model.rope_scaling_factor", ours->rope_scaling_factor);
    if (!(theirs->rope_scaling_factor > 0))
        return;
    same_real(c, "low_freq_factor", theirs->rope_scaling_low_freq_factor, "model.rope_scaling_low_freq_factor", ours->rope_scaling_low_freq_factor);
    same_real(c, "high_freq_factor", theirs->rope_scaling_high_freq_factor, "model.rope_scaling_high_freq_factor", ours->rope_scaling_high_freq_factor);
    same_whole(c, "original_max_position_embeddings", theirs->rope_scaling_original_length, "model.rope_scaling_original_length",
        ours->rope_scaling_original_length);
}

static void compare_ffn(struct comparison *c, const struct spec_model *theirs, const struct spec *spec)
{
    struct dims d = dims_of(spec);
    if (!theirs->moe.experts) {
        if (!d.E)
            same_whole(c, "intermediate_size", theirs->ffn_hidden_size, "model.ffn_hidden_size", d.F);
        return;
    }
    same_whole(c, "the number of experts", theirs->moe.experts, "model.moe.experts", d.E);
    same_whole(c, "num_experts_per_tok", theirs->moe.top_k, "model.moe.top_k", d.K);
    same_whole(c, "intermediate_size", theirs->moe.expert_ffn_hidden_size, "model.moe.expert_ffn_hidden_size", d.X);
    if (theirs->moe.top_k < theirs->moe.experts) // of all experts both are the same
        same_choice(c, theirs->moe.pre_softmax ? "weights of a softmax over all experts" : "weights that add up to 1", "model.moe.pre_softmax",
            theirs->moe.pre_softmax == spec->model.moe.pre_softmax, spec->model.moe.pre_softmax ? "true" : "false");
}

int hf_config_check(const struct spec *spec, const char *directory, struct error *err)
{
    char *path = path_join(directory, HF_CONFIG_FILE);
    bool there = file_exists(path);
    free(path);
    if (!there)
        return 0;
    struct comparison comparison = {.directory = directory, .err = err};
    struct spec theirs;
    spec_init(&theirs);
    comparison.status = hf_config_read(&theirs, NULL, directory, err);
    if (comparison.status == 0) {
        compare_trunk(&comparison, &theirs.model, spec);
        compare_ffn(&comparison, &theirs.model, spec);
    }
    spec_release(&theirs);
    return comparison.status;
}
