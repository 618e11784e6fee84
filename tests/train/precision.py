"""Training in bf16 and fp16: it learns as fp32 does, layouts and resumes keep their bits, the loss scale moves as Megatron's, and memory and
exchanged bytes are what `plan` says."""
import json
import shutil

from training import MOE, SPEC, Bench, check, close, merge
from support import Home

HALF = ("bf16", "fp16")
STEPS = {"iterations": 24, "validation": {"interval": 12, "iterations": 2}}


def training(precision, **more):
    scale = {"loss_scale": {"initial": 65536}} if precision == "fp16" else {}
    return {**STEPS, "precision": precision, **scale, **more}


def steps_of(run, attempt=None):
    """What was recorded of steps, measurements and the run's name aside."""
    return {(line["kind"], line["step"]): {k: v for k, v in line.items() if k != "run"} for line in run.steps(attempt)}


def expected_scales(overflows, initial, window, hysteresis, minimum=1):
    """Megatron's dynamic scaler, from which steps overflowed: the scale that each step used."""
    scale, good, left, used = initial, 0, hysteresis, []
    for overflow in overflows:
        used.append(scale)
        if overflow:
            good, left = 0, left - 1
            if left <= 0:
                scale = max(scale / 2, minimum)
        else:
            good += 1
            if good == window:
                good, left, scale = 0, hysteresis, scale * 2
    return used


def learns(bench):
    for model in ({}, {"moe": MOE}):
        what = "experts" if model else "dense"
        full = bench.make("full", training=training("fp32"), model=model)
        full.train()
        for precision in HALF:
            run = bench.make(precision, training=training(precision), model=model)
            run.train()
            close(f"{what} in {precision}: losses of fp32", run.values("loss"), full.values("loss"), 5e-3)
            close(f"{what} in {precision}: validation losses of fp32", run.values("validation_loss"), full.values("validation_loss"), 5e-3)
            check(f"{what} in {precision}: but not its bits", run.values("loss") == full.values("loss"), False)
            check(f"{what} in {precision}: it learned", run.values("loss")[-1] < run.values("loss")[0] - 1.5, True)
            again = bench.make("again", training=training(precision), model=model)
            again.train()
            check(f"{what} in {precision}: run again, the same bits", steps_of(again) == steps_of(run), True)
            judged = bench.make("judged", training={**training(precision), "iterations": 3}, model=model, resources={"device": "reference"})
            judged.train()
            close(f"{what} in {precision}: the reference device", judged.values("loss")[:3], run.values("loss")[:3], 2e-4)


def layouts(bench):
    """Rows that travel between ranks travel in two bytes, and nothing shows of it but their number."""
    for precision in HALF:
        runs = {}
        for expert in (1, 2):
            run = bench.make(f"ep{expert}", training=training(precision), model={"moe": MOE}, resources={"ranks_per_node": 2},
                             parallelism={"expert": expert})
            run.train()
            runs[expert] = run
        check(f"EP 2 has the bits of EP 1 in {precision}: the first loss", runs[2].values("loss")[:1], runs[1].values("loss")[:1])
        close(f"EP 2 has the gradients of EP 1 in {precision}: the first norm", runs[2].values("grad_norm")[:1], runs[1].values("grad_norm")[:1], 1e-7)
        for name in ("loss", "validation_loss"):
            close(f"EP 2 and EP 1 in {precision}: {name}", runs[2].values(name), runs[1].values(name), 5e-3)
        check(f"EP 2 in {precision}: the experts' load of the first step", runs[2].records("expert_load")[0]["counts"], runs[1].records("expert_load")[0]["counts"])
        rows = 8 * 32 // 2 * 2
        check(f"{precision}: bytes of all-to-all a step", runs[2].records("end")[0]["alltoall_bytes_per_step"], 2 * (4 * rows * 32 * 2 + 2 * rows * 4))


def resumes(bench):
    """In fp16 the steps lie in a phase in which the scale backs off: before and after the hysteresis is used up, and where it grows again."""
    for precision, steps in (("bf16", (5,)), ("fp16", (1, 2, 6, 17))):
        scale = {"loss_scale": {"initial": 2.0 ** 26, "window": 4}} if precision == "fp16" else {}
        whole = bench.make("whole", training={**STEPS, "precision": precision, **scale}, model={"moe": MOE}, checkpoint={"interval": 1, "keep": 0})
        whole.train()
        for step in steps:
            part = bench.make("part")
            shutil.rmtree(part.directory)
            shutil.copytree(whole.directory, part.directory)
            for later in part.checkpoints():
                if int(later.split("-")[1]) > step:
                    shutil.rmtree(part.directory / "checkpoints" / later)
            part.train()
            check(f"{precision}: it continued from step {step}", part.records("start")[0]["resumed_from"], step)
            check(f"{precision}: with the same bits", steps_of(part) == {k: v for k, v in steps_of(whole, 1).items() if k[1] > step}, True)
            check(f"{precision}: up to the same checkpoint", part.tensors(24) == whole.tensors(24), True)


