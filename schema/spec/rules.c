// What keys demand of each other. A rule speaks only if every key it reads parsed (a fault elsewhere hides none), at the place of the key
// that should change, with the numbers in its sentence.
#include "schema/spec/check.h"
#include "schema/base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// Whether all these keys (the list ends with NULL) parsed or stand at their defaults.
__attribute__((sentinel)) static bool good(const struct check *check, ...)
{
    bool all = true;
    va_list paths;
    va_start(paths, check);
    for (const char *path; (path = va_arg(paths, const char *));)
        all = all && !state_of(check, path)->bad;
    va_end(paths);
    return all;
}

static bool written(const struct check *check, const char *path)
{
    return state_of(check, path)->key != NULL;
}

// "a … is not divisible by b …": the fault is shown at the first key.
static void divides(struct check *check, const char *path, int64_t value, const char *by, int64_t divisor)
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
    if (!project || !good(check, "project", NULL))
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
    if (good(check, "model.hidden_size", "model.attention_heads", "model.head_dim", NULL) && !written(check, "model.head_dim"))
        divides(check, "model.hidden_size", model->hidden_size, "`model.attention_heads`", model->attention_heads);
    if (good(check, "model.attention_heads", "model.kv_heads", NULL))
        divides(check, "model.attention_heads", model->attention_heads, "`model.kv_heads`", model->kv_heads);
    if (good(check, "model.position", "model.head_dim", "model.hidden_size", "model.attention_heads", NULL) &&
        model->position == POSITION_ROPE && model->head_dim % 2 && (written(check, "model.head_dim") || model->hidden_size % model->attention_heads == 0))
        check_at(check, "model.head_dim", false, "rotary positions need an even `model.head_dim`, and it is %" PRId64, model->head_dim);
    if (good(check, "model.attention_heads", "parallelism.tensor", NULL))
        divides(check, "model.attention_heads", model->attention_heads, "`parallelism.tensor`", parallel->tensor);
    if (good(check, "model.kv_heads", "model.attention_heads", "parallelism.tensor", NULL) && model->kv_heads > parallel->tensor)
        divides(check, "model.kv_heads", model->kv_heads, "`parallelism.tensor`", parallel->tensor);
    if (good(check, "model.ffn_hidden_size", "parallelism.tensor", NULL))
        divides(check, "model.ffn_hidden_size", model->ffn_hidden_size, "`parallelism.tensor`", parallel->tensor);
    if (good(check, "model.layers", "parallelism.pipeline", "parallelism.virtual_pipeline", NULL)) {
        divides(check, "model.layers", model->layers, "`parallelism.pipeline`", parallel->pipeline);
        if (parallel->virtual_pipeline > 1 && model->layers % parallel->pipeline == 0)
            divides(check, "model.layers", model->layers, "`parallelism.pipeline` x `parallelism.virtual_pipeline`",
                parallel->pipeline * parallel->virtual_pipeline);
    }
    if (good(check, "model.from", NULL) && written(check, "model.from") && good(check, "model.from.run", "model.from.path", NULL) &&
        !model->from.run == !model->from.path)
        check_at(check, "model.from", false, "`model.from` needs exactly one of `run` and `path`");
}

// The key that says how many experts a layer has, and their least number.
static const char *experts_key(const struct check *check)
{
    return written(check, "model.moe.experts_per_layer") ? "model.moe.experts_per_layer" : "model.moe.experts";
}

static int64_t least_experts(const struct spec_moe *moe)
{
    int64_t least = moe->experts;
    for (size_t i = 0; i < moe->experts_per_layer.count; i++)
        if (moe->experts_per_layer.items[i] < least)
            least = moe->experts_per_layer.items[i];
    return least;
}

// Every layer's experts divided by the same number: the first that leaves a remainder is named.
static void divides_experts(struct check *check, const char *by, int64_t divisor)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    size_t bad = 0;
    while (bad < moe->experts_per_layer.count && moe->experts_per_layer.items[bad] % divisor == 0)
        bad++;
    if (bad < moe->experts_per_layer.count)
        divides(check, "model.moe.experts_per_layer", moe->experts_per_layer.items[bad], by, divisor);
    else
        divides(check, "model.moe.experts", moe->experts, by, divisor);
}

