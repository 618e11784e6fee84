// Prints loss, balance losses and every gradient of a small model as JSON, for PyTorch to judge: of one micro batch, or, with micro_batches=N,
// of N as one step.
//   model_probe layers=2 hidden=12 … device=reference_f64
#include "schema/base/json.h"
#include "tests/peers/probe.h"
#include "tests/train/tiny_model.h"
#include "worker/model/activations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const *words;
static size_t word_count;

static const char *word_or(const char *key, const char *fallback)
{
    size_t length = strlen(key);
    for (size_t i = 0; i < word_count; i++)
        if (!strncmp(words[i], key, length) && words[i][length] == '=')
            return words[i] + length + 1;
    return fallback;
}

static const char *word(const char *key)
{
    const char *value = word_or(key, NULL);
    if (value)
        return value;
    fprintf(stderr, "model_probe: %s=… is missing\n", key);
    exit(2);
}

static int64_t number(const char *key)
{
    return strtoll(word(key), NULL, 10);
}

// The place of a word among choices, the first where it is not given.
static int choice(const char *key, const char *const *choices)
{
    const char *value = word_or(key, choices[0]);
    for (int i = 0; choices[i]; i++)
        if (!strcmp(value, choices[i]))
            return i;
    fprintf(stderr, "model_probe: %s=%s is no choice\n", key, value);
    exit(2);
}

static double real_or(const char *key, const char *fallback)
{
    return strtod(word_or(key, fallback), NULL);
}

static void make_attention(struct spec *spec)
{
    struct spec_model *model = &spec->model;
    int over = choice("qk_norm", (const char *const[]){"none", "head", "projection", NULL});
    model->position = (enum spec_position)choice("position", (const char *const[]){"rope", "learned", "none", NULL});
    model->max_position_embeddings = strtoll(word_or("max_positions", "0"), NULL, 10);
    model->rope_base = real_or("rope_base", "10000");
    model->rope_scaling_factor = real_or("rope_factor", "0");
    model->rope_scaling_low_freq_factor = real_or("rope_low", "1");
    model->rope_scaling_high_freq_factor = real_or("rope_high", "4");
    model->rope_scaling_original_length = strtoll(word_or("rope_original", "8192"), NULL, 10);
    model->qk_norm = over > 0;
    model->qk_norm_over = over == 2 ? QK_NORM_PROJECTION : QK_NORM_HEAD;
    model->attention_window = strtoll(word_or("window", "0"), NULL, 10);
    model->bias = strcmp(word_or("bias", "0"), "1") == 0;
    model->attention_dropout = real_or("attention_dropout", "0");
    model->hidden_dropout = real_or("hidden_dropout", "0");
    spec->data.reset_attention_mask = spec->data.reset_position_ids = strcmp(word_or("documents", "0"), "1") == 0;
}

// Numbers with commas between; kept to the end.
static struct spec_integers list(const char *key)
{
    struct spec_integers integers = {0};
    const char *at = word_or(key, "");
    while (*at) {
        char *end;
        integers.items = reallocate(integers.items, integers.count + 1, sizeof *integers.items);
        integers.items[integers.count++] = strtoll(at, &end, 10);
        at = *end ? end + 1 : end;
    }
    return integers;
}

static void make_shapes(struct spec *spec)
{
    struct spec_moe *moe = &spec->model.moe;
    spec->model.norm = (enum spec_norm)choice("norm", (const char *const[]){"rmsnorm", "layernorm", NULL});
    spec->model.activation = (enum spec_activation)choice("activation", (const char *const[]){"swiglu", "gelu", NULL});
    moe->shared_expert_size = strtoll(word_or("shared", "0"), NULL, 10);
    moe->shared_expert_gate = strcmp(word_or("shared_gate", "0"), "1") == 0;
    moe->residual = strcmp(word_or("residual", "0"), "1") == 0;
    moe->experts_per_layer = list("experts_per_layer");
    moe->layers = list("moe_layers");
}

