#!/usr/bin/env python3
"""Megatron's own upcycling judges ours: the real worker trains a dense model, a second run begins from it with model.from.upcycle and saves
before its first update; Megatron's upcycle_state_dict makes experts of the same dense weights. Every weight must have the same bits.

  upcycling.py
"""
import os
import pathlib
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import safetensors.torch
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import megatron_model as peer
from training import Bench, check

DENSE = dict(layers=2, hidden=32, ffn=64, heads=4, groups=2, head_dim=8, vocab=257, sequence=32)
CASES = {
    "4 experts, each the whole FFN, top-2": dict(experts=4, top_k=2, expert_ffn=64),
    "8 experts of 4 slices, top-4": dict(experts=8, top_k=4, expert_ffn=16),
    "8 experts of 2 slices, top-2, softmax first": dict(experts=8, top_k=2, expert_ffn=32, pre_softmax=1),
    "6 experts of 2 slices, top-3": dict(experts=6, top_k=3, expert_ffn=32),
    "GELU and biases: 8 experts of 4 slices, top-4": dict(experts=8, top_k=4, expert_ffn=16, gelu=1),
    "GELU, softmax first: 4 experts of 2 slices": dict(experts=4, top_k=2, expert_ffn=32, pre_softmax=1, gelu=1),
}
STILL = {"iterations": 1, "learning_rate": {"schedule": "constant", "peak": 1e-3, "initial": 0, "warmup_iterations": 1}}


def tensors(run, step):
    found = {}
    for path in (run.directory / "checkpoints" / f"step-{step:07d}").glob("model*.safetensors"):
        found.update(safetensors.torch.load_file(path))
    return found


def family(case):
    return {"activation": "gelu", "bias": True} if case.get("gelu") else {}


def moe_of(case):
    return {"experts": case["experts"], "top_k": case["top_k"], "expert_ffn_hidden_size": case["expert_ffn"],
            "pre_softmax": bool(case.get("pre_softmax"))}


def pairs(c, case, rank=0):
    """As in megatron_model, and what GELU and biases change in the FFN: the tensors that upcycling makes, and those that it copies."""
    if not case.get("gelu"):
        yield from peer.pairs(c, rank)
        return
    one = (lambda t: t)
    for layer in range(c["layers"]):
        theirs, mine = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        yield theirs + "pre_mlp_layernorm.weight", [mine + "post_attention_layernorm.weight"], one, None
        ffns = [(theirs + "mlp.", mine + "mlp.up_proj", mine + "mlp.down_proj")]
        if c["experts"]:
            yield theirs + "mlp.router.weight", [mine + "block_sparse_moe.gate.weight"], one, None
            ffns = [(theirs + f"mlp.experts.local_experts.{j}.", mine + f"block_sparse_moe.experts.{j}.w3", mine + f"block_sparse_moe.experts.{j}.w2")
                    for j in range(c["experts"])]
        for at, up, down in ffns:
            for end in ("weight", "bias"):
                yield f"{at}linear_fc1.{end}", [f"{up}.{end}"], one, None
                yield f"{at}linear_fc2.{end}", [f"{down}.{end}"], one, None


def upcycled_by_megatron(case, dense_weights, routers):
    from megatron.core.transformer.moe.upcycling_utils import upcycle_state_dict
    dense_case = dict(peer.DEFAULTS, **DENSE, **({"activation": "gelu", "bias": 1} if case.get("gelu") else {}))
    moe_case = dict(dense_case, **{k: v for k, v in case.items() if k != "gelu"})
    models = []
    for c, weights in ((dense_case, dense_weights), (moe_case, routers)):
        model = peer.megatron_model(c, torch.float32)
        if case.get("gelu"):
            model.config.activation_func = F.gelu  # its upcycling goes by the function's name
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for theirs, mine, join, _ in pairs(c, case):
                if all(name in weights for name in mine):
                    parameters[theirs].copy_(join(*(weights[name] for name in mine)))
        models.append(model)
    dense, moe = models
    return moe_case, upcycle_state_dict([moe], [dense])["model"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        peer.start_megatron(0, 1, folder + "/store")
    with Bench() as bench:
        for what, case in CASES.items():
            dense = bench.make("dense", training={"iterations": 3}, checkpoint={"interval": 3}, model=family(case))
            dense.train()
            origin = {"run_directory": str(dense.directory), "checkpoint": None, "step": 0}
            run = bench.make("upcycled", origin=origin, training=STILL, checkpoint={"interval": 1},
                             model={**family(case), "moe": moe_of(case), "from": {"path": "/elsewhere", "upcycle": {}}})
            run.train()
            fresh = bench.make("fresh", training=STILL, checkpoint={"interval": 1}, model={**family(case), "moe": moe_of(case)})
            fresh.train()
            routers = {name: t for name, t in tensors(fresh, 1).items() if name.endswith("block_sparse_moe.gate.weight")}
            ours = tensors(run, 1)
            moe_case, theirs = upcycled_by_megatron(case, tensors(dense, 3), routers)
            compared, differ = 0, []
            for name, mine, join, _ in pairs(moe_case, case):
                compared += 1
                if not torch.equal(theirs[name], join(*(ours[m] for m in mine))):
                    differ.append((name, (theirs[name] - join(*(ours[m] for m in mine))).abs().max().item()))
            check(f"{what}: the bits of Megatron's upcycling in {compared} tensors", differ, [])
            check(f"{what}: experts, routers and norms are among them", compared >= 2 * (2 * case["experts"] + 2), True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
