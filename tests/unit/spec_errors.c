// Every way in which a spec can be wrong, with the exact text that a user reads.
#include "tests/unit/spec_support.h"

// ---- what one value of one key may be ----

struct slip {
    const char *line;     // appended to a spec that is good; its value begins after ": "
    const char *expected; // the message, or NULL where the value is good
};

static const struct slip slips[] = {
    {"model: {layers: 010}", "`model.layers` expects a whole number from 1 to 1024, not `010`: a leading zero is octal to some readers and decimal to others; write it without"},
    {"model: {layers: 0o10}", "`model.layers` expects a whole number from 1 to 1024, not `0o10`: write it as a decimal number"},
    {"model: {layers: 0x10}", "`model.layers` expects a whole number from 1 to 1024, not `0x10`: write it as a decimal number"},
    {"model: {vocab_size: 1_000}", "`model.vocab_size` expects a whole number from 2 to 16777216, not `1_000`: YAML 1.2 has no `_` in numbers"},
    {"model: {layers: 12:30}", "`model.layers` expects a whole number from 1 to 1024, not `12:30`: YAML 1.2 has no numbers to the base of 60"},
    {"model: {layers: .5}", "`model.layers` expects a whole number from 1 to 1024, not `.5`: write it with digits only"},
    {"model: {layers: 1e3}", "`model.layers` expects a whole number from 1 to 1024, not `1e3`: write it with digits only"},
    {"model: {layers: 4.0}", "`model.layers` expects a whole number from 1 to 1024, not `4.0`: write it with digits only"},
    {"model: {layers: \"4\"}", "`model.layers` expects a whole number from 1 to 1024, not the string `4`: numbers stand without quotes"},
    {"model: {layers: -4}", "`model.layers` expects a whole number from 1 to 1024, not `-4`"},
    {"model: {layers: 1025}", "`model.layers` expects a whole number from 1 to 1024, not `1025`"},
    {"model: {layers: 99999999999999999999}", "`model.layers` expects a whole number from 1 to 1024, not `99999999999999999999`"},
    {"model: {layers: .nan}", "`model.layers` expects a whole number from 1 to 1024, not `.nan`: only finite numbers are taken"},
    {"model: {layers: no}", "`model.layers` expects a whole number from 1 to 1024, not `no`"},
    {"model: {layers: [4]}", "`model.layers` expects a whole number from 1 to 1024, not a list"},
    {"model: {layers: {a: 4}}", "`model.layers` expects a whole number from 1 to 1024, not a map"},
    {"model:\n  layers: ${N}", "`model.layers` expects a whole number from 1 to 1024, not `${N}`: variables are replaced in strings only"},
    {"model: {layers: +2}", NULL},
    {"model: {norm_epsilon: .5}", NULL},
    {"model: {norm_epsilon: 1E-3}", NULL},
    {"model: {norm_epsilon: .001}", NULL},
    {"model: {norm_epsilon: 1_0.5}", "`model.norm_epsilon` expects a number greater than 0 and at most 1, not `1_0.5`: YAML 1.2 has no `_` in numbers"},
    {"model: {norm_epsilon: 0}", "`model.norm_epsilon` expects a number greater than 0 and at most 1, not `0`"},
    {"model: {norm_epsilon: .nan}", "`model.norm_epsilon` expects a number greater than 0 and at most 1, not `.nan`: only finite numbers are taken"},
    {"model: {norm_epsilon: .inf}", "`model.norm_epsilon` expects a number greater than 0 and at most 1, not `.inf`: only finite numbers are taken"},
    {"model: {norm_epsilon: 1e-}", "`model.norm_epsilon` expects a number greater than 0 and at most 1, not `1e-`"},
    {"model: {hidden_dropout: 1}", "`model.hidden_dropout` expects a number of at least 0 and less than 1, not `1`"},
    {"model: {bias: no}", "`model.bias` expects `true` or `false`, not `no`: write `false`"},
    {"model: {bias: Off}", "`model.bias` expects `true` or `false`, not `Off`: write `false`"},
    {"model: {bias: n}", "`model.bias` expects `true` or `false`, not `n`: write `false`"},
    {"model: {bias: yes}", "`model.bias` expects `true` or `false`, not `yes`: write `true`"},
    {"model: {bias: on}", "`model.bias` expects `true` or `false`, not `on`: write `true`"},
    {"model: {bias: 1}", "`model.bias` expects `true` or `false`, not `1`: write `true`"},
    {"model: {bias: \"true\"}", "`model.bias` expects `true` or `false`, not the string `true`: `true` and `false` stand without quotes"},
    {"model: {bias: maybe}", "`model.bias` expects `true` or `false`, not `maybe`"},
    {"model: {bias: True}", NULL},
    {"model: {norm: rmsnrom}", "`model.norm` expects one of `rmsnorm`, `layernorm`, not `rmsnrom`: did you mean `rmsnorm`?"},
    {"model: {norm: batch}", "`model.norm` expects one of `rmsnorm`, `layernorm`, not `batch`"},
    {"training: {optimizer: {name: adam}}", "`training.optimizer.name` expects one of `adamw`, `sgd`, not `adam`: did you mean `adamw`?"},
    {"resources: {time_limit: 30}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `30`: the unit is missing"},
    {"resources: {time_limit: 12:30}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `12:30`: write hours and minutes with their letters"},
    {"resources: {time_limit: 2 hours}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `2 hours`"},
    {"resources: {time_limit: \"01:30:00\"}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not the string `01:30:00`: write `1h30m`"},
    {"resources: {time_limit: 2-00:00:10}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `2-00:00:10`: write `2d10s`"},
    {"resources: {time_limit: 2-12}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `2-12`: write `2d12h`"},
    {"resources: {time_limit: 1:2:3:4}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `1:2:3:4`: write hours and minutes with their letters"},
    {"resources: {time_limit: -1}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `-1`: a time is not negative"},
    {"resources: {time_limit: UNLIMITED}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `UNLIMITED`: without the key there is no limit"},
    {"resources: {memory: 0}", "`resources.memory` expects a size with its unit, such as 80GB or 8GiB, not `0`: without the key there is no limit"},
    {"resources: {gpus_per_node: \"a100:2\"}", "`resources.gpus_per_node` expects a whole number from 0 to 64, not the string `a100:2`"},
    {"training: {seed: [1, 2]}", "`training.seed` expects a whole number of at least 0, not a list: to try them in turn write `sweep: {grid: {training.seed: […]}}`"},
    {"training: {seed: \"1,2\"}", "`training.seed` expects a whole number of at least 0, not the string `1,2`: one number stands here; `sweep: {grid: {KEY: [VALUE, …]}}` tries several"},
    {"slurm: {exclude: [n1, n2]}", "`slurm.exclude` expects a string of letters, digits and `_.,[]-`, not a list: write `n1,n2`"},
    {"resources: {time_limit: 0s}", "`resources.time_limit` expects a time with its unit, such as 30m or 1h30m, not `0s`: out of range"},
    {"resources: {time_limit: 1d2h30m}", NULL},
    {"resources: {memory: 80}", "`resources.memory` expects a size with its unit, such as 80GB or 8GiB, not `80`: the unit is missing"},
    {"resources: {memory: 80G}", "`resources.memory` expects a size with its unit, such as 80GB or 8GiB, not `80G`: GB is 10^9 bytes, GiB is 2^30"},
    {"resources: {memory: 80gb}", "`resources.memory` expects a size with its unit, such as 80GB or 8GiB, not `80gb`: GB is 10^9 bytes, GiB is 2^30"},
    {"resources: {memory: 1.5B}", "`resources.memory` expects a size with its unit, such as 80GB or 8GiB, not `1.5B`: not a whole number of bytes"},
    {"resources: {memory: 1.5 GiB}", NULL},
    {"preflight: {alltoall: {at_least: 90}}", "`preflight.alltoall.at_least` expects a share, such as 90% or 0.9, not `90`: 90% is 0.9"},
    {"preflight: {alltoall: {at_least: 120%}}", "`preflight.alltoall.at_least` expects a share, such as 90% or 0.9, not `120%`: more than 100% or less than 0%"},
    {"project: a b", "`project` expects a name of 1 to 64 letters, digits, `_` and `-`, not `a b`"},
    {"project: -x", "`project` expects a name of 1 to 64 letters, digits, `_` and `-`, not `-x`: commands would take it for an option, for its `-`"},
    {"project: x-", NULL},
    {"project: ../x", "`project` expects a name of 1 to 64 letters, digits, `_` and `-`, not `../x`"},
    {"project: 12345", NULL},
    {"project: registry-a", "`project` may not begin with `registry-`: Trackio keeps such names for itself"},
    {"project: a_system", "`project` may not end in `_system`: Trackio keeps such names for itself"},
    {"project: a_artifact_aliases", "`project` may not end in `_artifact_aliases`: Trackio keeps such names for itself"},
    {"output: ~/runs", "`output` expects a path, not `~/runs`: `~` is not replaced; write ${HOME}"},
    {"output: \"\"", "`output` expects a path, not the string ``: it is empty"},
    {"output: $HOME/runs", "a lone `$`: write ${NAME} for an environment variable, $$ for a dollar sign"},
    {"output: ${NO_SUCH_VARIABLE}/runs", "the environment has no variable `NO_SUCH_VARIABLE`"},
    {"image: mine.sqsh", "`image` expects a section of keys, not `mine.sqsh`"},
    {"checkpoint: {accept_changed: data}", "`checkpoint.accept_changed` expects a list of any of `data`, `schedule`, `model`, not `data`: write `[data]`"},
    {"checkpoint: {accept_changed: [data, shedule]}", "`checkpoint.accept_changed` expects a list of any of `data`, `schedule`, `model`, not `shedule`: did you mean `schedule`?"},
    {"image: {mounts: /a}", "`image.mounts` expects a list of strings, not `/a`: write `[/a]`"},
    {"environment: {variables: {SLURM_CLUSTERS: a}}", "`environment.variables`: `SLURM_CLUSTERS` is no name that a job may set (letters, digits and `_`, not SWITCHYARD_… or sy_…; SLURM_…, SBATCH_… and SRUN_… are Slurm's own)"},
    {"environment: {variables: {SBATCH_PARTITION: a}}", "`environment.variables`: `SBATCH_PARTITION` is no name that a job may set (letters, digits and `_`, not SWITCHYARD_… or sy_…; SLURM_…, SBATCH_… and SRUN_… are Slurm's own)"},
    {"environment: {variables: {SRUN_EXPORT_ENV: a}}", "`environment.variables`: `SRUN_EXPORT_ENV` is no name that a job may set (letters, digits and `_`, not SWITCHYARD_… or sy_…; SLURM_…, SBATCH_… and SRUN_… are Slurm's own)"},
    {"environment: {variables: {SWITCHYARD_TAG: a}}", "`environment.variables`: `SWITCHYARD_TAG` is no name that a job may set (letters, digits and `_`, not SWITCHYARD_… or sy_…; SLURM_…, SBATCH_… and SRUN_… are Slurm's own)"},
    {"environment: {variables: {sy_code: a}}", "`environment.variables`: `sy_code` is no name that a job may set (letters, digits and `_`, not SWITCHYARD_… or sy_…; SLURM_…, SBATCH_… and SRUN_… are Slurm's own)"},
    {"environment: {variables: [A]}", "`environment.variables` expects a map of names to strings, not a list"},
    {"model: {moe: {experts_per_layer: [4, no]}}", "`model.moe.experts_per_layer[1]` expects a whole number from 1 to 65536, not `no`"},
    {"model: {moe: {experts_per_layer: [4, 04]}}", "`model.moe.experts_per_layer[1]` expects a whole number from 1 to 65536, not `04`: a leading zero is octal to some readers and decimal to others; write it without"},
    {"model: {moe: {experts_per_layer: [4, [2]]}}", "`model.moe.experts_per_layer[1]` expects a whole number from 1 to 65536, not a list"},
    {"model: {moe: {experts_per_layer: [4, ~]}}", "`model.moe.experts_per_layer[1]` expects a whole number from 1 to 65536, not nothing"},
    {"model: {moe: {experts_per_layer: 4}}", "`model.moe.experts_per_layer` expects a list of whole numbers from 1 to 65536, not `4`: write `[4]`"},
    {"model: {moe: {experts: 4, layers: []}}", "`model.moe.layers` expects a list of whole numbers from 0 to 1023, not a list: it is empty"},
    {"training: {loss_scale: {initial: 0}}", "`training.loss_scale.initial` expects a number greater than 0, not `0`"},
    {"data: {tokenize: {sampling_rate: 7.4}}", "`data.tokenize.sampling_rate` expects a share, such as 90% or 0.9, not `7.4`: 90% is 0.9"},
    {"data: {tokenize: {memory_per_task: 24}}", "`data.tokenize.memory_per_task` expects a size with its unit, such as 80GB or 8GiB, not `24`: the unit is missing"},
    {"data: {split: [90, 10]}", "`data.split` expects a list of three numbers, not 2: training, validation, test"},
    {"data: {split: [90, 5, 1]}", "the parts of `data.split` add up to 96, not to 100 (1 and 1000 are taken too)"},
    {"data: {split: [0, 100, 0]}", "`data.split` leaves nothing to train on"},
    {"model: {moe: {experts: 4, losses: {type: aux_loss}}}", "`model.moe.losses` expects a list of {type: …, coefficient: …}, not a map"},
};

