"""A run that was stopped, killed or moved to another layout goes on with the bits of one that was not; what has changed is refused."""
import copy
import hashlib
import os
import pathlib
import random
import shutil
import signal
import time

from training import BAD_INPUT, FAILED, MOE, STOPPED, Bench, check, close, contains, merge

LONG = {"iterations": 24, "validation": {"interval": 6, "iterations": 1},
        "learning_rate": {"schedule": "wsd", "peak": 3e-3, "minimum": 1e-4, "warmup_iterations": 4, "decay_iterations": 8}}
LAYOUTS = {"dense": {}, "moe": {"model": {"moe": MOE}},
           "moe in a batch ramp": {"model": {"moe": MOE, "hidden_dropout": 0.1}, "training": {"rampup_batch_size": {"start": 2, "increment": 2, "samples": 60},
                                                                       "learning_rate": {"expert_peak": 1e-3}}},
           "moe with a bias for choosing": {"model": {"moe": {
               **MOE, "score_function": "sigmoid", "expert_bias": True, "bias_update_rate": 0.003, "capacity_factor": 1.0, "input_jitter": 0.1,
               "losses": [{"type": "global_aux_loss", "coefficient": 1e-2}, {"type": "z_loss", "coefficient": 1e-3}]}}},
           "moe in fp16": {"model": {"moe": MOE}, "training": {"precision": "fp16", "loss_scale": {"initial": 2.0 ** 32, "window": 4}}},
           "moe over 2 ranks": {"model": {"moe": MOE, "attention_dropout": 0.1, "hidden_dropout": 0.1}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}}}


def joined(run):
    """Steps of all attempts, the later attempt winning where they overlap."""
    steps = {}
    for attempt in run.attempts():
        for line in run.steps(attempt):
            line.pop("run", None)
            steps[line["kind"], line["step"]] = line
    return steps


def stop_by_file(run):
    process = run.start()
    run.wait_for_step(3, process)
    (run.directory / "stop").touch()
    check("the stop file ends the run with code 75", process.wait(timeout=60), STOPPED)
    (run.directory / "stop").unlink()


def stop_by_scheduler(run):
    """What job.sh writes when Slurm signals the job: the attempt's own name. Another's is not this attempt's scheduler."""
    for attempt, words in ((1, ": Slurm wants the nodes back (preempted, near its time limit, requeued or cancelled there); a checkpoint holds it"),
                           (2, f", as asked by {run.directory / 'stop'}; a checkpoint holds it")):
        process = run.start()
        run.wait_for_step(3, process)
        (run.directory / "stop").write_text("attempt-1\n")
        check("the scheduler's wish ends the run with code 75", process.wait(timeout=60), STOPPED)
        stopped = [e for e in run.records("event", attempt) if e["event"] == "stopped"]
        check("and says whose it was", [e["text"] for e in stopped], [f"stopped after step {stopped[-1]['step']}{words}"])
        (run.directory / "stop").unlink()


def stop_by_signal(run):
    process = run.start()
    run.wait_for_step(3, process)
    process.send_signal(signal.SIGUSR1)
    check("SIGUSR1 ends the run with code 75", process.wait(timeout=60), STOPPED)


def kill_all(run, process):
    os.killpg(process.pid, signal.SIGKILL)
    for path in pathlib.Path("/proc").glob("[0-9]*"):  # mpirun puts its ranks into process groups of their own
        try:
            if str(run.directory).encode() in (path / "cmdline").read_bytes():
                os.kill(int(path.name), signal.SIGKILL)
        except (OSError, ValueError):
            pass
    process.wait(timeout=60)


def kill(run):
    process = run.start()
    run.wait_for_step(5, process, kind="checkpoint")
    kill_all(run, process)


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