// Which layers have experts, and how many each.
static void check_moe_layers(struct check *check)
{
    const struct spec *spec = check->spec;
    const struct spec_moe *moe = &spec->model.moe;
    const int64_t *at = moe->layers.items;
    if (!good(check, "model.moe.layers", "model.moe.layer_frequency", "model.layers", NULL))
        return;
    if (moe->layers.count && moe->layer_frequency != 1) {
        check_at(check, "model.moe.layers", false, "`model.moe.layers` and `model.moe.layer_frequency` both say which layers have experts");
        return;
    }
    for (size_t i = 0; i < moe->layers.count; i++) {
        if (i && at[i] <= at[i - 1]) {
            check_at(check, "model.moe.layers", false, "`model.moe.layers` has %" PRId64 " behind %" PRId64 ": each layer once, ascending", at[i], at[i - 1]);
            return;
        }
    }
    if (moe->layers.count && at[moe->layers.count - 1] >= spec->model.layers) {
        check_at(check, "model.moe.layers", false, "`model.moe.layers` has %" PRId64 ", and the last of `model.layers` %" PRId64 " is %" PRId64,
            at[moe->layers.count - 1], spec->model.layers, spec->model.layers - 1);
        return;
    }
    if (!moe->experts_per_layer.count || !good(check, "model.moe.experts_per_layer", NULL))
        return;
    if ((int64_t)moe->experts_per_layer.count != spec_moe_layers(spec))
        check_at(check, "model.moe.experts_per_layer", false, "`model.moe.experts_per_layer` has %zu numbers, and there are %" PRId64 " layers with experts",
            moe->experts_per_layer.count, spec_moe_layers(spec));
    int64_t most = 0;
    for (size_t i = 0; i < moe->experts_per_layer.count; i++)
        most = moe->experts_per_layer.items[i] > most ? moe->experts_per_layer.items[i] : most;
    if (moe->experts != most)
        check_at(check, "model.moe.experts", false, "`model.moe.experts` %" PRId64 " is not the largest of `experts_per_layer`, %" PRId64
            ": leave it out", moe->experts, most);
}

static void check_groups(struct check *check)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    int64_t least = least_experts(moe);
    if (!good(check, "model.moe.num_groups", "model.moe.group_topk", NULL) || (!moe->num_groups && !moe->group_topk))
        return;
    if (!moe->num_groups || !moe->group_topk) {
        check_at(check, moe->num_groups ? "model.moe.num_groups" : "model.moe.group_topk", false,
            "`model.moe.num_groups` and `model.moe.group_topk` go together");
        return;
    }
    divides_experts(check, "`model.moe.num_groups`", moe->num_groups);
    if (moe->group_topk > moe->num_groups)
        check_at(check, "model.moe.group_topk", false, "`model.moe.group_topk` %" PRId64 " is more than `model.moe.num_groups` %" PRId64,
            moe->group_topk, moe->num_groups);
    else if (good(check, "model.moe.top_k", NULL) && moe->top_k > moe->group_topk * (least / moe->num_groups))
        check_at(check, "model.moe.top_k", false,
            "`model.moe.top_k` %" PRId64 " is more than the %" PRId64 " experts of `model.moe.group_topk` %" PRId64 " groups", moe->top_k,
            moe->group_topk * (least / moe->num_groups), moe->group_topk);
}

