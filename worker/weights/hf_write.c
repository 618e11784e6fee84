// From a spec to Hugging Face: which architecture fits, its config.json, its tensors' names.
#include "worker/weights/hugging_face.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const class_names[HF_ARCHITECTURES] = {"LlamaForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM"};
static const char *const model_types[HF_ARCHITECTURES] = {"llama", "mixtral", "olmoe"};

static void refuse(struct text *out, const char *key, const char *value)
{
    text_addf(out, "%s%s%s%s", out->length ? ", " : "", key, *value ? " " : "", value);
}

static void refuse_integer(struct text *out, const char *key, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    refuse(out, key, digits);
}

static void refuse_number(struct text *out, const char *key, double value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.15g", value);
    refuse(out, key, digits);
}

static void refuse_common(struct text *out, const struct spec *spec)
{
    const struct spec_model *model = &spec->model;
    if (model->norm != NORM_RMSNORM)
        refuse(out, "model.norm", "layernorm");
    if (model->activation != ACTIVATION_SWIGLU)
        refuse(out, "model.activation", "gelu");
    if (model->position != POSITION_ROPE)
        refuse(out, "model.position", model->position == POSITION_LEARNED ? "learned" : "none");
}

static void refuse_dense(struct text *out, const struct spec *spec)
{
    const struct spec_model *model = &spec->model;
    if (model->qk_norm)
        refuse(out, "model.qk_norm", "true (without experts)");
    if (model->attention_window)
        refuse_integer(out, "model.attention_window", model->attention_window);
    if (model->hidden_size % model->attention_heads)
        refuse_integer(out, "model.hidden_size (not a multiple of attention_heads)", model->hidden_size);
}

static bool same_experts_everywhere(const struct spec *spec)
{
    for (int64_t layer = 0; layer < spec->model.layers; layer++)
        if (spec_layer_experts(spec, layer) != spec->model.moe.experts)
            return false;
    return true;
}

// What no architecture with experts does.
static void refuse_moe(struct text *out, const struct spec *spec)
{
    const struct spec_moe *moe = &spec->model.moe;
    if (spec->model.bias)
        refuse(out, "model.bias", "true (with experts)");
    if (!same_experts_everywhere(spec))
        refuse(out, moe->layers.count ? "model.moe.layers" : moe->experts_per_layer.count ? "model.moe.experts_per_layer" : "model.moe.layer_frequency",
            "(layers differ)");
    if (spec->model.qk_norm && spec->model.qk_norm_over == QK_NORM_HEAD)
        refuse(out, "model.qk_norm_over", "head (with experts)");
    if (moe->routing != ROUTING_TOP_K)
        refuse(out, "model.moe.routing", "expert_choice");
    if (moe->score_function != SCORE_SOFTMAX)
        refuse(out, "model.moe.score_function", moe->score_function == SCORE_SIGMOID ? "sigmoid" : "sqrtsoftplus");
    if (moe->scaling_factor != 0 && moe->scaling_factor != 1)
        refuse_number(out, "model.moe.scaling_factor", moe->scaling_factor);
    if (moe->expert_bias)
        refuse(out, "model.moe.expert_bias", "true");
    if (moe->num_groups)
        refuse_integer(out, "model.moe.num_groups", moe->num_groups);
    if (moe->capacity_factor != 0)
        refuse_number(out, "model.moe.capacity_factor", moe->capacity_factor);
    if (moe->eval_capacity_factor != 0)
        refuse_number(out, "model.moe.eval_capacity_factor", moe->eval_capacity_factor);
    if (moe->shared_expert_size)
        refuse_integer(out, "model.moe.shared_expert_size", moe->shared_expert_size);
    if (moe->residual)
        refuse(out, "model.moe.residual", "true");
    if (moe->force_balance)
        refuse(out, "model.moe.force_balance", "true");
}

int hf_architecture_of(enum hf_architecture *architecture, const struct spec *spec, struct error *err)
{
    struct dims d = dims_of(spec);
    struct text out;
    text_init(&out, ERROR_TEXT_MAX / 2);
    refuse_common(&out, spec);
    *architecture = !spec_is_moe(spec) ? HF_LLAMA : spec->model.qk_norm ? HF_OLMOE : HF_MIXTRAL;
    if (*architecture == HF_LLAMA)
        refuse_dense(&out, spec);
    else
        refuse_moe(&out, spec);
    if (*architecture == HF_MIXTRAL && spec->model.moe.pre_softmax)
        refuse(&out, "model.moe.pre_softmax", "true (without model.qk_norm)");
    if (*architecture == HF_OLMOE && spec->model.attention_window)
        refuse_integer(&out, "model.attention_window", spec->model.attention_window);
    if (*architecture == HF_OLMOE && d.H * d.D != d.C)
        refuse_integer(&out, "model.head_dim", d.D);
    int status = 0;
    if (out.length)
        status = error_set(err, "no model of transformers' Llama, Mixtral or OLMoE kind computes what this one does, because of %s", out.at);
    text_release(&out);
    return status;
}

