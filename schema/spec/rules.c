// What keys demand of each other. A rule speaks only if every key it reads parsed (a fault elsewhere hides none), at the place of the key
// that should change, with the numbers in its sentence.
#include "schema/spec/rules.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

bool rule_reads(const struct check *check, ...)
{
    bool all = true;
    va_list paths;
    va_start(paths, check);
    for (const char *path; (path = va_arg(paths, const char *));)
        all = all && !state_of(check, path)->bad;
    va_end(paths);
    return all;
}

bool rule_written(const struct check *check, const char *path)
{
    return state_of(check, path)->key != NULL;
}

void rule_divides(struct check *check, const char *path, int64_t value, const char *by, int64_t divisor)
{
    if (divisor > 0 && value % divisor != 0)
        check_at(check, path, false, "`%s` %" PRId64 " is not divisible by %s %" PRId64 " (remainder %" PRId64 ")", path, value, by, divisor,
            value % divisor);
}

static void check_project(struct check *check)
{
    static const char *const endings[] = {"_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
        "_run_artifact_links", "_external_run_artifact_links"};
    const char *project = check->spec->project;
    if (!project || !rule_reads(check, "project", NULL))
        return;
    if (strncmp(project, "registry-", 9) == 0)
        check_at(check, "project", false, "`project` may not begin with `registry-`: Trackio keeps such names for itself");
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t length = strlen(project), ending = strlen(endings[i]);
        if (length > ending && strcmp(project + length - ending, endings[i]) == 0)
            check_at(check, "project", false, "`project` may not end in `%s`: Trackio keeps such names for itself", endings[i]);
    }
}

static void check_model(struct check *check)
{
    const struct spec_model *model = &check->spec->model;
    const struct spec_parallelism *parallel = &check->spec->parallelism;
    if (rule_reads(check, "model.hidden_size", "model.attention_heads", "model.head_dim", NULL) && !rule_written(check, "model.head_dim"))
        rule_divides(check, "model.hidden_size", model->hidden_size, "`model.attention_heads`", model->attention_heads);
    if (rule_reads(check, "model.attention_heads", "model.kv_heads", NULL))
        rule_divides(check, "model.attention_heads", model->attention_heads, "`model.kv_heads`", model->kv_heads);
    if (rule_reads(check, "model.attention_heads", "parallelism.tensor", NULL))
        rule_divides(check, "model.attention_heads", model->attention_heads, "`parallelism.tensor`", parallel->tensor);
    if (rule_reads(check, "model.kv_heads", "model.attention_heads", "parallelism.tensor", NULL) && model->kv_heads > parallel->tensor)
        rule_divides(check, "model.kv_heads", model->kv_heads, "`parallelism.tensor`", parallel->tensor);
    if (rule_reads(check, "model.ffn_hidden_size", "parallelism.tensor", NULL))
        rule_divides(check, "model.ffn_hidden_size", model->ffn_hidden_size, "`parallelism.tensor`", parallel->tensor);
    if (rule_reads(check, "model.layers", "parallelism.pipeline", "parallelism.virtual_pipeline", NULL)) {
        rule_divides(check, "model.layers", model->layers, "`parallelism.pipeline`", parallel->pipeline);
        if (parallel->virtual_pipeline > 1 && model->layers % parallel->pipeline == 0)
            rule_divides(check, "model.layers", model->layers, "`parallelism.pipeline` x `parallelism.virtual_pipeline`",
                parallel->pipeline * parallel->virtual_pipeline);
    }
    if (rule_reads(check, "model.from", NULL) && rule_written(check, "model.from") && rule_reads(check, "model.from.run", "model.from.path", NULL) &&
        !model->from.run == !model->from.path)
        check_at(check, "model.from", false, "`model.from` needs exactly one of `run` and `path`");
}