// The message of a fault, whatever its place.
static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof slips / sizeof slips[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\n%s\n", slips[i].line);
        load_text(&file, text, NULL);
        const char *message = js_string_of(js_get(js_at(file.problem_list, 0), "message"), NULL);
        if (slips[i].expected && (!message || strcmp(message, slips[i].expected) != 0))
            fail_msg("%s\n expected: %s\n actual:   %s", slips[i].line, slips[i].expected, message ? message : "(good)");
        if (!slips[i].expected && message)
            fail_msg("%s\n expected no fault\n actual: %s", slips[i].line, message);
        spec_file_release(&file);
        free(text);
    }
}

// ---- rules between keys ----

static const struct slip rules[] = {
    {"model: {hidden_size: 66}", "`model.hidden_size` 66 is not divisible by `model.attention_heads` 4 (remainder 2)"},
    {"model: {kv_heads: 3}", "`model.attention_heads` 4 is not divisible by `model.kv_heads` 3 (remainder 1)"},
    {"model: {head_dim: 15}", "rotary positions need an even `model.head_dim`, and it is 15"},
    {"model: {head_dim: 8, hidden_size: 66}", NULL},
    {"model: {head_dim: 15, position: none}", NULL},
    {"model: {position: learned, max_position_embeddings: 8}", "`model.max_position_embeddings` 8 is less than `data.sequence_length` 64"},
    {"model: {position: learned, max_position_embeddings: 64}", NULL},
    {"model: {rope_scaling_factor: 0.5}", "`model.rope_scaling_factor` 0.5 is less than 1: it stretches wavelengths"},
    {"model: {rope_scaling_factor: 8, rope_scaling_low_freq_factor: 4}", "`model.rope_scaling_high_freq_factor` 4 is not more than `rope_scaling_low_freq_factor` 4"},
    {"model: {qk_norm_over: projection, qk_norm: true}", NULL},
    {"model: {attention_dropout: 1}", "`model.attention_dropout` expects a number of at least 0 and less than 1, not `1`"},
    {"data: {eod_token: x}", "`data.eod_token` needs a tokenizer.json: the byte tokenizer ends documents with a token of its own"},
    {"data: {tokenizer: t.json, reset_attention_mask: true}",
        "`data.reset_attention_mask` needs `data.eod_token`: which token ends a document is known of the byte tokenizer only"},
    {"data: {tokenizer: t.json, eod_mask_loss: true}",
        "`data.eod_mask_loss` needs `data.eod_token`: which token ends a document is known of the byte tokenizer only"},
    {"model: {vocab_size: 256}", "`model.vocab_size` 256 is too small for the byte tokenizer: 256 bytes and the end-of-document token are 257"},
    {"model: {moe: {experts: 4, top_k: 5}}", "`model.moe.top_k` 5 is more than `model.moe.experts` 4"},
    {"model: {moe: {experts: 4, top_k: 1}}", "`model.moe.top_k` 1 of 4 experts needs `pre_softmax: true`: a softmax over one expert is always 1, and the router would not learn"},
    {"model: {moe: {experts: 4, top_k: 1, pre_softmax: true}}", NULL},
    {"model: {moe: {experts: 1, top_k: 1}}", NULL},
    {"model: {moe: {top_k: 1}}", "the required key `model.moe.experts` is missing: a whole number from 1 to 65536 (experts of a layer)"},
    {"model: {moe: {experts: 6, num_groups: 4, group_topk: 2}}", "`model.moe.experts` 6 is not divisible by `model.moe.num_groups` 4 (remainder 2)"},
    {"model: {moe: {experts: 8, top_k: 5, num_groups: 4, group_topk: 5}}", "`model.moe.group_topk` 5 is more than `model.moe.num_groups` 4"},
    {"model: {moe: {experts: 8, num_groups: 4}}", "`model.moe.num_groups` and `model.moe.group_topk` go together"},
    {"model: {moe: {experts: 8, top_k: 5, num_groups: 4, group_topk: 2}}", "`model.moe.top_k` 5 is more than the 4 experts of `model.moe.group_topk` 2 groups"},
    {"model: {moe: {experts: 4, losses: [{type: aux_loss, coefficient: 1}, {type: aux_loss, coefficient: 2}]}}", "`model.moe.losses` has `aux_loss` twice"},
    {"model: {moe: {experts: 4, losses: [{type: aux_loss}]}}", "`model.moe.losses`: an item without its `coefficient`"},
    {"model: {moe: {experts: 4, losses: [{type: aux, coefficient: 1}]}}", "`model.moe.losses.type` expects one of `aux_loss`, `seq_aux_loss`, `global_aux_loss`, `z_loss`, not `aux`"},
    {"model: {moe: {experts: 4, shared_expert_gate: true}}", "`model.moe.shared_expert_gate` needs a `shared_expert_size`"},
    {"model: {moe: {experts: 4, pad_to_capacity: true}}", "`model.moe.pad_to_capacity` needs a `capacity_factor`"},
    {"model: {moe: {experts: 4, expert_bias: true}}", "`model.moe.expert_bias` needs `score_function: sigmoid` or `sqrtsoftplus`"},
    {"model: {moe: {experts_per_layer: [4, 4, 4]}}", "`model.moe.experts_per_layer` has 3 numbers, and there are 2 layers with experts"},
    {"model: {moe: {experts_per_layer: [4, 4], layer_frequency: 2}}", "`model.moe.experts_per_layer` has 2 numbers, and there are 1 layers with experts"},
    {"model: {moe: {experts: 8, experts_per_layer: [4, 2]}}", "`model.moe.experts` 8 is not the largest of `experts_per_layer`, 4: leave it out"},
    {"model: {moe: {experts_per_layer: [4, 2], top_k: 3}}", "`model.moe.top_k` 3 is more than `model.moe.experts_per_layer` 2"},
    {"parallelism: {expert: 4}\nmodel: {moe: {experts_per_layer: [8, 6]}}\nresources: {ranks_per_node: 4}", "`model.moe.experts_per_layer` 6 is not divisible by `parallelism.expert` 4 (remainder 2)"},
    {"model: {moe: {experts_per_layer: [4, 2]}}", NULL},
    {"model: {moe: {experts: 4, layers: [0, 2]}}", "`model.moe.layers` has 2, and the last of `model.layers` 2 is 1"},
    {"model: {moe: {experts: 4, layers: [1, 1]}}", "`model.moe.layers` has 1 behind 1: each layer once, ascending"},
    {"model: {moe: {experts: 4, layers: [1], layer_frequency: 2}}", "`model.moe.layers` and `model.moe.layer_frequency` both say which layers have experts"},
    {"model: {moe: {experts: 4, top_k: 1, routing: expert_choice}}", NULL},
    {"model: {moe: {experts: 4, routing: expert_choice, capacity_factor: 1.5, eval_capacity_factor: 2, min_capacity: 4, score_function: sigmoid}}", NULL},
    {"model: {moe: {experts: 4, routing: expert_choice, pre_softmax: true}}", "`model.moe.pre_softmax` has no meaning where experts choose their tokens (`routing: expert_choice`)"},
    {"model: {moe: {experts: 4, routing: expert_choice, score_function: sigmoid, expert_bias: true}}", "`model.moe.expert_bias` has no meaning where experts choose their tokens (`routing: expert_choice`)"},
    {"model: {moe: {experts: 4, routing: expert_choice, pad_to_capacity: true}}", "`model.moe.pad_to_capacity` has no meaning where experts choose their tokens (`routing: expert_choice`)"},
    {"model: {moe: {experts: 4, routing: expert_choice, drop_policy: position}}", "`model.moe.drop_policy` has no meaning where experts choose their tokens (`routing: expert_choice`)"},
    {"model: {moe: {experts: 4, routing: expert_choice, force_balance: true}}", "`model.moe.force_balance` has no meaning where experts choose their tokens (`routing: expert_choice`)"},
    {"model: {moe: {experts: 4, score_function: sigmoid, expert_bias: true, force_balance: true}}", "`model.moe.expert_bias` has no meaning where tokens take experts in turn (`force_balance: true`)"},
    {"model: {moe: {experts: 4, force_balance: true}}", NULL},
    {"model: {moe: {experts: 4, min_capacity: 4}}", "`model.moe.min_capacity` needs a `capacity_factor`"},
    {"model: {moe: {experts: 4, eval_capacity_factor: 2}}", "`model.moe.eval_capacity_factor` needs a `capacity_factor`"},
    {"model: {moe: {experts: 4, drop_policy: position}}", "`model.moe.drop_policy` needs a `capacity_factor`"},
    {"model: {moe: {experts: 4, renormalise_after_drop: true}}", "`model.moe.renormalise_after_drop` needs a `capacity_factor`"},
    {"model: {moe: {experts: 4, capacity_factor: 1, renormalise_after_drop: true, pre_softmax: true}}", "`model.moe.renormalise_after_drop` has no meaning with `pre_softmax`: those weights are not normalised"},
    {"model: {moe: {experts: 4, top_k: 1, score_function: sigmoid, capacity_factor: 1, renormalise_after_drop: true}}", "`model.moe.renormalise_after_drop` has no meaning with `top_k` 1: a token that is dropped has no other expert"},
    {"model: {moe: {experts: 4, capacity_factor: 1.25, eval_capacity_factor: 2, min_capacity: 4, drop_policy: position, pad_to_capacity: true, renormalise_after_drop: true}}", NULL},
    {"model: {moe: {experts: 4, pre_softmax: true, score_function: sigmoid}}", "`model.moe.pre_softmax` has no meaning for a `score_function` other than `softmax`"},
    {"model: {moe: {experts: 4, bias_update_rate: 0.01}}", "`model.moe.bias_update_rate` needs `expert_bias: true`"},
    {"model: {moe: {experts: 8, top_k: 2, num_groups: 4, group_topk: 3}}", "`model.moe.group_topk` 3 is more than `model.moe.top_k` 2: groups are compared by their top_k / group_topk best experts"},
    {"model: {moe: {experts: 8, score_function: sqrtsoftplus, expert_bias: true, bias_update_rate: 0.01, num_groups: 4, group_topk: 2, scaling_factor: 2.5, input_jitter: 0.01, router_dtype: fp64}}", NULL},
    {"training: {rampup_batch_size: {start: 10, increment: 2, samples: 9}}", "`start` 10 is more than `training.global_batch_size` 8"},
    {"training: {rampup_batch_size: {start: 2, increment: 4, samples: 9}}", "`global_batch_size` 8 - `start` 2 is not divisible by `increment` 4 (remainder 2)"},
    {"training: {rampup_batch_size: {start: 5, increment: 1, samples: 9}}", "`training.rampup_batch_size.start` 5 is not divisible by `micro_batch_size` x data-parallel ranks = 2 (remainder 1)"},
    {"training: {rampup_batch_size: {start: 2, increment: 1, samples: 9}}", "`training.rampup_batch_size.increment` 1 is not divisible by `micro_batch_size` x data-parallel ranks = 2 (remainder 1)"},
    {"training: {global_batch_size: 65536, rampup_batch_size: {start: 2, increment: 2, samples: 9}}", "the batch grows in 32767 steps of `increment` 2; 4096 are the most"},
    {"parallelism: {pipeline: 2, virtual_pipeline: 2}\nresources: {ranks_per_node: 2}\nmodel: {layers: 4}\ntraining: {rampup_batch_size: {start: 4, increment: 2, samples: 9}}", "`training.rampup_batch_size.increment` 2 is not divisible by `micro_batch_size` x data-parallel ranks x `parallelism.pipeline` (interleaving) = 4 (remainder 2)"},
    {"training: {rampup_batch_size: {start: 2, increment: 2}}", "the required key `training.rampup_batch_size.samples` is missing: a whole number of at least 1 (samples over which the batch grows)"},
    {"training: {loss_scale: {initial: 2, minimum: 4}}", "`minimum` 4 is more than `initial` 2"},
    {"data: {tokenize: {sampling_rate: 0%}}", "`data.tokenize.sampling_rate` leaves no documents"},
    {"hf-jobs: {}", "the required key `hf-jobs.flavor` is missing: a string (machine, such as h200x8)"},
    {"image: {base: 'docker://nvcr.io#nvidia/pytorch:latest'}", "`image.base` needs a tag with a version, not `latest`: what it names must not change"},
    {"image: {base: 'docker://host:5000/pytorch'}", "`image.base` needs a tag with a version, not none: what it names must not change"},
    {"image: {base: 'docker://host:5000/pytorch:26.06-py3'}", NULL},
    {"model: {from: {step: 3}}", "`model.from` needs exactly one of `run` and `path`"},
    {"checkpoint: {accept_changed: [data, model]}", NULL},
    {"parallelism: {expert: 2}", "`parallelism.expert` 2 needs a model with experts (`model.moe`)"},
    {"parallelism: {expert: 4}\nmodel: {moe: {experts: 6}}\nresources: {ranks_per_node: 4}", "`model.moe.experts` 6 is not divisible by `parallelism.expert` 4 (remainder 2)"},
    {"parallelism: {expert: 4}\nmodel: {moe: {experts: 8}}\nresources: {ranks_per_node: 2}", "2 ranks are not divisible by expert tensor 1 x expert 4 x pipeline 1 = 4"},
    {"parallelism: {tensor: 3}\nresources: {ranks_per_node: 3}", "`model.attention_heads` 4 is not divisible by `parallelism.tensor` 3 (remainder 1)"},
    {"parallelism: {tensor: 2}", "1 ranks (`nodes` 1 x 1 a node) are not divisible by tensor 2 x pipeline 1 x context 1 = 2"},
    {"parallelism: {pipeline: 4}\nresources: {ranks_per_node: 4}", "`model.layers` 2 is not divisible by `parallelism.pipeline` 4 (remainder 2)"},
    {"parallelism: {pipeline: 2, virtual_pipeline: 2}\nresources: {ranks_per_node: 2}", "`model.layers` 2 is not divisible by `parallelism.pipeline` x `parallelism.virtual_pipeline` 4 (remainder 2)"},
    {"parallelism: {virtual_pipeline: 2}", "`parallelism.virtual_pipeline` 2 needs `parallelism.pipeline` above 1"},
    {"parallelism: {context: 2}\nresources: {ranks_per_node: 2}\ndata: {sequence_length: 66}", "`data.sequence_length` 66 is not divisible by 2 x `parallelism.context` = 4 (remainder 2)"},
    {"training: {global_batch_size: 9}", "`training.global_batch_size` 9 is not divisible by `micro_batch_size` 2 x 1 data-parallel ranks = 2 (remainder 1)"},
    {"resources: {ranks_per_node: 3}", "`training.global_batch_size` 8 is not divisible by `micro_batch_size` 2 x 3 data-parallel ranks = 6 (remainder 2)"},
    {"training: {learning_rate: {schedule: wsd, warmup_iterations: 6, decay_iterations: 5}}", "`warmup_iterations` 6 + `decay_iterations` 5 are more than `total_iterations` 10"},
    {"training: {learning_rate: {minimum: 1}}", "`minimum` 1 is more than `peak` 0.001"},
    {"training: {learning_rate: {initial: 1}}", "`initial` 1 is more than `peak` 0.001"},
    {"model: {moe: {experts: 4}}\ntraining: {learning_rate: {minimum: 1e-4, expert_peak: 1e-5}}", "`minimum` 0.0001 is more than `expert_peak` 1e-05"},
    {"model: {moe: {experts: 4}}\ntraining: {learning_rate: {initial: 1e-4, expert_peak: 1e-5}}", "`initial` 0.0001 is more than `expert_peak` 1e-05"},
    {"training: {learning_rate: {total_iterations: 1000000000000}, global_batch_size: 1000000}", "the schedule covers 1.0e+18 samples; 1e+17 are the most"},
    {"training: {deterministic: true, cross_entropy_fusion: native}", "`training.deterministic` needs training.cross_entropy_fusion=none (got native)"},
    {"engine: deepspeed\nenvironment: {variables: {NCCL_ALGO: 'Ring,Tree', NVTE_ALLOW_NONDETERMINISTIC_ALGO: '1', CUBLAS_WORKSPACE_CONFIG: ':8:8', A: b}}\ntraining: {deterministic: true, cross_entropy_fusion: te}",
        "`training.deterministic` needs engine=native|megatron (got deepspeed), training.cross_entropy_fusion=none (got te), NCCL_ALGO=Ring|CollnetDirect|CollnetChain|^NVLS (got Ring,Tree), NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 (got 1), CUBLAS_WORKSPACE_CONFIG=:4096:8|:16:8 (got :8:8)"},
    {"environment: {variables: {NCCL_ALGO: 'Ring,^NVLS', NVTE_ALLOW_NONDETERMINISTIC_ALGO: '0', CUBLAS_WORKSPACE_CONFIG: ':16:8'}}\ntraining: {deterministic: true}", NULL},
    {"training: {validation: {interval: 5}}\ndata: {split: [100, 0, 0]}", "validation needs a share of the data: the second part of `data.split` is 0"},
    {"training: {recompute: {granularity: full, layers: 3}}", "`training.recompute.layers` 3 is more than `model.layers` 2"},
    {"model: {layers: 1024, moe: {experts: 65536}}", "67108864 experts in 1024 layers; 262144 are the most"},
    {"model: {layers: 8, moe: {experts: 65536, layer_frequency: 4}}", NULL},
    {"model: {ffn_hidden_size: 4194304, hidden_size: 1048576, layers: 1024}", "the model has about 1.8e+16 parameters; 1e+14 are the most"},
    {"training: {iterations: 1000000000000, global_batch_size: 16384}", "the run trains on 1.0e+18 tokens; 1e+17 are the most"},
    {"data: {prefix: x}", "`data.prefix` and `data.text` (line 2) are both given: `data` needs exactly one source"},
    {"data: {text: null}", "`data` needs a source: one of `text`, `prefix`, `manifest`"},
    {"sweep: {grid: {model.layers: [2, no]}}", "`model.layers` expects a whole number from 1 to 1024, not `no`"},
    {"sweep: {grid: {layers: [2]}}", "`layers` is no key of a run; did you mean `model.layers`?"},
    {"sweep: {grid: {model.layers: [2]}, list: [{model.layers: 2}]}", "`sweep` needs exactly one of `grid`, `zip`, `list`, such as `grid: {model.moe.top_k: [1, 2]}`"},
    {"sweep: {zip: {model.layers: [1, 2], training.seed: [1]}}", "`sweep.zip`: `training.seed` has 1 value, the first key has 2"},
    {"sweep: {grid: {model.layers: [1, 2], training.seed: [1, 2]}, limit: 3}", "`sweep` makes 4 trials, more than the 3 of `limit`"},
    {"sweep: {grid: {model.layers: [1, 2]}, canari: 3}", "unknown key `canari` in `sweep`; did you mean `canary`?"},
    {"stages: {a: {needs: [b]}}", "`stages.a` needs a `kind`: one of `train`, `tokenize`, `check`"},
    {"stages: {a: {kind: train, needs: [b]}}", "`stages.a.needs`: there is no run or stage `b`"},
    {"retry: {limit: 101}", "`retry.limit` expects a whole number from 0 to 100, not `101`"},
    {"retry: {on: [node_fail]}", "`retry.on` expects a list of any of `failed`, `timed_out`, `out_of_memory`, `lost`, `node_failed`, `preempted`, not `node_fail`: did you mean `node_failed`?"},
    {"retry: {delay: 3601s}", "`retry.delay` expects a time with its unit, such as 30m or 1h30m, not `3601s`: out of range"},
    {"retry: {on: [succeeded]}", "`retry.on` expects a list of any of `failed`, `timed_out`, `out_of_memory`, `lost`, `node_failed`, `preempted`, not `succeeded`"},
    {"retry: {on: failed}", "`retry.on` expects a list of any of `failed`, `timed_out`, `out_of_memory`, `lost`, `node_failed`, `preempted`, not `failed`: write `[failed]`"},
    {"slurm: {gres: 'gpu:2'}", "unknown key `gres` in `slurm`; `resources.gpus_per_node` is a key"},
    {"slurm: {cpus_per_task: 2}", "unknown key `cpus_per_task` in `slurm`; `resources.threads_per_rank` is a key"},
    {"slurm: {mem: 2G}", "unknown key `mem` in `slurm`; `resources.memory` is a key"},
    {"retry: {limits: 1}", "unknown key `limits` in `retry`; did you mean `limit`?"},
    {"retry: {limit: 2, on: [failed, preempted], delay: 10s}", NULL},
};

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        check_rule(rules[i].line, rules[i].expected);
}

