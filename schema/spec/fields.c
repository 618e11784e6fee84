// The table itself. One line a key where it fits; it passes the length of a function by being data.
#include "schema/spec/fields.h"
#include "schema/base/text.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct spec, member)
#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BIT(value) (1U << (value))

#define LARGE 9007199254740992.0 // 2^53: whole numbers up to here are exact as doubles too

const char *const moe_loss_names[] = {"aux_loss", "seq_aux_loss", "global_aux_loss", "z_loss", NULL};

static bool has_moe(const struct spec *spec)
{
    return spec->model.moe.experts > 0;
}

static bool has_from(const struct spec *spec)
{
    return spec->model.from.run || spec->model.from.path;
}

static bool has_upcycle(const struct spec *spec)
{
    return spec->model.from.upcycle.present;
}

static bool has_slurm(const struct spec *spec)
{
    return spec->slurm.present;
}

static bool has_hf_jobs(const struct spec *spec)
{
    return spec->hf_jobs.present;
}

static bool has_rampup(const struct spec *spec)
{
    return spec->training.rampup_batch_size.present;
}

static bool has_alltoall(const struct spec *spec)
{
    return spec->preflight.alltoall.present;
}

static bool refused_hf_jobs(const struct spec *spec)
{
    return spec->hf_jobs.present && spec->executor == EXECUTOR_HF_JOBS;
}

static bool refused_nodes(const struct spec *spec)
{
    return spec->resources.nodes > 1 && spec->executor == EXECUTOR_LOCAL;
}

static bool refused_tokenizer(const struct spec *spec)
{
    return spec->data.text && strcmp(spec->data.tokenizer, "byte") != 0;
}

// Tokenising is not done with such a tokenizer; a pair that was made with one tells where its documents end.
static bool refused_eod_token(const struct spec *spec)
{
    return spec->data.text && spec->data.eod_token;
}

static bool refused_expert_tensor(const struct spec *spec)
{
    return spec->parallelism.expert_tensor > 1;
}

