#!/usr/bin/env python3
"""A sweep on a real Slurm: the canary alone first, never more jobs at once than `concurrency`, one job a trial, all of them succeeded; a canary
that fails keeps the others from ever being given to Slurm; and one word cancels what is left of a sweep."""
import pathlib
import sys
import time

from testbed import Cluster, skip_without_cluster

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import TINY, Home  # noqa: E402

ENDED = {"succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"}
HEAD = TINY[:TINY.index("runs:")].replace("project: tiny\n", "project: sweep\nexecutor: slurm\nslurm: {grace: 5s}\n")
LIMIT, TRIALS, PLACES = 400, 6, 2
LONG = ["--set", "training.iterations=1000000", "--set", "training.learning_rate.total_iterations=1000000"]


def check(what, actual, expected):
    assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"
    print(f"ok  {what}", flush=True)


def spec_of(home, name, more):
    return home.spec(HEAD + f"sweep: {{{more}, grid: {{training.learning_rate.peak: [1e-3, 2e-3], training.seed: [1, 2, 3]}}}}\nruns: {{{name}: {{}}}}\n",
                     f"{name}.yaml")


def listed(home):
    return {run["name"]: run for run in home.json("ls", "-p", "sweep")["runs"]}


def submit(home, spec, *words):
    return [run["name"] for run in home.json("submit", spec, *words)["runs"] if run["kind"] == "train"]


def wait_for_all(home, names):
    deadline = time.monotonic() + LIMIT
    while True:
        runs = listed(home)
        if all(runs[name]["state"] in ENDED for name in names):
            return runs
        assert time.monotonic() < deadline, {name: (runs[name]["state"], runs[name]["reason"]) for name in names}
        time.sleep(0.5)


def spans(home, names):
    """When each was with Slurm, by its events."""
    result = {}
    for name in names:
        events = home.json("show", f"sweep/{name}")["events"]
        begin = next(event["time"] for event in events if event["to"] == "submitted")
        result[name] = (begin, max(event["time"] for event in events if event["to"] in ENDED))
    return result


def whole(home, cluster):
    names = submit(home, spec_of(home, "grid", f"canary: 1, concurrency: {PLACES}"))
    check("trials", len(names), TRIALS)
    most, canary_alone, deadline = 0, True, time.monotonic() + LIMIT
    while any(run["state"] not in ENDED for name, run in listed(home).items() if name in names):
        assert time.monotonic() < deadline, listed(home)
        queue = cluster.client("squeue", "--noheader", "--format=%j").split()  # Slurm's own word for it
        trials = [job for job in queue if job.startswith("sweep.grid")]
        most = max(most, len(trials))
        canary_alone &= listed(home)[names[0]]["state"] in ENDED or all(job == f"sweep.{names[0]}" for job in trials)
        time.sleep(0.3)
    runs = listed(home)
    check("all succeeded", {runs[name]["state"] for name in names}, {"succeeded"})
    check("the canary was alone", canary_alone, True)
    assert 1 <= most <= PLACES, f"{most} jobs at once, {PLACES} are the most"
    when = spans(home, names)
    check("nobody before the canary's end", [name for name in names[1:] if when[name][0] < when[names[0]][1]], [])
    at_once = max(sum(begin <= at < end for begin, end in when.values()) for at, _ in when.values())
    assert at_once <= PLACES, (at_once, when)
    jobs = [attempt["job_id"] for name in names for attempt in home.json("show", f"sweep/{name}")["attempts"]]
    check("one job each", (len(jobs), len(set(jobs))), (TRIALS, TRIALS))
    groups = home.json("ls", "-p", "sweep", "--group", "peak")["groups"]
    check("groups", [(group["value"], group["states"]) for group in groups], [(1e-3, {"succeeded": 3}), (2e-3, {"succeeded": 3})])


def dead_canary(home, cluster):
    names = submit(home, spec_of(home, "dead", "canary: 1"), *LONG)
    home.wait_for(f"sweep/{names[0]}", ["running"], LIMIT)
    cluster.client("scancel", home.json("show", f"sweep/{names[0]}")["attempts"][0]["job_id"])
    runs = wait_for_all(home, names)
    check("the canary", runs[names[0]]["state"], "cancelled")
    check("the others", {(runs[name]["state"], runs[name]["attempt"]) for name in names[1:]}, {("failed", 0)})
    assert all(f"needs sweep/{names[0]}, which was cancelled" in runs[name]["reason"] for name in names[1:]), runs[names[1]]["reason"]


def cancelled(home, cluster):
    names = submit(home, spec_of(home, "long", f"concurrency: {PLACES}"), *LONG)
    deadline = time.monotonic() + LIMIT
    while sum(listed(home)[name]["state"] == "running" for name in names) < PLACES:
        assert time.monotonic() < deadline, listed(home)
        time.sleep(0.3)
    said = home.json("cancel", "--submission", f"sweep/{names[3]}")
    check("at one word", (said["cancelled"] + said["stopping"], said["stopping"]), (TRIALS, PLACES))
    runs = wait_for_all(home, names)
    check("all are", {runs[name]["state"] for name in names}, {"cancelled"})
    check("those that never began", sum(runs[name]["attempt"] == 0 for name in names), TRIALS - PLACES)
    check("nothing is left in Slurm", cluster.client("squeue", "--noheader", "--states=PENDING,RUNNING"), "")


def main():
    skip_without_cluster()
    with Cluster(nodes=2) as cluster, Home(prefix="switchyard-slurm-sweeps-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        home.serve()
        for scene in (whole, dead_canary, cancelled):
            scene(home, cluster)


main()
