"""No inert key. For every key of the field table: another value of it changes the bits of a run, its argv, or its record; or this build
refuses it by name. The keys come from `switchyard schema --json`, so a new one fails here until it has a line in the table."""
import copy
import json
import pathlib
import subprocess

from training import DAEMON_KEYS, MOE, SWITCHYARD, Bench, check, environment, merge

# A run in which every key that can matter does: warmup, decay, validation, experts, checkpoints.
BASE = {
    "model": {"moe": {**MOE, "per_layer_metrics": True}},
    "training": {"iterations": 8, "validation": {"interval": 4, "iterations": 1},
                 "learning_rate": {"schedule": "wsd", "peak": 3e-3, "minimum": 1e-4, "initial": 1e-5, "warmup_iterations": 2, "decay_iterations": 3}},
    "checkpoint": {"interval": 3},
}
OVER_RANKS = {"resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}}
RECOMPUTED = {**OVER_RANKS, "training": {"recompute": {"granularity": "full"}}}

# What a run trains with: another value changes what the worker records.
BITS = {
    "data.split": [80, 20, 0], "data.sequence_length": 16, "data.eod_mask_loss": True, "data.cache": "CACHE",
    "model.ffn_hidden_size": 96, "model.layers": 3, "model.hidden_size": 64, "model.attention_heads": 8, "model.kv_heads": 4, "model.head_dim": 16,
    "model.vocab_size": 300, "model.tied_embeddings": False, "model.norm_epsilon": 1e-2, "model.rope_base": 500.0, "model.init.std": 0.05,
    "model.position": "none", "model.rope_scaling_factor": 8, "model.bias": True, "model.qk_norm": True, "model.attention_window": 5,
    "model.attention_dropout": 0.2, "model.hidden_dropout": 0.2, "model.max_position_embeddings": 40, "model.qk_norm_over": "projection",
    "model.rope_scaling_low_freq_factor": 0.001, "model.rope_scaling_high_freq_factor": 64.0, "model.rope_scaling_original_length": 64,
    "data.reset_position_ids": True, "data.reset_attention_mask": True, "data.eod_token": "e",
    "model.moe.experts": 8, "model.moe.top_k": 3, "model.moe.expert_ffn_hidden_size": 64, "model.moe.pre_softmax": True,
    "model.moe.layer_frequency": 2,
    "model.moe.losses": [{"type": "aux_loss", "coefficient": 0.5}], "model.moe.per_layer_metrics": False,
    "model.moe.routing": "expert_choice", "model.moe.router_dtype": "bf16", "model.moe.score_function": "sigmoid", "model.moe.scaling_factor": 2.5,
    "model.moe.expert_bias": True, "model.moe.bias_update_rate": 0.05, "model.moe.num_groups": 2, "model.moe.group_topk": 2,
    "model.moe.capacity_factor": 0.75, "model.moe.eval_capacity_factor": 0.5, "model.moe.min_capacity": 40, "model.moe.drop_policy": "position",
    "model.moe.pad_to_capacity": True, # no bit of the training changes: bytes are exchanged
    "model.moe.renormalise_after_drop": True, "model.moe.input_jitter": 0.1, "model.moe.force_balance": True,
    "model.norm": "layernorm", "model.activation": "gelu", "model.moe.shared_expert_size": 32, "model.moe.shared_expert_gate": True,
    "model.moe.residual": True, "model.moe.experts_per_layer": [4, 2], "model.moe.layers": [1],
    "training.recompute.granularity": "full", "training.recompute.method": "block", "training.recompute.layers": 2, # bits stay: bytes are exchanged again
    "training.iterations": 7, "training.micro_batch_size": 1, "training.global_batch_size": 4, "training.seed": 77,
    "training.optimizer.beta1": 0.5, "training.optimizer.beta2": 0.5, "training.optimizer.eps": 1e-2, "training.optimizer.weight_decay": 0.5,
    "training.optimizer.clip_grad": 0.1,
    "training.learning_rate.schedule": "constant", "training.learning_rate.peak": 1e-3, "training.learning_rate.minimum": 1e-3,
    "training.learning_rate.initial": 1e-3, "training.learning_rate.warmup_iterations": 3, "training.learning_rate.decay_iterations": 5,
    "training.learning_rate.total_iterations": 12, "training.learning_rate.decay_style": "linear", "training.learning_rate.expert_peak": 1e-3,
    "training.rampup_batch_size.start": 4, "training.rampup_batch_size.increment": 6, "training.rampup_batch_size.samples": 40,
    "training.precision": "bf16", "training.loss_scale.initial": 1024, "training.loss_scale.minimum": 2**30, "training.loss_scale.window": 2,
    "training.loss_scale.hysteresis": 1,
    "training.validation.interval": 2, "training.validation.iterations": 2,
    "parallelism.expert": 1, "resources.threads_per_rank": 2, "resources.device": "reference",
    "checkpoint.interval": 2, "checkpoint.keep": 1, "logging.interval": 2, "logging.expert_load": False,
}
# Keys that only decide what the launcher and the record say: `plan --json` shows the argv, the record is the resolved spec that travels
# in run.json and into Trackio's config.
ON_CLUSTER = {"executor": "local", "slurm.partition": "gpu", "slurm.account": "us", "slurm.qos": "high", "slurm.reservation": "course",
              "slurm.constraint": "h100", "slurm.nodelist": "n1", "slurm.exclude": "n2", "slurm.mpi": "pmi2", "slurm.exclusive": True,
              "slurm.requeue": True, "slurm.signal": "USR2@60", "slurm.grace": "30s"}
PLANNED = {"project": "other", "output": "OUTPUT", "resources.ranks_per_node": 4}

# Keys that show only where a run goes on, or begins from another's weights: section 5 below.
GOING_ON = ["checkpoint.asynchronous", "checkpoint.accept_changed", "model.from.upcycle.granularity"]

# Keys whose wish is always met by this build, so that only the record can tell: see their help.
ALWAYS = {"training.deterministic": True, "model.moe.grouped_gemm": True}

# Other values of keys that must be refused: any value but the default will do.
OTHER = {"enum": lambda p: next(v for v in p["enum"] if v != p.get("default")), "boolean": lambda p: not p.get("default", False),
         "integer": lambda p: max(p.get("minimum", 1), 2), "number": lambda p: 0.5, "string": lambda p: "word", "array": lambda p: ["/a:/a"]}
SPECIAL = {"preflight.alltoall.size": "1GiB", "preflight.alltoall.iterations": 3, "preflight.alltoall.at_least": "50%",
           "hf-jobs.timeout": "1h",
           "image.base": "docker://a/b:1.2",
           "data.tokenize.memory_per_task": "1GiB", "data.tokenize.sampling_rate": "50%"}

# Keys that a rule ties to others: set together with these.
RENTED = {"executor": "hf-jobs", "hf-jobs": {"flavor": "h200x8"}}  # with another executor, a warning says that they are not used
WITH = {
    "hf-jobs.flavor": RENTED, "hf-jobs.timeout": RENTED,
    "data.tokenizer": {"data": {"prefix": None, "text": "/etc/hostname"}},
    "parallelism.tensor": {"parallelism": {"sequence": True}, "resources": {"ranks_per_node": 4}},
    "parallelism.pipeline": {"resources": {"ranks_per_node": 4}}, "parallelism.context": {"resources": {"ranks_per_node": 2}},
    "parallelism.expert_tensor": {"parallelism": {"tensor": 2, "sequence": True}, "resources": {"ranks_per_node": 4}},
    "parallelism.virtual_pipeline": {"parallelism": {"pipeline": 2}, "resources": {"ranks_per_node": 4}, "model": {"layers": 4}},
}


def leaves(schema, path=""):
    for key, value in schema.get("properties", {}).items():
        here = f"{path}.{key}" if path else key
        if value.get("properties"):
            yield from leaves(value, here)
        else:
            yield here, value


def nested(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def another(key, schema):
    if key in SPECIAL:
        return SPECIAL[key]
    kind = "enum" if "enum" in schema else schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    return OTHER.get(kind, lambda p: "word")(schema)


def switchyard(*words):
    return subprocess.run([SWITCHYARD, *map(str, words)], env=environment(), text=True, capture_output=True, timeout=60)


def as_yaml(value):
    return json.dumps(value)


with Bench() as bench:
    schema = json.loads(switchyard("schema", "--json").stdout)
    table = {key: value for key, value in leaves(schema) if key.split(".")[0] not in ("runs", "base")}
    told = set(BITS) | set(PLANNED) | set(ON_CLUSTER) | set(ALWAYS) | set(GOING_ON) | set(DAEMON_KEYS)

    def spec_file(name, *changes):
        spec = {"project": "inert", "data": {"prefix": str(bench.prefix), "split": [90, 10, 0], "sequence_length": 32}}
        document = merge(copy.deepcopy(json.loads((bench.make("seed").directory / "run.json").read_text())["spec"]), spec)
        for change in (copy.deepcopy(BASE), *changes):
            merge(document, copy.deepcopy(change))
        path = bench.root / f"{name}.yaml"
        path.write_text(as_yaml(document))  # JSON is YAML
        return path

    # 1. Every key is in the table above, or refused by name.
    refused, unknown = [], []
    for key, value in table.items():
        if key in told:
            continue
        answer = switchyard("validate", spec_file("refused", WITH.get(key, {}), nested(key, another(key, value))), "--json")
        said = json.loads(answer.stdout)
        keys = [u["key"] for run in said.get("runs", []) for u in run["unsupported"]]
        if any(k == key or key.startswith(k + ".") or k.startswith(key + ".") for k in keys):
            refused.append(key)
        else:
            unknown.append((key, another(key, value), said.get("problems"), keys))
    for key, value, problems, keys in unknown:
        print(f"NOT  {key}: {value!r} is neither refused (unsupported: {keys}) nor in the table of this test {problems}")
    check("keys that are neither refused by name nor shown to have an effect", [u[0] for u in unknown], [])
    check("keys of the table of this test that the schema does not have", sorted(told - set(table)), [])
    print(f"    {len(refused)} keys are refused by name: {' '.join(refused)}")

    # 2. Each other key changes what the worker records.
    def outcome(name, *changes):
        sections = copy.deepcopy(BASE)
        for change in changes:
            merge(sections, copy.deepcopy(change))
        run = bench.make(name, **sections)
        run.train()
        facts = run.facts()
        for line in facts:
            line.pop("run", None)
        worker = {k: v for k, v in run.records("start")[0]["worker"].items() if k in ("device", "threads", "ranks", "isa")}
        return facts, worker, run.checkpoints()

    # What a key is changed on top of, where that is not BASE.
    ramp = {"training": {"rampup_batch_size": {"start": 2, "increment": 2, "samples": 12}}}
    HALF = {"training": {"precision": "fp16"}}
    tokenizer = bench.root / "tokenizer.json"
    tokenizer.write_text(json.dumps({"added_tokens": [{"id": 256, "content": "<end>"}], "model": {"vocab": {"e": 101}}}))
    SCALED, NORMED, LEARNED = ({"model": m} for m in ({"rope_scaling_factor": 8}, {"qk_norm": True}, {"position": "learned", "rope_base": None}))
    moe = lambda **keys: {"model": {"moe": keys}}
    LIMITED, GROUPED = moe(capacity_factor=0.75), moe(experts=8, num_groups=4, group_topk=1)
    BEFORE = {"model.moe.expert_bias": moe(score_function="sigmoid"), "model.moe.bias_update_rate": moe(score_function="sigmoid", expert_bias=True),
              "model.moe.num_groups": GROUPED, "model.moe.group_topk": GROUPED, "model.moe.eval_capacity_factor": LIMITED, "model.moe.min_capacity": LIMITED,
              "model.moe.drop_policy": LIMITED, "model.moe.renormalise_after_drop": LIMITED,
              "model.moe.pad_to_capacity": merge(copy.deepcopy(LIMITED), OVER_RANKS),
              **{f"training.loss_scale.{key}": HALF for key in ("initial", "minimum", "hysteresis")},
              "model.rope_scaling_low_freq_factor": SCALED, "model.rope_scaling_high_freq_factor": SCALED, "model.qk_norm_over": NORMED,
              "model.rope_scaling_original_length": SCALED, "model.max_position_embeddings": LEARNED,
              "data.eod_token": {"data": {"tokenizer": str(tokenizer), "eod_token": "<end>", "eod_mask_loss": True}},
              "training.loss_scale.window": {"training": {"precision": "fp16", "loss_scale": {"initial": 1024}}},
              **{f"training.rampup_batch_size.{key}": ramp for key in ("start", "increment", "samples")}, "model.ffn_hidden_size": {"model": {"moe": None}}, "model.hidden_size": {"model": {"head_dim": 16}}, "parallelism.expert": OVER_RANKS,
              "model.moe.shared_expert_gate": {"model": {"moe": {"shared_expert_size": 32}}},
              "training.recompute.granularity": OVER_RANKS, "training.recompute.method": RECOMPUTED, "training.recompute.layers": RECOMPUTED}
    plain = outcome("base")
    cache = bench.root / "cache"
    for key, value in BITS.items():
        if key == "data.cache":
            outcome("cached", nested(key, str(cache)))
            check(f"{key}: indices appear there", len(list(cache.glob("*.samples"))), 2)
        elif key in BEFORE:
            check(f"{key}: {value!r} shows", outcome("before", BEFORE[key]) != outcome("other", BEFORE[key], nested(key, value)), True)
        else:
            check(f"{key}: {value!r} shows", plain != outcome("other", nested(key, value)), True)

    # 3. argv and run directory.
    def planned(*changes):
        answer = switchyard("plan", spec_file("plan", *changes), "--json")
        return json.loads(answer.stdout)["runs"][0]

    plain = planned()
    for key, value in PLANNED.items():
        value = str(bench.root / "elsewhere") if value == "OUTPUT" else value
        other = planned(nested(key, value))
        check(f"{key}: {value!r} changes the argv", other["argv"] != plain["argv"], True)

    # … of a job in a queue: what sbatch and srun are asked for.
    def handed(change):
        answer = planned({"executor": "slurm", "slurm": {}}, change)
        return answer["argv"], answer["options"]

    plain = handed({})
    for key, value in ON_CLUSTER.items():
        check(f"{key}: {value!r} changes what the scheduler is asked for", handed(nested(key, value)) != plain, True)

    # 4. Always met: the resolved spec, which is the record's configuration, tells.
    for key, value in ALWAYS.items():
        resolved = []
        for change in ({}, nested(key, value)):
            at = json.loads(switchyard("validate", spec_file("always", change), "--json").stdout)["runs"][0]["spec"]
            for part in key.split("."):
                at = at[part]
            resolved.append(at)
        check(f"{key}: recorded as asked", resolved, [not value, value])

    # 5. Saving, going on, beginning from another's weights.
    def order(asynchronous):
        run = bench.make("saved", training={"iterations": 6}, checkpoint={"interval": 3, "asynchronous": asynchronous})
        run.train()
        lines = [(line["kind"], line["step"]) for line in run.records() if line["kind"] in ("metric", "checkpoint")]
        return lines.index(("checkpoint", 3)) - lines.index(("metric", 3))

    check("checkpoint.asynchronous: false: a checkpoint is on record before the next step", order(False), 1)
    check("checkpoint.asynchronous: true: training goes on while it is written", order(True) > 2, True)
    codes = []
    for accepted in ([], ["schedule"]):
        run = bench.make("changed", training={"iterations": 4}, checkpoint={"interval": 2, "accept_changed": accepted})
        run.train()
        whole = json.loads((run.directory / "run.json").read_text())
        whole["spec"]["training"]["learning_rate"]["peak"] = 1e-3
        (run.directory / "run.json").write_text(json.dumps(whole))
        codes.append(subprocess.run(run.command(), env=environment(), capture_output=True, timeout=60).returncode)
    check("checkpoint.accept_changed: without it a changed schedule ends the run, with it it goes on", codes, [2, 0])
    origin = {"run_directory": str(run.directory), "checkpoint": None, "step": 0}
    losses = []
    for granularity in (1, 2, 4):
        moe = {**MOE, "expert_ffn_hidden_size": 64 // granularity}
        run = bench.make("upcycled", origin=origin, model={"moe": moe, "from": {"path": "/elsewhere", "upcycle": {"granularity": granularity}}})
        run.train()
        losses.append(tuple(run.values("loss")))
    check("model.from.upcycle.granularity: each makes other experts", len(set(losses)), 3)
