"""What `plan` said and what the worker counted: parameters, resident memory and bytes of all-to-all, over layouts,
with whatever routing came."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
from training import MOE, SPEC, Bench, check, merge  # noqa: E402
from support import Home  # noqa: E402

LAYOUTS = {
    "dense on 2 ranks": ({}, 2, 1),
    "moe alone": ({"moe": MOE}, 1, 1),
    "moe, replicas only": ({"moe": MOE}, 2, 1),
    "moe over 2 ranks": ({"moe": MOE}, 2, 2),
    "moe over 2 of 4 ranks": ({"moe": MOE}, 4, 2),
    "moe over 2 ranks, experts filled up": ({"moe": {**MOE, "capacity_factor": 0.75, "min_capacity": 10, "pad_to_capacity": True}}, 2, 2),
    "moe over 2 of 4 ranks, experts choose": ({"moe": {**MOE, "routing": "expert_choice", "capacity_factor": 1.3}}, 4, 2),
    "moe over 4 ranks": ({"layers": 3, "moe": {**MOE, "top_k": 3}}, 4, 4),
}

MIXED = {**MOE, "experts": 8, "experts_per_layer": [8, 4, 2], "layers": [0, 2, 3], "shared_expert_size": 48, "residual": True}
RECOMPUTED = {"pyramid over 2 ranks, recomputed": {"granularity": "full"},
              "pyramid over 2 ranks, recomputed by threes": {"granularity": "full", "layers": 3},
              "pyramid over 2 ranks, the first three recomputed": {"granularity": "full", "method": "block", "layers": 3},
              "pyramid over 2 ranks, recomputed selectively": {"granularity": "selective"}}
LAYOUTS.update({name: ({"layers": 4, "norm": "layernorm", "activation": "gelu", "bias": True, "moe": MIXED}, 2, 2) for name in RECOMPUTED})

RAMPED = "moe over 2 ranks in a batch ramp"
LAYOUTS[RAMPED] = LAYOUTS["moe over 2 ranks"]

with Bench() as bench, Home() as home:
    for name, (model, ranks, experts) in LAYOUTS.items():
        sections = {"model": model, "resources": {"ranks_per_node": ranks}, "parallelism": {"expert": experts},
                    "training": {"iterations": 3, "validation": {"interval": 2, "iterations": 1}}}
        if name in RECOMPUTED:
            sections["training"]["recompute"] = RECOMPUTED[name]
        if name == RAMPED:
            sections["training"].update(iterations=4, rampup_batch_size={"start": 4, "increment": 4, "samples": 8})
        run = bench.make("run", **json.loads(json.dumps(sections)))
        run.train()
        end = run.records("end")[0]

        spec = merge(json.loads(json.dumps(SPEC)), json.loads(json.dumps(sections)))
        spec["data"]["prefix"] = "/nonexistent"
        spec["runs"] = {"run": {}}
        plan = home.json("plan", home.spec(json.dumps(spec), "plan.yaml", with_corpus=False))["runs"][0]

        check(f"{name}: parameters", {key: end["parameters"][key] for key in ("total", "active")}, plan["parameters"])
        resident = end["parameters"]["resident_dense"] + end["parameters"]["resident_experts"]
        check(f"{name}: bytes of parameters on a rank", 4 * resident, plan["memory"]["parameters"])
        check(f"{name}: bytes of all-to-all a step and rank", end["alltoall_bytes_per_step"], plan["alltoall_bytes_per_step"])
        check(f"{name}: is there an exchange", plan["alltoall_bytes_per_step"] > 0, experts > 1)
        check(f"{name}: resident experts", end["parameters"]["resident_experts"] * experts,
              plan["parameters"]["total"] - end["parameters"]["resident_dense"])