with Bench() as bench:
    for name, sections in LAYOUTS.items():
        sections = {**sections, "training": merge(copy.deepcopy(LONG), sections.get("training", {})), "checkpoint": {"interval": 5, "keep": 2}}
        whole = bench.make("whole", **sections)
        whole.train()
        expected, tensors = joined(whole), whole.tensors(24)
        if "fp16" in name:
            check(f"{name}: steps were skipped and the scale grew again", any(whole.values("skipped_steps")) and len(set(whole.values("loss_scale"))) > 3, True)
            check(f"{name}: scale and its counters are in the checkpoint", {n for n in tensors if n.startswith("loss_scale.")},
                  {"loss_scale.scale", "loss_scale.good_steps", "loss_scale.hysteresis_left", "loss_scale.skipped_steps"})
        if "bias" in name:
            bias = [tensors[f"model.layers.{layer}.block_sparse_moe.gate.e_score_correction_bias"] for layer in (0, 1)]
            check(f"{name}: a bias of each layer too, and none is all zeros", hashlib.sha256(bytes(16)).hexdigest() in bias, False)
        check(f"{name}: the last two checkpoints are kept", whole.checkpoints(), ["step-0000020", "step-0000024"])
        for interrupt in (stop_by_file, stop_by_signal, kill):
            run = bench.make("interrupted", **sections)
            interrupt(run)
            run.train()
            check(f"{name}, {interrupt.__name__}: two attempts", run.attempts(), [1, 2])
            resumed = run.records("start")[0]["resumed_from"]
            check(f"{name}, {interrupt.__name__}: resumed from a checkpoint", resumed is not None and resumed >= 3, True)
            check(f"{name}, {interrupt.__name__}: continues right after it", run.records("metric")[0]["step"], resumed + 1)
            check(f"{name}, {interrupt.__name__}: every record of every step has the bits of a run without a stop", joined(run), expected)
            check(f"{name}, {interrupt.__name__}: so has every tensor and moment of the last checkpoint", run.tensors(24), tensors)

    stop_by_scheduler(bench.make("wanted back", training={"iterations": 100000}, checkpoint={"interval": 100000}))

    # Killed at random moments, a checkpoint being written after every step: whatever the moment, the end is the same.
    rng = random.Random(7)
    for name in ("dense", "moe over 2 ranks"):
        whole = bench.make("whole", **LAYOUTS[name], training=LONG, checkpoint={"interval": 1, "keep": 2})
        whole.train()
        run = bench.make("killed", **LAYOUTS[name], training=LONG, checkpoint={"interval": 1, "keep": 2})
        for _ in range(6):
            process = run.start()
            time.sleep(rng.uniform(0.02, 0.3) + (0.4 if run.ranks > 1 else 0))
            kill_all(run, process)
        run.train()
        check(f"{name}: killed six times at random: every step's records", joined(run), joined(whole))
        check(f"{name}: and the last tensors", run.tensors(24), whole.tensors(24))
        check(f"{name}: nothing but the kept checkpoints is left", run.checkpoints(), ["step-0000023", "step-0000024"])
        shutil.copytree(run.directory / "checkpoints" / "step-0000023", run.directory / "checkpoints" / "step-0000022")
        run.train()
        check(f"{name}: nor if it was killed between its last checkpoint and the end of an older one", run.checkpoints(), ["step-0000023", "step-0000024"])

    # Another layout reads what this one saved.
    moved = bench.make("moved", model={"moe": MOE}, training=LONG, checkpoint={"interval": 12})
    moved.train()
    expected = moved.values("loss")[12:]
    other = bench.make("other", model={"moe": MOE}, training=LONG, checkpoint={"interval": 12}, resources={"ranks_per_node": 4},
                       parallelism={"expert": 2})
    shutil.copytree(moved.directory / "checkpoints" / "step-0000012", other.directory / "checkpoints" / "step-0000012")
    other.train()
    close("a checkpoint of 1 rank continued by 4 (EP 2)", other.values("loss"), expected, 1e-5)
    back = bench.make("back", model={"moe": MOE}, training=LONG, checkpoint={"interval": 12})
    shutil.copytree(other.directory / "checkpoints" / "step-0000024", back.directory / "checkpoints" / "step-0000024")
    back.train()
    check("the checkpoint of EP 2 holds every tensor of the model", set(other.tensors(24)), set(moved.tensors(24)))

    # Refused: other data, another schedule, a damaged file. Both values are named.
    def changed(what, words, edit=None, **sections):
        run = bench.make("changed", **{"model": {"moe": MOE}, "checkpoint": {"interval": 12}, "training": LONG, **sections})
        target = run.directory / "checkpoints" / "step-0000012"
        shutil.copytree(moved.directory / "checkpoints" / "step-0000012", target)
        if edit:
            edit(target)
        said = run.train(code=BAD_INPUT)
        for word in words:
            contains(what, said, word)

    def says(what, option):
        return [f"checkpoints/step-0000012: cannot continue from it: {what}; `checkpoint.accept_changed: [{option}]` accepts that\n"]

    rate = LONG["learning_rate"]
    changed("another peak", says("`training.learning_rate.peak` was 0.003 and is 0.005", "schedule"), training={**LONG, "learning_rate": {**rate, "peak": 5e-3}})
    changed("another style and length of the decay", says("`training.learning_rate.decay_iterations` was 8 and is 9, "
            '`training.learning_rate.decay_style` was "exponential" and is "linear"', "schedule"),
            training={**LONG, "learning_rate": {**rate, "decay_iterations": 9, "decay_style": "linear"}})
    changed("another beta", says("`training.optimizer.beta2` was 0.95 and is 0.98", "schedule"), training={**LONG, "optimizer": {"beta2": 0.98}})
    changed("another seed", says("`training.seed` was 1234 and is 99", "data"), training={**LONG, "seed": 99})
    changed("another sequence length", says("`data.sequence_length` was 32 and is 16", "data"), data={"sequence_length": 16})
    changed("another global batch", says("`samples` was 192 and is 96, "
            "`training.global_batch_size` was 8 and is 4", "data, schedule"), training={**LONG, "global_batch_size": 4})
    changed("a batch ramp", says("`samples` was 192 and is 104, `training.rampup_batch_size.start` was absent and is 2, "
            "`training.rampup_batch_size.increment` was absent and is 2, `training.rampup_batch_size.samples` was absent and is 60",
            "data, schedule"), training={**LONG, "rampup_batch_size": {"start": 2, "increment": 2, "samples": 60}})
    changed("another number of chosen experts", says("`model.moe.top_k` was 2 and is 1, `model.moe.pre_softmax` was false and is true", "model"),
            model={"moe": {**MOE, "top_k": 1, "pre_softmax": True}})
    changed("one of two changes accepted", says("`training.learning_rate.peak` was 0.003 and is 0.005", "data, schedule"),
            training={**LONG, "seed": 99, "learning_rate": {**rate, "peak": 5e-3}}, checkpoint={"interval": 12, "accept_changed": ["data"]})
    changed("a flipped bit", ["SHA-256", "no checkpoint of this run is whole", "Move "],
            edit=lambda target: flip(next(target.glob("model-00001*"))))
    changed("a truncated file", ["bytes, expected"], edit=lambda target: os.truncate(next(target.glob("optimizer-00002*")), 100))
    tokens = bench.prefix.with_suffix(".bin")
    before = tokens.read_bytes()
    tokens.write_bytes(before[:1000] + bytes([before[1000] ^ 1]) + before[1001:])
    changed("other tokens in files of equal length", ["`data.fingerprint` was", "`checkpoint.accept_changed: [data]` accepts that"])
    tokens.write_bytes(before)

    # No acceptance is offered for what no acceptance makes possible, and one that was given anyway is told so.
    for given in ([], ["model"]):
        changed("another size", ["nothing accepts that: its model.layers.0.block_sparse_moe.experts.0.w1.weight is 32 × 32, and this model's 48 × 32"],
                model={"moe": {**MOE, "expert_ffn_hidden_size": 48}}, checkpoint={"interval": 12, "accept_changed": given})
        changed("one more layer", ["`model.layers` was 2 and is 3", "nothing accepts that: there is no model.layers.2.input_layernorm.weight in it"],
                model={"moe": MOE, "layers": 3}, checkpoint={"interval": 12, "accept_changed": given})

    # State that the checkpoint cannot have begins as it does in a new run: the loss scale of fp16, the bias of experts.
    for what, option, sections in (("fp16", "schedule", {"training": {**LONG, "precision": "fp16"}}),
                                   ("an expert bias", "model", {"model": {"moe": {**MOE, "score_function": "sigmoid", "expert_bias": True, "losses": []}}})):
        changed(what, [f"`checkpoint.accept_changed: [{option}]` accepts that"], **sections)
        begun = bench.make("begun", **{"model": {"moe": MOE}, "training": LONG, **sections, "checkpoint": {"interval": 12, "accept_changed": [option]}})
        shutil.copytree(moved.directory / "checkpoints" / "step-0000012", begun.directory / "checkpoints" / "step-0000012")
        begun.train()
        check(f"{what}: it goes on, as accepted", (begun.records("start")[0]["resumed_from"], len(begun.values("loss"))), (12, 12))
        if what == "fp16":
            check("the loss scale begins at its first value", begun.values("loss_scale")[0], 2.0**32)

    # Accepted: the run goes on with what it is told now, and says so.
    accepted = bench.make("accepted", model={"moe": MOE}, training={**LONG, "learning_rate": {**rate, "peak": 5e-3}},
                          checkpoint={"interval": 12, "accept_changed": ["schedule"]})
    shutil.copytree(moved.directory / "checkpoints" / "step-0000012", accepted.directory / "checkpoints" / "step-0000012")
    accepted.train()
    check("with the option it goes on", accepted.records("start")[0]["resumed_from"], 12)
    check("by the new schedule", accepted.values("learning_rate")[0], 5e-3)
    check("and records what changed", [e["text"] for e in accepted.records("event") if e["event"] == "changed"],
          ["going on although `training.learning_rate.peak` was 0.003 and is 0.005 (checkpoint.accept_changed)"])

    # Behind a damaged newest checkpoint the one before it counts; the damaged one is named and set aside, and its step is saved again.
    for damage in ("a flipped bit", "a missing file", "a torn mark"):
        run = bench.make("damaged", training={**LONG, "iterations": 12}, checkpoint={"interval": 4, "keep": 2})
        run.train()
        expected = joined(run)
        target = run.directory / "checkpoints" / "step-0000012"
        if damage == "a flipped bit":
            flip(target / "optimizer.safetensors")
        elif damage == "a missing file":
            (target / "model.safetensors").unlink()
        else:
            os.truncate(target / "complete.json", 20)
        run.train()
        check(f"{damage} in the newest checkpoint: the one before it counts", run.records("start")[0]["resumed_from"], 8)
        texts = [e["text"] for e in run.records("event") if e["event"] == "checkpoint_damaged"]
        check(f"{damage}: an event names the damaged one", len(texts) == 1 and "step-0000012" in texts[0] and "is damaged and was set aside" in texts[0], True)
        check(f"{damage}: it is kept aside, and its step saved again", run.checkpoints(), ["step-0000008", "step-0000012", "step-0000012.damaged"])
        check(f"{damage}: with the same bits", joined(run), expected)
    flip(run.directory / "checkpoints" / "step-0000012" / "optimizer.safetensors")
    flip(run.directory / "checkpoints" / "step-0000008" / "optimizer.safetensors")
    said = run.train(code=BAD_INPUT)
    contains("none is whole: nothing begins anew by itself", said, "no checkpoint of this run is whole")
    contains("and both are named", said, "step-0000012/optimizer.safetensors: corrupt: its SHA-256 is not that of complete.json; ")
    check("and both are still there", run.checkpoints(), ["step-0000008", "step-0000012", "step-0000012.damaged"])

    # A directory without complete.json is no checkpoint; a half-written one is cleared away by the next save.
    torn = bench.make("torn", training={"iterations": 8}, checkpoint={"interval": 4})
    torn.train()
    (torn.directory / "checkpoints" / "step-0000008" / "complete.json").unlink()
    (torn.directory / "checkpoints" / "step-0000008.tmp").mkdir()
    torn.train()
    check("without complete.json the one before it counts", torn.records("start")[0]["resumed_from"], 4)
    check("and the step is saved anew", torn.checkpoints(), ["step-0000004", "step-0000008"])
    left = bench.make("left", training={"iterations": 8}, checkpoint={"interval": 4, "keep": 2})
    for name in ("step-0000003", "step-0000005.tmp", "step-0000006"):
        (left.directory / "checkpoints" / name).mkdir(parents=True)
    left.train()
    check("what killed attempts left half-written goes, and counts for nothing", left.checkpoints(), ["step-0000004", "step-0000008"])

    # A newer attempt fences an older one: nothing more is recorded, no checkpoint appears.
    fenced = bench.make("fenced", training={"iterations": 100000}, checkpoint={"interval": 100000})
    process = fenced.start()
    fenced.wait_for_step(3, process)
    (fenced.directory / "attempt-2").mkdir()
    check("a fenced attempt fails", process.wait(timeout=60), FAILED)
    contains("and says so", process.communicate()[1], "fenced")
    check("and leaves no checkpoint", fenced.checkpoints(), [])
