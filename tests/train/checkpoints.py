"""Checkpoints written behind the training: steps go on meanwhile, nothing is reported before it is on the disk, a stop and the end wait for
what is being written. And `inspect`, which says what is in one."""
import hashlib
import json
import statistics
import threading
import time
from datetime import datetime

from training import STOPPED, Bench, check

# 7 million parameters, of which a step needs little and a checkpoint (87 MB) all.
LARGE = {"model": {"layers": 2, "hidden_size": 256, "ffn_hidden_size": 1024, "head_dim": 64, "vocab_size": 20000},
         "data": {"sequence_length": 16}, "training": {"iterations": 50, "micro_batch_size": 1, "global_batch_size": 1}}


def whole(directory):
    """A complete checkpoint: every file that its mark names has the bytes that it names."""
    files = json.loads((directory / "complete.json").read_text())["files"]
    return all(hashlib.sha256((directory / f["name"]).read_bytes()).hexdigest() == f["sha256"] for f in files)


def watch(run, process, seen):
    """Looks at the records while the run writes them: what each reported checkpoint is at that moment."""
    while process.poll() is None:
        path = run.directory / "attempt-1" / "records.jsonl"
        text = path.read_text() if path.exists() else ""
        for line in map(json.loads, text.split("\n")[:-1]):
            if line["kind"] == "checkpoint" and line["step"] not in seen:
                seen[line["step"]] = whole(run.directory / "checkpoints" / f"step-{line['step']:07d}")
        time.sleep(0.002)


def seconds(line):
    return datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00")).timestamp()


def waits(run):
    """Seconds between steps that no step took, behind the steps that save (but the last) and behind the others."""
    lines = [line for line in run.records("metric")]
    gaps = {a["step"]: seconds(b) - seconds(a) - b["metrics"]["step_time_ms"] / 1e3 for a, b in zip(lines, lines[1:])}
    return [statistics.median(gap for step, gap in gaps.items() if (step % 10 == 0) == saves) for saves in (True, False)]


with Bench() as bench:
    measured, steps, order = {}, {}, {}
    for asynchronous in (False, True):
        run = bench.make("large", **LARGE, checkpoint={"interval": 10, "keep": 0, "asynchronous": asynchronous})
        process, seen = run.start(), {}
        watching = threading.Thread(target=watch, args=(run, process, seen))
        watching.start()
        out, err = process.communicate(timeout=200)
        watching.join()
        assert process.returncode == 0, err
        what = "behind the training" if asynchronous else "in its place"
        check(f"{what}: five checkpoints are reported, in order", [line["step"] for line in run.records("checkpoint")], [10, 20, 30, 40, 50])
        check(f"{what}: each is whole the moment it is reported", set(seen.values()), {True})
        check(f"{what}: and at the end", all(whole(p) for p in (run.directory / "checkpoints").glob("step-*")), True)
        lines = [(line["kind"], line["step"]) for line in run.records() if line["kind"] in ("metric", "checkpoint")]
        order[asynchronous] = [lines.index(("checkpoint", step)) - lines.index(("metric", step)) - 1 for step in (10, 20, 30, 40)]
        measured[asynchronous] = waits(run)
        steps[asynchronous] = (run.values("loss"), run.values("grad_norm"), run.tensors(50))
    check("the same bits either way", steps[True] == steps[False], True)
    check("in its place: reported before the next step", order[False], [0, 0, 0, 0])
    check("behind: steps went on while each was written", min(order[True]) >= 2, True)
    print(f"    {order[True]} steps were recorded meanwhile")
    print("    seconds between steps that no step took, median behind a step that saves / behind others: "
          + ", ".join(f"{'behind' if a else 'in place'} {m[0]:.4f} / {m[1]:.4f}" for a, m in measured.items()))
    check("a save behind the training holds the next step up less than half as long", measured[True][0] < measured[False][0] / 2, True)

    # A stop waits for what is being written, and saves its own step.
    run = bench.make("stopped", **{**LARGE, "training": {**LARGE["training"], "iterations": 2000}}, checkpoint={"interval": 4})
    process = run.start()
    run.wait_for_step(4, process)
    (run.directory / "stop").touch()
    check("stopped", process.wait(timeout=100), STOPPED)
    last = run.records("end")[0]["step"]
    reported = [line["step"] for line in run.records("checkpoint")]
    check("the last step is saved, and what was being written is reported before it", (reported[0], reported[-1], reported == sorted(reported)), (4, last, True))
    check("all are whole, and no more is there", sorted(int(p.name[5:]) for p in (run.directory / "checkpoints").glob("*") if whole(p)), reported)