// Keys that do nothing where they stand: the file is good, and says so.
static const struct slip unused[] = {
    {"model: {max_position_embeddings: 64}", "`model.max_position_embeddings` is used by `position: learned` only"},
    {"model: {position: none, rope_base: 500}", "`model.rope_base` is used by `position: rope` only"},
    {"model: {position: learned, rope_scaling_factor: 8}", "`model.rope_scaling_factor` is used by `position: rope` only"},
    {"model: {rope_scaling_low_freq_factor: 2}", "`model.rope_scaling_low_freq_factor` is used with a `rope_scaling_factor` only"},
    {"model: {rope_scaling_high_freq_factor: 2}", "`model.rope_scaling_high_freq_factor` is used with a `rope_scaling_factor` only"},
    {"model: {rope_scaling_original_length: 2}", "`model.rope_scaling_original_length` is used with a `rope_scaling_factor` only"},
    {"model: {qk_norm_over: projection}", "`model.qk_norm_over` is used with `qk_norm: true` only"},
    {"model: {position: none}\ndata: {reset_position_ids: true}", "`data.reset_position_ids` is used by a model with positions only"},
    {"retry: {on: [failed]}", "`retry.on` without `retry.limit`: nothing is tried again by itself"},
    {"retry: {delay: 5s}", "`retry.delay` without `retry.limit`: nothing is tried again by itself"},
    {"retry: {limit: 2, on: []}", "`retry.on` is empty: nothing is tried again by itself"},
    {"sweep: {grid: {training.seed: [1, 2]}, canary: 5}", "`sweep.canary` 5 is all of the 2 trials: none of them waits"},
};