const struct field spec_fields[] = {
    {"project", FIELD_NAME, AT(project), .required = true, .help = "Trackio project that all runs of this file belong to"},
    {"name", FIELD_NAME, AT(name), .internal = true, .help = "the entry of `runs:` that this is"},
    {"question", FIELD_STRING, AT(question), .internal = true, .help = "first comment of the file"},
    {"output", FIELD_PATH, AT(output), .derived = "$SWITCHYARD_HOME/runs", .help = "directory for run directories"},
    {"engine", FIELD_CHOICE, AT(engine), "native", .choices = CHOICES("native", "megatron", "deepspeed", "command"),
        .cannot = "train with another engine", .runs = BIT(ENGINE_NATIVE), .help = "what trains the model"},
    {"executor", FIELD_CHOICE, AT(executor), "local", .choices = CHOICES("local", "slurm", "hf-jobs"),
        .derived = "slurm where there is a `slurm:` section, else local", .cannot = "rent machines", .runs = BIT(EXECUTOR_LOCAL) | BIT(EXECUTOR_SLURM),
        .help = "where jobs run"},

    {"code", FIELD_SECTION, .help = "repository that is recorded with the run"},
    {"code.path", FIELD_PATH, AT(code.path), .derived = "the directory of this file", .help = "a directory of the repository"},
    {"code.commit", FIELD_STRING, AT(code.commit), .help = "commit that must be checked out there"},

    {"image", FIELD_SECTION, .help = "container image of the job"},
    {"image.path", FIELD_PATH, AT(image.path), .cannot = "run in a container image", .help = "SquashFS image"},
    {"image.base", FIELD_STRING, AT(image.base), .cannot = "build an image",
        .help = "image that `path` is imported from, with its version, such as docker://nvcr.io#nvidia/pytorch:26.06-py3"},
    {"image.mounts", FIELD_STRINGS, AT(image.mounts), .cannot = "mount directories into an image", .help = "HOST:CONTAINER, each"},

    {"environment", FIELD_SECTION, .help = "what the job's processes find around them"},
    {"environment.variables", FIELD_PAIRS, AT(environment.variables), .help = "NAME: value, passed without a shell; not SWITCHYARD_…, sy_…, SLURM_…, SBATCH_… or SRUN_…"},
    {"environment.modules", FIELD_STRINGS, AT(environment.modules), .letters = "_.+/@=:,-", .help = "modules to load before the job starts, by the `module` command of its machine"},

    {"data", FIELD_SECTION, .help = "tokens to train on: exactly one of text, prefix, manifest"},
    {"data.text", FIELD_PATH, AT(data.text), .help = "text or JSONL file, plain or gzip; tokenised on first use, cached by content"},
    {"data.document", FIELD_CHOICE, AT(data.document), "paragraph", .choices = CHOICES("paragraph", "line", "file"),
        .help = "what one document of the text is (paragraphs are parted by blank lines)"},
    {"data.json_key", FIELD_STRING, AT(data.json_key), "text", .help = "member of a JSONL line that holds the text"},
    {"data.prefix", FIELD_PATH, AT(data.prefix), .help = "PREFIX of a Megatron pair PREFIX.bin, PREFIX.idx"},
    {"data.manifest", FIELD_PATH, AT(data.manifest), .help = "file of prefixes, one a line"},
    {"data.tokenizer", FIELD_TOKENIZER, AT(data.tokenizer), "byte", .cannot = "tokenise with a tokenizer.json", .refused = refused_tokenizer,
        .help = "`byte` (256 bytes and an end-of-document token) or a tokenizer.json"},
    {"data.eod_token", FIELD_STRING, AT(data.eod_token), .derived = "the tokenizer's own", .cannot = "end documents with a token of choice", .refused = refused_eod_token,
        .help = "token after each document, by its text, such as <|end_of_text|>"},
    {"data.tokenize", FIELD_SECTION, .help = "tokenising as an array of tasks; number and rate stay as they are between tries"},
    {"data.tokenize.tasks", FIELD_INTEGER, AT(data.tokenize.tasks), "1", 1, 100000, .cannot = "tokenise by several tasks",
        .help = "tasks of the array, each with a share of the documents and a pair of its own"},
    {"data.tokenize.sampling_rate", FIELD_SHARE, AT(data.tokenize.sampling_rate), "100%", 0, 1, .cannot = "sample documents",
        .help = "share of the documents that are kept, drawn at random before tokenising"},
    {"data.tokenize.document_limit", FIELD_INTEGER, AT(data.tokenize.document_limit), "0", 0, LARGE, .cannot = "tokenise a part of a text",
        .help = "documents at most, for a first look; 0: all"},
    {"data.tokenize.cpus_per_task", FIELD_INTEGER, AT(data.tokenize.cpus_per_task), "1", 1, 1 << 12, .cannot = "reserve processors for tokenising",
        .help = "processors of a task"},
    {"data.tokenize.memory_per_task", FIELD_BYTES, AT(data.tokenize.memory_per_task), NULL, 0, LARGE, .cannot = "reserve memory for tokenising",
        .help = "memory of a task"},
    {"data.cache", FIELD_PATH, AT(data.cache), .derived = "beside the data", .help = "directory for sample indices"},
    {"data.split", FIELD_SPLIT, AT(data.split), "100, 0, 0", 0, 1000, .help = "training, validation, test: three shares that add up to 100 (or to 1, or 1000)"},
    {"data.sequence_length", FIELD_INTEGER, AT(data.sequence_length), NULL, 1, 1 << 24, .required = true, .help = "tokens of a sample"},
    {"data.eod_mask_loss", FIELD_BOOLEAN, AT(data.eod_mask_loss), "false", .help = "no loss on end-of-document tokens"},
    {"data.reset_position_ids", FIELD_BOOLEAN, AT(data.reset_position_ids), "false", .help = "positions begin anew with each document"},
    {"data.reset_attention_mask", FIELD_BOOLEAN, AT(data.reset_attention_mask), "false", .help = "no attention across documents"},

    {"model", FIELD_SECTION, .help = "a decoder-only transformer"},
    {"model.layers", FIELD_INTEGER, AT(model.layers), NULL, 1, 1024, .required = true, .help = "transformer layers"},
    {"model.hidden_size", FIELD_INTEGER, AT(model.hidden_size), NULL, 1, 1 << 20, .required = true, .help = "width of the residual stream"},
    {"model.ffn_hidden_size", FIELD_INTEGER, AT(model.ffn_hidden_size), NULL, 1, 1 << 22, .required = true, .help = "width of the dense FFN"},
    {"model.attention_heads", FIELD_INTEGER, AT(model.attention_heads), NULL, 1, 1 << 14, .required = true, .help = "query heads"},
    {"model.kv_heads", FIELD_INTEGER, AT(model.kv_heads), NULL, 1, 1 << 14, .derived = "attention_heads",
        .help = "key and value heads (grouped-query attention)"},
    {"model.head_dim", FIELD_INTEGER, AT(model.head_dim), NULL, 1, 1 << 14, .derived = "hidden_size / attention_heads", .help = "width of a head"},
    {"model.vocab_size", FIELD_INTEGER, AT(model.vocab_size), NULL, 2, 1 << 24, .required = true, .help = "tokens known to the model"},
    {"model.tied_embeddings", FIELD_BOOLEAN, AT(model.tied_embeddings), "false", .help = "output layer is the embedding"},
    {"model.norm", FIELD_CHOICE, AT(model.norm), "rmsnorm", .choices = CHOICES("rmsnorm", "layernorm"),
        .help = "normalisation; layernorm has biases, whatever `bias` says"},
    {"model.norm_epsilon", FIELD_NUMBER, AT(model.norm_epsilon), "1e-5", 0, 1, OPEN_LEAST, .help = "added to the mean square"},
    {"model.activation", FIELD_CHOICE, AT(model.activation), "swiglu", .choices = CHOICES("swiglu", "gelu"),
        .help = "activation of the FFN: swiglu has a gate beside it, gelu (by tanh, as in GPT-2) has none"},
    {"model.position", FIELD_CHOICE, AT(model.position), "rope", .choices = CHOICES("rope", "learned", "none"),
        .help = "rotary positions, a learned table, or none (the causal mask tells tokens apart)"},
    {"model.max_position_embeddings", FIELD_INTEGER, AT(model.max_position_embeddings), NULL, 1, 1 << 24, .derived = "data.sequence_length",
        .help = "rows of the table of learned positions"},
    {"model.rope_base", FIELD_NUMBER, AT(model.rope_base), "10000", 1, 1e12, OPEN_LEAST, .help = "base of the rotary frequencies"},
    {"model.rope_scaling_factor", FIELD_NUMBER, AT(model.rope_scaling_factor), "0", 0, 1e6,
        .help = "Llama-3 scaling: long wavelengths are stretched by this; 0: none"},
    {"model.rope_scaling_low_freq_factor", FIELD_NUMBER, AT(model.rope_scaling_low_freq_factor), "1", 0, 1e6, OPEN_LEAST,
        .help = "wavelengths above original_length / this are stretched in full"},
    {"model.rope_scaling_high_freq_factor", FIELD_NUMBER, AT(model.rope_scaling_high_freq_factor), "4", 0, 1e6, OPEN_LEAST,
        .help = "wavelengths below original_length / this are left alone"},
    {"model.rope_scaling_original_length", FIELD_INTEGER, AT(model.rope_scaling_original_length), "8192", 1, 1 << 24,
        .help = "tokens that the frequencies were first trained for"},
    {"model.bias", FIELD_BOOLEAN, AT(model.bias), "false", .help = "biases in linear layers"},
    {"model.qk_norm", FIELD_BOOLEAN, AT(model.qk_norm), "false", .help = "RMSNorm of queries and keys, before rotary positions"},
    {"model.qk_norm_over", FIELD_CHOICE, AT(model.qk_norm_over), "head", .choices = CHOICES("head", "projection"),
        .help = "what that norm takes together: each head (Qwen3, Megatron) or all of a token's heads (OLMoE)"},
    {"model.attention_window", FIELD_INTEGER, AT(model.attention_window), "0", 0, 1 << 24,
        .help = "a token attends to so many of the last tokens, itself among them; 0: all"},
    {"model.attention_dropout", FIELD_NUMBER, AT(model.attention_dropout), "0", 0, 1, OPEN_MOST,
        .help = "share of the attention weights that is dropped in training"},
    {"model.hidden_dropout", FIELD_NUMBER, AT(model.hidden_dropout), "0", 0, 1, OPEN_MOST,
        .help = "share of the values that is dropped in training, of embeddings and before residual sums"},
    {"model.init", FIELD_SECTION, .help = "initial values"},
    {"model.init.std", FIELD_NUMBER, AT(model.init.std), "0.02", 0, 10, OPEN_LEAST,
        .help = "standard deviation; layers that end in the residual sum: divided by sqrt(2 layers)"},
    {"model.from", FIELD_SECTION, .present = has_from, .optional = true, .help = "start from another run's weights (step, data and optimizer begin anew)"},
    {"model.from.run", FIELD_STRING, AT(model.from.run), .help = "a run of this file, NAME of this project, or PROJECT/NAME"},
    {"model.from.path", FIELD_PATH, AT(model.from.path), .help = "a checkpoint directory"},
    {"model.from.step", FIELD_INTEGER, AT(model.from.step), "0", 0, LARGE, .help = "step of the checkpoint; 0: the last complete one"},
    {"model.from.upcycle", FIELD_SECTION, AT(model.from.upcycle.present), .present = has_upcycle, .optional = true,
        .help = "the checkpoint is a dense model's: its FFN becomes the experts (expert j: slice j mod granularity, scaled; routers repeat granularity rows)"},
    {"model.from.upcycle.granularity", FIELD_INTEGER, AT(model.from.upcycle.granularity), NULL, 1, 1 << 16,
        .derived = "model.ffn_hidden_size / expert_ffn_hidden_size", .help = "slices that the dense FFN is cut into, one an expert"},

    {"model.moe", FIELD_SECTION, .present = has_moe, .optional = true, .help = "Mixture of Experts in place of the dense FFN"},
    {"model.moe.experts", FIELD_INTEGER, AT(model.moe.experts), NULL, 1, 1 << 16, .required = true, .instead = "model.moe.experts_per_layer",
        .derived = "the largest of experts_per_layer", .help = "experts of a layer"},
    {"model.moe.experts_per_layer", FIELD_INTEGERS, AT(model.moe.experts_per_layer), NULL, 1, 1 << 16,
        .derived = "experts, in each", .help = "experts of each MoE layer, in order (pyramid)"},
    {"model.moe.routing", FIELD_CHOICE, AT(model.moe.routing), "top_k", .choices = CHOICES("top_k", "expert_choice"),
        .help = "who chooses: a token its top_k experts, or an expert, of a micro batch's tokens, those with the highest scores, up to its capacity "
                "(capacity_factor 1 unless given; weights are the scores; an expert's choice depends on later tokens too)"},
    {"model.moe.top_k", FIELD_INTEGER, AT(model.moe.top_k), "2", 1, 1 << 16, .help = "experts that a token goes to"},
    {"model.moe.expert_ffn_hidden_size", FIELD_INTEGER, AT(model.moe.expert_ffn_hidden_size), NULL, 1, 1 << 22,
        .derived = "model.ffn_hidden_size", .help = "width of an expert"},
    {"model.moe.dispatcher", FIELD_CHOICE, AT(model.moe.dispatcher), "alltoall", .choices = CHOICES("alltoall", "allgather", "flex"),
        .cannot = "dispatch tokens other than by all-to-all", .runs = BIT(DISPATCHER_ALLTOALL), .help = "how tokens reach their experts"},
    {"model.moe.grouped_gemm", FIELD_BOOLEAN, AT(model.moe.grouped_gemm), "false", .help = "all experts of a rank in one matrix product"},
    {"model.moe.losses", FIELD_LOSSES, AT(model.moe.losses),
        .help = "list of {type: aux_loss | seq_aux_loss | global_aux_loss | z_loss, coefficient: NUMBER}: balance of a micro batch, of each sequence, "
                "of all data-parallel ranks' micro batches in the step so far; and the square of the logits' logsumexp"},
    {"model.moe.router_dtype", FIELD_CHOICE, AT(model.moe.router_dtype), "fp32", .choices = CHOICES("fp32", "bf16", "fp64"),
        .help = "the router's products: of operands as they are, or rounded to bf16, with sums in fp32; or with sums in fp64"},
    {"model.moe.score_function", FIELD_CHOICE, AT(model.moe.score_function), "softmax", .choices = CHOICES("softmax", "sigmoid", "sqrtsoftplus"),
        .help = "from router logits to scores; the weights of a token's experts are a softmax over them, or their scores divided by the sum (top_k 1: as they are)"},
    {"model.moe.pre_softmax", FIELD_BOOLEAN, AT(model.moe.pre_softmax), "false",
        .help = "softmax over all experts, before the top k are chosen; their weights do not add up to 1"},
    {"model.moe.scaling_factor", FIELD_NUMBER, AT(model.moe.scaling_factor), "0", 0, 1e6, .help = "factor of the routing weights; 0: none"},
    {"model.moe.expert_bias", FIELD_BOOLEAN, AT(model.moe.expert_bias), "false",
        .help = "a bias per expert that is added to scores for choosing only, and after each step moved towards balance"},
    {"model.moe.bias_update_rate", FIELD_NUMBER, AT(model.moe.bias_update_rate), "1e-3", 0, 1,
        .help = "how far that bias moves: up where an expert took fewer tokens than the mean, down where more"},
    {"model.moe.num_groups", FIELD_INTEGER, AT(model.moe.num_groups), "0", 0, 1 << 16, .help = "equal groups of experts, in order; 0: not group-limited"},
    {"model.moe.group_topk", FIELD_INTEGER, AT(model.moe.group_topk), "0", 0, 1 << 16,
        .help = "groups that a token may go to: those with the highest sums of their top_k / group_topk highest scores"},
    {"model.moe.capacity_factor", FIELD_NUMBER, AT(model.moe.capacity_factor), "0", 0, 1e4,
        .help = "an expert takes at most ceil(tokens x top_k / experts x factor) of a rank's micro batch; 0: dropless"},
    {"model.moe.eval_capacity_factor", FIELD_NUMBER, AT(model.moe.eval_capacity_factor), "0", 0, 1e4, .derived = "capacity_factor",
        .help = "the same in validation"},
    {"model.moe.min_capacity", FIELD_INTEGER, AT(model.moe.min_capacity), "0", 0, 1 << 24, .help = "tokens that an expert takes at least, where it is limited"},
    {"model.moe.drop_policy", FIELD_CHOICE, AT(model.moe.drop_policy), "probs", .choices = CHOICES("probs", "position"),
        .help = "which tokens a full expert drops: those with the lowest weights, or the last"},
    {"model.moe.pad_to_capacity", FIELD_BOOLEAN, AT(model.moe.pad_to_capacity), "false", .help = "fill every expert up to its capacity, with empty rows"},
    {"model.moe.renormalise_after_drop", FIELD_BOOLEAN, AT(model.moe.renormalise_after_drop), "false",
        .help = "share a token's weights anew among its experts that had room (DeepSpeed); false: a dropped weight is lost (Megatron)"},
    {"model.moe.shared_expert_size", FIELD_INTEGER, AT(model.moe.shared_expert_size), "0", 0, 1 << 22,
        .help = "width of the expert that every token goes to, without biases; 0: none"},
    {"model.moe.shared_expert_gate", FIELD_BOOLEAN, AT(model.moe.shared_expert_gate), "false",
        .help = "weigh the shared expert by a gate: the sigmoid of one learned number a token"},
    {"model.moe.residual", FIELD_BOOLEAN, AT(model.moe.residual), "false",
        .help = "a dense branch beside the experts, of their width, mixed with them by a learned softmax over two (DeepSpeed's PR-MoE)"},
    {"model.moe.layer_frequency", FIELD_INTEGER, AT(model.moe.layer_frequency), "1", 1, 1024,
        .help = "experts on layers i with i % layer_frequency == 0, dense FFNs on the others"},
    {"model.moe.layers", FIELD_INTEGERS, AT(model.moe.layers), NULL, 0, 1023,
        .derived = "by layer_frequency", .help = "layers that have experts, from 0, ascending; the others are dense"},
    {"model.moe.input_jitter", FIELD_NUMBER, AT(model.moe.input_jitter), "0", 0, 1, OPEN_MOST,
        .help = "in training, multiply each value that the router reads by a random factor between 1 - this and 1 + this; 0: none"},
    {"model.moe.force_balance", FIELD_BOOLEAN, AT(model.moe.force_balance), "false",
        .help = "for measurements: tokens take experts in turn, whatever the router says; weights are the router's for those"},
    {"model.moe.per_layer_metrics", FIELD_BOOLEAN, AT(model.moe.per_layer_metrics), "false", .help = "log the balance of each layer"},

    {"training", FIELD_SECTION, .help = "how it is trained"},
    {"training.iterations", FIELD_INTEGER, AT(training.iterations), NULL, 1, 1e12, .required = true, .help = "optimizer steps of this run"},
    {"training.micro_batch_size", FIELD_INTEGER, AT(training.micro_batch_size), NULL, 1, 1 << 20, .required = true,
        .help = "samples of one forward pass of a rank"},
    {"training.global_batch_size", FIELD_INTEGER, AT(training.global_batch_size), NULL, 1, 1 << 24, .required = true, .help = "samples of one step"},
    {"training.rampup_batch_size", FIELD_SECTION, AT(training.rampup_batch_size.present), .present = has_rampup, .optional = true,
        .help = "global batches that grow from `start` to `global_batch_size`"},
    {"training.rampup_batch_size.start", FIELD_INTEGER, AT(training.rampup_batch_size.start), NULL, 1, 1 << 24, .required = true,
        .help = "samples of the first step"},
    {"training.rampup_batch_size.increment", FIELD_INTEGER, AT(training.rampup_batch_size.increment), NULL, 1, 1 << 24, .required = true,
        .help = "samples that a step gains at a time"},
    {"training.rampup_batch_size.samples", FIELD_INTEGER, AT(training.rampup_batch_size.samples), NULL, 1, 1e15, .required = true,
        .help = "samples over which the batch grows"},
    {"training.precision", FIELD_CHOICE, AT(training.precision), "fp32", .choices = CHOICES("fp32", "bf16", "fp16"),
        .help = "precision of weights and of matrix products; fp32 master weights, gradients and moments beside them"},
    {"training.loss_scale", FIELD_SECTION, .help = "dynamic loss scaling (fp16)"},
    {"training.loss_scale.initial", FIELD_NUMBER, AT(training.loss_scale.initial), "4294967296", 0, 0x1p96, OPEN_LEAST,
        .help = "first scale (2^32)"},
    {"training.loss_scale.minimum", FIELD_NUMBER, AT(training.loss_scale.minimum), "1", 0, 0x1p96, OPEN_LEAST,
        .help = "smallest scale"},
    {"training.loss_scale.window", FIELD_INTEGER, AT(training.loss_scale.window), "1000", 1, 1e9,
        .help = "steps without overflow after which the scale doubles"},
    {"training.loss_scale.hysteresis", FIELD_INTEGER, AT(training.loss_scale.hysteresis), "2", 1, 1e6,
        .help = "steps with overflow until the scale halves; after that, one is enough until it has doubled again"},
    {"training.deterministic", FIELD_BOOLEAN, AT(training.deterministic), "false", .help = "refuse what cannot give the same bits each time (on CPUs all else does)"},
    {"training.seed", FIELD_INTEGER, AT(training.seed), "1234", 0, LARGE, .help = "seed of initial values and of the data order"},
    {"training.recompute", FIELD_SECTION, .help = "activations computed again in the backward pass instead of kept"},
    {"training.recompute.granularity", FIELD_CHOICE, AT(training.recompute.granularity), "none", .choices = CHOICES("none", "selective", "full"),
        .help = "make activations again in backward: none; outputs of norms and activation functions (attention never keeps its scores); or whole layers"},
    {"training.recompute.method", FIELD_CHOICE, AT(training.recompute.method), "uniform", .choices = CHOICES("uniform", "block"),
        .help = "of full recomputation: groups of layers, each from its input, or the first ones, each from its own"},
    {"training.recompute.layers", FIELD_INTEGER, AT(training.recompute.layers), "1", 1, 1024,
        .help = "of full recomputation: layers of a group, or how many"},
    {"training.cross_entropy_fusion", FIELD_CHOICE, AT(training.cross_entropy_fusion), "none", .choices = CHOICES("none", "native", "te"),
        .cannot = "fuse the cross-entropy", .runs = BIT(FUSION_NONE), .help = "fused cross-entropy"},
    {"training.distributed_optimizer", FIELD_BOOLEAN, AT(training.distributed_optimizer), "false", .cannot = "shard the optimizer's state",
        .help = "optimizer state sharded over data-parallel ranks"},
    {"training.overlap", FIELD_SECTION, .help = "communication beside computation"},
    {"training.overlap.gradient_reduce", FIELD_BOOLEAN, AT(training.overlap.gradient_reduce), "false", .cannot = "overlap the gradient reduction",
        .help = "reduce gradients while the backward pass runs"},
    {"training.overlap.parameter_gather", FIELD_BOOLEAN, AT(training.overlap.parameter_gather), "false", .cannot = "overlap the parameter gather",
        .help = "gather parameters while the forward pass runs"},
    {"training.optimizer", FIELD_SECTION, .help = "the optimizer"},
    {"training.optimizer.name", FIELD_WORD, AT(training.optimizer.name), "adamw", .choices = CHOICES("adamw", "sgd"),
        .cannot = "optimise other than by AdamW", .runs = 1, .help = "optimizer"},
    {"training.optimizer.beta1", FIELD_NUMBER, AT(training.optimizer.beta1), "0.9", 0, 1, OPEN_MOST, .help = "decay of the first moment"},
    {"training.optimizer.beta2", FIELD_NUMBER, AT(training.optimizer.beta2), "0.95", 0, 1, OPEN_MOST, .help = "decay of the second moment"},
    {"training.optimizer.eps", FIELD_NUMBER, AT(training.optimizer.eps), "1e-8", 0, 1, OPEN_LEAST, .help = "added to the root of the second moment"},
    {"training.optimizer.weight_decay", FIELD_NUMBER, AT(training.optimizer.weight_decay), "0.1", 0, 1e3, .help = "decoupled weight decay"},
    {"training.optimizer.clip_grad", FIELD_NUMBER, AT(training.optimizer.clip_grad), "1", 0, 1e9, .help = "largest gradient norm; 0: no clipping"},
    {"training.learning_rate", FIELD_SECTION, .help = "learning rate over the iterations"},
    {"training.learning_rate.schedule", FIELD_CHOICE, AT(training.learning_rate.schedule), "constant",
        .choices = CHOICES("constant", "wsd", "cosine", "linear", "inverse_square_root"),
        .help = "shape after the warmup: wsd is stable, then decays; inverse_square_root is peak * sqrt(warmup / samples)"},
    {"training.learning_rate.peak", FIELD_NUMBER, AT(training.learning_rate.peak), NULL, 0, 1e3, OPEN_LEAST, .required = true, .help = "rate after the warmup"},
    {"training.learning_rate.minimum", FIELD_NUMBER, AT(training.learning_rate.minimum), "0", 0, 1e3, .help = "rate at the end of the decay"},
    {"training.learning_rate.initial", FIELD_NUMBER, AT(training.learning_rate.initial), "0", 0, 1e3, .help = "rate at the start of the warmup"},
    {"training.learning_rate.warmup_iterations", FIELD_INTEGER, AT(training.learning_rate.warmup_iterations), "0", 0, 1e12, .help = "length of the warmup"},
    {"training.learning_rate.decay_iterations", FIELD_INTEGER, AT(training.learning_rate.decay_iterations), "0", 0, 1e12,
        .help = "length of the last phase (wsd)"},
    {"training.learning_rate.total_iterations", FIELD_INTEGER, AT(training.learning_rate.total_iterations), NULL, 1, 1e12,
        .derived = "training.iterations", .help = "length of the whole schedule; stopping earlier does not shorten it"},
    {"training.learning_rate.decay_style", FIELD_CHOICE, AT(training.learning_rate.decay_style), "exponential",
        .choices = CHOICES("exponential", "linear", "cosine", "minus_sqrt"), .help = "shape of the last phase (wsd)"},
    {"training.learning_rate.expert_peak", FIELD_NUMBER, AT(training.learning_rate.expert_peak), "0", 0, 1e3,
        .help = "peak for the weights of routed experts, with the same initial and minimum rate; 0: as peak"},
    {"training.validation", FIELD_SECTION, .help = "loss on the validation share of the data"},
    {"training.validation.interval", FIELD_INTEGER, AT(training.validation.interval), "0", 0, 1e12, .help = "iterations between validations; 0: none"},
    {"training.validation.iterations", FIELD_INTEGER, AT(training.validation.iterations), "10", 1, 1e9, .help = "global batches of one validation"},
    {"training.gpu_sniff_test_interval", FIELD_INTEGER, AT(training.gpu_sniff_test_interval), "0", 0, 1e12, .cannot = "test GPUs during training",
        .help = "iterations between tests of products and collectives on every GPU, and before the first; 0: none"},

    {"parallelism", FIELD_SECTION, .help = "how the model is laid out over ranks; the rest is data parallel"},
    {"parallelism.tensor", FIELD_INTEGER, AT(parallelism.tensor), "1", 1, 1 << 16, .cannot = "split matrices over ranks", .help = "TP"},
    {"parallelism.pipeline", FIELD_INTEGER, AT(parallelism.pipeline), "1", 1, 1 << 16, .cannot = "split layers over ranks", .help = "PP"},
    {"parallelism.context", FIELD_INTEGER, AT(parallelism.context), "1", 1, 1 << 16, .cannot = "split sequences over ranks", .help = "CP"},
    {"parallelism.expert", FIELD_INTEGER, AT(parallelism.expert), "1", 1, 1 << 16, .help = "EP: experts spread over so many ranks"},
    {"parallelism.expert_tensor", FIELD_INTEGER, AT(parallelism.expert_tensor), "0", 0, 1 << 16, .derived = "tensor",
        .cannot = "split an expert's matrices over ranks", .refused = refused_expert_tensor, .help = "ETP: tensor parallelism of experts; 0: as tensor"},
    {"parallelism.sequence", FIELD_BOOLEAN, AT(parallelism.sequence), "false", .cannot = "split norms along the sequence",
        .help = "sequence parallelism beside tensor parallelism"},
    {"parallelism.virtual_pipeline", FIELD_INTEGER, AT(parallelism.virtual_pipeline), "1", 1, 1024, .cannot = "interleave pipeline chunks",
        .help = "chunks of layers a pipeline rank; 1: not interleaved"},

    {"resources", FIELD_SECTION, .help = "machines"},
    {"resources.nodes", FIELD_INTEGER, AT(resources.nodes), "1", 1, 1 << 16, .cannot = "run on several nodes without a scheduler", .refused = refused_nodes, .help = "nodes"},
    {"resources.gpus_per_node", FIELD_INTEGER, AT(resources.gpus_per_node), "0", 0, 64, .help = "GPUs of a node that a run has to itself; 0: none"},
    {"resources.gpu_memory", FIELD_BYTES, AT(resources.gpu_memory), NULL, 0, LARGE, .help = "memory of a GPU, checked against what the run needs"},
    {"resources.ranks_per_node", FIELD_INTEGER, AT(resources.ranks_per_node), NULL, 1, 1 << 12, .derived = "gpus_per_node, else 1",
        .help = "processes of a node"},
    {"resources.threads_per_rank", FIELD_INTEGER, AT(resources.threads_per_rank), "0", 0, 1 << 12, .derived = "the machine's share",
        .help = "threads of a process"},
    {"resources.memory", FIELD_BYTES, AT(resources.memory), NULL, 0, LARGE, .help = "memory of a node that a run may use; ended as out_of_memory where it uses more"},
    {"resources.time_limit", FIELD_DURATION, AT(resources.time_limit), NULL, 0, 1e9, OPEN_LEAST, .help = "longest time an attempt may take"},
    {"resources.device", FIELD_CHOICE, AT(resources.device), "auto", .choices = CHOICES("auto", "cpu", "cuda", "reference"),
        .cannot = "compute with CUDA", .runs = BIT(DEVICE_AUTO) | BIT(DEVICE_CPU) | BIT(DEVICE_REFERENCE),
        .help = "what computes (reference: plain loops, slow)"},

    {"slurm", FIELD_SECTION, AT(slurm.present), .present = has_slurm, .optional = true,
        .help = "options of sbatch"},
    {"slurm.partition", FIELD_STRING, AT(slurm.partition), .letters = "_.+,-", .help = "partition"},
    {"slurm.account", FIELD_STRING, AT(slurm.account), .letters = "_.+@-", .help = "account"},
    {"slurm.qos", FIELD_STRING, AT(slurm.qos), .letters = "_.+@,-", .help = "quality of service"},
    {"slurm.reservation", FIELD_STRING, AT(slurm.reservation), .letters = "_.+@,-", .help = "reservation"},
    {"slurm.constraint", FIELD_STRING, AT(slurm.constraint), .letters = "_.,&|*[]()!:=+-", .help = "features that nodes must have"},
    {"slurm.nodelist", FIELD_STRING, AT(slurm.nodelist), .letters = "_.,[]-", .help = "nodes to use"},
    {"slurm.exclude", FIELD_STRING, AT(slurm.exclude), .letters = "_.,[]-", .help = "nodes not to use"},
    {"slurm.mpi", FIELD_STRING, AT(slurm.mpi), .letters = "_.-", .derived = "of config.yaml, else pmix", .help = "srun's --mpi, such as pmix"},
    {"slurm.exclusive", FIELD_BOOLEAN, AT(slurm.exclusive), "false", .help = "nodes for this job alone"},
    {"slurm.requeue", FIELD_BOOLEAN, AT(slurm.requeue), "false", .help = "may be requeued"},
    {"slurm.signal", FIELD_STRING, AT(slurm.signal), .derived = "USR1, `grace` before the end",
        .help = "sbatch's --signal: USR1, USR2 or TERM, and @SECONDS before the end, such as USR1@120; sent to the job's script, which stops and saves the run"},
    {"slurm.grace", FIELD_DURATION, AT(slurm.grace), "60s", 0, 65535, .help = "time to save between the stop and the kill"},

    {"hf-jobs", FIELD_SECTION, AT(hf_jobs.present), .present = has_hf_jobs, .optional = true, .cannot = "rent machines", .refused = refused_hf_jobs,
        .help = "options of hf jobs run"},
    {"hf-jobs.flavor", FIELD_STRING, AT(hf_jobs.flavor), .required = true, .help = "machine, such as h200x8"},
    {"hf-jobs.timeout", FIELD_DURATION, AT(hf_jobs.timeout), "30m", 0, 1e9, OPEN_LEAST, .help = "when the machine is taken away"},

    {"preflight", FIELD_SECTION, .help = "tests of the machines before training"},
    {"preflight.image", FIELD_PATH, AT(preflight.image), .derived = "image.path", .cannot = "test in an image of its own",
        .help = "SquashFS image with the tests"},
    {"preflight.dcgm", FIELD_INTEGER, AT(preflight.dcgm), "0", 0, 4, .cannot = "test GPUs with DCGM", .help = "level of dcgmi diag; 0: none"},
    {"preflight.alltoall", FIELD_SECTION, AT(preflight.alltoall.present), .present = has_alltoall, .optional = true,
        .cannot = "measure all-to-all before training", .refused = has_alltoall, .help = "bandwidth of all-to-all over all ranks"},
    {"preflight.alltoall.size", FIELD_BYTES, AT(preflight.alltoall.size), "8GiB", 1, LARGE, .help = "bytes of a message"},
    {"preflight.alltoall.iterations", FIELD_INTEGER, AT(preflight.alltoall.iterations), "20", 1, 1e6, .help = "messages"},
    {"preflight.alltoall.at_least", FIELD_SHARE, AT(preflight.alltoall.at_least), "90%", 0, 1, .help = "share of the baseline that must be reached"},

    {"checkpoint", FIELD_SECTION, .help = "checkpoints of weights and optimizer"},
    {"checkpoint.interval", FIELD_INTEGER, AT(checkpoint.interval), "0", 0, 1e12, .help = "iterations between checkpoints; 0: only at a stop"},
    {"checkpoint.keep", FIELD_INTEGER, AT(checkpoint.keep), "0", 0, 1e6, .help = "newest checkpoints that are kept, and all before them once the loss is not finite; 0: all"},
    {"checkpoint.asynchronous", FIELD_BOOLEAN, AT(checkpoint.asynchronous), "true",
        .help = "written behind the training from a copy in host memory; false: training waits, and no copy is made"},
    {"checkpoint.accept_changed", FIELD_STRINGS, AT(checkpoint.accept_changed), .choices = CHOICES("data", "schedule", "model"),
        .help = "what may differ from the checkpoint that a run goes on from: data (and its order), schedule (rates, optimizer, batch), model"},

    {"logging", FIELD_SECTION, .help = "what is recorded"},
    {"logging.interval", FIELD_INTEGER, AT(logging.interval), "1", 1, 1e9, .help = "iterations between lines of metrics"},
    {"logging.expert_load", FIELD_BOOLEAN, AT(logging.expert_load), "true", .help = "record how many tokens each expert got"},

    {"retry", FIELD_SECTION, .help = "a run that ends without success is tried again by itself, from its last checkpoint"},
    {"retry.limit", FIELD_INTEGER, AT(retry.limit), "0", 0, 100, .help = "how often; counted anew when a person retries"},
    {"retry.on", FIELD_STRINGS, AT(retry.on), .choices = CHOICES("failed", "timed_out", "out_of_memory", "lost", "node_failed", "preempted"),
        .derived = "node_failed, preempted, lost where `limit` is not 0", .help = "after which ends; nodes that failed are left out"},
    {"retry.delay", FIELD_DURATION, AT(retry.delay), "30s", 0, 3600, .help = "pause before the first retry; doubles with each, up to an hour"},

    {"sweep", FIELD_PLAN, 0, .help = "{grid | zip | list, limit, canary, concurrency}: a run for each of many values"},
    {"stages", FIELD_PLAN, 0, .help = "{NAME: {kind: train | tokenize | check, needs: [NAME, …], keys of its own}}: runs in their order"},
};
const size_t spec_fields_count = sizeof spec_fields / sizeof spec_fields[0];

