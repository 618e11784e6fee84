// The spec: what a person asks for, after parsing, checking and overlays: one struct per run. The field table (fields.c) is the single
// source of keys, types, ranges, defaults and help; this struct only gives them a place. Every member is named as its key.
//
// A resolved spec is a value of its own: it owns its strings and depends on no file. It travels as JSON (`spec_to_json`) inside run.json
// and inside a submission, and comes back by `spec_from_json` through the same table.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include "schema/base/text.h"
#include <stdbool.h>
#include <stdint.h>

struct spec_list {  // list of strings
    char **items;
    size_t count;
};

struct spec_integers {
    int64_t *items;
    size_t count;
};

struct spec_pairs { // map of string to string, in the order of the file
    char **keys;
    char **values;
    size_t count;
};

enum spec_engine { ENGINE_NATIVE, ENGINE_MEGATRON, ENGINE_DEEPSPEED, ENGINE_COMMAND };
enum spec_executor { EXECUTOR_LOCAL, EXECUTOR_SLURM, EXECUTOR_HF_JOBS };
enum spec_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA, DEVICE_REFERENCE };
enum spec_document { DOCUMENT_PARAGRAPH, DOCUMENT_LINE, DOCUMENT_FILE };
enum spec_norm { NORM_RMSNORM, NORM_LAYERNORM };
enum spec_activation { ACTIVATION_SWIGLU, ACTIVATION_GELU };
enum spec_position { POSITION_ROPE, POSITION_LEARNED, POSITION_NONE };
enum spec_qk_norm_over { QK_NORM_HEAD, QK_NORM_PROJECTION };
enum spec_precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 };
enum spec_dispatcher { DISPATCHER_ALLTOALL, DISPATCHER_ALLGATHER, DISPATCHER_FLEX };
enum spec_router_dtype { ROUTER_FP32, ROUTER_BF16, ROUTER_FP64 };
enum spec_score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SQRTSOFTPLUS };
enum spec_routing { ROUTING_TOP_K, ROUTING_EXPERT_CHOICE };
enum spec_drop_policy { DROP_PROBS, DROP_POSITION };
enum spec_moe_loss { MOE_LOSS_AUX, MOE_LOSS_SEQ_AUX, MOE_LOSS_GLOBAL_AUX, MOE_LOSS_Z };
enum spec_schedule { SCHEDULE_CONSTANT, SCHEDULE_WSD, SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_INVERSE_SQUARE_ROOT };
enum spec_decay_style { DECAY_EXPONENTIAL, DECAY_LINEAR, DECAY_COSINE, DECAY_MINUS_SQRT };
enum spec_recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum spec_recompute_method { RECOMPUTE_UNIFORM, RECOMPUTE_BLOCK };
enum spec_fusion { FUSION_NONE, FUSION_NATIVE, FUSION_TE };

enum { SPEC_MOE_LOSSES_MAX = 4, SPEC_RAMP_STAGES_MAX = 4096 };

struct spec_moe_loss_term {
    enum spec_moe_loss type;
    double coefficient;
};

struct spec_moe { // present if experts > 0
    int64_t experts;                 // E; 0: a dense model; the most of any layer where they differ
    struct spec_integers experts_per_layer; // one a MoE layer; empty: `experts` in each
    enum spec_routing routing;
    int64_t top_k;                   // k
    int64_t expert_ffn_hidden_size;  // default: model.ffn_hidden_size
    enum spec_dispatcher dispatcher;
    bool grouped_gemm;
    struct spec_moe_loss_term losses[SPEC_MOE_LOSSES_MAX];
    size_t losses_count;
    enum spec_router_dtype router_dtype;
    enum spec_score score_function;
    bool pre_softmax;
    double scaling_factor;           // 0: none
    bool expert_bias;
    double bias_update_rate;
    int64_t num_groups, group_topk;  // 0: not group-limited
    double capacity_factor;          // 0: dropless
    double eval_capacity_factor;     // 0: as capacity_factor
    int64_t min_capacity;
    enum spec_drop_policy drop_policy;
    bool pad_to_capacity;
    bool renormalise_after_drop;     // weights are shared anew among the chosen that had room
    int64_t shared_expert_size;      // 0: none
    bool shared_expert_gate;
    bool residual;
    int64_t layer_frequency;         // MoE on layers i with i % layer_frequency == 0
    struct spec_integers layers;     // MoE on these layers, from 0, ascending; empty: by layer_frequency
    double input_jitter;             // 0: none
    bool force_balance;
    bool per_layer_metrics;
};