static void test_unused_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\n%s\n", unused[i].line);
        load_text(&file, text, NULL);
        if (file.errors || !strstr(file.warnings.at, unused[i].expected))
            fail_msg("%s\n expected: %s\n actual:\n%s%s", unused[i].line, unused[i].expected, file.problems.at, file.warnings.at);
        spec_file_release(&file);
        free(text);
    }
}

// A type error of one key leaves rules between others standing; a rule that reads the wrong value keeps silent.
static void test_type_errors_hide_no_rule(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\n"
                    "model: {layers: no, kv_heads: 3}\n"
                    "training: {global_batch_size: 9}\n"
                    "parallelism: {pipeline: x}\n",
        NULL,
        "spec.yaml:2:17: `model.layers` expects a whole number from 1 to 1024, not `no`\n"
        "     2 | model: {layers: no, kv_heads: 3}\n"
        "       |                 ^\n"
        "spec.yaml:4:25: `parallelism.pipeline` expects a whole number from 1 to 65536, not `x`\n"
        "     4 | parallelism: {pipeline: x}\n"
        "       |                         ^\n"
        "good.yaml:3:76: `model.attention_heads` 4 is not divisible by `model.kv_heads` 3 (remainder 1)\n"
        "     3 | model: {layers: 2, hidden_size: 64, ffn_hidden_size: 128, attention_heads: 4, vocab_size: 257}\n"
        "       |                                                                            ^\n");
}

