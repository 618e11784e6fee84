// Words of other tools: the keys that Hugging Face's configurations, Megatron's and DeepSpeed's options, sbatch, submitit and common habit
// have for ours, where neither letters nor words lead there; and what stands here for things that are no key of a run.
#include "schema/spec/elsewhere.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

// '-' is written as '_' here.
static const struct { const char *theirs, *ours; } keys[] = {
    {"lr", "training.learning_rate.peak"}, {"min_lr", "training.learning_rate.minimum"}, {"lr_decay_style", "training.learning_rate.schedule"},
    {"lr_scheduler_type", "training.learning_rate.schedule"}, {"warmup_steps", "training.learning_rate.warmup_iterations"},
    {"steps", "training.iterations"}, {"max_steps", "training.iterations"}, {"train_iters", "training.iterations"},
    {"dtype", "training.precision"}, {"torch_dtype", "training.precision"}, {"bf16", "training.precision"}, {"fp16", "training.precision"},
    {"gradient_clipping", "training.optimizer.clip_grad"}, {"gradient_clip", "training.optimizer.clip_grad"},
    {"max_grad_norm", "training.optimizer.clip_grad"}, {"gradient_accumulation_steps", "training.global_batch_size"},
    {"eval_interval", "training.validation.interval"}, {"eval_iters", "training.validation.iterations"},
    {"save_interval", "checkpoint.interval"}, {"save_steps", "checkpoint.interval"}, {"save_every", "checkpoint.interval"},
    {"save_total_limit", "checkpoint.keep"}, {"log_interval", "logging.interval"}, {"seq_length", "data.sequence_length"},
    {"seq_len", "data.sequence_length"}, {"block_size", "data.sequence_length"}, {"context_length", "data.sequence_length"},
    {"n_layer", "model.layers"}, {"d_model", "model.hidden_size"}, {"n_embd", "model.hidden_size"}, {"d_ff", "model.ffn_hidden_size"},
    {"intermediate_size", "model.ffn_hidden_size"}, {"n_head", "model.attention_heads"}, {"n_heads", "model.attention_heads"},
    {"num_heads", "model.attention_heads"}, {"num_key_value_heads", "model.kv_heads"}, {"num_query_groups", "model.kv_heads"},
    {"kv_channels", "model.head_dim"}, {"rope_theta", "model.rope_base"}, {"rotary_base", "model.rope_base"},
    {"rms_norm_eps", "model.norm_epsilon"}, {"hidden_act", "model.activation"}, {"tie_word_embeddings", "model.tied_embeddings"},
    {"sliding_window", "model.attention_window"}, {"num_experts", "model.moe.experts"}, {"num_local_experts", "model.moe.experts"},
    {"n_routed_experts", "model.moe.experts"}, {"num_experts_per_tok", "model.moe.top_k"}, {"moe_router_topk", "model.moe.top_k"},
    {"moe_intermediate_size", "model.moe.expert_ffn_hidden_size"}, {"router_aux_loss_coef", "model.moe.losses"},
    {"moe_aux_loss_coeff", "model.moe.losses"}, {"moe_z_loss_coeff", "model.moe.losses"},
    // what a job asks for
    {"time", "resources.time_limit"}, {"walltime", "resources.time_limit"}, {"timeout", "resources.time_limit"},
    {"timeout_min", "resources.time_limit"}, {"mem", "resources.memory"}, {"mem_gb", "resources.memory"}, {"memory_gb", "resources.memory"},
    {"mem_per_cpu", "resources.memory"}, {"mem_per_gpu", "resources.memory"}, {"gres", "resources.gpus_per_node"},
    {"gpu", "resources.gpus_per_node"}, {"gpus", "resources.gpus_per_node"}, {"num_gpus", "resources.gpus_per_node"},
    {"n_gpus", "resources.gpus_per_node"}, {"gpus_per_node", "resources.gpus_per_node"}, {"ntasks", "resources.ranks_per_node"},
    {"ntasks_per_node", "resources.ranks_per_node"}, {"tasks_per_node", "resources.ranks_per_node"},
    {"nproc_per_node", "resources.ranks_per_node"}, {"cpus", "resources.threads_per_rank"}, {"num_cpus", "resources.threads_per_rank"},
    {"cpus_per_task", "resources.threads_per_rank"}, {"cpus_per_gpu", "resources.threads_per_rank"}, {"nnodes", "resources.nodes"},
    {"queue", "slurm.partition"}, {"launcher", "executor"}, {"max_retries", "retry.limit"}, {"retries", "retry.limit"},
    {"max_num_timeout", "retry.limit"}};