struct spec_model {
    int64_t layers, hidden_size, ffn_hidden_size, attention_heads;
    int64_t kv_heads;                // default attention_heads
    int64_t head_dim;                // default hidden_size / attention_heads
    int64_t vocab_size;
    bool tied_embeddings;
    enum spec_norm norm;
    double norm_epsilon;
    enum spec_activation activation;
    enum spec_position position;
    double rope_base;
    int64_t max_position_embeddings; // rows of the table of learned positions; default data.sequence_length
    double rope_scaling_factor;      // 0: none (Llama-3 scaling)
    double rope_scaling_low_freq_factor, rope_scaling_high_freq_factor;
    int64_t rope_scaling_original_length;
    bool bias, qk_norm;
    enum spec_qk_norm_over qk_norm_over;
    int64_t attention_window;        // tokens that a token sees, itself included; 0: full causal
    double attention_dropout, hidden_dropout;
    struct spec_init { double std; } init;
    struct spec_moe moe;
    struct spec_from {               // start from another run's weights; all NULL: from initial values
        char *run;                   // name of a run in this spec, or <project>/<name>, or <name> in the same project
        char *path;                  // a checkpoint directory
        int64_t step;                // 0: the last complete one
        struct spec_upcycle { bool present; int64_t granularity; } upcycle; // experts out of a dense model's FFN: slices of 1/granularity
    } from;
};

struct spec_data {
    char *text;                      // text or JSONL file (plain or gzip), tokenised on first use
    enum spec_document document;
    char *json_key;                  // for .jsonl: the member that holds the text
    char *prefix;                    // a Megatron pair PREFIX.bin / PREFIX.idx
    char *manifest;                  // a file of prefixes, one a line
    char *tokenizer;                 // "byte" or a tokenizer.json
    char *eod_token;                 // the token that ends a document, by its text; NULL: the tokenizer's own
    struct spec_tokenize {           // as an array of tasks
        int64_t tasks;
        double sampling_rate;        // share of the documents that are kept, 0..1
        int64_t document_limit;      // 0: none
        int64_t cpus_per_task;
        int64_t memory_per_task;     // bytes; 0: not stated
    } tokenize;
    char *cache;                     // directory for sample indices; NULL: beside the data
    double split[3];
    int64_t sequence_length;
    bool eod_mask_loss, reset_position_ids, reset_attention_mask;
};

struct spec_training {
    int64_t iterations, micro_batch_size, global_batch_size;
    struct spec_rampup { bool present; int64_t start, increment, samples; } rampup_batch_size; // grows from start to global_batch_size
    enum spec_precision precision;
    struct spec_loss_scale { double initial, minimum; int64_t window, hysteresis; } loss_scale; // dynamic, for fp16
    bool deterministic;
    int64_t seed;
    struct spec_recompute_keys { enum spec_recompute granularity; enum spec_recompute_method method; int64_t layers; } recompute;
    enum spec_fusion cross_entropy_fusion;
    bool distributed_optimizer;
    struct spec_overlap { bool gradient_reduce, parameter_gather; } overlap;
    struct spec_optimizer { char *name; double beta1, beta2, eps, weight_decay, clip_grad; } optimizer; // clip_grad 0: no clipping
    struct spec_learning_rate {
        enum spec_schedule schedule;
        double peak, minimum, initial;
        int64_t warmup_iterations, decay_iterations, total_iterations; // decay_iterations: length of the last phase (WSD)
        enum spec_decay_style decay_style;
        double expert_peak;          // 0: as peak
    } learning_rate;
    struct spec_validation { int64_t interval, iterations; } validation; // interval 0: none
    int64_t gpu_sniff_test_interval; // iterations; 0: none
};

