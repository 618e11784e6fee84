#!/usr/bin/env python3
"""The model written a second time, in PyTorch and in double, from its description and not from our code: it judges loss, balance losses
and every gradient.

  torch_model.py --golden FOLDER     writes the golden vectors that tests/train/golden.c checks without PyTorch
  torch_model.py --fresh FOLDER      the golden vectors are what this script makes
  torch_model.py --judge PROBE       runs the C program PROBE on more models and compares every gradient
"""
import argparse
import hashlib
import json
import math
import os
import subprocess
import sys

import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1
DEFAULTS = dict(layers=2, hidden=12, ffn=20, heads=2, groups=1, head_dim=6, vocab=19, sequence=5, micro_batch=2, untied=0, experts=0,
                top_k=0, expert_ffn=10, pre_softmax=0, layer_frequency=1, balance=0.0, deviation=0.5, position="rope", max_positions=0,
                rope_factor=0.0, rope_low=1.0, rope_high=4.0, rope_original=8192, qk_norm="none", window=0, documents=0, bias=0,
                attention_dropout=0.0, hidden_dropout=0.0, seed=1234, norm="rmsnorm", activation="swiglu", shared=0, shared_gate=0, residual=0,
                experts_per_layer="", moe_layers="")

GOLDEN = {
    "dense": dict(),
    "moe": dict(experts=4, top_k=2, balance=0.3, untied=1),
    "moe-pre-softmax": dict(experts=4, top_k=2, balance=0.1, pre_softmax=1, layer_frequency=2),
}

JUDGED = [
    dict(layers=3, hidden=24, ffn=40, heads=6, groups=2, head_dim=4, vocab=101, sequence=17, micro_batch=3),
    dict(layers=1, hidden=16, heads=4, groups=4, head_dim=4, untied=1, sequence=1, micro_batch=5, deviation=1.0),
    dict(hidden=20, heads=3, groups=1, head_dim=8, experts=7, top_k=3, expert_ffn=9, balance=0.02, sequence=13),
    dict(experts=8, top_k=8, expert_ffn=6, balance=1.0, untied=1, sequence=11),
    dict(experts=16, top_k=1, pre_softmax=1, expert_ffn=8, balance=0.5, sequence=9, micro_batch=4),
    dict(layers=4, experts=6, top_k=2, pre_softmax=1, layer_frequency=3, balance=0.0, deviation=0.2),
    dict(position="learned", max_positions=30, bias=1, heads=4, groups=4, head_dim=3, sequence=17),
    dict(position="none", sequence=17, untied=1, window=5),
    dict(rope_factor=8.0, rope_low=1.0, rope_high=4.0, rope_original=40, head_dim=16, heads=3, sequence=33),
    dict(qk_norm="head", heads=6, groups=3, head_dim=8, sequence=17),
    dict(qk_norm="projection", heads=6, groups=2, head_dim=8, sequence=17, bias=1),
    dict(window=1, sequence=9), dict(window=40, heads=4, groups=2, head_dim=8, sequence=70),
    dict(documents=1, heads=4, groups=2, head_dim=8, sequence=70),
    dict(documents=1, position="learned", max_positions=17, sequence=17, experts=4, top_k=2, balance=0.1),
    dict(attention_dropout=0.4, heads=4, groups=2, head_dim=8, sequence=70),
    dict(hidden_dropout=0.4, hidden=80, sequence=17, experts=4, top_k=2, deviation=0.2),
    dict(documents=1, window=9, qk_norm="head", bias=1, rope_factor=4.0, rope_original=64, attention_dropout=0.1, hidden_dropout=0.2, hidden=48,
         heads=6, groups=3, head_dim=8, sequence=40, experts=5, top_k=2, balance=0.3, layer_frequency=2),
    dict(norm="layernorm"), dict(activation="gelu", sequence=11), dict(activation="gelu", bias=1, experts=5, top_k=2, balance=0.1),
    dict(norm="layernorm", activation="gelu", bias=1, position="learned", max_positions=9, sequence=9, heads=4, groups=4, head_dim=3), # GPT-2's
    dict(bias=1, experts=4, top_k=2),
    dict(experts=5, top_k=2, shared=9, balance=0.1), dict(experts=5, top_k=2, shared=9, shared_gate=1, activation="gelu", hidden=20),
    dict(experts=5, top_k=1, pre_softmax=1, residual=1, balance=0.1), dict(experts=5, top_k=2, residual=1, activation="gelu", bias=1),
    dict(layers=3, experts=8, experts_per_layer="8,4,2", top_k=2, balance=0.2), dict(layers=4, experts=6, top_k=2, moe_layers="1,2", untied=1),
    dict(layers=4, norm="layernorm", activation="gelu", bias=1, experts=8, experts_per_layer="8,3", moe_layers="1,3", top_k=2, balance=0.2,
         shared=7, shared_gate=1, residual=1, hidden_dropout=0.2, sequence=17),
]


