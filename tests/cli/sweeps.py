#!/usr/bin/env python3
"""Sweeps and stages, end to end: as many runs as were planned, the canary first, never more at once than `concurrency`, stages in their order,
and what needs a run that failed fails with the reason."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import TINY, Home  # noqa: E402

COMMON = TINY[:TINY.index("runs:")]
ENDED = {"succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"}


def listed(home, project="tiny"):
    return {run["name"]: run for run in home.json("ls", "--project", project)["runs"]}


def wait_for_all(home, names, timeout=180):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        runs = listed(home)
        if all(runs[name]["state"] in ENDED for name in names):
            return runs
        time.sleep(0.3)
    raise AssertionError({name: (runs[name]["state"], runs[name]["reason"]) for name in names})


def spans(home, names):
    """When each run had a job: [(from, to)] by its events."""
    result = {}
    for name in names:
        events = home.json("show", f"tiny/{name}")["events"]
        begin = next(event["time"] for event in events if event["to"] == "submitted")
        result[name] = (begin, max(event["time"] for event in events if event["to"] in ENDED))
    return result


def canary_and_places(home):
    spec = home.spec(COMMON + "sweep:\n  canary: 1\n  concurrency: 2\n  grid:\n    training.learning_rate.peak: [1e-3, 2.5e-3]\n"
                     "    training.seed: [1, 2, 3]\nruns: {dense: {}}\n", name="sweep.yaml")
    planned = home.json("plan", spec)
    assert planned["total"]["runs"] == 6 and planned["total"]["core_hours_at_most"] == 1.0, planned["total"]
    assert planned["sweeps"][0]["keys"] == {"training.learning_rate.peak": [1e-3, 2.5e-3], "training.seed": [1, 2, 3]}, planned["sweeps"]
    table = home.cli("plan", spec).stdout
    assert "sweep of dense: 6 trials, dense-peak1e-3-seed1 … dense-peak25e-4-seed3\n" in table, table
    assert "total: 6 runs, " in table and "at most 1 core-hours" in table and "seed2" not in table, table
    one = home.spec(COMMON + "sweep: {grid: {training.seed: [1]}}\nruns: {dense: {}}\n", name="one.yaml")
    assert home.cli("validate", one).stdout == "tiny/dense: ok (1 trial, dense-seed1)\n"
    assert "sweep of dense: 1 trial, dense-seed1\n" in home.cli("plan", one).stdout
    submitted = home.json("submit", spec)["runs"]
    trains = [run["name"] for run in submitted if run["kind"] == "train"]
    assert trains == [run["name"] + "-1" for run in planned["runs"]], (trains, planned["runs"])
    assert trains[0] == "dense-peak1e-3-seed1-1" and trains[-1] == "dense-peak25e-4-seed3-1", trains
    runs = wait_for_all(home, trains)
    assert all(runs[name]["state"] == "succeeded" for name in trains), runs
    shown = home.json("show", f"tiny/{trains[-1]}")
    assert shown["sweep"] == {"training.learning_rate.peak": 2.5e-3, "training.seed": 3} and shown["sweep_of"] == "dense", shown["sweep"]
    assert shown["spec"]["training"]["seed"] == 3 and shown["spec"]["training"]["learning_rate"]["peak"] == 2.5e-3
    assert f"tiny/{trains[0]}" in [need["run"] for need in shown["needs"]], shown["needs"]
    assert runs["tokenize-1"]["sweep"] is None and runs["tokenize-1"]["sweep_of"] is None
    when = spans(home, trains)
    assert all(when[name][0] >= when[trains[0]][1] for name in trains[1:]), when
    most = max(sum(begin <= at < end for begin, end in when.values()) for at, _ in when.values())
    assert most <= 2, (most, when)
    groups(home, trains, runs)
    # Never as many at once by chance only: a run that had to wait says for what.
    waited = [event["reason"] for name in trains for event in home.json("show", f"tiny/{name}")["events"] if event["reason"]]
    assert any("waits for one of the sweep's 2 places" in reason or "of this machine's" in reason for reason in waited), waited


def groups(home, trains, runs):
    """`ls` has a column for each key that differs; --group makes one row of each value; `report` puts seeds together."""
    lines = home.cli("ls", "-p", "tiny").stdout.splitlines()
    assert lines[0].split()[:4] == ["RUN", "peak", "seed", "STATE"], lines[0]
    row = next(line.split() for line in lines if line.startswith("tiny/dense-peak25e-4-seed2-1"))
    assert row[1:4] == ["0.0025", "2", "succeeded"], row
    assert next(line.split() for line in lines if line.startswith("tiny/tokenize-1"))[1:4] == ["-", "-", "succeeded"], lines
    told = home.json("ls", "-p", "tiny", "--group", "peak")["groups"]
    assert [(group["value"], len(group["runs"]), group["states"]) for group in told] == [(1e-3, 3, {"succeeded": 3}), (2.5e-3, 3, {"succeeded": 3})], told
    losses = [runs[name]["loss"] for name in trains[:3]]
    spread = told[0]["loss"]
    assert (spread["least"], spread["most"], spread["count"]) == (min(losses), max(losses), 3) and abs(spread["mean"] - sum(losses) / 3) < 1e-9, spread
    assert home.json("ls", "--group", "training.learning_rate.peak")["groups"] == told
    table = home.cli("ls", "--group", "seed").stdout.splitlines()
    assert len(table) == 4 and table[0].split()[:3] == ["SWEEP", "seed", "RUNS"] and "2 succeeded" in table[1], table
    refused = home.run("ls", "--group", "layers")
    assert refused.returncode == 2 and "no run here was swept over 'layers'" in refused.stderr, refused.stderr
    report = home.json("report", "tiny")["groups"]
    assert [(group["name"], group["sweep"], group["seeds"]) for group in report] == [
        ("dense", {"training.learning_rate.peak": peak}, [1, 2, 3]) for peak in (1e-3, 2.5e-3)], report
    assert home.cli("report", "tiny").stdout.splitlines()[0].split()[:2] == ["peak", "runs"]


def a_dead_canary(home):
    spec = home.spec(COMMON + "sweep: {canary: 1, zip: {training.seed: [" + ", ".join(map(str, range(1, 301))) + "]}}\nruns: {many: {}}\n",
                     name="many.yaml")
    refused = home.run("submit", spec)
    assert refused.returncode == 2 and "300 runs, " in refused.stderr and "say so with --yes" in refused.stderr, refused.stderr
    assert not any(name.startswith("many") for name in listed(home))
    begin = time.monotonic()
    submitted = home.json("submit", spec, "--yes", "--set", "training.iterations=1000000")["runs"]
    print(f"300 trials submitted in {time.monotonic() - begin:.1f} s")
    names = [run["name"] for run in submitted]
    assert len(names) == len(set(names)) == 300, len(names)
    home.wait_for("tiny/many-seed1-1", {"running"})
    home.cli("cancel", "tiny/many-seed1-1")
    runs = wait_for_all(home, names)
    assert runs[names[0]]["state"] == "cancelled"
    rest = [runs[name] for name in names[1:]]
    assert all(run["state"] == "failed" and run["reason"].startswith("needs tiny/many-seed1-1, which was cancelled") for run in rest), rest[0]


def stages(home):
    text = COMMON + ("stages:\n"
                     "  tokens: {kind: tokenize, data: {split: [80, 20, 0], document: line}}\n"
                     "  first: {kind: train, needs: [tokens], data: {document: line}, checkpoint: {interval: 8}}\n"
                     "  second: {kind: train, needs: [first], data: {document: line}, model: {from: {run: first}}}\n"
                     "runs:\n"
                     "  last: {needs: [second, first], data: {document: line}}\n")
    spec = home.spec(text, name="stages.yaml")
    plan = home.cli("plan", spec).stdout
    assert "tiny/tokens, a stage that tokenizes, executor local" in plan and "  after          second, first\n" in plan, plan
    submitted = home.json("submit", spec)["runs"]
    assert [(run["name"], run["kind"]) for run in submitted] == [
        ("tokens-1", "tokenize"), ("first-1", "train"), ("second-1", "train"), ("last-1", "train")], submitted
    order = [run["name"] for run in submitted]
    runs = wait_for_all(home, order)
    assert all(runs[name]["state"] == "succeeded" for name in order), runs
    when = spans(home, order)
    assert all(when[a][1] <= when[b][0] for a, b in zip(order, order[1:])), when
    assert {need["run"] for need in home.json("show", "tiny/last-1")["needs"]} == {"tiny/second-1", "tiny/first-1", "tiny/tokens-1"}
    # Its data is there now: the stage is left out, and says so; the rest goes on.
    again = home.cli("submit", spec)
    assert "tokens is left out: its data is there already" in again.stderr and "submitted tiny/first-2\n" in again.stdout, again
    # A stage that fails, fails what needs it, with the reason.
    home.wait_for("tiny/last-2", {"succeeded"})
    broken = home.spec(text.replace("  second: {kind: train,", "  second: {kind: train, environment: {variables: {LD_PRELOAD: /nowhere.so, PATH: /nowhere}},\n    "),
                       name="broken.yaml")
    home.cli("submit", broken, "--set", "training.iterations=1000000")
    home.wait_for("tiny/first-3", {"running"})
    home.cli("cancel", "tiny/first-3")
    for name in ("second-3", "last-3"):
        shown = home.wait_for(f"tiny/{name}", ENDED)
        assert shown["state"] == "failed" and "needs tiny/" in shown["reason"] and "tiny/first-3, which was cancelled" in shown["reason"], shown["reason"]
    # Only one of them, by choice: it waits for nobody.
    alone = home.cli("submit", spec, "--run", "last")
    assert "`last` needs `second`, which --run leaves out: it will not wait for it" in alone.stderr, alone.stderr
    home.wait_for("tiny/last-4", {"succeeded"})
    check = home.run("submit", home.spec(COMMON + "stages: {look: {kind: check}, a: {kind: train, needs: [look]}}\n", name="check.yaml"))
    assert check.returncode == 2 and "stages: check: this build cannot run checks as a stage yet" in check.stderr and "check.yaml:15:" in check.stderr, check.stderr


def main():
    with Home() as home:
        home.serve()
        for scene in (canary_and_places, a_dead_canary, stages):
            begin = time.monotonic()
            scene(home)
            print(f"{scene.__name__}: {time.monotonic() - begin:.1f} s")


main()