struct spec_parallelism {
    int64_t tensor, pipeline, context, expert, expert_tensor; // expert_tensor 0: as tensor
    bool sequence;
    int64_t virtual_pipeline;        // chunks a rank; 1: not interleaved
};

struct spec_resources {
    int64_t nodes;
    int64_t gpus_per_node;           // 0: none
    int64_t gpu_memory;              // bytes; 0: not stated
    int64_t ranks_per_node;          // default: gpus_per_node, else 1
    int64_t threads_per_rank;        // 0: the machine's share
    int64_t memory;                  // bytes a node; 0: not stated
    double time_limit;               // seconds; 0: none
    enum spec_device device;
};

struct spec_slurm {
    bool present;                    // the file has a `slurm:` section
    char *partition, *account, *qos, *reservation, *constraint, *nodelist, *exclude, *mpi;
    bool exclusive, requeue;
    char *signal;
    double grace;                    // seconds
};

struct spec_hf_jobs {
    bool present;                    // the file has an `hf-jobs:` section
    char *flavor;
    double timeout;                  // seconds
};

struct spec_preflight {
    char *image;                     // the diagnostic image; NULL: image.path
    int64_t dcgm;                    // level 1..4; 0: none
    struct spec_alltoall { int64_t size; int64_t iterations; double at_least; bool present; } alltoall; // size in bytes, at_least 0..1
};

enum { SUBMISSION_RUNS_MAX = 10000 }; // of a file, and of a submission

struct spec {
    char *project;
    char *name;                      // the `runs:` entry this came from; the file's only run is named after the file
    char *output;                    // absolute, or NULL for $SWITCHYARD_HOME/runs
    enum spec_engine engine;
    enum spec_executor executor;
    char *question;                  // first comment of the file, shown on the compare page; may be NULL
    struct spec_code { char *path, *commit; } code;
    struct spec_image { char *path, *base; struct spec_list mounts; } image; // base: what path is imported from
    struct spec_environment { struct spec_pairs variables; struct spec_list modules; } environment;
    struct spec_data data;
    struct spec_model model;
    struct spec_training training;
    struct spec_parallelism parallelism;
    struct spec_resources resources;
    struct spec_slurm slurm;
    struct spec_hf_jobs hf_jobs;     // the section `hf-jobs`
    struct spec_preflight preflight;
    struct spec_checkpoint {
        int64_t interval, keep;          // interval 0: only at a stop; keep 0: all
        bool asynchronous;
        struct spec_list accept_changed; // of "data", "schedule", "model"
    } checkpoint;
    struct spec_logging { int64_t interval; bool expert_load; } logging;
    struct spec_retry { int64_t limit; struct spec_list on; double delay; } retry; // by itself; delay in seconds
};

// ---- a file of runs ----

struct spec_book;        // opaque

struct spec_option {        // one --set path.to.key=value
    const char *argument;   // as given
};

struct spec_run {
    struct spec spec;
    size_t entry;             // which of file->entries it came from
    struct json *sweep;       // of a trial: {key: value}, the swept keys as in the resolved spec; NULL: of no sweep
    // Array of {key, file, line, column, message, text}: set keys that this build validates but cannot run yet. text is the message as a
    // person sees it: place, source line, caret.
    struct json *unsupported;
    struct json *missing;     // the same shape: inputs (data, image, code, checkpoint) that are not there; `validate` only warns of them
};

// An entry of `runs:` or `stages:`, or the file's only run: what one name stands for. A sweep makes many runs of it.
struct spec_entry {
    const char *name;
    const char *kind;     // "train", "tokenize", "check"
    size_t first, count;  // its runs; count 0: not chosen
    bool swept;           // they are trials
    size_t canary;        // the first so many trials, which the others need
    size_t *needs;        // entries whose runs must all succeed before any of these begins
    size_t needs_count;
};