// ---- places ----

static void test_keys_that_are_not_there(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\n"
                    "modle: {layers: 2}\n"
                    "model:\n"
                    "  moe: {experts: 4, topk: 2}\n"
                    "  top_k: 2\n"
                    "  frobnicate: 1\n"
                    "name: x\n",
        NULL,
        "spec.yaml:2:1: unknown key `modle`; did you mean `model`?\n"
        "     2 | modle: {layers: 2}\n"
        "       | ^\n"
        "spec.yaml:4:21: unknown key `topk` in `model.moe`; did you mean `top_k`?\n"
        "     4 |   moe: {experts: 4, topk: 2}\n"
        "       |                     ^\n"
        "spec.yaml:5:3: unknown key `top_k` in `model`; `model.moe.top_k` is a key\n"
        "     5 |   top_k: 2\n"
        "       |   ^\n"
        "spec.yaml:6:3: unknown key `frobnicate` in `model`\n"
        "     6 |   frobnicate: 1\n"
        "       |   ^\n"
        "spec.yaml:7:1: unknown key `name`: a run has its name from `runs:`, or from --name\n"
        "     7 | name: x\n"
        "       | ^\n");
}

static void test_missing_keys(void **state)
{
    (void)state;
    expect_problems("project: p\n"
                    "model: {layers: 2, hidden_size: 64, attention_heads: 4, vocab_size: 257}\n"
                    "data: {text: text.txt}\n"
                    "training: {iterations: 1, micro_batch_size: 1, global_batch_size: 1}\n",
        NULL,
        "spec.yaml:2:1: the required key `model.ffn_hidden_size` is missing: a whole number from 1 to 4194304 (width of the dense FFN)\n"
        "     2 | model: {layers: 2, hidden_size: 64, attention_heads: 4, vocab_size: 257}\n"
        "       | ^\n"
        "spec.yaml:3:1: the required key `data.sequence_length` is missing: a whole number from 1 to 16777216 (tokens of a sample)\n"
        "     3 | data: {text: text.txt}\n"
        "       | ^\n"
        "spec.yaml:4:1: the required key `training.learning_rate.peak` is missing: a number greater than 0 and at most 1000 (rate after the warmup)\n"
        "     4 | training: {iterations: 1, micro_batch_size: 1, global_batch_size: 1}\n"
        "       | ^\n");
}