static void check_moe(struct check *check)
{
    const struct spec *spec = check->spec;
    const struct spec_moe *moe = &spec->model.moe;
    if (!good(check, "model.moe", "model.moe.experts", "model.moe.experts_per_layer", NULL))
        return;
    if (!written(check, "model.moe")) {
        if (good(check, "parallelism.expert", NULL) && spec->parallelism.expert > 1)
            check_at(check, "parallelism.expert", false, "`parallelism.expert` %" PRId64 " needs a model with experts (`model.moe`)",
                spec->parallelism.expert);
        return;
    }
    check_moe_layers(check);
    if (good(check, "model.moe.top_k", NULL) && moe->top_k > least_experts(moe))
        check_at(check, "model.moe.top_k", false, "`model.moe.top_k` %" PRId64 " is more than `%s` %" PRId64, moe->top_k, experts_key(check),
            least_experts(moe));
    if (good(check, "model.moe.top_k", "model.moe.pre_softmax", "model.moe.score_function", "model.moe.routing", NULL) && moe->top_k == 1 &&
        moe->experts > 1 && !moe->pre_softmax && moe->score_function == SCORE_SOFTMAX && moe->routing == ROUTING_TOP_K)
        check_at(check, "model.moe.top_k", false,
            "`model.moe.top_k` 1 of %" PRId64 " experts needs `pre_softmax: true`: a softmax over one expert is always 1, and the router would not learn",
            moe->experts);
    if (good(check, "parallelism.expert", NULL))
        divides_experts(check, "`parallelism.expert`", spec->parallelism.expert);
    if (good(check, "model.moe.expert_ffn_hidden_size", "model.ffn_hidden_size", "parallelism.expert_tensor", "parallelism.tensor", NULL))
        divides(check, "model.moe.expert_ffn_hidden_size", moe->expert_ffn_hidden_size, "expert tensor parallelism",
            spec->parallelism.expert_tensor ? spec->parallelism.expert_tensor : spec->parallelism.tensor);
    check_groups(check);
    if (good(check, "model.moe.shared_expert_gate", "model.moe.shared_expert_size", NULL) && moe->shared_expert_gate && !moe->shared_expert_size)
        check_at(check, "model.moe.shared_expert_gate", false, "`model.moe.shared_expert_gate` needs a `shared_expert_size`");
    if (good(check, "model.moe.pad_to_capacity", "model.moe.capacity_factor", NULL) && moe->pad_to_capacity && moe->capacity_factor == 0)
        check_at(check, "model.moe.pad_to_capacity", false, "`model.moe.pad_to_capacity` needs a `capacity_factor`");
    if (good(check, "model.moe.expert_bias", "model.moe.score_function", NULL) && moe->expert_bias && moe->score_function == SCORE_SOFTMAX)
        check_at(check, "model.moe.expert_bias", false, "`model.moe.expert_bias` needs `score_function: sigmoid` or `sqrtsoftplus`");
    if (good(check, "parallelism.tensor", "parallelism.sequence", NULL) && spec->parallelism.tensor > 1 && !spec->parallelism.sequence)
        check_at(check, "parallelism.tensor", false,
            "experts with `parallelism.tensor` %" PRId64 " need `parallelism.sequence: true`", spec->parallelism.tensor);
}