# ---- values that the C tests make by the same rule ----

def random01(seed, index):
    z = (seed * 0x9E3779B97F4A7C15 + index + 1) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = (z * 0x9E3779B97F4A7C15 + seed) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    return (z >> 11) * 2.0 ** -53


def fnv(name):
    value = 14695981039346656037
    for byte in name.encode():
        value = ((value ^ byte) * 1099511628211) & MASK
    return value


def values(name, shape, deviation):
    seed, count = fnv(name), math.prod(shape)
    centred = [(random01(seed, i) - 0.5) * math.sqrt(12) for i in range(count)]
    flat = [1 + 0.2 * c for c in centred] if name.endswith("norm.weight") else [deviation * c for c in centred]
    return torch.tensor(flat, dtype=torch.float64).reshape(shape).requires_grad_(True)


def batch(c, micro_batch=0):
    rows = range(micro_batch * c["micro_batch"], (micro_batch + 1) * c["micro_batch"])
    at = [[b * (c["sequence"] + 1) + s for s in range(c["sequence"])] for b in rows]
    tokens = [[int(random01(7, i) * c["vocab"]) for i in row] for row in at]
    targets = [[-1 if i % 7 == 3 else int(random01(7, i + 1) * c["vocab"]) for i in row] for row in at]
    return torch.tensor(tokens), torch.tensor(targets)


def document_starts(c):
    """Where each token's document begins: documents of 1, 2, 3, … tokens."""
    starts, begin, length = [], 0, 1
    for s in range(c["sequence"]):
        if s == begin + length:
            begin, length = s, length + 1
        starts.append(begin)
    return torch.tensor(starts)


def experts_of(c, layer):
    """How many experts the layer has; 0: it is dense."""
    listed = [int(n) for n in c["moe_layers"].split(",") if n]
    places = listed or range(0, c["layers"], c["layer_frequency"])
    if not c["experts"] or layer not in places:
        return 0
    counts = [int(n) for n in c["experts_per_layer"].split(",") if n]
    return counts[list(places).index(layer)] if counts else c["experts"]


def is_moe(c, layer):
    return experts_of(c, layer) > 0


def ffn_shapes(c, at, width, bias, names=("gate_proj", "up_proj", "down_proj")):
    for name, rows, columns in zip(names, (width, width, c["hidden"]), (c["hidden"], c["hidden"], width)):
        if name == names[0] and c["activation"] == "gelu":
            continue
        yield at + f"{name}.weight", (rows, columns)
        if bias:
            yield at + f"{name}.bias", (rows,)


def norm_shapes(c, name):
    yield name + ".weight", (c["hidden"],)
    if c["norm"] == "layernorm":
        yield name + ".bias", (c["hidden"],)


