// What keys demand of each other on the way into a run: data, learning rate, loss scale, images, machines.
#include "schema/spec/rules.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void check_sequence(struct check *check)
{
    const struct spec *spec = check->spec;
    if (rule_reads(check, "data.sequence_length", "parallelism.context", NULL) && spec->parallelism.context > 1)
        rule_divides(check, "data.sequence_length", spec->data.sequence_length, "2 x `parallelism.context` =", 2 * spec->parallelism.context);
    if (rule_reads(check, "data.sequence_length", "parallelism.sequence", "parallelism.tensor", NULL) && spec->parallelism.sequence)
        rule_divides(check, "data.sequence_length", spec->data.sequence_length, "`parallelism.tensor`", spec->parallelism.tensor);
    if (rule_reads(check, "parallelism.sequence", "parallelism.tensor", NULL) && spec->parallelism.sequence && spec->parallelism.tensor == 1)
        check_at(check, "parallelism.sequence", true, "`parallelism.sequence` does nothing while `parallelism.tensor` is 1");
}

static void check_data(struct check *check)
{
    static const char *const sources[] = {"data.text", "data.prefix", "data.manifest"};
    const struct spec *spec = check->spec;
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        if (!rule_written(check, sources[i]))
            continue;
        if (count++)
            check_at(check, sources[i], false, "`%s` and `%s` (line %zu) are both given: `data` needs exactly one source", sources[i], first,
                state_of(check, first)->key->line);
        else
            first = sources[i];
    }
    if (!count && rule_reads(check, "data", NULL))
        check_at(check, "data", false, "`data` needs a source: one of `text`, `prefix`, `manifest`");
    double sum = spec->data.split[0] + spec->data.split[1] + spec->data.split[2];
    if (rule_reads(check, "data.split", NULL) && fabs(sum - 100) > 1e-9 && fabs(sum - 1) > 1e-9 && fabs(sum - 1000) > 1e-9)
        check_at(check, "data.split", false, "the parts of `data.split` add up to %.15g, not to 100 (1 and 1000 are taken too)", sum);
    else if (rule_reads(check, "data.split", NULL) && spec->data.split[0] == 0)
        check_at(check, "data.split", false, "`data.split` leaves nothing to train on");
    else if (rule_reads(check, "data.split", "training.validation.interval", NULL) && spec->training.validation.interval && spec->data.split[1] == 0)
        check_at(check, "training.validation.interval", false, "validation needs a share of the data: the second part of `data.split` is 0");
    if (rule_reads(check, "data.tokenizer", "model.vocab_size", NULL) && spec->data.tokenizer && strcmp(spec->data.tokenizer, "byte") == 0 &&
        spec->model.vocab_size < 257)
        check_at(check, "model.vocab_size", false, "`model.vocab_size` %" PRId64 " is too small for the byte tokenizer: 256 bytes and the end-of-document token are 257",
            spec->model.vocab_size);
}

// Experts follow the same schedule to the same ends, from a peak of their own.
static void check_expert_rate(struct check *check)
{
    const struct spec_learning_rate *rate = &check->spec->training.learning_rate;
    if (!rule_reads(check, "training.learning_rate.expert_peak", "training.learning_rate.minimum", "training.learning_rate.initial", NULL) ||
        rate->expert_peak == 0)
        return;
    if (rate->minimum > rate->expert_peak)
        check_at(check, "training.learning_rate.expert_peak", false, "`minimum` %.15g is more than `expert_peak` %.15g", rate->minimum, rate->expert_peak);
    if (rate->initial > rate->expert_peak)
        check_at(check, "training.learning_rate.expert_peak", false, "`initial` %.15g is more than `expert_peak` %.15g", rate->initial, rate->expert_peak);
    if (rule_reads(check, "model.moe", "model.moe.experts", "model.moe.experts_per_layer", NULL) && !rule_written(check, "model.moe"))
        check_at(check, "training.learning_rate.expert_peak", true, "`expert_peak` is used by a model with experts (`model.moe`) only");
}

