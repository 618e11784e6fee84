"""What the recorded numbers mean: learning rate, clipping, validation, tokens, and what happens when they stop being finite."""
import math

from training import MOE, Bench, check, close

with Bench() as bench:
    plain = bench.make("plain")
    plain.train()

    # Validation neither disturbs training nor sees other samples each time.
    often = bench.make("often", training={"validation": {"interval": 1, "iterations": 2}})
    often.train()
    check("validation does not disturb training", often.values("loss"), plain.values("loss"))
    check("and gradients", often.values("grad_norm"), plain.values("grad_norm"))
    still = bench.make("still", training={"iterations": 6, "validation": {"interval": 2, "iterations": 2}, "optimizer": {"weight_decay": 0},
                                          "learning_rate": {"schedule": "constant", "peak": 1e-30}})
    still.train()
    check("a model that does not move: one validation loss", len(set(still.values("validation_loss"))), 1)
    check("though its training losses differ", len(set(still.values("loss"))), 6)
    odd = bench.make("odd", training={"iterations": 5, "validation": {"interval": 2, "iterations": 1}})
    odd.train()
    check("validated at each interval and at the end", [s for s, m in odd.metrics().items() if "validation_loss" in m], [2, 4, 5])
    check("learning shows on held-out text", often.values("validation_loss")[-1] < often.values("validation_loss")[0], True)

    # The rate used, by the formula written out here once more.
    steps, warmup, decay, peak, least = 20, 4, 8, 2e-3, 1e-4
    wsd = bench.make("wsd", training={"iterations": steps, "learning_rate": {"schedule": "wsd", "peak": peak, "minimum": least,
                                                                            "warmup_iterations": warmup, "decay_iterations": decay}})
    wsd.train()
    expected = []
    for n in range(steps):  # update n + 1 has seen n global batches
        rest = (n - (steps - decay)) / decay
        expected.append(peak * n / warmup if n <= warmup else peak if rest <= 0 else least + (2 * 0.5 ** rest - 1) * (peak - least))
    close("WSD: the rate used by each update", wsd.values("learning_rate")[1:], expected[1:], 1e-12)
    check("the first update of a warmup has rate 0", wsd.values("learning_rate")[0], 0.0)
    check("so the second step meets the weights of the first: its loss is that of a run that never moved", wsd.values("loss")[1],
          still.values("loss")[1])

    # The norm is the one before clipping; clipping acts on the update.
    loose = bench.make("loose", training={"optimizer": {"clip_grad": 0}})
    tight = bench.make("tight", training={"optimizer": {"clip_grad": 1e-4, "eps": 1e-3}})
    other = bench.make("other", training={"optimizer": {"clip_grad": 0, "eps": 1e-3}})
    for run in (loose, tight, other):
        run.train()
    check("the norm is recorded before clipping", tight.values("grad_norm")[0], loose.values("grad_norm")[0])
    check("clipping changes the update", tight.values("loss")[1] != other.values("loss")[1], True)
    check("tokens count up", plain.values("tokens"), [8 * 32 * step for step in range(1, 9)])
    closeness = [m["tokens_per_second"] * m["step_time_ms"] / 1e3 for m in plain.metrics().values()]
    close("tokens per second times time are tokens", closeness, [8 * 32.0] * 8, 1e-9)

    # A rate that destroys the model: NaN is recorded as such, said once, and training goes on.
    for name, sections in {"dense": {}, "moe": {"model": {"moe": {**MOE, "per_layer_metrics": True}}},
                           "moe over 2 ranks": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}}}.items():
        wild = bench.make("wild", training={"iterations": 8, "learning_rate": {"schedule": "constant", "peak": 1e3},
                                            "optimizer": {"weight_decay": 1000, "clip_grad": 0}}, **sections)
        wild.train()
        losses = wild.values("loss")
        lost = [x for x in losses if isinstance(x, str)]
        check(f"{name}: a wild rate gives losses that are not finite", bool(lost) and set(lost) <= {"NaN", "Infinity"}, True)
        check(f"{name}: every step is recorded all the same", len(losses), 8)
        check(f"{name}: one event", [e["event"] for e in wild.records("event")], ["non_finite_loss"])
        check(f"{name}: one alert of level error", [(a["level"], a["title"]) for a in wild.records("alert")], [("error", "non-finite loss")])
        step = wild.records("alert")[0]["step"]
        check(f"{name}: at the first such step", isinstance(losses[step - 1], str) and not any(isinstance(x, str) for x in losses[:step - 1]), True)
        check(f"{name}: the end is code 0", wild.records("end")[0]["code"], 0)

    sparse = bench.make("sparse", logging={"interval": 3})
    sparse.train()
    check("logging interval: first, each third, last", sorted(sparse.metrics()), [1, 3, 6, 8])
    check("values are those of that step", [m["loss"] for m in sparse.metrics().values()], [plain.metrics()[s]["loss"] for s in (1, 3, 6, 8)])
    check("samples are recorded for every step", [line["step"] for line in sparse.records("data")], list(range(1, 9)))

    # An untrained model knows nothing: close to the entropy of a fair die with 257 faces.
    close("the first loss is about ln 257", plain.values("loss")[:1], [math.log(257)], 0.02)