// Each batch of the ramp is one that the ranks can share.
static void check_rampup(struct check *check, int64_t once)
{
    const struct spec_training *training = &check->spec->training;
    const struct spec_rampup *ramp = &training->rampup_batch_size;
    if (!ramp->present || !good(check, "training.rampup_batch_size", "training.rampup_batch_size.start", "training.rampup_batch_size.increment",
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
    divides(check, "training.rampup_batch_size.start", ramp->start, "`micro_batch_size` x data-parallel ranks =", once);
    divides(check, "training.rampup_batch_size.increment", ramp->increment, "`micro_batch_size` x data-parallel ranks =", once);
}

static void check_batch(struct check *check, int64_t data_parallel)
{
    const struct spec_training *training = &check->spec->training;
    const struct spec_parallelism *parallel = &check->spec->parallelism;
    if (!good(check, "training.global_batch_size", "training.micro_batch_size", NULL))
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
    if (good(check, "parallelism.virtual_pipeline", NULL) && parallel->virtual_pipeline > 1) {
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
    if (!good(check, "resources.nodes", "resources.ranks_per_node", "resources.gpus_per_node", "parallelism.tensor", "parallelism.pipeline",
            "parallelism.context", NULL))
        return;
    int64_t world = spec_world_size(spec), model_ranks = parallel->tensor * parallel->pipeline * parallel->context;
    const char *at = written(check, "resources.ranks_per_node") ? "resources.ranks_per_node" : "resources.gpus_per_node";
    if (world % model_ranks) {
        check_at(check, at, false,
            "%" PRId64 " ranks (`nodes` %" PRId64 " x %" PRId64 " a node) are not divisible by tensor %" PRId64 " x pipeline %" PRId64
            " x context %" PRId64 " = %" PRId64,
            world, spec->resources.nodes, spec->resources.ranks_per_node, parallel->tensor, parallel->pipeline, parallel->context, model_ranks);
        return;
    }
    check_batch(check, world / model_ranks);
    if (!good(check, "parallelism.expert", "parallelism.expert_tensor", NULL))
        return;
    int64_t expert_tensor = parallel->expert_tensor ? parallel->expert_tensor : parallel->tensor;
    int64_t expert_ranks = expert_tensor * parallel->expert * parallel->pipeline;
    if (spec_is_moe(spec) && world % expert_ranks)
        check_at(check, "parallelism.expert", false,
            "%" PRId64 " ranks are not divisible by expert tensor %" PRId64 " x expert %" PRId64 " x pipeline %" PRId64 " = %" PRId64, world,
            expert_tensor, parallel->expert, parallel->pipeline, expert_ranks);
}

static void check_sequence(struct check *check)
{
    const struct spec *spec = check->spec;
    if (good(check, "data.sequence_length", "parallelism.context", NULL) && spec->parallelism.context > 1)
        divides(check, "data.sequence_length", spec->data.sequence_length, "2 x `parallelism.context` =", 2 * spec->parallelism.context);
    if (good(check, "data.sequence_length", "parallelism.sequence", "parallelism.tensor", NULL) && spec->parallelism.sequence)
        divides(check, "data.sequence_length", spec->data.sequence_length, "`parallelism.tensor`", spec->parallelism.tensor);
    if (good(check, "parallelism.sequence", "parallelism.tensor", NULL) && spec->parallelism.sequence && spec->parallelism.tensor == 1)
        check_at(check, "parallelism.sequence", true, "`parallelism.sequence` does nothing while `parallelism.tensor` is 1");
}

static void check_data(struct check *check)
{
    static const char *const sources[] = {"data.text", "data.prefix", "data.manifest"};
    const struct spec *spec = check->spec;
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        if (!written(check, sources[i]))
            continue;
        if (count++)
            check_at(check, sources[i], false, "`%s` and `%s` (line %zu) are both given: `data` needs exactly one source", sources[i], first,
                state_of(check, first)->key->line);
        else
            first = sources[i];
    }
    if (!count && good(check, "data", NULL))
        check_at(check, "data", false, "`data` needs a source: one of `text`, `prefix`, `manifest`");
    double sum = spec->data.split[0] + spec->data.split[1] + spec->data.split[2];
    if (good(check, "data.split", NULL) && fabs(sum - 100) > 1e-9 && fabs(sum - 1) > 1e-9 && fabs(sum - 1000) > 1e-9)
        check_at(check, "data.split", false, "the parts of `data.split` add up to %.15g, not to 100 (1 and 1000 are taken too)", sum);
    else if (good(check, "data.split", NULL) && spec->data.split[0] == 0)
        check_at(check, "data.split", false, "`data.split` leaves nothing to train on");
    else if (good(check, "data.split", "training.validation.interval", NULL) && spec->training.validation.interval && spec->data.split[1] == 0)
        check_at(check, "training.validation.interval", false, "validation needs a share of the data: the second part of `data.split` is 0");
    if (good(check, "data.tokenizer", "model.vocab_size", NULL) && spec->data.tokenizer && strcmp(spec->data.tokenizer, "byte") == 0 &&
        spec->model.vocab_size < 257)
        check_at(check, "model.vocab_size", false, "`model.vocab_size` %" PRId64 " is too small for the byte tokenizer: 256 bytes and the end-of-document token are 257",
            spec->model.vocab_size);
}

static void check_learning_rate(struct check *check)
{
    const struct spec_learning_rate *rate = &check->spec->training.learning_rate;
    if (good(check, "training.learning_rate.peak", "training.learning_rate.minimum", NULL) && rate->minimum > rate->peak)
        check_at(check, "training.learning_rate.minimum", false, "`minimum` %.15g is more than `peak` %.15g", rate->minimum, rate->peak);
    if (good(check, "training.learning_rate.peak", "training.learning_rate.initial", NULL) && rate->initial > rate->peak)
        check_at(check, "training.learning_rate.initial", false, "`initial` %.15g is more than `peak` %.15g", rate->initial, rate->peak);
    if (!good(check, "training.learning_rate.warmup_iterations", "training.learning_rate.decay_iterations",
            "training.learning_rate.total_iterations", "training.learning_rate.schedule", NULL))
        return;
    bool total = written(check, "training.learning_rate.total_iterations"), iterations = good(check, "training.iterations", NULL);
    if (!total && !iterations)
        return;
    int64_t decay = rate->schedule == SCHEDULE_WSD ? rate->decay_iterations : 0;
    if (rate->warmup_iterations + decay > rate->total_iterations)
        check_at(check, "training.learning_rate.warmup_iterations", false,
            "`warmup_iterations` %" PRId64 " + `decay_iterations` %" PRId64 " are more than `total_iterations` %" PRId64,
            rate->warmup_iterations, decay, rate->total_iterations);
    if (rate->schedule != SCHEDULE_CONSTANT && iterations && check->spec->training.iterations > rate->total_iterations)
        check_at(check, "training.learning_rate.total_iterations", true,
            "the schedule ends at iteration %" PRId64 ", the run at %" PRId64 ": the rate stays at its minimum in between",
            rate->total_iterations, check->spec->training.iterations);
    if (rate->schedule != SCHEDULE_WSD && written(check, "training.learning_rate.decay_iterations"))
        check_at(check, "training.learning_rate.decay_iterations", true, "`decay_iterations` is used by `schedule: wsd` only");
}

static void check_loss_scale(struct check *check)
{
    static const char *const keys[] = {"training.loss_scale.initial", "training.loss_scale.minimum", "training.loss_scale.window",
        "training.loss_scale.hysteresis"};
    const struct spec_loss_scale *scale = &check->spec->training.loss_scale;
    if (good(check, keys[0], keys[1], NULL) && scale->minimum > scale->initial)
        check_at(check, keys[1], false, "`minimum` %.15g is more than `initial` %.15g", scale->minimum, scale->initial);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && good(check, "training.precision", NULL); i++)
        if (written(check, keys[i]) && check->spec->training.precision != PRECISION_FP16)
            check_at(check, keys[i], true, "`%s` is used by `precision: fp16` only", keys[i]);
}

static void check_tokenize(struct check *check)
{
    static const char *const keys[] = {"data.tokenize.tasks", "data.tokenize.sampling_rate", "data.tokenize.document_limit",
        "data.tokenize.cpus_per_task", "data.tokenize.memory_per_task"};
    const struct spec_data *data = &check->spec->data;
    if (good(check, "data.tokenize.sampling_rate", NULL) && !(data->tokenize.sampling_rate > 0))
        check_at(check, "data.tokenize.sampling_rate", false, "`data.tokenize.sampling_rate` leaves no documents");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && good(check, "data.text", NULL); i++)
        if (written(check, keys[i]) && !data->text)
            check_at(check, keys[i], true, "`%s` is used with `data.text` only", keys[i]);
}

