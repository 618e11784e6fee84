"""200 random specs made by --set: parameters, total and active, by `plan`, by the worker's table as it would be allocated on each rank, and
by a formula of this test's own. And every rank holds its share of the experts."""
import json
import random
import subprocess

from training import SWITCHYARD, WORKER, Bench, check, environment

COUNT = 200


def routing(rng):
    """Ways of routing cost no parameters."""
    if rng.random() < 0.2:
        return {"routing": "expert_choice", "capacity_factor": rng.choice([0, 0.5, 2])}
    keys = {"capacity_factor": rng.choice([0, 0, 1.25]), "scaling_factor": rng.choice([0, 2.5]), "input_jitter": rng.choice([0, 0.01]),
            "router_dtype": rng.choice(["fp32", "bf16", "fp64"])}
    if rng.random() < 0.5:
        keys["pre_softmax"] = "true"
    else:
        keys.update(score_function=rng.choice(["sigmoid", "sqrtsoftplus"]), expert_bias=rng.choice(["true", "false"]))
    if keys["capacity_factor"]:
        keys.update(drop_policy=rng.choice(["probs", "position"]), pad_to_capacity=rng.choice(["true", "false"]), min_capacity=rng.choice([0, 4]))
    return keys


def draw(rng):
    """Values of keys, and the numbers that the formula needs."""
    heads = rng.choice([1, 2, 4, 8, 12])
    kv = rng.choice([g for g in range(1, heads + 1) if heads % g == 0])
    size = 2 * rng.randint(1, 32)
    hidden = rng.choice([heads * size, 2 * rng.randint(4, 200)])
    n = {"L": rng.randint(1, 12), "h": hidden, "f": rng.randint(1, 700), "q": heads * size, "kv": kv * size, "V": rng.randint(257, 5000),
         "tied": rng.random() < 0.5, "E": 0, "k": 0, "x": 0, "ep": 1}
    sets = {"model.layers": n["L"], "model.hidden_size": hidden, "model.ffn_hidden_size": n["f"], "model.attention_heads": heads,
            "model.kv_heads": kv, "model.head_dim": size, "model.vocab_size": n["V"], "model.tied_embeddings": str(n["tied"]).lower()}
    if rng.random() < 0.7:
        n["ep"] = rng.choice([1, 1, 2, 3, 4])
        n["E"] = n["ep"] * rng.randint(1, 12)
        n["k"] = rng.randint(1, n["E"])
        n["x"] = rng.choice([n["f"], rng.randint(1, 300)])
        n["per_layer"] = [n["E"]] * n["L"]
        sets.update({"model.moe.top_k": n["k"], "model.moe.expert_ffn_hidden_size": n["x"], "parallelism.expert": n["ep"]})
        sets.update({f"model.moe.{key}": value for key, value in routing(rng).items()})
        if rng.random() < 0.4:  # a pyramid on some of the layers
            chosen = sorted(rng.sample(range(n["L"]), rng.randint(1, n["L"])))
            least = -(-n["k"] // n["ep"])
            counts = [n["ep"] * rng.randint(least, least + 8) for _ in chosen]
            n["per_layer"] = [counts[chosen.index(layer)] if layer in chosen else 0 for layer in range(n["L"])]
            n["E"] = max(counts)
            sets.update({"model.moe.layers": chosen, "model.moe.experts_per_layer": counts})
        else:
            sets["model.moe.experts"] = n["E"]
        n["shared"], n["gate"], n["residual"] = rng.choice([0, 0, rng.randint(1, 200)]), rng.random() < 0.5, rng.random() < 0.3
        sets["model.moe.shared_expert_size"] = n["shared"]
        sets["model.moe.shared_expert_gate"] = str(n["gate"] and n["shared"] > 0).lower()
        sets["model.moe.residual"] = str(n["residual"]).lower()
    n["gelu"], n["layernorm"], n["bias"] = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.3
    sets.update({"model.activation": "gelu" if n["gelu"] else "swiglu", "model.norm": "layernorm" if n["layernorm"] else "rmsnorm",
                 "model.bias": str(n["bias"]).lower()})
    ranks = n["ep"] * rng.randint(1, 3)
    sets.update({"resources.ranks_per_node": ranks, "training.global_batch_size": 2 * ranks})
    return n, sets


def formula(n):
    """Parameters in all, of a token's way, and of all experts."""
    b, matrices, norm = int(n["bias"]), 2 if n["gelu"] else 3, n["h"] * (2 if n["layernorm"] else 1)
    ffn = lambda width, biased=b: matrices * n["h"] * width + biased * ((matrices - 1) * width + n["h"])
    attention = n["h"] * n["q"] * 2 + n["h"] * n["kv"] * 2 + b * (n["q"] + 2 * n["kv"] + n["h"])
    around = n["V"] * n["h"] * (1 if n["tied"] else 2) + n["L"] * (attention + 2 * norm) + norm
    dense = active = experts = 0
    for count in n["per_layer"] if n["E"] else [0] * n["L"]:
        if not count:
            dense += ffn(n["f"])
            continue
        dense += count * n["h"]
        if n["shared"]:
            dense += ffn(n["shared"], 0) + (n["h"] if n["gate"] else 0)
        if n["residual"]:
            dense += ffn(n["x"]) + 2 * n["h"] + 2 * b
        active += n["k"] * ffn(n["x"])
        experts += count * ffn(n["x"])
    return around + dense + experts, around + dense + active, experts


SPEC = """\
project: random
data: {prefix: PREFIX, sequence_length: 16}
model: {layers: 1, hidden_size: 8, ffn_hidden_size: 8, attention_heads: 1, vocab_size: 257}
training: {iterations: 1, micro_batch_size: 1, global_batch_size: 2, learning_rate: {peak: 1e-3}}
"""


def ask(*words):
    done = subprocess.run([str(w) for w in words], env=environment(), text=True, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


with Bench() as bench:
    rng = random.Random(20261129)
    path = bench.root / "random.yaml"
    path.write_text(SPEC.replace("PREFIX", str(bench.prefix)))
    run = bench.make("random")
    document = json.loads((run.directory / "run.json").read_text())
    mixtures = 0
    for i in range(COUNT):
        n, sets = draw(rng)
        options = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        plan = ask(SWITCHYARD, "plan", path, *options, "--json")["runs"][0]["parameters"]
        document["spec"] = ask(SWITCHYARD, "validate", path, *options, "--json")["runs"][0]["spec"]
        (run.directory / "run.json").write_text(json.dumps(document))
        table = ask(WORKER, "inspect", "--json", run.directory)
        total, active, experts = formula(n)
        what = f"spec {i}: {options}"
        if (plan["total"], plan["active"], table["total"], table["active"]) != (total, active, total, active):
            raise AssertionError(f"{what}: plan {plan}, worker {table}, expected {total} and {active}")
        shares = [(rank["dense"], rank["experts"]) for rank in table["expert_parallel_ranks"]]
        if shares != [(total - experts, experts // n["ep"])] * n["ep"]:
            raise AssertionError(f"{what}: ranks hold {shares}")
        mixtures += n["E"] > 0
    check("200 random specs: dense and mixtures among them", 40 < mixtures < COUNT - 40, True)
    print(f"ok  {COUNT} random specs ({mixtures} mixtures): formula, plan and the worker's table agree")
