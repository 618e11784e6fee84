"""Models of every shape as whole runs: recomputation changes no recorded bit and counts nothing twice; layers of different numbers of
experts are recorded, saved, inspected and continued in other layouts."""
import json
import shutil
import subprocess

from training import BAD_INPUT, MOE, WORKER, Bench, check, close, contains, environment

GPT = {"norm": "layernorm", "activation": "gelu", "bias": True, "hidden_dropout": 0.1, "attention_dropout": 0.1}
PYRAMID = {**MOE, "experts": 8, "experts_per_layer": [8, 4, 2], "layers": [0, 2, 3], "per_layer_metrics": True, "shared_expert_size": 48,
           "shared_expert_gate": True, "residual": True}
TRAINING = {"iterations": 8, "validation": {"interval": 4, "iterations": 1}}
WAYS = [{"granularity": "selective"}, {"granularity": "full"}, {"granularity": "full", "layers": 3}, {"granularity": "full", "method": "block", "layers": 2}]
RUNS = {
    "GPT's shape": ({"model": {"layers": 5, **GPT}}, 1),
    "pyramid": ({"model": {"layers": 4, **GPT, "moe": PYRAMID}}, 1),
    "pyramid over 2 ranks": ({"model": {"layers": 4, "moe": PYRAMID}, "parallelism": {"expert": 2}}, 2),
}


def inspect(path):
    done = subprocess.run([WORKER, "inspect", "--json", path], env=environment(), text=True, capture_output=True, timeout=60, check=True)
    return json.loads(done.stdout)


def recorded(run):
    return [{key: value for key, value in line.items() if key != "run"} for line in run.steps()]


with Bench() as bench:
    for name, (sections, ranks) in RUNS.items():
        kept = bench.make("kept", **sections, training=TRAINING, resources={"ranks_per_node": ranks}, checkpoint={"interval": 8})
        kept.train()
        for way in WAYS:
            again = bench.make("again", **sections, training={**TRAINING, "recompute": way}, resources={"ranks_per_node": ranks},
                               checkpoint={"interval": 8})
            again.train()
            words = " ".join(map(str, way.values()))
            check(f"{name}, recomputed ({words}): every recorded bit", recorded(again), recorded(kept))
            check(f"{name}, recomputed ({words}): every saved bit", again.tensors(8), kept.tensors(8))

    # What is recorded of layers with different numbers of experts: run `kept` is the pyramid over 2 ranks.
    load = kept.records("expert_load")[0]["counts"]
    check("an expert load of each layer's own experts", [len(counts) for counts in load], [8, 0, 4, 2])
    tokens = kept.metrics()[1]["tokens"]
    check("each token chooses twice in every layer with experts", [sum(counts) for counts in load], [2 * tokens, 0, 2 * tokens, 2 * tokens])
    names = {n.split("/")[1] for n in kept.metrics()[1] if n.startswith("moe/layer_")}
    check("series of the layers with experts only", sorted(names), ["layer_00", "layer_02", "layer_03"])
    shares = [kept.metrics()[1][f"moe/layer_{layer:02d}/largest_share"] for layer in (0, 2, 3)]
    check("the largest share of a layer of two experts is half: each token goes to both", shares[2], 0.5)

    # Saved by two ranks, inspected, continued by one, and back.
    whole = bench.make("whole", model={"layers": 4, "moe": PYRAMID}, training=TRAINING, checkpoint={"interval": 4})
    whole.train()
    path = kept.directory / "checkpoints" / "step-0000008"
    counted = kept.records("end")[0]["parameters"]["total"]
    check("inspect counts the parameters of every rank's files", inspect(path)["parameters"], counted)
    check("one rank and two save the same tensors", set(kept.tensors(8)), set(whole.tensors(8)))
    close("two ranks learn as one", kept.values("loss"), whole.values("loss"), 1e-5)
    moved = bench.make("moved", model={"layers": 4, "moe": PYRAMID}, training=TRAINING, resources={"ranks_per_node": 2}, parallelism={"expert": 2},
                       checkpoint={"interval": 4})
    shutil.copytree(whole.directory / "checkpoints" / "step-0000004", moved.directory / "checkpoints" / "step-0000004")
    moved.train()
    close("a checkpoint of one rank continued by two", moved.values("loss"), whole.values("loss")[4:], 1e-5)

    # A layer that cannot be spread is named.
    odd = bench.make("odd", model={"layers": 2, "moe": {**MOE, "experts_per_layer": [4, 3]}}, resources={"ranks_per_node": 2}, parallelism={"expert": 2})
    contains("experts that cannot be spread", odd.train(code=BAD_INPUT), "`model.moe.experts_per_layer` 3 is not divisible by `parallelism.expert` 2")