static void add_loss(struct spec_moe *moe, enum spec_moe_loss type, const char *key)
{
    double coefficient = real_or(key, "0");
    if (coefficient != 0)
        moe->losses[moe->losses_count++] = (struct spec_moe_loss_term){type, coefficient};
}

static void make_routing(struct spec *spec)
{
    struct spec_moe *moe = &spec->model.moe;
    moe->score_function = (enum spec_score)choice("score", (const char *const[]){"softmax", "sigmoid", "sqrtsoftplus", NULL});
    moe->scaling_factor = real_or("scaling", "0");
    moe->expert_bias = strcmp(word_or("expert_bias", "0"), "1") == 0;
    moe->bias_update_rate = real_or("bias_update_rate", "0.001");
    moe->num_groups = strtoll(word_or("num_groups", "0"), NULL, 10);
    moe->group_topk = strtoll(word_or("group_topk", "0"), NULL, 10);
    moe->capacity_factor = real_or("capacity", "0");
    moe->min_capacity = strtoll(word_or("min_capacity", "0"), NULL, 10);
    moe->drop_policy = (enum spec_drop_policy)choice("drop", (const char *const[]){"probs", "position", NULL});
    moe->renormalise_after_drop = strcmp(word_or("renormalise", "0"), "1") == 0;
    moe->pad_to_capacity = strcmp(word_or("pad", "0"), "1") == 0;
    moe->routing = (enum spec_routing)choice("routing", (const char *const[]){"top_k", "expert_choice", NULL});
    add_loss(moe, MOE_LOSS_SEQ_AUX, "sequence_balance");
    add_loss(moe, MOE_LOSS_GLOBAL_AUX, "global_balance");
    add_loss(moe, MOE_LOSS_Z, "z");
}

static void make_expert_bias(struct model *model)
{
    for (int64_t layer = 0; layer < model->spec->model.layers && model->spec->model.moe.expert_bias; layer++)
        for (int64_t e = 0; e < spec_layer_experts(model->spec, layer); e++)
            model_expert_bias(model, (size_t)layer)[e] =
                (float)(0.6 * (tiny_random(11, (uint64_t)(layer * model->spec->model.moe.experts + e)) - 0.5));
}

static void make_spec(struct spec *spec)
{
    tiny_spec(spec, &(struct tiny){.experts = number("experts"), .top_k = number("top_k"), .layer_frequency = number("layer_frequency"),
        .pre_softmax = number("pre_softmax"), .untied = number("untied"), .balance = strtod(word("balance"), NULL),
        .micro_batch = number("micro_batch")});
    spec->model.layers = number("layers");
    spec->model.hidden_size = number("hidden");
    spec->model.ffn_hidden_size = number("ffn");
    spec->model.attention_heads = number("heads");
    spec->model.kv_heads = number("groups");
    spec->model.head_dim = number("head_dim");
    spec->model.vocab_size = number("vocab");
    spec->data.sequence_length = number("sequence");
    spec->model.moe.expert_ffn_hidden_size = number("expert_ffn");
    spec->model.norm = (enum spec_norm)choice("norm", (const char *const[]){"rmsnorm", "layernorm", NULL});
    spec->model.activation = (enum spec_activation)choice("activation", (const char *const[]){"swiglu", "gelu", NULL});
    make_attention(spec);
    make_shapes(spec);
    make_routing(spec);
}

static struct json *gradients_of(const struct model *model)
{
    struct json *object = js_object();
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        size_t count = param_elements(param);
        double *values = tiny_read(model, model_gradient(model, param), count);
        js_set(object, param->name, numbers(values, count));
        free(values);
    }
    return object;
}

static struct json *reals_of(const struct model *model, const void *at, size_t count)
{
    double *values = tiny_read(model, at, count);
    struct json *array = numbers(values, count);
    free(values);
    return array;
}