static void check_learning_rate(struct check *check)
{
    static const double samples_max = 1e17;
    const struct spec_learning_rate *rate = &check->spec->training.learning_rate;
    check_expert_rate(check);
    if (rule_reads(check, "training.learning_rate.peak", "training.learning_rate.minimum", NULL) && rate->minimum > rate->peak)
        check_at(check, "training.learning_rate.minimum", false, "`minimum` %.15g is more than `peak` %.15g", rate->minimum, rate->peak);
    if (rule_reads(check, "training.learning_rate.peak", "training.learning_rate.initial", NULL) && rate->initial > rate->peak)
        check_at(check, "training.learning_rate.initial", false, "`initial` %.15g is more than `peak` %.15g", rate->initial, rate->peak);
    if (!rule_reads(check, "training.learning_rate.warmup_iterations", "training.learning_rate.decay_iterations",
            "training.learning_rate.total_iterations", "training.learning_rate.schedule", NULL))
        return;
    bool total = rule_written(check, "training.learning_rate.total_iterations"), iterations = rule_reads(check, "training.iterations", NULL);
    if (!total && !iterations)
        return;
    int64_t decay = rate->schedule == SCHEDULE_WSD ? rate->decay_iterations : 0;
    if (rate->warmup_iterations + decay > rate->total_iterations)
        check_at(check, "training.learning_rate.warmup_iterations", false,
            "`warmup_iterations` %" PRId64 " + `decay_iterations` %" PRId64 " are more than `total_iterations` %" PRId64,
            rate->warmup_iterations, decay, rate->total_iterations);
    double samples = (double)rate->total_iterations * (double)check->spec->training.global_batch_size;
    if (total && rule_reads(check, "training.global_batch_size", NULL) && samples > samples_max)
        check_at(check, "training.learning_rate.total_iterations", false, "the schedule covers %.1e samples; %.0e are the most", samples, samples_max);
    if (rate->schedule != SCHEDULE_CONSTANT && iterations && check->spec->training.iterations > rate->total_iterations)
        check_at(check, "training.learning_rate.total_iterations", true,
            "the schedule ends at iteration %" PRId64 ", the run at %" PRId64 ": the rate stays at its minimum in between",
            rate->total_iterations, check->spec->training.iterations);
    if (rate->schedule != SCHEDULE_WSD && rate->decay_iterations != 0 && rule_written(check, "training.learning_rate.decay_iterations"))
        check_at(check, "training.learning_rate.decay_iterations", true, "`decay_iterations` is used by `schedule: wsd` only");
}

// What is known to give other bits from run to run, as `name=required (got actual)`, all in one message. The variables are those that
// decide it inside NCCL, Transformer Engine and cuBLAS; left out, the engine sets them.
static const struct variable {
    const char *name;
    const char *const *allowed;
    bool list; // comma separated: each part must be allowed
} deterministic_variables[] = {
    {"NCCL_ALGO", (const char *const[]){"Ring", "CollnetDirect", "CollnetChain", "^NVLS", NULL}, true},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", (const char *const[]){"0", NULL}, false},
    {"CUBLAS_WORKSPACE_CONFIG", (const char *const[]){":4096:8", ":16:8", NULL}, false},
};

static bool is_allowed(const struct variable *variable, const char *value)
{
    for (const char *at = value;; at++) {
        size_t length = variable->list ? strcspn(at, ",") : strlen(at), i = 0;
        while (variable->allowed[i] && (strlen(variable->allowed[i]) != length || strncmp(variable->allowed[i], at, length) != 0))
            i++;
        if (!variable->allowed[i])
            return false;
        at += length;
        if (!*at)
            return true;
    }
}

static void add_variables(struct text *faults, const struct spec_pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++)
        for (size_t k = 0; k < sizeof deterministic_variables / sizeof *deterministic_variables; k++) {
            const struct variable *variable = &deterministic_variables[k];
            if (strcmp(pairs->keys[i], variable->name) != 0 || is_allowed(variable, pairs->values[i]))
                continue;
            text_addf(faults, "%s%s=", faults->length ? ", " : "", variable->name);
            for (size_t a = 0; variable->allowed[a]; a++)
                text_addf(faults, "%s%s", a ? "|" : "", variable->allowed[a]);
            text_addf(faults, " (got %.60s)", pairs->values[i]);
        }
}

static void check_deterministic(struct check *check)
{
    static const char *const engines[] = {"native", "megatron", "deepspeed", "command"}, *const fusions[] = {"none", "native", "te"};
    const struct spec *spec = check->spec;
    if (!rule_reads(check, "training.deterministic", NULL) || !spec->training.deterministic)
        return;
    struct text faults;
    text_init(&faults, 4096);
    if (rule_reads(check, "engine", NULL) && spec->engine != ENGINE_NATIVE && spec->engine != ENGINE_MEGATRON)
        text_addf(&faults, "engine=native|megatron (got %s)", engines[spec->engine]);
    if (rule_reads(check, "training.cross_entropy_fusion", NULL) && spec->training.cross_entropy_fusion != FUSION_NONE)
        text_addf(&faults, "%straining.cross_entropy_fusion=none (got %s)", faults.length ? ", " : "", fusions[spec->training.cross_entropy_fusion]);
    if (rule_reads(check, "environment.variables", NULL))
        add_variables(&faults, &spec->environment.variables);
    if (faults.length)
        check_at(check, "training.deterministic", false, "`training.deterministic` needs %s", faults.at);
    text_release(&faults);
}

