#!/usr/bin/env python3
"""Hundreds of runs on a real Slurm at once: what a round of the daemon costs, its memory, and that it asks once a round at most. First five
hundred that wait; they are cancelled all together; then a hundred that run, each a job of job.sh, srun and a worker (slow_worker.c) that writes a
line a second. By hand `tests/slurm/many.py 500` runs as many as are tracked at most.

`tests/slurm/many.py arrays` measures something else: 200 equal runs handed over as elements of arrays and one by one, what it costs Slurm.
"""
import json
import os
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
from support import BIN, SWITCHYARD, TINY, Home  # noqa: E402
import support  # noqa: E402
from testbed import Cluster, skip_without_cluster  # noqa: E402

RUNS, WATCHED = 500, 20  # runs; seconds
RUNNING = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 100
COMPARED = 200  # runs of `many.py arrays`
CPU_A_SECOND, RSS_MB, LIMIT = 0.1, 100, 500
HEAD = TINY.split("runs:")[0]
SPEC = HEAD.replace("project: tiny\n", "project: tiny\nexecutor: slurm\n") + \
    f"sweep: {{grid: {{training.seed: {json.dumps(list(range(1, RUNS + 1)))}}}}}\n"


def ticking(pid):
    """CPU seconds of the thread that ticks: the first."""
    words = pathlib.Path(f"/proc/{pid}/task/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    line = next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def counted(home, program):
    """One of Slurm's commands that counts how often it is called, before the real one."""
    tally, place = home.root / f"called-{program}", home.root / "bin"
    place.mkdir(exist_ok=True)
    real = next(p for p in (pathlib.Path(d) / program for d in home.environment["PATH"].split(":")) if p.exists() and p.parent != place)
    (place / program).write_text(f"#!/bin/sh\necho >>'{tally}'\nexec '{real}' \"$@\"\n")
    (place / program).chmod(0o755)
    if not home.environment["PATH"].startswith(f"{place}:"):
        home.environment["PATH"] = f"{place}:{home.environment['PATH']}"
    return lambda: tally.stat().st_size if tally.exists() else 0


def with_slow_worker(home):
    """The daemon beside a worker that computes nothing, which has the real one beside it for the data."""
    place = home.root / "programs"
    place.mkdir()
    shutil.copy(SWITCHYARD, place / "switchyard")
    shutil.copy(BIN / "slurm_slow_worker", place / "switchyard-worker")
    (place / "real-worker").symlink_to(BIN / "switchyard-worker")
    support.SWITCHYARD = place / "switchyard"


def measured(home, asked, what):
    before, questions, start = ticking(home.daemon.pid), asked(), time.monotonic()
    time.sleep(WATCHED)
    spent, questions, seconds = ticking(home.daemon.pid) - before, asked() - questions, time.monotonic() - start
    memory = resident(home.daemon.pid)
    ticks = home.ask("/api/v1/health")["ticks"]
    print(f"{what}: {1000 * spent / seconds:.0f} ms of CPU a second, {questions} squeue in {seconds:.0f} s, {memory:.0f} MB resident; "
          f"a tick {ticks['cpu_ms_mean']:.0f} ms, at most {ticks['cpu_ms_largest']:.0f}, of the last {ticks['recent']}", flush=True)
    assert spent / seconds < CPU_A_SECOND and memory < RSS_MB and questions <= seconds + 1 and asked() > 0


def states(home, project):
    count = {}
    for run in home.json("ls", "-p", project)["runs"]:
        count[run["state"]] = count.get(run["state"], 0) + 1
    return count


def wait_for(home, project, wanted, step):
    deadline = time.monotonic() + LIMIT
    while not wanted(now := states(home, project)):
        assert time.monotonic() < deadline, now
        time.sleep(step)


def cancel_all(home, cluster):
    """Those that wait in Slurm's queue, and all of a sweep: one word for them, and it does not take longer than they took."""
    begin = time.monotonic()
    said = home.json("cancel", "--submission", "many-seed1-1")
    asked = time.monotonic() - begin
    assert said["cancelled"] + said["stopping"] == RUNS, said
    wait_for(home, "tiny", lambda now: now.get("cancelled", 0) == RUNS, 2)
    print(f"{RUNS} runs cancelled at one word: answered in {asked:.2f} s, over in {time.monotonic() - begin:.0f} s", flush=True)
    assert cluster.client("squeue", "--noheader") == ""


def running(home, asked):
    """Runs that run: every one of them writes, beats and is read."""
    count = RUNNING
    spec = SPEC.replace(json.dumps(list(range(1, RUNS + 1))), json.dumps(list(range(1, count + 1)))).replace("project: tiny", "project: busy")
    home.cli("submit", home.spec(spec, "busy.yaml"), "--yes", "--set", "training.iterations=100000", timeout=LIMIT)
    wait_for(home, "busy", lambda now: now.get("running", 0) == count, 3)
    before = {run["name"]: run["step"] for run in home.json("ls", "-p", "busy")["runs"]}
    measured(home, asked, f"{count} runs running")
    after = {run["name"]: run["step"] for run in home.json("ls", "-p", "busy")["runs"]}
    steps = [after[name] - before[name] for name in before]
    print(f"steps of a run meanwhile: {min(steps)} to {max(steps)}", flush=True)
    assert min(steps) >= 1, "a run was not read"
    home.cli("cancel", "--project", "busy")
    wait_for(home, "busy", lambda now: now.get("cancelled", 0) == count, 3)


def spent_by_controller(cluster):
    """CPU seconds of all of slurmctld."""
    pid = int((cluster.directory / "run" / "slurmctld.own.pid").read_text())
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def handed_over(max_array_size):
    """200 equal runs into Slurm's queue: calls of sbatch, seconds, CPU seconds of slurmctld."""
    with Cluster(nodes=2, cpus=300) as cluster, Home(prefix="switchyard-slurm-many-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=DOWN")
        called = counted(home, "sbatch")
        (home.root / "home").mkdir(exist_ok=True)
        (home.root / "home" / "config.yaml").write_text(f"slurm: {{max_array_size: {max_array_size}}}\n")
        home.serve()
        home.cli("submit", home.spec(HEAD, "data.yaml"))
        home.wait_for("data-1", ["succeeded"])
        spec = home.spec(SPEC.replace(json.dumps(list(range(1, RUNS + 1))), json.dumps(list(range(1, COMPARED + 1)))), "many.yaml")
        began, spent = time.monotonic(), spent_by_controller(cluster)
        home.cli("submit", spec, "--yes", timeout=LIMIT)
        wait_for(home, "tiny", lambda now: now.get("pending", 0) == COMPARED, 1)
        cost = called(), time.monotonic() - began, spent_by_controller(cluster) - spent
        print(f"max_array_size {max_array_size}: {cost[0]} sbatch, {cost[1]:.1f} s until {COMPARED} runs wait in Slurm's queue, "
              f"{cost[2]:.2f} s of slurmctld's CPU", flush=True)
        return cost


def compare_arrays():
    together, alone = handed_over(1001), handed_over(1)
    print("one by one costs " + ", ".join(f"{b / max(a, 0.01):.1f} times the {what}" for a, b, what in zip(together, alone, ("calls", "time", "CPU"))))
    assert together[0] < alone[0] == COMPARED, (together, alone)


def main():
    skip_without_cluster()
    if sys.argv[1:] == ["arrays"]:
        return compare_arrays()
    with Cluster(nodes=4, cpus=300) as cluster, Home(prefix="switchyard-slurm-many-") as home:
        with_slow_worker(home)
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=DOWN")
        asked = counted(home, "squeue")
        home.serve()
        home.cli("submit", home.spec(HEAD, "data.yaml"))  # on this machine: the data of all others
        home.wait_for("data-1", ["succeeded"])
        home.cli("submit", home.spec(SPEC, "many.yaml"), "--yes", timeout=LIMIT)
        deadline = time.monotonic() + LIMIT
        while sum(run["state"] == "pending" for run in home.json("ls")["runs"]) < RUNS:
            assert time.monotonic() < deadline, "they did not all come to Slurm's queue"
            time.sleep(3)
        numbers = cluster.client("squeue", "--noheader", "--array", "--format=%i").splitlines()
        assert len(numbers) == len(set(numbers)) == RUNS, f"{len(numbers)} jobs: one each was asked for"
        measured(home, asked, f"{RUNS} runs pending")
        cancel_all(home, cluster)
        cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=UP")
        running(home, asked)


main()