def shapes(c):
    hidden, wide, narrow = c["hidden"], c["heads"] * c["head_dim"], c["groups"] * c["head_dim"]
    yield "model.embed_tokens.weight", (c["vocab"], hidden)
    if c["position"] == "learned":
        yield "model.embed_positions.weight", (c["max_positions"], hidden)
    for layer in range(c["layers"]):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield from norm_shapes(c, at + name)
        for name, rows, columns in (("q", wide, hidden), ("k", narrow, hidden), ("v", narrow, hidden), ("o", hidden, wide)):
            yield at + f"self_attn.{name}_proj.weight", (rows, columns)
            if c["bias"]:
                yield at + f"self_attn.{name}_proj.bias", (rows,)
        if c["qk_norm"] != "none":
            whole = c["qk_norm"] == "projection"
            yield at + "self_attn.q_norm.weight", (wide if whole else c["head_dim"],)
            yield at + "self_attn.k_norm.weight", (narrow if whole else c["head_dim"],)
        if not is_moe(c, layer):
            yield from ffn_shapes(c, at + "mlp.", c["ffn"], c["bias"])
            continue
        at += "block_sparse_moe."
        yield at + "gate.weight", (experts_of(c, layer), hidden)
        for expert in range(experts_of(c, layer)):
            yield from ffn_shapes(c, at + f"experts.{expert}.", c["expert_ffn"], c["bias"], ("w1", "w3", "w2"))
        if c["shared"]:
            yield from ffn_shapes(c, at + "shared_expert.", c["shared"], False)
            if c["shared_gate"]:
                yield at + "shared_expert_gate.weight", (1, hidden)
        if c["residual"]:
            yield from ffn_shapes(c, at + "residual.", c["expert_ffn"], c["bias"])
            yield at + "coefficient.weight", (2, hidden)
            if c["bias"]:
                yield at + "coefficient.bias", (2,)
    yield from norm_shapes(c, "model.norm")
    if c["untied"]:
        yield "lm_head.weight", (c["vocab"], hidden)


# ---- the model ----

def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def row_norm(c, p, name, x):
    if c["norm"] == "layernorm":
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)
    return norm(x, p[name + ".weight"])


