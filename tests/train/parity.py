"""What must not depend on how a run is laid out: experts over ranks, data over ranks; and a single expert is the dense model."""
from training import BAD_INPUT, MOE, Bench, check, close, contains

STEPS = {"iterations": 8, "validation": {"interval": 4, "iterations": 2}}
PARITY = {"experts": 1, "top_k": 1, "expert_ffn_hidden_size": 64, "pre_softmax": True,
          "losses": [{"type": "aux_loss", "coefficient": 1e-2}], "per_layer_metrics": True}


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

    # A single expert made from the dense run's checkpoint, top-1: the dense twin that starts there has the same bits.
    start = bench.make("start", training={"iterations": 3}, checkpoint={"interval": 3})
    start.train()
    origin = {"run_directory": str(start.directory), "checkpoint": None, "step": 0}
    twin = bench.make("twin", origin=origin, training=STEPS)
    twin.train()
    single = bench.make("single", origin=origin, training=STEPS, model={"moe": PARITY})
    single.train()
    fresh = bench.make("fresh", training=STEPS)
    fresh.train()
    check("weights were taken over", twin.values("loss")[0] < fresh.values("loss")[0], True)
    for name in ("loss", "validation_loss", "grad_norm", "learning_rate", "tokens"):
        check(f"a single expert has the dense run's bits: {name}", single.values(name), twin.values(name))
    check("its load-balancing loss is exactly 1", set(single.values("load_balancing_loss")), {1.0})
    check("and so in each layer", set(single.values("moe/layer_01/load_balancing_loss")), {1.0})
    check("layers x hidden more gradient zeros: the router's", [a - b for a, b in zip(single.values("grad_zeros"), twin.values("grad_zeros"))], [2 * 32] * 8)
    check("same samples", hashes(single), hashes(twin))

    # Every expert a copy: before the first update, the loss of the dense model to rounding, since the chosen weights sum to 1.
    copies = bench.make("copies", origin=origin, training=STEPS, model={"moe": {**MOE, "expert_ffn_hidden_size": 64}})
    copies.train()
    close("four copies, top-2: the first loss", copies.values("loss")[:1], twin.values("loss")[:1], 1e-6)
    spread = bench.make("spread", origin=origin, training=STEPS, model={"moe": {**MOE, "expert_ffn_hidden_size": 64}},
                        resources={"ranks_per_node": 2}, parallelism={"expert": 2})
    spread.train()
    close("the same over 2 ranks", spread.values("loss"), copies.values("loss"), 1e-5)
    path = bench.make("path", origin={"run_directory": None, "checkpoint": str(start.directory / "checkpoints" / "step-0000003"), "step": 0}, training=STEPS)
    path.train()
    check("from a path: the bits of from a run", path.values("loss"), twin.values("loss"))

    def refused(what, words, origin, **sections):
        run = bench.make("refused", origin=origin, training=STEPS, **sections)
        contains(what, run.train(code=BAD_INPUT), words)

    refused("experts of another width", "a dense checkpoint makes experts of its own width only", origin, model={"moe": MOE})
    refused("another hidden size", "but this model's", origin, model={"hidden_size": 64, "head_dim": 8})
    refused("a checkpoint that is not there", "no complete checkpoint", {"run_directory": str(twin.directory), "checkpoint": None, "step": 0})
    refused("a step that is not there", "step-0000002", {"run_directory": str(start.directory), "checkpoint": None, "step": 2})
    refused("an output layer that a tied checkpoint has not", "no tensor lm_head.weight", origin, model={"tied_embeddings": False})
    moe = bench.make("moe", training={"iterations": 3}, checkpoint={"interval": 3}, model={"moe": MOE})
    moe.train()
    refused("experts into a dense model", "mlp.gate_proj.weight", {"run_directory": str(moe.directory), "checkpoint": None, "step": 0})