// Rows by their path, and each row's section, worked out once: a sweep resolves thousands of runs, and each asks hundreds of times.
enum { SLOTS = 1024 };
static const struct field *slots[SLOTS];
static const struct field *sections[sizeof spec_fields / sizeof spec_fields[0]];
static pthread_once_t indexed = PTHREAD_ONCE_INIT;

static size_t slot_of(const char *path, size_t length)
{
    uint64_t hash = 14695981039346656037U; // FNV-1a
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)path[i]) * 1099511628211U;
    return (size_t)(hash >> 32) % SLOTS;
}

static const struct field *look_up(const char *path, size_t length)
{
    for (size_t at = slot_of(path, length); slots[at]; at = (at + 1) % SLOTS)
        if (strncmp(slots[at]->path, path, length) == 0 && slots[at]->path[length] == 0)
            return slots[at];
    return NULL;
}

static void make_index(void)
{
    _Static_assert(sizeof spec_fields / sizeof spec_fields[0] < SLOTS / 2, "the index is sparse");
    for (size_t i = 0; i < spec_fields_count; i++) {
        size_t at = slot_of(spec_fields[i].path, strlen(spec_fields[i].path));
        while (slots[at])
            at = (at + 1) % SLOTS;
        slots[at] = &spec_fields[i];
    }
    for (size_t i = 0; i < spec_fields_count; i++) {
        const char *dot = strrchr(spec_fields[i].path, '.');
        sections[i] = dot ? look_up(spec_fields[i].path, (size_t)(dot - spec_fields[i].path)) : NULL;
    }
}

