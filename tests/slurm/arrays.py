#!/usr/bin/env python3
"""Sweeps on a real cluster as job arrays, each trial handed over once.

many:      eight elements at most, sixteen jobs at once, as `plan` says; elements that are cancelled while they wait, by the daemon and by somebody
           else, end alone, and the daemon is killed meanwhile; one that runs is requeued, and runs again alone.
unheard:   the daemon is killed between sbatch and its answer, once with the array still there, once with its jobs ended and purged: accounting
           knows them by the array's name.
limited:   Slurm's database allows a user fewer jobs at once than there are, as an array: the others wait, say why, and go.
singly:    the same one by one; by hand alone, `tests/slurm/arrays.py singly`, as each of the others may be."""
import concurrent.futures
import contextlib
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
from support import TINY, Home  # noqa: E402
from testbed import Cluster, skip_without_cluster, without_cluster  # noqa: E402

TRIALS, ELEMENTS, JOBS, LIMIT = 24, 8, 16, 200
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost")
HEAD = TINY.split("runs:")[0]
# Slurm forgets an ended job after ten seconds; it lets nobody submit who is not in its database, nor more than that allows.
PURGING = "MinJobAge=5\nAccountingStorageEnforce=associations,limits,qos\n"


def sweep(home, project, trials):
    head = HEAD.replace("project: tiny\n", f"project: {project}\nexecutor: slurm\nslurm: {{requeue: true}}\n")
    return home.spec(head + f"sweep: {{grid: {{training.seed: {json.dumps(list(range(1, trials + 1)))}}}}}\n", f"{project}.yaml")


def trials(home, project):
    return {run["name"]: run for run in home.json("ls", "-p", project)["runs"]}


def listed(cluster, states="pending,running,completing", field="%i"):
    return cluster.client("squeue", "--noheader", "--array", f"--states={states}", f"--format={field}").split()


def wait(what, predicate):
    deadline = time.monotonic() + LIMIT
    while not predicate():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.3)


def partition(cluster, state):
    cluster.fault("admin", "scontrol", "update", "PartitionName=main", f"State={state}")


def configure(home, **settings):
    """Of a daemon that starts later."""
    (home.root / "home").mkdir(exist_ok=True)
    (home.root / "home" / "config.yaml").write_text("slurm: {%s}\n" % ", ".join(f"{key}: {value}" for key, value in settings.items()))


def kill_daemon(home):
    home.daemon.kill()
    home.daemon.wait()


def all_over(home, project):
    return all(run["state"] in ENDED for run in trials(home, project).values())


def check_ends(home, project, cancelled=(), attempts=None):
    """Every one came to the end that it should, in one hand-over."""
    for name in trials(home, project):
        shown = home.json("show", f"{project}/{name}")
        assert shown["state"] == ("cancelled" if name in cancelled else "succeeded"), shown
        assert len(shown["attempts"]) in (attempts or {}).get(name, [1]), shown["attempts"]
        assert [e["to"] for e in shown["events"]].count("submitted") == 1, shown["events"]


