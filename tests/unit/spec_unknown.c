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
    {"checkpoint: {every: 1}", "unknown key `every` in `checkpoint`"},
    {"checkpoint: {_: 1}", "unknown key `_` in `checkpoint`"},
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
