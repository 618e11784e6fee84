#!/usr/bin/env python3
"""A sweep on a real cluster as job arrays: eight elements at most, sixteen jobs at once; each trial is handed over once and succeeds.
Elements that are cancelled while they wait, by the daemon and by somebody else, end alone, and the daemon is killed meanwhile."""
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
from support import TINY, Home  # noqa: E402
from testbed import Cluster, skip_without_cluster  # noqa: E402

TRIALS, ELEMENTS, JOBS, LIMIT = 24, 8, 16, 400
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost")
HEAD = TINY.split("runs:")[0]
SPEC = HEAD.replace("project: tiny\n", "project: tiny\nexecutor: slurm\n") + \
    f"sweep: {{grid: {{training.seed: {json.dumps(list(range(1, TRIALS + 1)))}}}}}\n"


def trials(home):
    return {run["name"]: run for run in home.json("ls")["runs"] if run["name"].startswith("many-")}


def listed(cluster):
    return cluster.client("squeue", "--noheader", "--array", "--states=pending,running,completing", "--format=%i").split()


def wait(what, predicate):
    deadline = time.monotonic() + LIMIT
    while not predicate():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.5)


def main():
    skip_without_cluster()
    with Cluster(nodes=2) as cluster, Home(prefix="switchyard-slurm-arrays-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        (home.root / "home").mkdir(exist_ok=True)
        (home.root / "home" / "config.yaml").write_text(f"slurm: {{max_array_size: {ELEMENTS}, max_submit_jobs: {JOBS}}}\n")
        home.serve()
        home.cli("submit", home.spec(HEAD, "data.yaml"))  # on this machine: the data of all others
        home.wait_for("data-1", ["succeeded"])
        cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=DOWN")
        home.cli("submit", home.spec(SPEC, "many.yaml"), "--yes", timeout=LIMIT)
        wait("as many as may be come to the queue", lambda: len(listed(cluster)) == JOBS)
        wait("and they are pending", lambda: sum(run["state"] == "pending" for run in trials(home).values()) == JOBS)
        arrays = {number.split("_")[0] for number in listed(cluster)}
        assert all("_" in number for number in listed(cluster)) and len(arrays) <= 4, listed(cluster)
        waiting = [run for run in trials(home).values() if run["state"] == "queued"]
        assert len(waiting) == TRIALS - JOBS and all(f"one of the {JOBS} jobs" in run["reason"] for run in waiting), waiting
        ours, theirs, *_ = [name for name, run in trials(home).items() if run["state"] == "pending"]
        home.cli("cancel", ours)
        cluster.client("scancel", home.json("show", theirs)["attempts"][0]["job_id"])
        home.daemon.kill()
        home.daemon.wait()
        home.serve()
        home.wait_for(ours, ENDED, LIMIT)
        cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=UP")
        most = 0

        def over():
            nonlocal most
            most = max(most, len(listed(cluster)))
            return all(run["state"] in ENDED for run in trials(home).values())
        wait("all end", over)
        assert most <= JOBS, most
        for name in trials(home):
            shown = home.json("show", name)
            assert shown["state"] == ("cancelled" if name in (ours, theirs) else "succeeded"), shown
            assert len(shown["attempts"]) == 1 and [e["to"] for e in shown["events"]].count("submitted") == 1, shown["events"]
        assert "not by this daemon" in home.json("show", theirs)["reason"], home.json("show", theirs)
        print(f"{TRIALS} trials, at most {most} jobs at once, the first {JOBS} in {len(arrays)} arrays; two cancelled, the others handed over once")


main()
