"""Two equal runs record the same bits, alone and over ranks; threads change nothing; the record's form is what Trackio imports."""
import re

from training import MOE, Bench, check

with Bench() as bench:
    for name, sections in {
        "dense": {},
        "dense on 2 ranks": {"resources": {"ranks_per_node": 2}},
        "moe": {"model": {"moe": {**MOE, "per_layer_metrics": True}}},
        "moe on 2 ranks": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}},
        "moe on the reference device": {"model": {"moe": MOE}, "resources": {"device": "reference"}, "training": {"iterations": 2}},
    }.items():
        sections = {"training": {"validation": {"interval": 4, "iterations": 1}}, **sections}
        first, second = bench.make("first", **sections), bench.make("second", **sections)
        first.train()
        second.train()
        for line in (expected := first.facts()):
            line.pop("run", None)
        for line in (actual := second.facts()):
            line.pop("run", None)
        check(f"{name}: all records of two equal runs", actual, expected)
        check(f"{name}: one metric line a step", sorted(first.metrics()), list(range(1, len(first.metrics()) + 1)))

    moe = bench.make("moe", model={"moe": {**MOE, "per_layer_metrics": True}}, training={"validation": {"interval": 4, "iterations": 1}})
    moe.train()
    names = {"loss", "load_balancing_loss", "grad_norm", "grad_zeros", "learning_rate", "tokens", "step_time_ms", "tokens_per_second", "tflops",
             "memory_mb"} | {f"moe/layer_{layer:02d}/{what}" for layer in range(2)
                             for what in ("load_balancing_loss", "largest_share", "smallest_share")}
    check("names of a step's metrics", set(moe.metrics()[3]), names)
    check("names of a validated step's metrics", set(moe.metrics()[4]), names | {"validation_loss"})
    line = moe.records("metric")[0]
    check("members of a metric line", list(line), ["kind", "v", "project", "run", "run_id", "metrics", "step", "timestamp", "config", "log_id"])
    check("form of its time", bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", line["timestamp"])), True)
    load = moe.records("expert_load")
    check("expert load: a record a step", [line["step"] for line in load], list(range(1, 9)))
    check("expert load: tokens x top_k in each layer", {sum(layer) for line in load for layer in line["counts"]}, {8 * 32 * 2})
    last, counts = moe.metrics()[8], load[-1]["counts"][1]
    check("largest and smallest share", (last["moe/layer_01/largest_share"], last["moe/layer_01/smallest_share"]),
          (max(counts) / sum(counts), min(counts) / sum(counts)))
    check("the loss of all layers is the mean of theirs", last["load_balancing_loss"],
          (last["moe/layer_00/load_balancing_loss"] + last["moe/layer_01/load_balancing_loss"]) / 2)

    wide = {"hidden_size": 128, "ffn_hidden_size": 256}  # so that there is work for two
    for name, sections in {"dense": {"model": wide}, "moe": {"model": {**wide, "moe": {**MOE, "expert_ffn_hidden_size": 128}}}}.items():
        one, two = (bench.make(f"threads-{n}", **sections, resources={"threads_per_rank": n}, checkpoint={"interval": 8}) for n in (1, 2))
        one.train()
        two.train()
        check(f"{name}: threads do not show in the bits of any step", two.steps(), [{**line, "run": "threads-2"} if "run" in line else line for line in one.steps()])
        check(f"{name}: nor in any tensor or moment at the end", two.tensors(8), one.tensors(8))