static struct json *integers_of(const struct model *model, const int32_t *at, size_t count)
{
    int32_t *values = allocate(count, sizeof *values);
    struct json *array = js_array();
    model->device->memory->read_back(values, at, count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        js_append(array, js_integer(values[i]));
    free(values);
    return array;
}

static struct json *floats(const float *values, size_t count)
{
    struct json *array = js_array();
    for (size_t i = 0; i < count; i++)
        js_append(array, js_real((double)values[i]));
    return array;
}

// What the first layer's router did in the last micro batch: backward ends there, so its gradients are still where it worked.
static struct json *routing_of(struct model *model, const struct moe_report *report)
{
    const struct activations *a = model->activations;
    const struct layer_activations *l = &a->layers[0];
    const struct model_sizes *s = &l->sizes;
    struct json *object = js_object();
    js_set(object, "slots", js_integer((int64_t)s->J));
    js_set(object, "logits", reals_of(model, l->router_logits, s->T * s->E));
    js_set(object, "probs", reals_of(model, l->probs, s->T * s->J));
    js_set(object, "choice", integers_of(model, l->choice, s->T * s->J));
    js_set(object, "kept", integers_of(model, l->kept ? l->kept : l->choice, s->T * s->J));
    js_set(object, "dprobs", reals_of(model, a->exchange.dprobs, s->T * s->J));
    js_set(object, "dlogits", reals_of(model, a->exchange.dlogits, s->T * s->E));
    if (model->spec->model.moe.expert_bias) {
        js_set(object, "bias", floats(model_expert_bias(model, 0), s->E));
        model_move_expert_bias(model, report);
        js_set(object, "moved_bias", floats(model_expert_bias(model, 0), s->E));
    }
    return object;
}

static struct json *result_of(struct model *model)
{
    const struct spec *spec = model->spec;
    size_t layers = (size_t)spec->model.layers;
    int64_t micro_batches = strtoll(word_or("micro_batches", "1"), NULL, 10);
    double loss = 0;
    struct moe_report report;
    for (int64_t i = 0; i < micro_batches; i++) {
        struct micro_batch *batch = tiny_batch(spec, i * spec->training.micro_batch_size);
        loss += model_forward(model, batch, true, 1 / (double)micro_batches);
        model_backward(model);
        free(batch);
    }
    moe_report_init(&report, spec);
    model_statistics(model, &report);

    struct json *result = js_object();
    js_set(result, "loss", js_real(loss / (double)micro_batches));
    js_set(result, "balance", numbers(report.losses[MOE_LOSS_AUX], layers));
    js_set(result, "sequence_balance", numbers(report.losses[MOE_LOSS_SEQ_AUX], layers));
    js_set(result, "global_balance", numbers(report.losses[MOE_LOSS_GLOBAL_AUX], layers));
    js_set(result, "z", numbers(report.losses[MOE_LOSS_Z], layers));
    js_set(result, "gradients", gradients_of(model));
    if (!strcmp(word_or("show", ""), "routing"))
        js_set(result, "routing", routing_of(model, &report));
    moe_report_release(&report);
    return result;
}

int main(int argc, char **argv)
{
    words = (const char *const *)argv + 1;
    word_count = (size_t)argc - 1;
    struct spec spec;
    struct parallel parallel;
    struct model *model;
    struct error err = {{0}};
    make_spec(&spec);
    struct comm *world = comm_self();
    if (parallel_init(&parallel, &spec, world, &err) < 0 || model_new(&model, &spec, find_device(word("device")), &parallel, &err) < 0) {
        fprintf(stderr, "model_probe: %s\n", err.text);
        return 1;
    }
    tiny_values(model, strtod(word("deviation"), NULL));
    make_expert_bias(model);
    struct json *result = result_of(model);
    struct text text;
    text_init(&text, 64 << 20);
    js_write(&text, result);
    puts(text.at);
    text_release(&text);
    js_free(result);
    model_free(model);
    parallel_release(&parallel);
    comm_finish(world);
    return 0;
}