static void check_loss_scale(struct check *check)
{
    static const char *const keys[] = {"training.loss_scale.initial", "training.loss_scale.minimum", "training.loss_scale.window",
        "training.loss_scale.hysteresis"};
    const struct spec_loss_scale *scale = &check->spec->training.loss_scale;
    if (rule_reads(check, keys[0], keys[1], NULL) && scale->minimum > scale->initial)
        check_at(check, keys[1], false, "`minimum` %.15g is more than `initial` %.15g", scale->minimum, scale->initial);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && rule_reads(check, "training.precision", NULL); i++)
        if (rule_written(check, keys[i]) && check->spec->training.precision != PRECISION_FP16)
            check_at(check, keys[i], true, "`%s` is used by `precision: fp16` only", keys[i]);
}

static void check_tokenize(struct check *check)
{
    static const char *const keys[] = {"data.tokenize.tasks", "data.tokenize.sampling_rate", "data.tokenize.document_limit",
        "data.tokenize.cpus_per_task", "data.tokenize.memory_per_task"};
    const struct spec_data *data = &check->spec->data;
    if (rule_reads(check, "data.tokenize.sampling_rate", NULL) && !(data->tokenize.sampling_rate > 0))
        check_at(check, "data.tokenize.sampling_rate", false, "`data.tokenize.sampling_rate` leaves no documents");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && rule_reads(check, "data.text", NULL); i++)
        if (rule_written(check, keys[i]) && !data->text)
            check_at(check, keys[i], true, "`%s` is used with `data.text` only", keys[i]);
}

static void check_hf_jobs(struct check *check)
{
    const struct spec *spec = check->spec;
    if (rule_reads(check, "hf-jobs", "executor", NULL) && spec->hf_jobs.present && spec->executor != EXECUTOR_HF_JOBS)
        check_at(check, "hf-jobs", true, "the keys of `hf-jobs` are not used by this `executor`");
    if (rule_reads(check, "hf-jobs", "hf-jobs.timeout", "resources.time_limit", NULL) && spec->hf_jobs.present && spec->executor == EXECUTOR_HF_JOBS &&
        spec->resources.time_limit > spec->hf_jobs.timeout)
        check_at(check, "hf-jobs.timeout", true, "the machine is taken away after %.15g s, before `resources.time_limit` %.15g s", spec->hf_jobs.timeout,
            spec->resources.time_limit);
}

static void check_image(struct check *check)
{
    const char *base = check->spec->image.base;
    if (!base || !rule_reads(check, "image.base", NULL))
        return;
    const char *slash = strrchr(base, '/'), *name = slash ? slash + 1 : base, *tag = strchr(name, ':');
    if (!tag || !tag[1] || strcmp(tag, ":latest") == 0)
        check_at(check, "image.base", false, "`image.base` needs a tag with a version, not %s: what it names must not change", tag && tag[1] ? "`latest`" : "none");
}

static void check_resources(struct check *check)
{
    const struct spec *spec = check->spec;
    if (rule_reads(check, "resources.device", "resources.gpus_per_node", NULL) && spec->resources.gpus_per_node &&
        (spec->resources.device == DEVICE_CPU || spec->resources.device == DEVICE_REFERENCE))
        check_at(check, "resources.gpus_per_node", true, "the GPUs are not used by this `resources.device`");
    else if (rule_reads(check, "resources.device", "resources.gpus_per_node", NULL) && spec->resources.gpus_per_node && spec->resources.device == DEVICE_AUTO)
        check_at(check, "resources.gpus_per_node", true, "the run has these GPUs to itself, but this build computes on CPUs: it cannot use CUDA yet");
    static const char *const only_full[] = {"training.recompute.method", "training.recompute.layers"};
    for (size_t i = 0; i < sizeof only_full / sizeof *only_full && rule_reads(check, "training.recompute.granularity", NULL); i++)
        if (rule_written(check, only_full[i]) && spec->training.recompute.granularity != RECOMPUTE_FULL)
            check_at(check, only_full[i], true, "`%s` is used by `granularity: full` only", only_full[i]);
    if (rule_reads(check, "training.recompute.layers", "training.recompute.granularity", "model.layers", NULL) &&
        spec->training.recompute.granularity == RECOMPUTE_FULL && spec->training.recompute.layers > spec->model.layers)
        check_at(check, "training.recompute.layers", false, "`training.recompute.layers` %" PRId64 " is more than `model.layers` %" PRId64,
            spec->training.recompute.layers, spec->model.layers);
}

void check_inputs(struct check *check)
{
    check_sequence(check);
    check_data(check);
    check_learning_rate(check);
    check_deterministic(check);
    check_loss_scale(check);
    check_tokenize(check);
    check_image(check);
    check_hf_jobs(check);
    check_resources(check);
}