static const char a_name[] = "a run has its name from `runs:`, or from --name";
static const char variants[] = "variants are overlays under `runs:`, many values a `sweep:`";
static const char a_sweep[] = "values to try stand as `sweep: {grid: {model.moe.top_k: [1, 2]}}`";
static const char no_search[] = "no values are drawn and no trial is ended early: each stands in the sweep, and `ls --group` compares them";
static const char guard[] = "all trials run, or by `--run` those that are named; a sweep of more than `limit` is refused";
static const char at_once[] = "`sweep.concurrency` says how many trials run at once";
static const char arrays[] = "a `sweep:` makes job arrays by itself; `sweep.concurrency` says how many trials run at once";
static const char waits[] = "a run that waits for others says `needs: [NAME, …]`, with names of `runs:` and `stages:`";
static const char variables[] = "write `environment: {variables: {NAME: value}}`";
static const char question[] = "say it in the file's first comment, which the compare page shows";
static const char nobody[] = "nobody is written to; `switchyard wait RUN` returns when a run has ended";
static const char logs[] = "what a run prints is kept attempt by attempt; `switchyard logs RUN` shows it";
static const char of_cluster[] = "it is the cluster's, and stands in config.yaml (`switchyard config slurm` writes it)";
static const char our_options[] = "sbatch is given what `slurm` and `resources` have keys for, and nothing else";
static const char setup[] = "no commands run before a job: `environment` has `modules` to load and `variables`";
static const char trackio[] = "what runs measure is in Trackio by itself, in the database of their `project`";
static const char our_worker[] = "a spec says what is trained, and Switchyard's own worker trains it";
static const char in_order[] = "a queue keeps its order; on a cluster `slurm.qos` may change it";

static const struct { const char *theirs, *sentence; } told[] = {
    {"name", a_name}, {"run_name", a_name}, {"job_name", a_name}, {"experiment_name", a_name}, {"defaults", variants}, {"hydra", variants},
    {"method", a_sweep}, {"parameters", a_sweep}, {"params", a_sweep}, {"values", a_sweep}, {"sweeper", a_sweep}, {"random", no_search},
    {"bayes", no_search}, {"distribution", no_search}, {"metric", no_search}, {"early_terminate", no_search}, {"objective", no_search},
    {"run_cap", guard}, {"count", guard}, {"n_trials", guard}, {"num_samples", guard}, {"max_trials", guard},
    {"array_parallelism", at_once}, {"max_concurrent", at_once}, {"max_parallel", at_once}, {"parallel", at_once}, {"n_jobs", at_once},
    {"array", arrays}, {"dependency", waits}, {"dependencies", waits}, {"depends_on", waits}, {"after", waits}, {"afterok", waits},
    {"env", variables}, {"env_vars", variables}, {"export", variables}, {"tags", question}, {"notes", question}, {"description", question},
    {"mail_user", nobody}, {"mail_type", nobody}, {"email", nobody}, {"notify", nobody}, {"error", logs}, {"stdout", logs}, {"stderr", logs},
    {"open_mode", logs}, {"gpu_type", of_cluster}, {"max_array_size", of_cluster}, {"max_submit_jobs", of_cluster},
    {"additional_parameters", our_options}, {"extra_args", our_options}, {"sbatch_args", our_options}, {"comment", our_options},
    {"setup", setup}, {"setup_commands", setup}, {"prolog", setup}, {"wandb", trackio}, {"trackio", trackio}, {"entity", trackio},
    {"group", trackio}, {"tensorboard", trackio}, {"command", our_worker}, {"program", our_worker}, {"script", our_worker},
    {"priority", in_order}, {"nice", in_order}};

static bool is_called(const char *key, const char *theirs)
{
    key += strncmp(key, "slurm_", 6) == 0 ? 6 : 0;
    while (*key && (*key == '-' ? '_' : *key) == *theirs) {
        key++;
        theirs++;
    }
    return !*key && !*theirs;
}

const char *elsewhere_told(const char *key)
{
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (is_called(key, told[i].theirs))
            return told[i].sentence;
    return NULL;
}

const struct field *elsewhere_key(const char *key)
{
    const struct field *field = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct field *ours = field_find(keys[i].ours);
        assert(ours);
        if (is_called(key, keys[i].theirs))
            field = ours;
    }
    return field;
}