static void test_duplicate_keys(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\n"
                    "training:\n"
                    "  seed: 1\n"
                    "  iterations: 5\n"
                    "  seed: 2\n",
        NULL,
        "spec.yaml:5:3: duplicate key `seed`: line 3 has it already, and line 5 has it again\n"
        "     5 |   seed: 2\n"
        "       |   ^\n");
}

static void test_options_are_named(void **state)
{
    (void)state;
    const char *sets[] = {"model.layer=3", "training.seed=x", "nonsense", "runs.a=1", "a..b=1", "model.moe={experts: 4, top_k: [}", NULL};
    expect_problems("base: good.yaml\n", sets,
        "--set model.layer=3: unknown key `layer` in `model`; did you mean `layers`?\n"
        "       | model.layer=3\n"
        "       |       ^\n"
        "--set training.seed=x: `training.seed` expects a whole number of at least 0, not `x`\n"
        "       | training.seed=x\n"
        "       |               ^\n"
        "--set nonsense: an option is path.to.key=value\n"
        "       | nonsense\n"
        "       | ^\n"
        "--set runs.a=1: `runs` cannot be set: options apply to each chosen run\n"
        "       | runs.a=1\n"
        "       | ^\n"
        "--set a..b=1: an option is path.to.key=value\n"
        "       | a..b=1\n"
        "       | ^\n"
        "--set model.moe={experts: 4, top_k: [}: YAML: did not find expected node content while parsing a flow node (line 1)\n"
        "       | model.moe={experts: 4, top_k: [}\n"
        "       |                                ^\n");
}

