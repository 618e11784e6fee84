"""A run that was stopped, killed or moved to another layout goes on with the bits of one that was not; what has changed is refused."""
import copy
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
           "moe in a batch ramp": {"model": {"moe": MOE}, "training": {"rampup_batch_size": {"start": 2, "increment": 2, "samples": 60},
                                                                       "learning_rate": {"expert_peak": 1e-3}}},
           "moe over 2 ranks": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}}}


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
    run.wait_for_step(9, process)
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
        run = bench.make("changed", model={"moe": MOE}, checkpoint={"interval": 12}, **{"training": LONG, **sections})
        target = run.directory / "checkpoints" / "step-0000012"
        shutil.copytree(moved.directory / "checkpoints" / "step-0000012", target)
        if edit:
            edit(target)
        said = run.train(code=BAD_INPUT)
        for word in words:
            contains(what, said, word)

    changed("another peak", ["schedule has changed", '"peak":0.003', '"peak":0.005'],
            training={**LONG, "learning_rate": {**LONG["learning_rate"], "peak": 5e-3}})
    changed("another seed", ["data has changed", '"seed":1234', '"seed":99'], training={**LONG, "seed": 99})
    changed("a batch ramp", ["data has changed", '"rampup_batch_size":{"start":2'],
            training={**LONG, "rampup_batch_size": {"start": 2, "increment": 2, "samples": 60}})
    changed("another sequence length", ["data has changed", '"sequence_length":32', '"sequence_length":16'], data={"sequence_length": 16})
    changed("a flipped bit", ["SHA-256"],
            edit=lambda target: flip(next(target.glob("model-00001*"))))
    changed("a truncated file", ["bytes, expected"], edit=lambda target: os.truncate(next(target.glob("optimizer-00002*")), 100))
    tokens = bench.prefix.with_suffix(".bin")
    before = tokens.read_bytes()
    tokens.write_bytes(before[:1000] + bytes([before[1000] ^ 1]) + before[1001:])
    changed("other tokens in files of equal length", ["data has changed", '"fingerprint"'])
    tokens.write_bytes(before)

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