static struct json *rope_parameters(const struct spec *spec)
{
    struct json *rope = js_object();
    const struct spec_model *model = &spec->model;
    bool scaled = model->rope_scaling_factor > 0;
    js_set(rope, "rope_type", js_string(scaled ? "llama3" : "default"));
    js_set(rope, "rope_theta", js_real(model->rope_base));
    if (scaled) {
        js_set(rope, "factor", js_real(model->rope_scaling_factor));
        js_set(rope, "low_freq_factor", js_real(model->rope_scaling_low_freq_factor));
        js_set(rope, "high_freq_factor", js_real(model->rope_scaling_high_freq_factor));
        js_set(rope, "original_max_position_embeddings", js_integer(model->rope_scaling_original_length));
    }
    return rope;
}

static double balance_coefficient(const struct spec *spec)
{
    for (size_t i = 0; i < spec->model.moe.losses_count; i++)
        if (spec->model.moe.losses[i].type == MOE_LOSS_AUX)
            return spec->model.moe.losses[i].coefficient;
    return 0;
}

static void set_moe(struct json *config, const struct spec *spec, enum hf_architecture architecture)
{
    const struct spec_model *model = &spec->model;
    js_set(config, architecture == HF_MIXTRAL ? "num_local_experts" : "num_experts", js_integer(model->moe.experts));
    js_set(config, "num_experts_per_tok", js_integer(model->moe.top_k));
    js_set(config, "router_aux_loss_coef", js_real(balance_coefficient(spec)));
    js_set(config, "output_router_logits", js_boolean(false));
    if (architecture == HF_OLMOE) {
        js_set(config, "norm_topk_prob", js_boolean(!model->moe.pre_softmax));
        js_set(config, "clip_qkv", js_null());
    } else {
        js_set(config, "sliding_window", model->attention_window ? js_integer(model->attention_window) : js_null());
        js_set(config, "router_jitter_noise", js_real(model->moe.input_jitter));
    }
}

struct json *hf_config_of(const struct spec *spec, enum hf_architecture architecture, const char *dtype, int64_t eod)
{
    struct dims d = dims_of(spec);
    const struct spec_model *model = &spec->model;
    struct json *config = js_object(), *classes = js_array();
    js_append(classes, js_string(class_names[architecture]));
    js_set(config, "architectures", classes);
    js_set(config, "model_type", js_string(model_types[architecture]));
    js_set(config, "dtype", js_string(dtype));
    js_set(config, "vocab_size", js_integer(d.V));
    js_set(config, "hidden_size", js_integer(d.C));
    js_set(config, "intermediate_size", js_integer(architecture == HF_LLAMA ? d.F : d.X));
    js_set(config, "num_hidden_layers", js_integer(d.L));
    js_set(config, "num_attention_heads", js_integer(d.H));
    js_set(config, "num_key_value_heads", js_integer(d.G));
    if (architecture != HF_OLMOE)
        js_set(config, "head_dim", js_integer(d.D));
    js_set(config, "hidden_act", js_string("silu"));
    js_set(config, "max_position_embeddings", js_integer(d.S));
    js_set(config, "initializer_range", js_real(model->init.std));
    js_set(config, "rms_norm_eps", js_real(model->norm_epsilon));
    js_set(config, "rope_parameters", rope_parameters(spec));
    js_set(config, "rope_theta", js_real(model->rope_base)); // where transformers before its version 5 looked, as for rope_scaling
    if (model->rope_scaling_factor > 0)
        js_set(config, "rope_scaling", rope_parameters(spec));
    js_set(config, "attention_dropout", js_real(model->attention_dropout));
    js_set(config, "tie_word_embeddings", js_boolean(model->tied_embeddings));
    js_set(config, "use_cache", js_boolean(true));
    js_set(config, "bos_token_id", js_null());
    js_set(config, "eos_token_id", eod >= 0 ? js_integer(eod) : js_null());
    js_set(config, "pad_token_id", js_null());
    if (architecture != HF_MIXTRAL)
        js_set(config, "attention_bias", js_boolean(model->bias));
    if (architecture == HF_LLAMA)
        js_set(config, "mlp_bias", js_boolean(model->bias));
    else
        set_moe(config, spec, architecture);
    return config;
}

void hf_tensor_name(char out[128], enum hf_architecture architecture, const struct param *param)
{
    static const char *const projections[PARAM_KINDS] = {
        [PARAM_EXPERT_GATE] = "gate_proj", [PARAM_EXPERT_UP] = "up_proj", [PARAM_EXPERT_DOWN] = "down_proj"};
    if (architecture == HF_OLMOE && param->kind == PARAM_ROUTER)
        snprintf(out, 128, "model.layers.%d.mlp.gate.weight", param->layer);
    else if (architecture == HF_OLMOE && projections[param->kind])
        snprintf(out, 128, "model.layers.%d.mlp.experts.%d.%s.weight", param->layer, param->expert, projections[param->kind]);
    else
        snprintf(out, 128, "%s", param->name);
}