// Each batch of the ramp is one that the ranks can share: where the first and every step up can be shared, all can.
static void check_rampup(struct check *check, int64_t once)
{
    static const char *const keys[] = {"training.rampup_batch_size.start", "training.rampup_batch_size.increment"};
    const struct spec_training *training = &check->spec->training;
    const struct spec_rampup *ramp = &training->rampup_batch_size;
    if (!ramp->present || !rule_reads(check, "training.rampup_batch_size", "training.rampup_batch_size.start", "training.rampup_batch_size.increment",
            "training.rampup_batch_size.samples", NULL))
        return;
    if (ramp->start > training->global_batch_size) {
        check_at(check, "training.rampup_batch_size.start", false, "`start` %" PRId64 " is more than `training.global_batch_size` %" PRId64,
            ramp->start, training->global_batch_size);
        return;
    }
    int64_t growth = training->global_batch_size - ramp->start;
    if (growth % ramp->increment)
        check_at(check, "training.rampup_batch_size.increment", false,
            "`global_batch_size` %" PRId64 " - `start` %" PRId64 " is not divisible by `increment` %" PRId64 " (remainder %" PRId64 ")",
            training->global_batch_size, ramp->start, ramp->increment, growth % ramp->increment);
    if (growth / ramp->increment > SPEC_RAMP_STAGES_MAX)
        check_at(check, "training.rampup_batch_size.increment", false, "the batch grows in %" PRId64 " steps of `increment` %" PRId64 "; %d are the most",
            growth / ramp->increment, ramp->increment, SPEC_RAMP_STAGES_MAX);
    bool interleaved = rule_reads(check, "parallelism.virtual_pipeline", NULL) && check->spec->parallelism.virtual_pipeline > 1;
    for (size_t i = 0; i < 2; i++) {
        int64_t samples = i ? ramp->increment : ramp->start;
        rule_divides(check, keys[i], samples, "`micro_batch_size` x data-parallel ranks =", once);
        if (interleaved && samples % once == 0)
            rule_divides(check, keys[i], samples, "`micro_batch_size` x data-parallel ranks x `parallelism.pipeline` (interleaving) =",
                once * check->spec->parallelism.pipeline);
    }
}

static void check_batch(struct check *check, int64_t data_parallel)
{
    const struct spec_training *training = &check->spec->training;
    const struct spec_parallelism *parallel = &check->spec->parallelism;
    if (!rule_reads(check, "training.global_batch_size", "training.micro_batch_size", NULL))
        return;
    int64_t once = training->micro_batch_size * data_parallel;
    if (training->global_batch_size % once) {
        check_at(check, "training.global_batch_size", false,
            "`training.global_batch_size` %" PRId64 " is not divisible by `micro_batch_size` %" PRId64 " x %" PRId64
            " data-parallel ranks = %" PRId64 " (remainder %" PRId64 ")",
            training->global_batch_size, training->micro_batch_size, data_parallel, once, training->global_batch_size % once);
        return;
    }
    check_rampup(check, once);
    if (rule_reads(check, "parallelism.virtual_pipeline", NULL) && parallel->virtual_pipeline > 1) {
        if (parallel->pipeline == 1)
            check_at(check, "parallelism.virtual_pipeline", false, "`parallelism.virtual_pipeline` %" PRId64 " needs `parallelism.pipeline` above 1",
                parallel->virtual_pipeline);
        else if (training->global_batch_size / once % parallel->pipeline)
            check_at(check, "parallelism.virtual_pipeline", false,
                "interleaving needs micro batches in multiples of `parallelism.pipeline` %" PRId64 ", and a rank has %" PRId64 " a step",
                parallel->pipeline, training->global_batch_size / once);
    }
}

static void check_layout(struct check *check)
{
    const struct spec *spec = check->spec;
    const struct spec_parallelism *parallel = &spec->parallelism;
    if (!rule_reads(check, "resources.nodes", "resources.ranks_per_node", "resources.gpus_per_node", "parallelism.tensor", "parallelism.pipeline",
            "parallelism.context", NULL))
        return;
    int64_t world = spec_world_size(spec), model_ranks = parallel->tensor * parallel->pipeline * parallel->context;
    const char *at = rule_written(check, "resources.ranks_per_node") ? "resources.ranks_per_node" : "resources.gpus_per_node";
    if (world % model_ranks) {
        check_at(check, at, false,
            "%" PRId64 " ranks (`nodes` %" PRId64 " x %" PRId64 " a node) are not divisible by tensor %" PRId64 " x pipeline %" PRId64
            " x context %" PRId64 " = %" PRId64,
            world, spec->resources.nodes, spec->resources.ranks_per_node, parallel->tensor, parallel->pipeline, parallel->context, model_ranks);
        return;
    }
    check_batch(check, world / model_ranks);
    if (!rule_reads(check, "parallelism.expert", "parallelism.expert_tensor", NULL))
        return;
    int64_t expert_tensor = parallel->expert_tensor ? parallel->expert_tensor : parallel->tensor;
    int64_t expert_ranks = expert_tensor * parallel->expert * parallel->pipeline;
    if (spec_is_moe(spec) && world % expert_ranks)
        check_at(check, "parallelism.expert", false,
            "%" PRId64 " ranks are not divisible by expert tensor %" PRId64 " x expert %" PRId64 " x pipeline %" PRId64 " = %" PRId64, world,
            expert_tensor, parallel->expert, parallel->pipeline, expert_ranks);
}