static void check_hf_jobs(struct check *check)
{
    const struct spec *spec = check->spec;
    if (good(check, "hf-jobs", "executor", NULL) && spec->hf_jobs.present && spec->executor != EXECUTOR_HF_JOBS)
        check_at(check, "hf-jobs", true, "the keys of `hf-jobs` are not used by this `executor`");
    if (good(check, "hf-jobs", "hf-jobs.timeout", "resources.time_limit", NULL) && spec->hf_jobs.present && spec->executor == EXECUTOR_HF_JOBS &&
        spec->resources.time_limit > spec->hf_jobs.timeout)
        check_at(check, "hf-jobs.timeout", true, "the machine is taken away after %.15g s, before `resources.time_limit` %.15g s", spec->hf_jobs.timeout,
            spec->resources.time_limit);
}

static void check_image(struct check *check)
{
    const char *base = check->spec->image.base;
    if (!base || !good(check, "image.base", NULL))
        return;
    const char *slash = strrchr(base, '/'), *name = slash ? slash + 1 : base, *tag = strchr(name, ':');
    if (!tag || !tag[1] || strcmp(tag, ":latest") == 0)
        check_at(check, "image.base", false, "`image.base` needs a tag with a version, not %s: what it names must not change", tag && tag[1] ? "`latest`" : "none");
}