const struct field *field_find(const char *path)
{
    pthread_once(&indexed, make_index);
    return look_up(path, strlen(path));
}

const char *field_key(const struct field *field)
{
    const char *dot = strrchr(field->path, '.');
    return dot ? dot + 1 : field->path;
}

const struct field *field_parent(const struct field *field)
{
    pthread_once(&indexed, make_index);
    bool inside = field >= spec_fields && field < spec_fields + spec_fields_count; // rows of other tables have no section here
    return inside ? sections[field_index(field)] : NULL;
}

static void add_range(struct text *out, const struct field *field)
{
    if (field->least == 0 && field->most == 0)
        return;
    if (field->most >= 1e9)
        text_addf(out, field->open & OPEN_LEAST ? " greater than %.15g" : " of at least %.15g", field->least);
    else if (field->open == OPEN_NONE)
        text_addf(out, " from %.15g to %.15g", field->least, field->most);
    else
        text_addf(out, "%s %.15g and %s %.15g", field->open & OPEN_LEAST ? " greater than" : " of at least", field->least,
            field->open & OPEN_MOST ? "less than" : "at most", field->most);
}

void field_expectation(struct text *out, const struct field *field)
{
    static const char *const words[] = {[FIELD_SECTION] = "a section of keys", [FIELD_STRING] = "a string", [FIELD_PATH] = "a path",
        [FIELD_TOKENIZER] = "`byte` or the path of a tokenizer.json", [FIELD_NAME] = "a name of 1 to 64 letters, digits, `_` and `-`",
        [FIELD_WORD] = "one of ", [FIELD_INTEGER] = "a whole number", [FIELD_NUMBER] = "a number", [FIELD_BOOLEAN] = "`true` or `false`",
        [FIELD_CHOICE] = "one of ", [FIELD_BYTES] = "a size with its unit, such as 80GB or 8GiB",
        [FIELD_DURATION] = "a time with its unit, such as 30m or 1h30m", [FIELD_SHARE] = "a share, such as 90% or 0.9",
        [FIELD_STRINGS] = "a list of strings", [FIELD_INTEGERS] = "a list of whole numbers",
        [FIELD_PAIRS] = "a map of names to strings", [FIELD_SPLIT] = "a list of three numbers",
        [FIELD_LOSSES] = "a list of {type: …, coefficient: …}", [FIELD_PLAN] = "a map"};
    text_add(out, field->type == FIELD_STRINGS && field->choices ? "a list of any of " : words[field->type]);
    for (size_t i = 0; field->choices && field->choices[i]; i++)
        text_addf(out, "%s`%s`", i ? ", " : "", field->choices[i]);
    if (field->letters)
        text_addf(out, " of letters, digits and `%s`", field->letters);
    if (field->type == FIELD_INTEGER || field->type == FIELD_INTEGERS || field->type == FIELD_NUMBER)
        add_range(out, field);
}