struct spec_file {
    char *path;             // as given
    struct spec_run *runs;  // those of an entry lie side by side, entries in the order of the file
    size_t count;
    struct spec_entry *entries;
    size_t entries_count;
    int64_t concurrency;    // most trials of this file at once; 0: no limit
    struct text problems;   // every error, each with its place, source line and caret; empty = the file is good
    struct text warnings;
    size_t errors;          // how many
    struct json *problem_list; // array of {file, line, column, message}: the same for programs
    struct json *warning_list; // likewise
    struct spec_book *book; // sources and places, for spec_file_fault
};

// Reads a file and resolves it: `base:`, overlays, --set, ${VAR}, units, cross-field rules. Returns 0 when there is no error; otherwise
// -1 with everything that is wrong in file->problems. Call spec_file_release in both cases.
// only: names of entries or of trials to keep (NULL: all). options: applied last to each kept run.
int spec_file_load(struct spec_file *file, const char *path, const char *const *only, size_t only_count,
    const struct spec_option *options, size_t option_count);
void spec_file_release(struct spec_file *file);
// Adds a fault (or a warning) to runs[run] at a key's place, for rules that need more than the spec, such as memory against the plan's.
// After spec_file_faults_end, problems, warnings, errors and the lists are as if the file's own rules had found them.
void spec_file_fault(struct spec_file *file, size_t run, const char *key, bool warning, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void spec_file_faults_end(struct spec_file *file);

// Whether all these keys and sections of runs[run] (the list ends with NULL) parsed and no rule found fault with them: whether they may be
// reasoned about although the file has errors elsewhere.
bool spec_file_is_sound(const struct spec_file *file, size_t run, const char *const *paths);

// The runs that runs[run] needs, as indices: all of the entries that its own needs, and the canary trials before it. free()
size_t *spec_file_needs(const struct spec_file *file, size_t run, size_t *count);

// ---- a single resolved spec ----

// Every key of the table that is set or has a default, nested as in the file, so that it can be read back.
struct json *spec_to_json(const struct spec *spec);
// Through the same table; checks types, ranges and cross-field rules again. 0, or -1 with all faults in err.
int spec_from_json(struct spec *spec, const struct json *json, struct error *err);
void spec_init(struct spec *spec);      // all defaults
void spec_release(struct spec *spec);
// What environment.variables may be called.
#define SPEC_VARIABLE_NAMES "letters, digits and `_`, not SWITCHYARD_… or sy_…; SLURM_…, SBATCH_… and SRUN_… are Slurm's own"
bool spec_is_variable_name(const char *name);
// Whether two resolved configurations are the same but for their names, by every key of the table; equal ones have equal hashes.
bool spec_same(const struct spec *a, const struct spec *b);
uint64_t spec_hash(const struct spec *spec);

// 0 if this build can run the spec; -1 and one line for each set key that it cannot run yet ("key: this build cannot … yet").
int spec_runnable(const struct spec *spec, struct error *err);

// A size as keys take it (80GB, 8GiB), for command lines that ask for one: false if the text is none.
bool spec_size(const char *text, int64_t *bytes);

// Documentation of the table: Markdown for people, JSON Schema for editors.
void spec_schema_markdown(struct text *out);
struct json *spec_schema_json(void);

// Helpers that every reader of a spec would write otherwise.
static inline bool spec_is_moe(const struct spec *spec)
{
    return spec->model.moe.experts > 0;
}
// Whether this run can start from the weights of another (model.from), whose spec is source: else why not, with both values.
bool spec_fits_source(struct text *why, const struct spec *spec, const struct spec *source, const char *name);
int64_t spec_layer_experts(const struct spec *spec, int64_t layer); // 0: the layer's FFN is dense
int64_t spec_moe_layers(const struct spec *spec);         // layers with experts
bool spec_moe_asks_for(const struct spec *spec, enum spec_moe_loss type);           // whether moe.losses has one
double spec_moe_coefficient(const struct spec *spec, enum spec_moe_loss type);      // 0 if not
int64_t spec_world_size(const struct spec *spec);         // ranks: nodes × ranks_per_node
int64_t spec_data_parallel_size(const struct spec *spec); // world / (TP·PP·CP)