enum { EXPERTS_MAX = 1 << 18 }; // over all layers: each has a row or three in the parameter table

// Sizes that no machine holds: refused here, so that the arithmetic behind a plan stays within its integers.
static void check_model_size(struct check *check, double heads)
{
    static const double parameters_max = 1e14;
    const struct spec_model *model = &check->spec->model;
    double layers = (double)model->layers, hidden = (double)model->hidden_size, experts = 0, ffns = 0; // over all layers
    for (int64_t layer = 0; layer < model->layers; layer++) {
        experts += (double)spec_layer_experts(check->spec, layer);
        ffns += spec_layer_experts(check->spec, layer) ? 0 : (double)model->ffn_hidden_size;
    }
    ffns += experts * (double)model->moe.expert_ffn_hidden_size;
    double parameters = hidden * (2 * layers * heads + 3 * ffns + experts + 2 * (double)model->vocab_size);
    if (parameters > parameters_max)
        check_at(check, "model", false, "the model has about %.1e parameters; %.0e are the most", parameters, parameters_max);
    if (experts > EXPERTS_MAX)
        check_at(check, "model.moe.experts", false, "%.0f experts in %" PRId64 " layers; %d are the most", experts, spec_moe_layers(check->spec),
            EXPERTS_MAX);
}

static void check_batch_size(struct check *check, double heads, double ffn)
{
    static const double values_max = 1e15;
    const struct spec *spec = check->spec;
    const struct spec_model *model = &spec->model;
    double layers = (double)model->layers, hidden = (double)model->hidden_size, length = (double)spec->data.sequence_length;
    double tokens = (double)spec->training.micro_batch_size * length;
    double rows = model->moe.experts > 0 ? (double)model->moe.top_k * (double)spec->parallelism.expert : 1;
    double values = tokens * (layers * (8 * hidden + 4 * heads + rows * (4 * hidden + 4 * ffn)) + 2 * (double)model->vocab_size) +
        tokens * (double)model->attention_heads * length * layers;
    if (values > values_max)
        check_at(check, "training.micro_batch_size", false, "a micro batch has about %.1e activations; %.0e are the most", values, values_max);
}

static void check_sizes(struct check *check)
{
    static const double tokens_max = 1e17;
    const struct spec *spec = check->spec;
    const struct spec_model *model = &spec->model;
    double heads = (double)(model->attention_heads + model->kv_heads) * (double)model->head_dim;
    double ffn = model->moe.experts > 0 ? (double)model->moe.expert_ffn_hidden_size : (double)model->ffn_hidden_size;
    double all = (double)spec->training.iterations * (double)spec->training.global_batch_size * (double)spec->data.sequence_length;
    bool sized = rule_reads(check, "model", "model.layers", "model.hidden_size", "model.ffn_hidden_size", "model.attention_heads", "model.kv_heads",
        "model.head_dim", "model.vocab_size", "model.moe", "model.moe.experts", "model.moe.experts_per_layer",
        "model.moe.expert_ffn_hidden_size", "model.moe.layers", "model.moe.layer_frequency", NULL);
    if (sized)
        check_model_size(check, heads);
    if (sized && rule_reads(check, "model.moe.top_k", "data.sequence_length", "training.micro_batch_size", "parallelism.expert", NULL))
        check_batch_size(check, heads, ffn);
    if (rule_reads(check, "data.sequence_length", "training.global_batch_size", "training.iterations", NULL) && all > tokens_max)
        check_at(check, "training.iterations", false, "the run trains on %.1e tokens; %.0e are the most", all, tokens_max);
}

// Keys that look as if something were tried again, where nothing is. A limit of 0 that is written is meant.
static void check_retry(struct check *check)
{
    const struct spec *spec = check->spec;
    if (!rule_reads(check, "retry.limit", "retry.on", "retry.delay", NULL))
        return;
    const char *written = rule_written(check, "retry.on") ? "retry.on" : rule_written(check, "retry.delay") ? "retry.delay" : NULL;
    if (written && !rule_written(check, "retry.limit"))
        check_at(check, written, true, "`%s` without `retry.limit`: nothing is tried again by itself", written);
    else if (spec->retry.limit && rule_written(check, "retry.on") && spec->retry.on.count == 0)
        check_at(check, "retry.on", true, "`retry.on` is empty: nothing is tried again by itself");
}

void check_rules(struct check *check)
{
    check_retry(check);
    check_sizes(check);
    check_project(check);
    check_model(check);
    check_attention(check);
    check_moe(check);
    check_upcycle(check);
    check_layout(check);
    check_inputs(check);
    check_slurm(check);
}
