#!/usr/bin/env python3
"""One spec, both worlds: experiments/first-run-cpu.yaml itself, as processes of this machine and as jobs of a real cluster, has equal bits.

    tests/slurm/worlds.py [--whole] [--set KEY=VALUE]…    a few steps unless --whole: then all that the file says

Each world has a home of its own, so that each tokenises for itself. Held against each other: the tokenised data, what every record of every
run says (but for what was measured), and the SHA-256 of each file of the last checkpoint.
"""
import hashlib
import json
import pathlib
import sys
import time

from testbed import Cluster, skip_without_cluster
from support import SOURCE, Home  # testbed made tests/ importable

SPEC = SOURCE / "experiments" / "first-run-cpu.yaml"
TEXT = pathlib.Path("/usr/share/dictd/gcide.dict.dz")
STEPS = 6
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost")
MEASURED = ("_ms", "_per_second", "_mb", "tflops")
RUNS = ("dense-1", "moe-1")


def records(shown):
    """What a run wrote down of itself: metrics without those that a clock or the machine's memory gave, samples, loads of experts."""
    kept = []
    for line in map(json.loads, (pathlib.Path(shown["directory"]) / "attempt-1/records.jsonl").read_text().splitlines()):
        if line["kind"] == "metric":
            kept.append((line["step"], {name: value for name, value in line["metrics"].items() if not name.endswith(MEASURED)}))
        elif line["kind"] in ("data", "expert_load"):
            kept.append({name: value for name, value in line.items() if name in ("kind", "step", "samples_sha256", "counts")})
    return kept


def last_checkpoint(shown):
    """Name and SHA-256 of its files; trainer.json has the run's own id, so that what it says else is compared instead."""
    directory = max((pathlib.Path(shown["directory"]) / "checkpoints").glob("step-*"))
    files = {one["name"]: one["sha256"] for one in json.loads((directory / "complete.json").read_text())["files"]}
    said = json.loads((directory / "trainer.json").read_text())
    assert files.pop("trainer.json") == hashlib.sha256((directory / "trainer.json").read_bytes()).hexdigest(), "trainer.json is not what was saved"
    return directory.name, files, {name: value for name, value in said.items() if name != "run_id"}


def in_world(home, words):
    """Both runs of the file, one after the other; what is compared of each."""
    begun = time.monotonic()
    home.serve()
    home.cli("submit", SPEC, *words)
    shown = [home.wait_for(run, ENDED, timeout=6 * 3600) for run in RUNS]
    data = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(home.home.glob("datasets/*/data.*"))]
    assert all(run["state"] == "succeeded" for run in shown), [(run["name"], run["state"], run["reason"]) for run in shown]
    executors = {home.json("show", run)["executor"] for run in ("tokenize-1", *RUNS)}
    home.stop()
    print(f"{'+'.join(executors)}: {', '.join(RUNS)} succeeded in {time.monotonic() - begun:.0f} s", flush=True)
    return executors, data, {run["name"]: (records(run), last_checkpoint(run)) for run in shown}


def differs(name, here, there):
    """The first place where two runs are not the same, in words."""
    for one, other in zip(here, there):
        if one != other:
            return f"{name}: here {one}, there {other}"
    return f"{name}: {len(here)} records here, {len(there)} there"


def main():
    skip_without_cluster()
    if not TEXT.exists():
        print(f"skipped: {TEXT} is not installed (experiments/setup)")
        sys.exit(77)
    words = sys.argv[1:]
    whole = "--whole" in words
    steps = 200 if whole else STEPS
    words = [word for word in words if word != "--whole"] + ["--set", f"checkpoint.interval={steps}"] + ([] if whole else ["--set", f"training.iterations={steps}"])
    with Home(prefix="switchyard-here-") as here:
        executors, data, local = in_world(here, words)
        assert executors == {"local"}, executors
    with Cluster(nodes=1, cpus=2) as cluster, Home(prefix="switchyard-there-") as there: # two CPUs: Slurm lets one run go after the other, as the queue here does
        there.root.chmod(0o755)
        there.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        executors, other_data, remote = in_world(there, ["--set", "executor=slurm", *words])
        assert executors == {"slurm"}, executors
    assert len(data) == 2 and data == other_data, (data, other_data)
    for name in RUNS:
        (ours, saved), (theirs, also_saved) = local[name], remote[name]
        assert ours == theirs, differs(name, ours, theirs)
        metrics = [line for line in ours if isinstance(line, tuple)]
        assert [step for step, _ in metrics] == list(range(1, steps + 1)) and all("loss" in values for _, values in metrics), [step for step, _ in metrics]
        assert saved == also_saved, (saved, also_saved)
        print(f"{name}: {len(metrics)} steps, {sum(len(values) for _, values in metrics)} values and {len(ours) - len(metrics)} other records the same bit by bit; "
              f"loss {metrics[0][1]['loss']} … {metrics[-1][1]['loss']}; checkpoint {saved[0]}: {len(saved[1])} files the same", flush=True)
        for file, digest in sorted(saved[1].items()):
            print(f"    {digest}  {file}", flush=True)
    print(f"worlds: {SPEC.name} on this machine and on a cluster, equal bits")


if __name__ == "__main__":
    main()