static void check_resources(struct check *check)
{
    const struct spec *spec = check->spec;
    if (good(check, "resources.device", "resources.gpus_per_node", NULL) && spec->resources.gpus_per_node &&
        (spec->resources.device == DEVICE_CPU || spec->resources.device == DEVICE_REFERENCE))
        check_at(check, "resources.gpus_per_node", true, "the GPUs are not used by this `resources.device`");
    if (good(check, "slurm", "executor", NULL) && spec->slurm.present && spec->executor != EXECUTOR_SLURM)
        check_at(check, "slurm", true, "the keys of `slurm` are not used by this `executor`");
    if (good(check, "training.recompute.layers", "training.recompute.granularity", "model.layers", NULL) &&
        spec->training.recompute.granularity == RECOMPUTE_FULL && spec->training.recompute.layers > spec->model.layers)
        check_at(check, "training.recompute.layers", false, "`training.recompute.layers` %" PRId64 " is more than `model.layers` %" PRId64,
            spec->training.recompute.layers, spec->model.layers);
}

enum { EXPERTS_MAX = 1 << 18 }; // over all layers: each has a row or three in the parameter table

// Sizes that no machine holds: refused here, so that the arithmetic behind a plan stays within its integers.
static void check_model_size(struct check *check, double heads, double ffn)
{
    static const double parameters_max = 1e14;
    const struct spec_model *model = &check->spec->model;
    double layers = (double)model->layers, hidden = (double)model->hidden_size, experts = (double)model->moe.experts;
    double parameters = layers * hidden * (2 * heads + 3 * ffn * (experts > 0 ? experts : 1) + experts) + 2 * hidden * (double)model->vocab_size;
    if (parameters > parameters_max)
        check_at(check, "model", false, "the model has about %.1e parameters; %.0e are the most", parameters, parameters_max);
    if (layers * experts > EXPERTS_MAX)
        check_at(check, "model.moe.experts", false, "%" PRId64 " experts in each of %" PRId64 " layers; %d over all layers are the most",
            model->moe.experts, model->layers, EXPERTS_MAX);
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
    bool sized = good(check, "model", "model.layers", "model.hidden_size", "model.ffn_hidden_size", "model.attention_heads", "model.kv_heads",
        "model.head_dim", "model.vocab_size", "model.moe", "model.moe.experts", "model.moe.experts_per_layer",
        "model.moe.expert_ffn_hidden_size", NULL);
    if (sized)
        check_model_size(check, heads, ffn);
    if (sized && good(check, "model.moe.top_k", "data.sequence_length", "training.micro_batch_size", "parallelism.expert", NULL))
        check_batch_size(check, heads, ffn);
    if (good(check, "data.sequence_length", "training.global_batch_size", "training.iterations", NULL) && all > tokens_max)
        check_at(check, "training.iterations", false, "the run trains on %.1e tokens; %.0e are the most", all, tokens_max);
}

void check_rules(struct check *check)
{
    check_sizes(check);
    check_project(check);
    check_model(check);
    check_moe(check);
    check_layout(check);
    check_sequence(check);
    check_data(check);
    check_learning_rate(check);
    check_loss_scale(check);
    check_tokenize(check);
    check_image(check);
    check_hf_jobs(check);
    check_resources(check);
}
