#!/usr/bin/env python3
"""Megatron's routing functions and DeepSpeed's gates judge ours: a small model is trained for a step, the logits of its first router and what
flowed back to its weights are given to them, and their probabilities, maps, losses and gradients must be ours. Where neither has a way of
routing, its formula stands here.

  routing.py PROBE
"""
import os
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import megatron_model as megatron
import torch_model as ours

SMALL = dict(hidden=16, heads=2, groups=1, head_dim=8, experts=8, top_k=2, expert_ffn=12, sequence=16, deviation=0.4)
ALL = dict(balance=0.3, sequence_balance=0.2, global_balance=0.4, z=0.05)
EXTRA = dict(global_balance=0.0, min_capacity=0, drop="probs", renormalise=0, pad=0, routing="top_k", bias_update_rate=0.001)

MEGATRON = [
    dict(SMALL, **ALL), dict(SMALL, **ALL, pre_softmax=1), dict(SMALL, **ALL, top_k=1, pre_softmax=1, scaling=3.0),
    dict(SMALL, **ALL, micro_batch=3, top_k=3), dict(SMALL, **ALL, experts=16, top_k=4, num_groups=4, group_topk=2),
    dict(SMALL, **ALL, score="sigmoid"), dict(SMALL, **ALL, score="sigmoid", top_k=1), dict(SMALL, **ALL, score="sigmoid", scaling=2.5, expert_bias=1),
    dict(SMALL, **ALL, score="sigmoid", experts=16, top_k=4, num_groups=8, group_topk=4, expert_bias=1, bias_update_rate=0.01),
    dict(SMALL, **ALL, capacity=1.0), dict(SMALL, **ALL, capacity=0.5, pad=1), dict(SMALL, **ALL, capacity=1.25, score="sigmoid", expert_bias=1),
    dict(SMALL, **ALL, capacity=100.0),
]
DEEPSPEED = [
    dict(SMALL, balance=0.3, top_k=1, pre_softmax=1), dict(SMALL),
    *(dict(SMALL, balance=0.3, top_k=k, capacity=capacity, min_capacity=least, drop="position", renormalise=1)
      for k, capacity, least in ((2, 1.0, 0), (2, 0.5, 0), (3, 0.7, 0), (2, 0.1, 4), (4, 2.0, 0))),
]
FORMULA = [
    dict(SMALL, **ALL, score="sqrtsoftplus"), dict(SMALL, **ALL, score="sqrtsoftplus", top_k=1, expert_bias=1, scaling=1.5),
    dict(SMALL, routing="expert_choice", **ALL), dict(SMALL, routing="expert_choice", capacity=1.7, top_k=1, **ALL),
    dict(SMALL, routing="expert_choice", score="sigmoid", **ALL),
]


def dense(c, slots, indices, values, dtype):
    """(T, E) out of slots: 0 where a token does not go."""
    indices, values = (torch.tensor(v).reshape(-1, slots) for v in (indices, values))
    out = torch.zeros(indices.shape[0], c["experts"], dtype=dtype)
    used = indices >= 0
    rows = torch.arange(indices.shape[0])[:, None].expand_as(indices)
    out[rows[used], indices[used]] = values[used].to(dtype)
    return out


def by_megatron(c, logits, bias):
    from megatron.core.transformer.moe import moe_utils as u
    probs, chosen = u.topk_routing_with_score_function(
        logits, c["top_k"], use_pre_softmax=bool(c["pre_softmax"]), num_groups=c["num_groups"] or None, group_topk=c["group_topk"] or None,
        scaling_factor=c["scaling"] or None, score_function=c["score"], expert_bias=bias)
    if c["capacity"]:
        probs, chosen = u.apply_router_token_dropping(probs, chosen, c["top_k"], c["capacity"], drop_policy="probs")
    wished, scores = u.compute_routing_scores_for_aux_loss(logits, c["top_k"], c["score"])
    balance = lambda s, m: u.switch_load_balancing_loss_func(s, m.sum(0), s.shape[0], c["top_k"], c["experts"], 1.0)
    sequences = [balance(s, m) for s, m in zip(scores.split(c["sequence"]), wished.split(c["sequence"]))]
    losses = {"balance": balance(scores, wished), "sequence_balance": sum(sequences) / len(sequences), "z": u.z_loss_func(logits, 1.0)}
    losses["global_balance"] = losses["balance"] # of one rank and micro batch
    return probs, chosen.bool(), losses


def by_deepspeed(c, logits, bias):
    from deepspeed.moe import sharded_moe as gates
    logits = logits.float() # as it has everything
    if c["capacity"]:
        loss, combine, _, _ = gates.topkgating(logits, c["top_k"], c["capacity"], c["min_capacity"], drop_policy="position")[:4]
    elif c["top_k"] == 1:
        loss, combine, _, _ = gates.top1gating(logits, float(c["experts"]), 0, use_rts=False)[:4]
    else:  # its loss counts first choices only: not asked for
        loss, combine, _, _ = gates.top2gating(logits, float(c["experts"]), 0, top2_2nd_expert_sampling=False)[:4]
    weights = combine.sum(-1)
    return weights, weights > 0, {"balance": loss}