static void test_nothing_to_remove(void **state)
{
    (void)state;
    expect_problems(GOOD_SPEC "checkpoint: {interval: ~}\nlogging:\n", NULL,
        "spec.yaml:5:24: `checkpoint.interval` expects a whole number of at least 0, not nothing\n"
        "     5 | checkpoint: {interval: ~}\n"
        "       |                        ^\n"
        "spec.yaml:6:9: `logging` expects a section of keys, not nothing\n"
        "     6 | logging:\n"
        "       |         ^\n");
}

static void test_caret_of_long_and_odd_lines(void **state)
{
    (void)state;
    struct spec_file file;
    struct text text;
    text_init(&text, 1 << 16);
    text_add(&text, "base: good.yaml\nenvironment: {variables: {A: \"");
    for (int i = 0; i < 300; i++)
        text_add(&text, "é");
    text_add(&text, "\"}, mod: 1}\n");
    load_text(&file, text.at, NULL);
    const char *line = strstr(file.problems.at, "     2 | …");
    assert_non_null(line);
    const char *caret = strchr(file.problems.at, '^');
    assert_non_null(caret);
    assert_true(strlen(file.problems.at) < 700);
    spec_file_release(&file);
    text_release(&text);
}

// A spec from elsewhere cannot make the terminal obey it.
static void test_terminal_escapes_are_not_shown(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\nk\"\x1B[2J\": 1\n", NULL,
        "spec.yaml:2:3: YAML: control characters are not allowed\n"
        "     2 | k\"?[2J\": 1\n"
        "       |   ^\n");
    expect_problems("base: good.yaml\n\"a\\e[2J\": 1 # \xC3\xA9\n", NULL,
        "spec.yaml:2:1: unknown key `a?[2J`\n"
        "     2 | \"a\\e[2J\": 1 # \xC3\xA9\n"
        "       | ^\n");
    expect_problems("base: good.yaml\nk: \xC2\x9B" "2J\n", NULL,
        "spec.yaml:2:4: YAML: control characters are not allowed\n"
        "     2 | k: ?2J\n"
        "       |    ^\n");
}

// ---- YAML itself ----