def scales(bench):
    more = {"loss_scale": {"window": 3, "hysteresis": 3}, "iterations": 40, "validation": None}
    run = bench.make("scales", training={**STEPS, "precision": "fp16", **more}, model={"moe": MOE})
    run.train()
    lines = run.metrics()
    overflows = ["grad_norm" not in lines[step] for step in sorted(lines)]
    used = [lines[step]["loss_scale"] for step in sorted(lines)]
    check("fp16: a scale of 2^32 overflows at first", overflows[:4], [True] * 4)
    check("fp16: the scale is found in time", overflows.count(False) > 10 and any(o for o in overflows[overflows.index(False):]), True)
    check("fp16: scales are those of Megatron's scaler", used, expected_scales(overflows, 2.0 ** 32, 3, 3))
    skipped = [lines[step]["skipped_steps"] for step in sorted(lines)]
    check("fp16: skipped steps are counted", skipped, [sum(overflows[:i + 1]) for i in range(len(overflows))])
    events = [line["step"] for line in run.records("event") if line["event"] == "skipped"]
    expected = [i + 1 for i, o in enumerate(overflows) if o and (skipped[i] <= 16 or skipped[i] & (skipped[i] - 1) == 0)]
    check("fp16: each is an event, of many only some", events, expected)
    first = overflows.index(False)
    rates = [lines[step]["learning_rate"] for step in sorted(lines)]
    check("fp16: nothing is learned meanwhile, but data goes on", len(set(line["samples_sha256"] for line in run.records("data"))), 40)
    warm = bench.make("warm", training={**STEPS, "precision": "fp16", **more,
                                        "learning_rate": {"schedule": "linear", "peak": 3e-3, "warmup_iterations": 10}}, model={"moe": MOE})
    warm.train()
    lines = warm.metrics()
    applied = ["grad_norm" in lines[step] for step in sorted(lines)]
    rates = [lines[step]["learning_rate"] for step in sorted(lines)]
    check("fp16: a skipped step advances no schedule", all((a == b) == (not done) for a, b, done in zip(rates, rates[1:], applied)), True)
    floor = bench.make("floor", training={**STEPS, "precision": "fp16", "iterations": 8, "loss_scale": {"minimum": 2.0 ** 30}})
    floor.train()
    check("fp16: the scale has a floor", floor.values("loss_scale"), expected_scales([True] * 8, 2.0 ** 32, 1000, 2, 2.0 ** 30))
    check("fp16: below it nothing is learned", first > 0 and floor.values("skipped_steps")[-1], 8)
    tensors = bench.make("tensors", training={**STEPS, "precision": "fp16", "iterations": 6}, checkpoint={"interval": 1, "keep": 0})
    tensors.train()
    model = {name: digest for name, digest in tensors.tensors(1).items() if name.startswith("model.")}
    check("fp16: skipped steps leave parameters and moments alone", [name for name, digest in model.items() if tensors.tensors(6)[name] != digest], [])


def planned(bench, home):
    model = {"layers": 8, "hidden_size": 512, "ffn_hidden_size": 2048, "attention_heads": 8}
    for precision in ("fp32", *HALF):
        sections = {"model": model, "training": {**training(precision), "iterations": 2, "validation": None}}
        run = bench.make("memory", **json.loads(json.dumps(sections)))
        run.train()
        spec = merge(json.loads(json.dumps(SPEC)), json.loads(json.dumps(sections)))
        spec["data"]["prefix"] = "/nonexistent"
        spec["runs"] = {"run": {}}
        plan = home.json("plan", home.spec(json.dumps(spec), "plan.yaml", with_corpus=False))["runs"][0]
        end = run.records("end")[0]
        resident = end["parameters"]["resident_dense"]
        check(f"{precision}: bytes of parameters", plan["memory"]["parameters"], resident * (4 if precision == "fp32" else 2))
        check(f"{precision}: bytes of master and moments", plan["memory"]["optimizer"], resident * (8 if precision == "fp32" else 12))
        close(f"{precision}: peak memory as planned", [end["peak_memory_bytes"]], [plan["memory"]["total_worst"]], 0.03)


with Bench() as bench:
    learns(bench)
    layouts(bench)
    resumes(bench)
    scales(bench)
    with Home() as home:
        planned(bench, home)