def ffn(c, p, at, x, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = (at + name for name in names)
    if c["activation"] == "gelu":
        return linear(p, down, F.gelu(linear(p, up, x), approximate="tanh"))
    return linear(p, down, F.silu(linear(p, gate, x)) * linear(p, up, x))


def frequencies(c):
    """Llama 3's: a wavelength stays, is stretched, or something between, by how often it fits into the original length."""
    half = c["head_dim"] // 2
    plain = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    if not c["rope_factor"]:
        return plain
    wavelength = 2 * math.pi / plain
    smooth = (c["rope_original"] / wavelength - c["rope_low"]) / (c["rope_high"] - c["rope_low"])
    between = (1 - smooth) * plain / c["rope_factor"] + smooth * plain
    long, short = wavelength > c["rope_original"] / c["rope_low"], wavelength < c["rope_original"] / c["rope_high"]
    return torch.where(long, plain / c["rope_factor"], torch.where(short, plain, between))


def positions(c):
    place = torch.arange(c["sequence"])
    return place - document_starts(c) if c["documents"] else place


def rotate(c, x):
    """Half-split rotary positions over (..., S, D), written with complex numbers."""
    if c["position"] != "rope":
        return x
    half = x.shape[-1] // 2
    angle = positions(c)[:, None] * frequencies(c)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def philox(counters, key):
    """Philox4x32-10 of counters (4, N) under one key; four words each."""
    a, b, c, d = ([int(v) for v in row] for row in counters)
    k, l = key
    for _ in range(10):
        p = [v * 0xD2511F53 for v in a]
        q = [v * 0xCD9E8D57 for v in c]
        a, c = [(y >> 32) ^ v ^ k for y, v in zip(q, b)], [(y >> 32) ^ v ^ l for y, v in zip(p, d)]
        b, d = [y & 0xFFFFFFFF for y in q], [y & 0xFFFFFFFF for y in p]
        k, l = (k + 0x9E3779B9) & 0xFFFFFFFF, (l + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


EMBEDDING, SCORES, ATTENTION, MLP = range(4)


def factors(c, probability, kind, layer, head, tokens, width):
    """What dropout multiplies (tokens, width) values by. Value i of a row is word i / 16 % 4 of block i / 64 * 16 + i % 16."""
    blocks = (width + 63) // 64 * 16
    site, rows = kind << 24 | layer << 14 | head, []
    for token in range(tokens):
        words = philox([range(blocks), [site] * blocks, [token] * blocks, [0] * blocks], (c["seed"], 0xFFFFFFFF))
        rows.append([0.0 if words[i // 16 % 4][i // 64 * 16 + i % 16] < int(probability * 2 ** 32) else 1 / (1 - probability) for i in range(width)])
    return torch.tensor(rows, dtype=torch.float64)


def drop(c, x, kind, layer=0):
    if not c["hidden_dropout"]:
        return x
    return x * factors(c, c["hidden_dropout"], kind, layer, 0, x.shape[0] * x.shape[1], x.shape[2]).view_as(x)


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def attention(c, p, at, layer, x):
    B, S, _ = x.shape
    q, k, v = (linear(p, at + f"self_attn.{n}_proj", x) for n in "qkv")
    heads = lambda t: t.view(B, S, -1, c["head_dim"]).transpose(1, 2)
    if c["qk_norm"] == "projection":
        q, k = (norm(t, p[at + f"self_attn.{n}_norm.weight"]) for t, n in ((q, "q"), (k, "k")))
    q, k, v = heads(q), heads(k), heads(v)
    if c["qk_norm"] == "head":
        q, k = (norm(t, p[at + f"self_attn.{n}_norm.weight"]) for t, n in ((q, "q"), (k, "k")))
    k, v = (t.repeat_interleave(c["heads"] // c["groups"], 1) for t in (rotate(c, k), v))
    scores = rotate(c, q) @ k.transpose(-1, -2) / math.sqrt(c["head_dim"])
    query, key = torch.arange(S)[:, None], torch.arange(S)
    seen = key <= query
    if c["window"]:
        seen &= query - key < c["window"]
    if c["documents"]:
        seen &= key >= document_starts(c)[:, None]
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    if c["attention_dropout"]:
        by_head = [factors(c, c["attention_dropout"], SCORES, layer, h, B * S, S).view(B, S, S) for h in range(c["heads"])]
        weights = weights * torch.stack(by_head, 1)
    return linear(p, at + "self_attn.o_proj", (weights @ v).transpose(1, 2).reshape(B, S, -1))


def experts(c, p, at, x, E):
    """Every expert over every token, weighted by a (T, E) matrix that is zero where a token did not choose it."""
    T, K = x.shape[0], c["top_k"]
    logits = F.linear(x, p[at + "gate.weight"])
    scores = logits.softmax(-1)
    chosen = torch.zeros(T, E, dtype=torch.bool).scatter(1, logits.topk(K, -1).indices, True)
    if c["pre_softmax"]:
        weight = scores * chosen
    else:
        weight = logits.masked_fill(~chosen, -math.inf).softmax(-1)
    balance = E / (K * T * T) * (scores.sum(0) * chosen.sum(0)).sum()
    out = 0
    for e in range(E):
        out = out + weight[:, e:e + 1] * ffn(c, p, at + f"experts.{e}.", x, ("w1", "w3", "w2"))
    if c["shared"]:
        gate = F.linear(x, p[at + "shared_expert_gate.weight"]).sigmoid() if c["shared_gate"] else 1
        shared = gate * ffn(c, p, at + "shared_expert.", x)
    if c["residual"]:  # DeepSpeed's: the experts' share first
        share = linear(p, at + "coefficient", x).softmax(-1)
        out = out * share[:, :1] + ffn(c, p, at + "residual.", x) * share[:, 1:]
    if c["shared"]:
        out = out + shared
    return out, balance


def run(config):
    c = dict(DEFAULTS, **config)
    p = {name: values(name, shape, c["deviation"]) for name, shape in shapes(c)}
    tokens, targets = batch(c)
    x = p["model.embed_tokens.weight"][tokens]
    if c["position"] == "learned":
        x = x + p["model.embed_positions.weight"][positions(c)]
    x = drop(c, x, EMBEDDING)
    balances = []
    for layer in range(c["layers"]):
        at = f"model.layers.{layer}."
        x = x + drop(c, attention(c, p, at, layer, row_norm(c, p, at + "input_layernorm", x)), ATTENTION, layer)
        h = row_norm(c, p, at + "post_attention_layernorm", x)
        if is_moe(c, layer):
            y, balance = experts(c, p, at + "block_sparse_moe.", h.flatten(0, 1), experts_of(c, layer))
            x, balances = x + drop(c, y.view_as(x), MLP, layer), balances + [balance]
        else:
            x = x + drop(c, ffn(c, p, at + "mlp.", h), MLP, layer)
            balances.append(torch.zeros((), dtype=torch.float64))
    logits = F.linear(row_norm(c, p, "model.norm", x), p["lm_head.weight" if c["untied"] else "model.embed_tokens.weight"])
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    (loss + c["balance"] * sum(balances)).backward()
    return {"loss": loss.item(), "balance": [b.item() for b in balances],
            "gradients": {name: t.grad.flatten().tolist() for name, t in p.items()}}


# ---- golden vectors, and the judge ----

def script_hash():
    with open(__file__, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def golden(name):
    result = run(GOLDEN[name])
    short = lambda numbers: [float(f"{n:.11g}") for n in numbers]
    return {"script": "tests/peers/torch_model.py", "script_sha256": script_hash(), "torch": torch.__version__,
            "config": dict(DEFAULTS, **GOLDEN[name]), "loss": result["loss"], "balance": result["balance"],
            "gradients": {n: short(g) for n, g in result["gradients"].items()}}


def write_golden(folder):
    os.makedirs(folder, exist_ok=True)
    compact = lambda value: json.dumps(value, separators=(",", ":"))
    for name in GOLDEN:
        result = golden(name)
        gradients = ",\n".join(f"{json.dumps(n)}:{compact(g)}" for n, g in result.pop("gradients").items())
        with open(f"{folder}/{name}.json", "w") as file: # a tensor a line
            file.write(compact(result)[:-1] + ',\n"gradients":{\n' + gradients + "}}\n")


def differences(name, got, wanted, tolerance, floor=0.0):
    """How far apart, and a line for each tensor that is too far. Only what `wanted` has is compared. A tensor's gradients are measured by
    its largest, but at least by this share of the model's largest: a gradient that is zero by mathematics is rounding in fp32."""
    worst, lines = 0.0, []
    least = floor * max(abs(x) for gradients in wanted["gradients"].values() for x in gradients)
    for tensor in wanted["gradients"]:
        a, b = got["gradients"][tensor], wanted["gradients"][tensor]
        scale = max(least, *map(abs, b))
        scale = scale if scale > 1e-12 else 1.0  # a key's bias has no gradient, but rounding, where nothing turns it
        error = max(abs(x - y) for x, y in zip(a, b, strict=True)) / scale
        worst = max(worst, error)
        if not error <= tolerance:
            lines.append(f"{name}: {tensor} differs by {error:.3g} of its largest gradient")
    for what in sorted(wanted.keys() - {"gradients"}):
        a, b = ([r[what]] if what == "loss" else r[what] for r in (got, wanted))
        error = max(abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b, strict=True))
        if not error <= tolerance:
            lines.append(f"{name}: {what} {a}, PyTorch {b}")
    if set(got["gradients"]) != set(wanted["gradients"]):
        lines.append(f"{name}: other tensors: {sorted(set(got['gradients']) ^ set(wanted['gradients']))}")
    return worst, lines


def fresh(folder):
    lines = []
    for name in GOLDEN:
        with open(f"{folder}/{name}.json") as file:
            stored = json.load(file)
        made = golden(name)
        worst, more = differences(name, stored, {key: made[key] for key in ("loss", "balance", "gradients")}, 1e-10)
        if stored["script_sha256"] != script_hash():
            more.append(f"{name}: made by another version of this script; run it with --golden {folder}")
        print(f"golden {name}: differs by at most {worst:.2g}")
        lines += more
    return lines


def judge(probe):
    lines = []
    for config in list(GOLDEN.values()) + JUDGED:
        wanted = run(config)
        name = " ".join(f"{k}={v}" for k, v in config.items()) or "dense"
        for device, tolerance in (("reference_f64", 1e-9), ("reference", 2e-4), ("cpu", 2e-4)):
            words = [f"{k}={v}" for k, v in dict(DEFAULTS, **config).items()] + [f"device={device}"]
            done = subprocess.run([probe, *words], capture_output=True, text=True)
            if done.returncode:
                lines.append(f"{name}: {probe} ended with {done.returncode}: {done.stderr.strip()}")
                continue
            worst, more = differences(f"{name} on {device}", json.loads(done.stdout), wanted, tolerance)
            print(f"{device:14s} {worst:8.2g}  {name}")
            lines += more
    return lines


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--golden", metavar="FOLDER")
    arguments.add_argument("--fresh", metavar="FOLDER")
    arguments.add_argument("--judge", metavar="PROBE")
    options = arguments.parse_args()
    lines = []
    if options.golden:
        write_golden(options.golden)
    if options.fresh:
        lines += fresh(options.fresh)
    if options.judge:
        lines += judge(options.judge)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