@contextlib.contextmanager
def stage(cluster):
    with Home(prefix="switchyard-slurm-arrays-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        home.serve()
        home.cli("submit", home.spec(HEAD, "data.yaml"))  # on this machine: the data of all others
        home.wait_for("data-1", ["succeeded"])
        kill_daemon(home)
        yield home


def requeue_one(cluster, home):
    """The first element that is seen at work, once more; the name of its run. By what is on the disk: a run takes but seconds."""
    while not all_over(home, "many"):
        for run in sorted((home.root / "home" / "runs" / "many").glob("many-*")):
            attempt, claim = run / "attempt-1", run / "submission.1"
            if (attempt / "records.jsonl").exists() and not (attempt / "exit.json").exists() and "_" in (number := claim.read_text().strip()) and \
                    cluster.run("scontrol", "requeue", number).returncode == 0:
                return run.name
    raise AssertionError("no element was seen at work")


def many(cluster, home):
    configure(home, max_array_size=ELEMENTS, max_submit_jobs=JOBS)
    home.serve()
    spec = sweep(home, "many", TRIALS)
    planned = home.json("plan", spec)["slurm"]
    assert planned == {"jobs": TRIALS, "arrays": 3, "elements": TRIALS, "max_array_size": ELEMENTS, "max_submit_jobs": JOBS, "texts": True}, planned
    words = f"on Slurm: {TRIALS} jobs, as the {TRIALS} elements of 3 arrays (`sbatch --array`); at most {JOBS} at once (`slurm.max_submit_jobs`), the others as those end"
    assert f"{words}; one more for each text that is not tokenised yet\n" in home.cli("plan", spec).stdout
    partition(cluster, "DOWN")
    assert f"{words}\n" in home.cli("submit", spec, "--yes", timeout=LIMIT).stderr
    wait("as many as may be come to the queue", lambda: len(listed(cluster)) == JOBS)
    wait("and they are pending", lambda: sum(run["state"] == "pending" for run in trials(home, "many").values()) == JOBS)
    arrays = {number.split("_")[0] for number in listed(cluster)}
    assert all("_" in number for number in listed(cluster)) and len(arrays) <= 4, listed(cluster)
    waiting = [run for run in trials(home, "many").values() if run["state"] == "queued"]
    assert len(waiting) == TRIALS - JOBS and all(f"one of the {JOBS} jobs" in run["reason"] for run in waiting), waiting
    ours, theirs, *_ = [name for name, run in trials(home, "many").items() if run["state"] == "pending"]
    number = home.json("show", f"many/{ours}")["attempts"][0]["job_id"]
    home.cli("cancel", f"many/{ours}")
    wait("its record says that it was cancelled", lambda: f"{number}|CANCELLED" in listed(cluster, "all", "%i|%T"))
    cluster.client("scancel", home.json("show", f"many/{theirs}")["attempts"][0]["job_id"])
    kill_daemon(home)
    home.serve()
    home.wait_for(f"many/{ours}", ENDED, LIMIT)
    partition(cluster, "UP")
    again = requeue_one(cluster, home)
    most = 0

    def over():
        nonlocal most
        most = max(most, len(listed(cluster)))
        return all_over(home, "many")
    wait("all end", over)
    assert most <= JOBS, most
    first = json.loads((home.root / "home" / "runs" / "many" / again / "attempt-1" / "exit.json").read_text())
    stopped = first["code"] == 75  # else it was done already when Slurm's word came, and what was to be started again was ended: before it began, or after
    check_ends(home, "many", (ours, theirs), {again: [2] if stopped else [1, 2]})
    assert "not by this daemon" in home.json("show", f"many/{theirs}")["reason"], home.json("show", f"many/{theirs}")
    kill_daemon(home)
    print(f"{TRIALS} trials, at most {most} jobs at once, the first {JOBS} in {len(arrays)} arrays; two cancelled, one requeued, all handed over once", flush=True)


def mute(home, cluster):
    """An sbatch that does its work and never answers; how often it was called."""
    place, tally = home.root / "bin", home.root / "called"
    place.mkdir(exist_ok=True)
    tally.unlink(missing_ok=True)
    real = next(p for p in (pathlib.Path(d) / "sbatch" for d in cluster.environment["PATH"].split(":")) if p.exists())
    (place / "sbatch").write_text(f"#!/bin/sh\necho \"$*\" >>'{tally}'\n'{real}' \"$@\" >/dev/null 2>&1\nexec sleep 600\n")
    (place / "sbatch").chmod(0o755)
    home.environment["PATH"] = f"{place}:{cluster.environment['PATH']}"
    return lambda: tally.read_text().splitlines() if tally.exists() else []


def unheard(cluster, home, purged):
    trials_of_it, project = 4, "purged" if purged else "unheard"
    called = mute(home, cluster)
    configure(home, max_array_size=ELEMENTS)
    home.serve()
    partition(cluster, "UP" if purged else "DOWN")
    home.cli("submit", sweep(home, project, trials_of_it), "--yes")
    wait("the array is there", lambda: len(called()) == 1 and len(listed(cluster, "all")) >= trials_of_it)
    kill_daemon(home)
    assert "--array=0-3" in called()[0], called()
    if purged:
        wait("squeue knows nothing of it any more", lambda: not listed(cluster, "all"))
    home.environment["PATH"] = cluster.environment["PATH"]
    home.serve()
    partition(cluster, "UP")
    wait("all end", lambda: all_over(home, project))
    check_ends(home, project)
    done = cluster.client("sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID", f"--name={project}.{project}-seed1-1+3",
                          "--starttime=now-1hour").split() if purged else []
    assert not purged or len(done) == trials_of_it, done
    kill_daemon(home)
    print(f"{project}: an array whose sbatch was not heard, one call", flush=True)


def limited(cluster, home, elements):
    most, trials_of_it, project = 3, 7, f"limited{elements}"
    cluster.fault("admin", "sacctmgr", "-i", "modify", "user", "where", f"name={cluster.user}", "set", f"MaxSubmitJobs={most}")
    home.cli("config", "slurm", "--force")
    found = (home.root / "home" / "config.yaml").read_text()
    assert f"max_submit_jobs: {most} # `sacctmgr show assoc`: MaxSubmitJobs" in found, found
    configure(home, max_array_size=elements)  # not told of it
    home.serve()
    partition(cluster, "DOWN")
    home.cli("submit", sweep(home, project, trials_of_it), "--yes")
    wait("as many as may be are there", lambda: len(listed(cluster)) >= most - 1)
    wait("the others say why", lambda: sum("takes no more jobs" in (run["reason"] or "") for run in trials(home, project).values()) >= trials_of_it - most)
    reason = next(run["reason"] for run in trials(home, project).values() if "takes no more" in (run["reason"] or ""))
    assert "AssocMaxSubmitJobLimit" in reason, reason
    assert len(listed(cluster)) <= most
    partition(cluster, "UP")
    began = time.monotonic()
    wait("all end", lambda: all_over(home, project))
    check_ends(home, project)
    kill_daemon(home)
    cluster.fault("admin", "sacctmgr", "-i", "modify", "user", "where", f"name={cluster.user}", "set", "MaxSubmitJobs=-1")
    print(f"{trials_of_it} trials, {'an array' if elements > 1 else 'singly'}, where {most} may be there at once: {reason}; all over in {time.monotonic() - began:.0f} s", flush=True)


def with_accounting(wanted):
    with Cluster(nodes=2, accounting=True, configuration=PURGING) as cluster:
        for words in (["account", "switchyard"], ["user", cluster.user, "account=switchyard"]):
            cluster.fault("admin", "sacctmgr", "-i", "add", *words)
        wait("who is in the database may submit", lambda: cluster.run("sbatch", "--test-only", "--wrap=:").returncode == 0)
        with stage(cluster) as home:
            if "unheard" in wanted:
                unheard(cluster, home, False)
                unheard(cluster, home, True)
            if "limited" in wanted:
                limited(cluster, home, ELEMENTS)
            if "singly" in wanted:
                limited(cluster, home, 1)


def without_accounts(wanted):
    if "many" in wanted:
        with Cluster(nodes=2) as cluster, stage(cluster) as home:
            many(cluster, home)


def with_accounts(wanted):
    reason = without_cluster(accounting=True) if set(wanted) - {"many"} else None
    if reason:
        print(f"no accounts: {reason}", flush=True)
    elif set(wanted) - {"many"}:
        with_accounting(wanted)


def main():
    skip_without_cluster()
    wanted = sys.argv[1:] or ["many", "unheard", "limited"]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # Slurm's own clocks are most of both
        for done in [pool.submit(part, wanted) for part in (without_accounts, with_accounts)]:
            done.result()


main()