def by_formula(c, logits, bias):
    T, E, k = logits.shape[0], c["experts"], c["top_k"]
    scores = {"softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid, "sqrtsoftplus": lambda x: torch.log1p(x.exp()).sqrt()}[c["score"]](logits)
    chosen = torch.zeros(T, E, dtype=torch.bool)
    if c["routing"] == "expert_choice":
        capacity = min(T, -(-T * k * (c["capacity"] or 1) // E))
        chosen.scatter_(0, scores.topk(int(capacity), dim=0).indices, True)
        weights = scores * chosen
    else:
        chosen.scatter_(1, (scores if bias is None else scores + bias).topk(k, -1).indices, True)
        weights = scores * chosen
        weights = weights / weights.sum(-1, keepdim=True) if k > 1 else weights
    parts = scores / scores.sum(-1, keepdim=True)
    wished = torch.zeros(T, E).scatter_(1, parts.topk(k, -1).indices, 1.0)
    balance = lambda s, m: E / (k * len(s) ** 2) * (s.sum(0) * m.sum(0)).sum()
    S = c["sequence"]
    losses = {"balance": balance(parts, wished), "z": logits.logsumexp(-1).square().mean()}
    losses["sequence_balance"] = sum(balance(s, m) for s, m in zip(parts.split(S), wished.split(S))) / (T // S)
    losses["global_balance"] = losses["balance"]
    return weights * (c["scaling"] or 1), chosen, losses


def judge_bias(result):
    """Megatron's update of the bias, from the tokens that experts took."""
    from megatron.core.transformer.moe import moe_utils as u
    routing, c = result["routing"], result["config"]
    counts = (dense(c, routing["slots"], routing["kept"], [1.0] * len(routing["kept"]), torch.float32) > 0).sum(0).float()
    moved = u.get_updated_expert_bias(counts[None], torch.tensor(routing["bias"], dtype=torch.float32)[None], c["bias_update_rate"])[0]
    if not torch.equal(moved, torch.tensor(routing["moved_bias"], dtype=torch.float32)):
        yield f"bias {routing['moved_bias']}, Megatron {moved.tolist()}"


def judge(program, config, device, dtype, judged_by):
    c = dict(megatron.DEFAULTS, **EXTRA, **{k: v for k, v in config.items() if k not in EXTRA}) | {k: v for k, v in config.items() if k in EXTRA}
    result = dict(megatron.probe(program, dict(c, show="routing"), device), config=c)
    routing = result["routing"]
    logits = torch.tensor(routing["logits"], dtype=dtype).reshape(-1, c["experts"]).requires_grad_(True)
    bias = torch.tensor(routing["bias"], dtype=torch.float32) if c["expert_bias"] else None
    probs, chosen, losses = judged_by(c, logits, bias)
    upstream = dense(c, routing["slots"], routing["kept"], routing["dprobs"], dtype)
    total = (probs * upstream).sum() + sum(c[name] * loss for name, loss in losses.items() if c[name])
    total.backward()
    kept = dense(c, routing["slots"], routing["kept"], [1.0] * len(routing["kept"]), dtype) > 0
    if not torch.equal(kept, chosen):
        yield 1.0, f"other experts for {(kept != chosen).any(-1).sum()} of {len(kept)} tokens"
        return
    found = {"probabilities": (dense(c, routing["slots"], routing["kept"], routing["probs"], dtype), probs.detach() * chosen, 1e-6),
             "gradient": (torch.tensor(routing["dlogits"], dtype=dtype).reshape_as(logits), logits.grad, 1e-5)}
    for name, loss in losses.items():
        if c[name]:
            found[name] = (torch.tensor(result[name][0]), loss.detach(), 1e-6)
    for name, (got, wanted, tolerance) in found.items():
        error = ((got - wanted).abs().max() / wanted.abs().max().clamp_min(1e-12)).item()
        yield error / tolerance, None if error <= tolerance else f"{name} differs by {error:.3g}"
    if judged_by is by_megatron and c["expert_bias"]:
        yield from ((1.0, line) for line in judge_bias(result))


def main():
    with tempfile.TemporaryDirectory() as folder:
        megatron.start_megatron(0, 1, folder + "/store")
    lines = []
    for judged_by, configs in ((by_megatron, MEGATRON), (by_deepspeed, DEEPSPEED), (by_formula, FORMULA)):
        for config in configs:
            name = " ".join(f"{k}={v}" for k, v in config.items() if k not in SMALL or v != SMALL[k])
            for device, dtype in (("reference_f64", torch.float64), ("cpu", torch.float32)):
                worst = 0.0
                for share, line in judge(sys.argv[1], config, device, dtype, judged_by):
                    worst = max(worst, share)
                    if line:
                        lines.append(f"{judged_by.__name__} {name} on {device}: {line}")
                print(f"{judged_by.__name__:13s} {device:14s} {worst:8.2g} of the tolerance  {name}", flush=True)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
