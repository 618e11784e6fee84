"""What must not depend on how a run is laid out: experts over ranks, data over ranks; and a single expert is the dense model."""
import json
import struct

from training import BAD_INPUT, MOE, Bench, check, close, contains

STEPS = {"iterations": 8, "validation": {"interval": 4, "iterations": 2}}
PARITY = {"experts": 1, "top_k": 1, "expert_ffn_hidden_size": 64, "pre_softmax": True,
          "losses": [{"type": "aux_loss", "coefficient": 1e-2}], "per_layer_metrics": True}


def tensors_of(directory):
    """The model's tensors by name: vectors as lists, matrices as lists of rows."""
    found = {}
    for path in directory.glob("model*.safetensors"):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                values = list(struct.unpack(f"<{(end - begin) // 4}f", raw[8 + size + begin:8 + size + end]))
                columns = entry["shape"][-1]
                found[name] = values if len(entry["shape"]) == 1 else [values[i:i + columns] for i in range(0, len(values), columns)]
    return found


def single_precision(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def hashes(run):
    return [line["samples_sha256"] for line in run.records("data")]


with Bench() as bench:
    one = bench.make("one", model={"moe": MOE}, training=STEPS)
    one.train()
    dense = bench.make("dense", training=STEPS)
    dense.train()
    check("dense and MoE read the same samples", hashes(one), hashes(dense))
    check("a hash a step, all different", len(set(hashes(dense))), 8)
    for ranks, expert in ((2, 2), (4, 2), (4, 4), (2, 1)):
        many = bench.make("many", model={"moe": MOE}, training=STEPS, resources={"ranks_per_node": ranks}, parallelism={"expert": expert})
        many.train()
        what = f"EP {expert} on {ranks} ranks against 1 rank"
        for name in ("loss", "grad_norm", "validation_loss", "load_balancing_loss"):
            close(f"{what}: {name}", many.values(name), one.values(name), 1e-5)
        check(f"{what}: samples", hashes(many), hashes(one))
        check(f"{what}: expert load of the first step", many.records("expert_load")[0]["counts"], one.records("expert_load")[0]["counts"])
        end, whole = many.records("end")[0], one.records("end")[0]
        check(f"{what}: resident expert bytes", end["expert_bytes"], whole["expert_bytes"] // expert)
        check(f"{what}: parameters", end["parameters"]["total"], whole["parameters"]["total"])
        # Rows of T/ranks tokens, top 2, width 32, and a probability each; there and back, forward and backward; 2 layers.
        rows = 8 * 32 // ranks * 2
        check(f"{what}: bytes of all-to-all a step", end["alltoall_bytes_per_step"], 2 * (4 * rows * 32 * 4 + 2 * rows * 4) if expert > 1 else 0)

    # A single expert made from the dense run's checkpoint, top-1: the dense twin that starts there has the same bits, for 100 steps.
    start = bench.make("start", training={"iterations": 3}, checkpoint={"interval": 3})
    start.train()
    origin = {"run_directory": str(start.directory), "checkpoint": None, "step": 0}
    LONG = {"iterations": 100, "validation": {"interval": 25, "iterations": 2},
            "learning_rate": {"schedule": "wsd", "peak": 3e-3, "minimum": 1e-4, "warmup_iterations": 5, "decay_iterations": 30}}

    def upcycled(moe, granularity=None, **more):
        """Sections of a spec: this model with experts, out of the dense checkpoint."""
        return {"model": {"from": {"path": "/elsewhere", "upcycle": {"granularity": granularity} if granularity else {}}, "moe": moe}, **more}

    for layout, precision, more in (("", "fp32", {}), (" on 2 ranks", "fp32", {"resources": {"ranks_per_node": 2}}), (" in bf16", "bf16", {}),
                                    (" in bf16 on 2 ranks", "bf16", {"resources": {"ranks_per_node": 2}}), (" in fp16", "fp16", {})):
        training = {**LONG, "precision": precision}
        single = bench.make("single", origin=origin, training=training, **upcycled(PARITY, 1, **more))
        single.train()
        twin = bench.make("twin", origin=origin, training=training, model={"from": {"path": "/elsewhere"}}, **more)
        twin.train()
        for name in ("loss", "validation_loss", "grad_norm", "learning_rate", "tokens"):
            check(f"a single expert has the dense run's bits{layout}: {name}", single.values(name), twin.values(name))
        check(f"100 steps of them{layout}", len(single.values("loss")), 100)
        check(f"its load-balancing loss is exactly 1{layout}", set(single.values("load_balancing_loss")), {1.0})
        check(f"and so in each layer{layout}", set(single.values("moe/layer_01/load_balancing_loss")), {1.0})
        check(f"layers x hidden more gradient zeros: the router's{layout}",
              {single.metrics()[step]["grad_zeros"] - line["grad_zeros"] for step, line in twin.metrics().items() if "grad_norm" in line},
              {2 * 32})  # where gradients overflow in fp16 there is no norm, and none is zero
        check(f"same samples{layout}", hashes(single), hashes(twin))
    twin = bench.make("twin", origin=origin, training=STEPS)
    twin.train()
    fresh = bench.make("fresh", training=STEPS)
    fresh.train()
    check("weights were taken over", twin.values("loss")[0] < fresh.values("loss")[0], True)

    # Where the weights of the chosen experts add up to 1 and no slice is cut, the function is the dense model's, whatever is chosen.
    whole = {**MOE, "expert_ffn_hidden_size": 64}
    for what, moe in {"four copies, top-2": whole, "top-3": {**whole, "top_k": 3},
                      "all four, softmax first": {**whole, "top_k": 4, "pre_softmax": True}}.items():
        copies = bench.make("copies", origin=origin, training=STEPS, **upcycled(moe, 1))
        copies.train()
        close(f"{what}: the first loss is the dense one", copies.values("loss")[:1], twin.values("loss")[:1], 1e-6)
    copies = bench.make("copies", origin=origin, training=STEPS, **upcycled(whole, 1))
    copies.train()
    for expert in (2, 4):
        spread = bench.make("spread", origin=origin, training=STEPS, **upcycled(whole, 1, resources={"ranks_per_node": 4}, parallelism={"expert": expert}))
        spread.train()
        close(f"the same over 4 ranks, EP {expert}", spread.values("loss"), copies.values("loss"), 1e-5)
    path = bench.make("path", origin={"run_directory": None, "checkpoint": str(start.directory / "checkpoints" / "step-0000003"), "step": 0}, training=STEPS)
    path.train()
    check("from a path: the bits of from a run", path.values("loss"), twin.values("loss"))

    # Slices: every weight against the formulas, from the two files. The step changes nothing: its rate is 0.
    STILL = {"iterations": 1, "learning_rate": {"schedule": "constant", "peak": 1e-3, "initial": 0, "warmup_iterations": 1}}
    source = tensors_of(start.directory / "checkpoints" / "step-0000003")

    def sliced(what, moe, granularity, layers=(0, 1), **more):
        E, k, X = moe["experts"], moe["top_k"], moe["expert_ffn_hidden_size"]
        s = (E // granularity) * granularity ** 2 / k if moe.get("pre_softmax") else granularity
        scale = single_precision(s ** (1 / 3))
        sections = upcycled(moe, granularity, **more)
        run = bench.make("sliced", origin=origin, training=STILL, checkpoint={"interval": 1}, **sections)
        run.train()
        made = tensors_of(run.directory / "checkpoints" / "step-0000001")
        sections["model"].pop("from")
        random = bench.make("random", training=STILL, checkpoint={"interval": 1}, **sections)
        random.train()
        initial = tensors_of(random.directory / "checkpoints" / "step-0000001")
        for layer in range(2):
            mlp, moe_name = f"model.layers.{layer}.mlp", f"model.layers.{layer}.block_sparse_moe"
            if layer not in layers:
                for name in ("gate_proj", "up_proj", "down_proj"):
                    check(f"{what}: layer {layer} stays dense: {name}", made[f"{mlp}.{name}.weight"] == source[f"{mlp}.{name}.weight"], True)
                continue
            for j in range(E):
                rows = range(j % granularity * X, (j % granularity + 1) * X)
                for ours, dense in (("w1", "gate_proj"), ("w3", "up_proj")):
                    expected = [[single_precision(v * scale) for v in source[f"{mlp}.{dense}.weight"][r]] for r in rows]
                    assert made[f"{moe_name}.experts.{j}.{ours}.weight"] == expected, (what, layer, j, ours)
                expected = [[single_precision(row[c] * scale) for c in rows] for row in source[f"{mlp}.down_proj.weight"]]
                assert made[f"{moe_name}.experts.{j}.w2.weight"] == expected, (what, layer, j)
                assert made[f"{moe_name}.gate.weight"][j] == initial[f"{moe_name}.gate.weight"][j // granularity], (what, layer, j)
            check(f"{what}: layer {layer}: every slice of {E} experts and every row of the router", True, True)
        same = [name for name in source if ".mlp." not in name]
        check(f"{what}: all else is the dense model's", [name for name in same if made[name] != source[name]], [])
        return run.values("loss")[0]

    fine = {**MOE, "experts": 8, "top_k": 4, "expert_ffn_hidden_size": 16}
    loss = sliced("8 experts of 4 slices", fine, 4)
    check("their loss is near the dense one", abs(loss / twin.values("loss")[0] - 1) < 0.05, True)
    close("the same made by 4 ranks", [sliced("by 4 ranks", fine, 4, resources={"ranks_per_node": 4}, parallelism={"expert": 4})], [loss], 1e-6)
    sliced("softmax first", {**fine, "pre_softmax": True}, 4)
    sliced("2 slices, the second layer dense", {**MOE, "experts": 4, "layer_frequency": 2}, 2, layers=(0,))
    derived = bench.make("derived", origin=origin, training=STILL, **upcycled(fine))
    derived.train()
    check("granularity follows from the widths", derived.values("loss")[0], loss)

    def refused(what, words, origin, **sections):
        run = bench.make("refused", origin=origin, training=STEPS, **sections)
        contains(what, run.train(code=BAD_INPUT), words)

    refused("a dense checkpoint for experts, unasked", "step-0000003 is a dense model's, and this one has 4 experts a layer: "
            "model.from.upcycle: {granularity: 2} makes them of its FFN", origin, model={"moe": MOE})
    refused("slices of another FFN", "mlp.gate_proj.weight is 64 × 32, but 4 slices for experts of this model are 128 × 32", origin,
            model={"ffn_hidden_size": 128, "from": {"path": "/elsewhere", "upcycle": {}}, "moe": MOE})
    refused("another hidden size", "but this model's", origin, model={"hidden_size": 64, "head_dim": 8})
    refused("a checkpoint that is not there", "no complete checkpoint", {"run_directory": str(twin.directory), "checkpoint": None, "step": 0})
    refused("a step that is not there", "step-0000002", {"run_directory": str(start.directory), "checkpoint": None, "step": 2})
    refused("an output layer that a tied checkpoint has not", "no tensor lm_head.weight", origin, model={"tied_embeddings": False})
    moe = bench.make("moe", training={"iterations": 3}, checkpoint={"interval": 3}, model={"moe": MOE})
    moe.train()
    refused("experts into a dense model", "mlp.gate_proj.weight", {"run_directory": str(moe.directory), "checkpoint": None, "step": 0})
    refused("experts of experts", "model.from.upcycle takes a dense model, and this one has experts (model.layers.0.block_sparse_moe.experts.0.w1.weight)",
            {"run_directory": str(moe.directory), "checkpoint": None, "step": 0}, **upcycled(whole, 1))
