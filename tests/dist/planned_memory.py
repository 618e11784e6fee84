"""Peak memory of a run against what `plan` said of it before: within 3 % for models that matter, and for tiny ones by how many bytes.
Where experts are spread over ranks, what arrives depends on the routing: the peak lies between the balanced figure and the worst."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
from training import MOE, SPEC, Bench, check, merge  # noqa: E402
from support import Home  # noqa: E402

LARGE = {"layers": 4, "hidden_size": 512, "ffn_hidden_size": 1536, "attention_heads": 8, "kv_heads": 4, "vocab_size": 257}
GPT = {"norm": "layernorm", "activation": "gelu", "bias": True, "ffn_hidden_size": 2048}
EXPERTS = {**MOE, "experts": 8, "expert_ffn_hidden_size": 512}
FULL = {"recompute": {"granularity": "full"}}

# name: model, training, ranks, expert parallel, checkpoint
CASES = {
    "dense": (LARGE, {}, 1, 1, {}),
    "dense, two threads": (LARGE, {}, 1, 1, {}),
    "dense, checkpoints behind the training": (LARGE, {}, 1, 1, {"interval": 1}),
    "dense, bf16": (LARGE, {"precision": "bf16"}, 1, 1, {}),
    "dense, selective": (LARGE, {"micro_batch_size": 8, "recompute": {"granularity": "selective"}}, 1, 1, {}),
    "dense, full, groups of 2": (LARGE, {"micro_batch_size": 8, "recompute": {"granularity": "full", "layers": 2}}, 1, 1, {}),
    "dense, full, the first 3": (LARGE, {"micro_batch_size": 8, "recompute": {"granularity": "full", "method": "block", "layers": 3}}, 1, 1, {}),
    "GPT's shape, full": ({**LARGE, **GPT}, {**FULL, "micro_batch_size": 8}, 1, 1, {}),
    "dense on 2 ranks": (LARGE, {}, 2, 1, {}),
    "moe": ({**LARGE, "moe": EXPERTS}, {}, 1, 1, {}),
    "moe, full": ({**LARGE, "moe": EXPERTS}, FULL, 1, 1, {}),
    "moe beside a shared expert, pyramid": (
        {**LARGE, "moe": {**EXPERTS, "experts": 8, "experts_per_layer": [8, 8, 4, 4], "shared_expert_size": 512, "residual": True}}, {}, 1, 1, {}),
    "moe over 2 ranks": ({**LARGE, "moe": EXPERTS}, {}, 2, 2, {}),
}
TINY = {"tiny dense": ({}, {}, 1, 1, {}), "tiny moe": ({"moe": MOE}, {}, 1, 1, {})}
MARGIN, TINY_MARGIN = 0.03, 4_000_000


def run(bench, home, case, threads):
    model, training, ranks, experts, checkpoint = case
    training = merge({"iterations": 2, "micro_batch_size": 4}, json.loads(json.dumps(training)))
    training["global_batch_size"] = training["micro_batch_size"] * ranks
    sections = {"data": {"sequence_length": 256}, "model": model, "resources": {"ranks_per_node": ranks, "threads_per_rank": threads},
                "parallelism": {"expert": experts}, "training": training, "checkpoint": checkpoint}
    sections = json.loads(json.dumps(sections))
    done = bench.make("run", **sections)
    done.train(timeout=600)
    spec = merge(json.loads(json.dumps(SPEC)), sections)
    spec["data"]["prefix"] = "/nonexistent"
    spec["runs"] = {"run": {}}
    plan = home.json("plan", home.spec(json.dumps(spec), "plan.yaml", with_corpus=False))["runs"][0]
    return done.records("end")[0]["peak_memory_bytes"], plan["memory"]


with Bench() as bench, Home() as home:
    print("                                          measured      planned   (MB; where routing decides: balanced … worst)")
    for name, case in {**CASES, **TINY}.items():
        measured, plan = run(bench, home, case, 2 if "two threads" in name else 1)
        least, most = plan["total"], plan["total_worst"]
        span = f"{least / 1e6:10.1f}" + (f" … {most / 1e6:.1f}" if most > least else "")
        print(f"    {name:40s}{measured / 1e6:8.1f} {span}   {100 * (measured / most - 1):+.2f} %")
        margin = [TINY_MARGIN] * 2 if name in TINY else [MARGIN * least, MARGIN * most]
        check(f"{name}: large enough to tell", name in TINY or least > 280e6, True)
        check(f"{name}: as planned", least - margin[0] <= measured <= most + margin[1], True)