static const struct { const char *text, *message; } documents[] = {
    {"", "the file is empty"},
    {"# only a comment\n", "the file is empty"},
    {"- a\n", "a spec is a map of keys, such as `project: NAME`"},
    {"just words\n", "a spec is a map of keys, such as `project: NAME`"},
    {"a: 1\n---\nb: 2\n", "a second document: a spec is one document"},
    {"a: !!int 3\n", "tags are not used in a spec: the key decides the type (found `tag:yaml.org,2002:int`)"},
    {"a: !mine {b: 1}\n", "tags are not used in a spec: the key decides the type (found `!mine`)"},
    {"a: &x {b: 1}\n<<: *x\n", "merge keys (`<<`) are not YAML 1.2: use `base:` or `runs:` to share keys"},
    {"? [a, b]\n: 1\n", "a key must be a word, not a list or a map"},
    {"a: *x\n", "no anchor `&x` before this alias"},
    {"a: &x [*x]\n", "this alias stands inside what it refers to"},
    {"a: [1, 2\n", "YAML: did not find expected ',' or ']' while parsing a flow sequence (line 1)"},
    {"a: 1\n  b: 2\n", "YAML: mapping values are not allowed in this context"},
    {"\ta: 1\n", "YAML: found character that cannot start any token while scanning for the next token (line 1)"},
    {"a: \"\\0\"\n", "a NUL character in a value"},
    {"a: \xff\n", "not UTF-8 text: invalid leading UTF-8 octet"},
    {"a: {b: ${C}}\n", "YAML: did not find expected ',' or '}' while parsing a flow mapping (line 1); inside braces a string with ${NAME} needs quotes"},
    {"a: \"x\n", "YAML: found unexpected end of stream while scanning a quoted scalar (line 1)"},
};

static void test_documents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        struct spec_file file;
        assert_int_equal(load_text(&file, documents[i].text, NULL), -1);
        if (!has_message(file.problem_list, documents[i].message))
            fail_msg("%s\n expected: %s\n actual:\n%s", documents[i].text, documents[i].message, file.problems.at);
        spec_file_release(&file);
    }
}

static void expect_first(const char *text, const char *message)
{
    struct spec_file file;
    assert_int_equal(load_text(&file, text, NULL), -1);
    assert_string_equal(js_string_of(js_get(js_at(file.problem_list, 0), "message"), ""), message);
    assert_true(file.problems.length < 4096);
    spec_file_release(&file);
}

// Small files that grow without bound where a reader lets them.
static void test_budgets(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 4 << 20);
    text_add(&text, "a: &a [x,x,x,x,x,x,x,x,x,x]\n");
    for (char name = 'b'; name < 'k'; name++)
        text_addf(&text, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", name, name, name - 1, name - 1, name - 1, name - 1, name - 1,
            name - 1, name - 1, name - 1, name - 1, name - 1);
    expect_first(text.at, "too large: more than 20000 values once aliases are expanded");
    text_clear(&text);
    text_add(&text, "a: ");
    for (int i = 0; i < 4000; i++)
        text_add(&text, "[");
    expect_first(text.at, "nested too deeply (32 levels are allowed)");
    text_clear(&text);
    text_add(&text, "a0: &a0 [[[[x]]]]\n");
    for (int i = 1; i < 10; i++)
        text_addf(&text, "a%d: &a%d [[[[*a%d]]]]\n", i, i, i - 1);
    expect_first(text.at, "nested too deeply (32 levels are allowed)");
    text_clear(&text);
    text_add(&text, "a: &a x\nb: [");
    for (int i = 0; i < 300; i++)
        text_add(&text, "*a,");
    text_add(&text, "]\n");
    expect_first(text.at, "too many aliases (256 are allowed)");
    text_clear(&text);
    text_add(&text, "a: [");
    for (int i = 0; i < 21000; i++)
        text_add(&text, "x,");
    text_add(&text, "]\n");
    expect_first(text.at, "too large: more than 20000 values");
    text_clear(&text);
    text_add(&text, "a: ");
    for (int i = 0; i < 70000; i++)
        text_add(&text, "x");
    expect_first(text.at, "this value is longer than 65536 bytes");
    text_clear(&text);
    for (int i = 0; i < 300; i++)
        text_addf(&text, "k%d: {zzzz: 1}\n", i);
    struct spec_file file;
    assert_int_equal(load_text(&file, text.at, NULL), -1);
    assert_true(file.errors > 300);
    assert_non_null(strstr(file.problems.at, "spec.yaml: and "));
    spec_file_release(&file);
    text_release(&text);
}

static void test_files(void **state)
{
    (void)state;
    struct spec_file file;
    assert_int_equal(spec_file_load(&file, "absent.yaml", NULL, 0, NULL, 0), -1);
    assert_string_equal(file.problems.at, "absent.yaml: No such file or directory\n");
    spec_file_release(&file);
    FILE *large = fopen("large.yaml", "w");
    assert_non_null(large);
    assert_int_equal(ftruncate(fileno(large), 100 << 20), 0);
    fclose(large);
    assert_int_equal(spec_file_load(&file, "large.yaml", NULL, 0, NULL, 0), -1);
    assert_string_equal(file.problems.at, "large.yaml: larger than 1048576 bytes\n");
    spec_file_release(&file);
    expect_problems("base: absent.yaml\n", NULL,
        "spec.yaml:1:7: `base`: absent.yaml: No such file or directory\n"
        "     1 | base: absent.yaml\n"
        "       |       ^\n");
    expect_problems("base: spec.yaml\n", NULL,
        "spec.yaml:1:7: `base`: spec.yaml inherits from itself\n"
        "     1 | base: spec.yaml\n"
        "       |       ^\n");
    for (int i = 1; i <= 9; i++) {
        char name[32], *text = i == 9 ? string_copy(GOOD_SPEC) : string_format("base: b%d.yaml\n", i + 1);
        snprintf(name, sizeof name, "b%d.yaml", i);
        write_text(name, text);
        free(text);
    }
    expect_problems("base: b1.yaml\n", NULL,
        "b7.yaml:1:7: `base`: more than 8 files inherit from each other\n"
        "     1 | base: b8.yaml\n"
        "       |       ^\n");
    expect_problems("base: b3.yaml\n", NULL, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_rules), cmocka_unit_test(test_unused_keys),
        cmocka_unit_test(test_type_errors_hide_no_rule),
        cmocka_unit_test(test_keys_that_are_not_there),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_duplicate_keys),
        cmocka_unit_test(test_options_are_named),
        cmocka_unit_test(test_nothing_to_remove),
        cmocka_unit_test(test_caret_of_long_and_odd_lines),
        cmocka_unit_test(test_terminal_escapes_are_not_shown),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests_name("spec errors", tests, enter_folder, leave_folder);
}
