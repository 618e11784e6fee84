#!/usr/bin/env python3
"""Five hundred runs that wait in a real Slurm's queue: what a round of the daemon costs, its memory, and that it asks once a round at most."""
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
from support import TINY, Home  # noqa: E402
from testbed import Cluster, skip_without_cluster  # noqa: E402

RUNS, WATCHED = 500, 20  # runs; seconds
TICK_SECONDS, RSS_MB, LIMIT = 0.1, 100, 500
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


def counted(home):
    """A squeue that counts how often it is asked, before the real one."""
    tally, place = home.root / "asked", home.root / "bin"
    place.mkdir()
    real = next(p for p in (pathlib.Path(d) / "squeue" for d in home.environment["PATH"].split(":")) if p.exists())
    (place / "squeue").write_text(f"#!/bin/sh\necho >>'{tally}'\nexec '{real}' \"$@\"\n")
    (place / "squeue").chmod(0o755)
    home.environment["PATH"] = f"{place}:{home.environment['PATH']}"
    return lambda: tally.stat().st_size if tally.exists() else 0


def main():
    skip_without_cluster()
    with Cluster(nodes=1) as cluster, Home(prefix="switchyard-slurm-many-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=DOWN")
        asked = counted(home)
        home.serve()
        home.cli("submit", home.spec(HEAD, "data.yaml"))  # on this machine: the data of all others
        home.wait_for("data-1", ["succeeded"])
        home.cli("submit", home.spec(SPEC, "many.yaml"), "--yes", timeout=LIMIT)
        deadline = time.monotonic() + LIMIT
        while sum(run["state"] == "pending" for run in home.json("ls")["runs"]) < RUNS:
            assert time.monotonic() < deadline, "they did not all come to Slurm's queue"
            time.sleep(3)
        names = cluster.client("squeue", "--noheader", "--format=%k").splitlines()
        assert len(names) == len(set(names)) == RUNS, f"{len(names)} jobs, {len(set(names))} marks: one each was asked for"
        before, questions, start = ticking(home.daemon.pid), asked(), time.monotonic()
        time.sleep(WATCHED)
        spent, questions, seconds = ticking(home.daemon.pid) - before, asked() - questions, time.monotonic() - start
        memory = resident(home.daemon.pid)
        print(f"{RUNS} runs pending: {1000 * spent / seconds:.0f} ms of CPU a second (a round a second), {questions} squeue in {seconds:.0f} s, "
              f"{memory:.0f} MB resident")
        assert spent / seconds < TICK_SECONDS and memory < RSS_MB and 0 < questions <= seconds + 1


main()
