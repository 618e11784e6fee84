"""Checkpoints written behind the training: steps go on meanwhile, nothing is reported before it is on the disk, a stop and the end wait for
what is being written. And `inspect`, which says what is in one."""
import hashlib
import json
import math
import pathlib
import resource
import statistics
import struct
import subprocess
import threading
import time
from datetime import datetime

from training import FAILED, MOE, STOPPED, WORKER, Bench, check, close, contains

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

    # A disk without room ends the run, on every rank, with the file and the cause, and leaves the checkpoint before alone. Ranks whose files may
    # not grow beyond a megabyte have no such disk.
    mixture = {"moe": {**MOE, "expert_ffn_hidden_size": 256}}
    for what, more in {"dense": {}, "over 2 ranks": {"model": {**LARGE["model"], **mixture}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}}}.items():
        run = bench.make("no-room", **{**LARGE, **more, "training": {**LARGE["training"], "global_batch_size": 2, "iterations": 2000}}, checkpoint={"interval": 10, "keep": 1})
        process = run.start()
        run.wait_for_step(10, process, kind="checkpoint")
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            words = (path / "cmdline").read_bytes().split(b"\0") if (path / "cmdline").exists() else []
            if words[:1] == [str(WORKER).encode()] and str(run.directory).encode() in words:
                resource.prlimit(int(path.name), resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        out, said = process.communicate(timeout=100)
        check(f"no room, {what}: the run fails", process.returncode, FAILED)
        reported = [line["step"] for line in run.records("checkpoint")]
        contains(f"no room, {what}: the file and the cause are named", said, "-00001-of-00003.safetensors: File too large" if more else "model.safetensors: File too large")
        check(f"no room, {what}: an event says so too", [e["text"] in said for e in run.records("event") if e["event"] == "failed"], [True])
        check(f"no room, {what}: the last that was reported is there, and whole, and nothing else",
              (run.checkpoints(), whole(run.directory / "checkpoints" / f"step-{reported[-1]:07d}")), ([f"step-{reported[-1]:07d}"], True))

    # Weights that are not finite push out none that are.
    run = bench.make("diverged", training={"iterations": 12, "precision": "fp32", "learning_rate": {"schedule": "constant", "peak": 1000}},
                     checkpoint={"interval": 1, "keep": 1})
    run.train()
    finite = [not isinstance(value, str) for value in run.values("loss")]
    check("a run that diverges", (finite[0], finite[-1]), (True, False))
    check("keeps the last finite checkpoint and all after it", run.checkpoints()[0] <= f"step-{finite.index(False):07d}" and len(run.checkpoints()) >= len(finite) - finite.index(False), True)

    # inspect
    def inspect(directory, *words, code=0):
        done = subprocess.run([WORKER, "inspect", *words, directory], text=True, capture_output=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"inspect {directory}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout) if "--json" in words else done.stdout

    moe = {**MOE, "expert_ffn_hidden_size": 64}
    dense = bench.make("dense", training={"iterations": 2}, checkpoint={"interval": 2})
    dense.train()
    run = bench.make("moe", origin={"run_directory": str(dense.directory), "checkpoint": None, "step": 0}, resources={"ranks_per_node": 2},
                     parallelism={"expert": 2}, training={"iterations": 1, "learning_rate": {"peak": 1e-3, "initial": 0, "warmup_iterations": 1}},
                     model={"moe": moe, "from": {"path": "/x", "upcycle": {}}}, checkpoint={"interval": 1})
    run.train()
    directory = run.directory / "checkpoints" / "step-0000001"
    told = inspect(directory, "--json")
    check("inspect: step, samples, whole", [told[key] for key in ("step", "samples", "tokens", "complete", "whole", "fault")], [1, 8, 256, True, True, None])
    check("inspect: the data's fingerprint and the model", (len(told["data"]["data.fingerprint"]), told["model"]["moe"]["experts"]), (64, 4))
    tensor = next(t for t in told["tensors"] if t["name"] == "model.layers.1.block_sparse_moe.experts.3.w2.weight")
    check("inspect: a tensor", [tensor[key] for key in ("dtype", "shape", "bytes")], ["F32", [32, 64], 8192])
    raw = pathlib.Path(tensor["file"]).read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    base = 8 + int.from_bytes(raw[:8], "little")
    parts = {name: raw[base + entry["data_offsets"][0]:base + entry["data_offsets"][1]] for name, entry in header.items() if name != "__metadata__"}
    values = struct.unpack("<2048f", parts[tensor["name"]])
    close("inspect: its norm", [tensor["norm"]], [math.sqrt(math.fsum(v * v for v in values))], 1e-12)
    expert = "model.layers.1.block_sparse_moe.experts.3."
    check("inspect: an expert's checksum", told["experts"]["layers"][1]["sha256"][3],
          hashlib.sha256(b"".join(parts[expert + name] for name in ("w1.weight", "w2.weight", "w3.weight"))).hexdigest())
    check("inspect: four copies of one FFN a layer are one expert each", [(x["count"], x["distinct"]) for x in told["experts"]["layers"]], [(4, 1), (4, 1)])
    check("inspect: parameters and optimizer", (told["parameters"], told["optimizer"]), (run.records("end")[0]["parameters"]["total"],
          {"tensors": 2 * len(told["tensors"]), "bytes": 8 * told["parameters"]}))
    check("inspect: state beside them", {e["name"]: e["values"] for e in told["extra"]}, {"optimizer.updates": [1], "optimizer.samples": [8]})
    said = inspect(directory)
    for words in ("complete, and every file is what complete.json says", "step 1 (attempt 1 of run ", "data: data.fingerprint ", "model: layers 2, hidden_size 32",
                  "model.moe: experts 4, ", "32 x 64", "8 experts, 2 distinct in their layers", "model.layers.0.block_sparse_moe: 4 experts, 1 distinct: ",
                  "optimizer.updates"):
        contains("inspect, for people", said, words)
    trained = bench.make("trained", model={"moe": moe}, training={"iterations": 2}, checkpoint={"interval": 2})
    trained.train()
    check("inspect: trained experts are distinct", [x["distinct"] for x in
          inspect(trained.directory / "checkpoints" / "step-0000002", "--json")["experts"]["layers"]], [4, 4])
    damaged = directory / "optimizer-00001-of-00003.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x55")
    contains("inspect: damage is named", inspect(directory, code=FAILED), f"DAMAGED: {damaged}: corrupt: its SHA-256 is not that of complete.json")
    (directory / "complete.json").unlink()
    contains("inspect: without a mark", inspect(directory), "not complete: there is no complete.json")
