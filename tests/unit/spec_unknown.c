// Keys that there are not: what is said to have been meant by them. Slips of the fingers are in spec_errors.c.
#include "tests/unit/spec_support.h"

static const struct {
    const char *line;     // appended to a spec that is good
    const char *expected; // the message
} keys[] = {
    // names of other tools
    {"model: {num_layers: 2}", "unknown key `num_layers` in `model`; did you mean `layers`?"},
    {"model: {d_model: 2}", "unknown key `d_model` in `model`; did you mean `hidden_size`?"},
    {"model: {n_heads: 2}", "unknown key `n_heads` in `model`; did you mean `attention_heads`?"},
    {"model: {num_key_value_heads: 2}", "unknown key `num_key_value_heads` in `model`; did you mean `kv_heads`?"},
    {"model: {num_experts: 4}", "unknown key `num_experts` in `model`; `model.moe.experts` is a key"},
    {"model: {moe: {num_experts: 4}}", "unknown key `num_experts` in `model.moe`; did you mean `experts`?"},
    {"training: {lr: 1}", "unknown key `lr` in `training`; `training.learning_rate.peak` is a key"},
    {"training: {dtype: bf16}", "unknown key `dtype` in `training`; did you mean `precision`?"},
    {"checkpoint: {save_interval: 1}", "unknown key `save_interval` in `checkpoint`; did you mean `interval`?"},
    {"steps: 4", "unknown key `steps`; `training.iterations` is a key"},
    // words of launchers: keys of ours, however they are joined
    {"slurm: {gpus-per-node: 2}", "unknown key `gpus-per-node` in `slurm`; `resources.gpus_per_node` is a key"},
    {"slurm: {slurm_mem_per_cpu: 2GB}", "unknown key `slurm_mem_per_cpu` in `slurm`; `resources.memory` is a key"},
    {"slurm: {timeout_min: 60}", "unknown key `timeout_min` in `slurm`; `resources.time_limit` is a key"},
    {"resources: {timeout: 4h}", "unknown key `timeout` in `resources`; did you mean `time_limit`?"},
    {"resources: {nproc_per_node: 4}", "unknown key `nproc_per_node` in `resources`; did you mean `ranks_per_node`?"},
    {"resources: {gpu: 4}", "unknown key `gpu` in `resources`; did you mean `gpus_per_node`?"},
    {"resources: {cpus: 4}", "unknown key `cpus` in `resources`; did you mean `threads_per_rank`?"},
    {"retry: {max_retries: 4}", "unknown key `max_retries` in `retry`; did you mean `limit`?"},
    // and things that are no key of a run
    {"name: x", "unknown key `name`: a run has its name from `runs:`, or from --name"},
    {"slurm: {job-name: x}", "unknown key `job-name` in `slurm`: a run has its name from `runs:`, or from --name"},
    {"defaults: [a]", "unknown key `defaults`: variants are overlays under `runs:`, many values a `sweep:`"},
    {"method: grid", "unknown key `method`: values to try stand as `sweep: {grid: {model.moe.top_k: [1, 2]}}`"},
    {"slurm: {array: 0-9}", "unknown key `array` in `slurm`: a `sweep:` makes job arrays by itself; `sweep.concurrency` says how many trials run at once"},
    {"slurm: {slurm_array_parallelism: 4}", "unknown key `slurm_array_parallelism` in `slurm`: `sweep.concurrency` says how many trials run at once"},
    {"slurm: {dependency: 4}", "unknown key `dependency` in `slurm`: a run that waits for others says `needs: [NAME, …]`, with names of `runs:` and `stages:`"},
    {"stages: {a: {kind: train}, b: {kind: train, depends_on: [a]}}",
        "unknown key `depends_on`: a run that waits for others says `needs: [NAME, …]`, with names of `runs:` and `stages:`"},
    {"env: {A: b}", "unknown key `env`: write `environment: {variables: {NAME: value}}`"},
    {"environment: {FOO: bar}", "unknown key `FOO` in `environment`: write `environment: {variables: {NAME: value}}`"},
    {"environment: {modulse: [a]}", "unknown key `modulse` in `environment`; did you mean `modules`?"},
    {"slurm: {gpu_type: h100}", "unknown key `gpu_type` in `slurm`: it is the cluster's, and stands in config.yaml (`switchyard config slurm` writes it)"},
    {"slurm: {mail-user: me}", "unknown key `mail-user` in `slurm`: nobody is written to; `switchyard wait RUN` returns when a run has ended"},
    {"sweep: {grid: {training.seed: [1]}, run_cap: 5}",
        "unknown key `run_cap` in `sweep`: all trials run, or by `--run` those that are named; a sweep of more than `limit` is refused"},
    {"sweep: {training.seed: [1, 2]}", "unknown key `training.seed` in `sweep`: write `grid: {training.seed: [VALUE, …]}`"},
    {"sweep: {grid: {training.seed: [1]}, frobnicate: 5}",
        "unknown key `frobnicate` in `sweep`; it has `grid`, `zip`, `list`, `limit`, `canary` and `concurrency`"},
    {"model: {error: 1}", "unknown key `error` in `model`"}, // of a job's log elsewhere
    // parts of a name
    {"model: {vocab: 5}", "unknown key `vocab` in `model`; did you mean `vocab_size`?"},
    {"model: {dropout: 0.1}", "unknown key `dropout` in `model`; did you mean `attention_dropout` or `hidden_dropout`?"},
    {"training: {batch_size: 4}",
        "unknown key `batch_size` in `training`; did you mean `micro_batch_size`, `global_batch_size` or `rampup_batch_size`?"},
    {"training: {warmup: 4}", "unknown key `warmup` in `training`; `training.learning_rate.warmup_iterations` is a key"},
    {"training: {grad_clip: 1}", "unknown key `grad_clip` in `training`; `training.optimizer.clip_grad` is a key"},
    {"training: {grad_clip_norm: 1}", "unknown key `grad_clip_norm` in `training`; `training.optimizer.clip_grad` is a key"},
    {"batch_size: 4", "unknown key `batch_size`; `training.micro_batch_size`, `training.global_batch_size` and `training.rampup_batch_size` are keys"},
    // the file's own two
    {"run: {}", "unknown key `run`; did you mean `runs`?"},
    // no hint is better than a wrong one
    {"training: {run_name: x}", "unknown key `run_name` in `training`"},
    {"model: {size: 1, frobnicate_size_: 2}", "unknown key `frobnicate_size_` in `model`"},
    {"checkpoint: {every: 1}", "unknown key `every` in `checkpoint`; it has `interval`, `keep`, `asynchronous` and `accept_changed`"},
    {"checkpoint: {_: 1}", "unknown key `_` in `checkpoint`; it has `interval`, `keep`, `asynchronous` and `accept_changed`"},
};

static void test_what_was_meant(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        check_rule(keys[i].line, keys[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_was_meant)};
    return cmocka_run_group_tests_name("spec unknown", tests, enter_folder, leave_folder);
}
