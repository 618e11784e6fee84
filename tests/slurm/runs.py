#!/usr/bin/env python3
"""Runs on a real Slurm cluster, as a person sees them: the daemon, its states and their reasons, attempts, and one curve over all of them."""
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "cli"))
from processes import lines_of, trackio_rows  # noqa: E402
from support import SWITCHYARD, TINY, Home  # noqa: E402
from testbed import Cluster, skip_without_cluster  # noqa: E402

ENDED = ["succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"]
SPEC = TINY.replace("project: tiny\n", "project: tiny\nexecutor: slurm\nslurm: {requeue: true, grace: 5s}\n")
LONG = ["--set", "training.iterations=1000000", "--set", "training.learning_rate.total_iterations=1000000",
        "--set", "checkpoint.interval=50", "--set", "checkpoint.keep=2", "--set", "training.validation.interval=0"]
LIMIT = 240  # seconds that anything may take: two cores may have other work


def check(what, actual, expected):
    assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"
    print(f"ok  {what}", flush=True)


def contains(what, text, part):
    assert part in text, f"{what}: '{part}' is not in '{text}'"
    print(f"ok  {what}: {text}", flush=True)


def job_of(home, name):
    return home.json("show", name)["attempts"][-1]["job_id"]


def wait_until(what, predicate, limit=LIMIT):
    deadline = time.monotonic() + limit
    while not predicate():
        assert time.monotonic() < deadline, f"{what}: not within {limit} s"
        time.sleep(0.3)


def wait_step(home, name, step):
    wait_until(f"{name} comes to step {step}", lambda: home.json("show", name)["step"] >= step)


def check_curve(home, shown):
    """As far as its attempts came, by what they wrote themselves."""
    steps = [step for step, _, _ in trackio_rows(home.trackio, shown["project"], shown["run_id"])]
    last = max(line["step"] for _, line in lines_of(pathlib.Path(shown["directory"])) if line["kind"] == "metric")
    check(f"{shown['name']}: every step once", steps, list(range(1, last + 1)))


def finishes(home, cluster):
    """Four ranks over two nodes; the data is made by a job of its own before."""
    home.cli("submit", home.spec(SPEC), "--run", "moe", "--name", "four", "--set", "resources.nodes=2", "--set", "resources.ranks_per_node=2",
             "--set", "parallelism.expert=4")
    shown = home.wait_for("four", ENDED, LIMIT)
    check("four ranks over two nodes", (shown["state"], shown["reason"], shown["executor"]), ("succeeded", "finished with exit code 0", "slurm"))
    nodes = shown["attempts"][0]["nodes"]
    check("its nodes are named", (len(nodes), f", on {', '.join(nodes)}, exit code 0\n" in home.cli("show", "four").stdout), (2, True))
    check("its data was made on the cluster too", home.json("show", "tokenize-1")["executor"], "slurm")
    check("what the cluster says of it", cluster.job(shown["attempts"][0]["job_id"])["JobState"], "COMPLETED")
    check_curve(home, shown)


def cancelled(home, cluster):
    for name in ("outside", "ours"):
        home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", name, *LONG)
    for name in ("outside", "ours"):
        wait_step(home, name, 20)
    cluster.client("scancel", job_of(home, "outside"))
    home.cli("cancel", "ours")
    outside, ours = (home.wait_for(name, ENDED, LIMIT) for name in ("outside", "ours"))
    check("cancelled by somebody", outside["state"], "cancelled")
    contains("and it says so", outside["reason"], "not by this daemon")
    check("cancelled by us", (ours["state"], ours["reason"]), ("cancelled", "cancelled, stopped after saving"))
    for shown in (outside, ours):
        check_curve(home, shown)


def waits(home, cluster):
    """Held, released, and cancelled while it waits: never started."""
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "held", "--set", "slurm.nodelist=n9")
    refused = home.wait_for("held", ENDED, LIMIT)
    check("a node that there is not", refused["state"], "failed")
    contains("is refused in sbatch's words", refused["reason"], "node name")
    logs = home.run("logs", "held")
    check("it has no logs", (logs.returncode, logs.stdout), (3, ""))
    contains("and says why", logs.stderr, "tiny/held has no logs, for it never began: sbatch refused the job")
    cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=DOWN")
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "waiting")
    shown = home.wait_for("waiting", ["pending"], LIMIT)
    wait_until("the scheduler's reason", lambda: "(" in (home.json("show", "waiting")["pending_reason"] or ""))
    contains("why it waits", home.json("show", "waiting")["pending_reason"], "artition")
    listed = home.cli("ls").stdout
    assert "waiting" in listed and "artition" in listed, listed
    home.cli("cancel", "waiting")
    shown = home.wait_for("waiting", ENDED, LIMIT)
    check("cancelled in the queue", (shown["state"], shown["attempts"][0]["code"]), ("cancelled", None))
    assert not pathlib.Path(shown["directory"], "attempt-1").exists(), "it was started"
    cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=UP")


def requeued(home, cluster):
    """By Slurm, twice, the second time while the daemon is away: one job, three attempts, one curve."""
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "again", *LONG)
    wait_step(home, "again", 60)
    job = job_of(home, "again")
    cluster.client("scontrol", "requeue", job)
    wait_until("a second attempt waits", lambda: len(home.json("show", "again")["attempts"]) == 2)
    wait_until("it runs", lambda: home.json("show", "again")["state"] == "running")
    step = home.json("show", "again")["step"]
    wait_step(home, "again", step + 20)
    home.stop()
    cluster.client("scontrol", "requeue", job)
    third = pathlib.Path(home.home, "runs", "tiny", "again", "attempt-3", "heartbeat.json")
    wait_until("a third attempt runs without the daemon", third.exists)
    home.serve()
    wait_step(home, "again", step + 100)
    home.cli("cancel", "again")
    shown = home.wait_for("again", ENDED, LIMIT)
    check("attempts", [(a["number"], a["job_id"], a["state"], a["code"]) for a in shown["attempts"]],
          [(1, job, "requeued", 75), (2, job, "requeued", 75), (3, job, "cancelled", 75)])
    stopped = [e["reason"] or e["text"] for e in shown["events"] if e["kind"] == "stopped"]
    check("whose wish it was: Slurm's, twice, and then the daemon's", ["Slurm wants the nodes back" in text for text in stopped], [True, True, False])
    check_curve(home, shown)


def failed(home, cluster):
    """An end that Slurm alone knows of, tried again elsewhere; and one that is the run's own."""
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "node", *LONG, "--set", "slurm.requeue=false",
             "--set", "retry={limit: 1, on: [node_failed], delay: 1s}")
    wait_step(home, "node", 60)
    node = cluster.job(job_of(home, "node"))["NodeList"]
    cluster.fault("node-kill", node)
    cluster.fault("admin", "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    wait_until("a retry", lambda: any(e["kind"] == "retry" for e in home.json("show", "node")["events"]))
    event = next(e for e in home.json("show", "node")["events"] if e["kind"] == "retry")
    contains("the retry says why, and without whom", event["reason"], f"node_failed): retry 1 of 1 in 1 s, without nodes {node}")
    wait_until("it runs once more", lambda: home.json("show", "node")["state"] == "running")
    assert cluster.job(job_of(home, "node"))["NodeList"] != node, "on the node that failed"
    cluster.fault("node-start", node)
    home.cli("cancel", "node")
    shown = home.wait_for("node", ENDED, LIMIT)
    check("attempts after a node failed", [(a["number"], a["state"]) for a in shown["attempts"]], [(1, "lost"), (2, "cancelled")])
    check_curve(home, shown)


def unreached(home, cluster):
    """Its node is lost for Slurm alone, Slurm requeues it, somebody cancels it in the queue: nothing is over while the first attempt lives on."""
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "unreached", *LONG)
    wait_step(home, "unreached", 20)
    job = job_of(home, "unreached")
    node = cluster.job(job)["NodeList"]
    first = pathlib.Path(home.home, "runs", "tiny", "unreached", "attempt-1")
    # On one machine srun hears of its node's loss and ends the ranks; where a network is cut it does not: it is held.
    launchers = [int(pid) for pid in cluster.run("pgrep", "-f", f"^([^ ]*/)?srun .*{first.parent}").stdout.split()]
    assert launchers, "no srun"
    for pid in launchers:
        os.kill(pid, signal.SIGSTOP)
    others = ",".join({"n1", "n2", "n3"} - {node})
    cluster.fault("admin", "scontrol", "update", f"NodeName={others}", "State=DRAIN", "Reason=test") # else it may run there before anybody sees it wait
    cluster.fault("slurmd-kill", node)
    cluster.fault("admin", "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    wait_until("a second attempt waits", lambda: len(home.json("show", "unreached")["attempts"]) == 2)
    cluster.client("scancel", job)
    wait_until("it is spoken of", lambda: "earlier attempt may live on" in home.json("show", "unreached")["reason"])
    wait_until("the first attempt saves and ends", lambda: '"kind":"end"' in (first / "records.jsonl").read_text())
    check("until then nothing is over", home.json("show", "unreached")["state"] in ENDED, False)
    for pid in launchers:
        os.kill(pid, signal.SIGCONT)
    shown = home.wait_for("unreached", ENDED, LIMIT)
    check("then it is cancelled", shown["state"], "cancelled")
    contains("by whom it was", shown["reason"], "not by this daemon")
    stops = [e["reason"] for e in home.json("show", "unreached")["events"] if e["kind"] == "stopping"]
    check("which it was asked to", stops, ["an earlier attempt that the scheduler has given up is asked to save and stop"])
    cluster.fault("node-start", node)
    cluster.fault("admin", "scontrol", "update", f"NodeName={others}", "State=RESUME")
    check_curve(home, shown)


def adopted(home, cluster):
    """The database is lost while a job runs: it is listed, taken in by its number, and goes on as if nothing had been."""
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "stranger", *LONG)
    wait_step(home, "stranger", 20)
    job = job_of(home, "stranger")
    home.stop()
    for path in home.home.glob("switchyard.db*"):
        path.unlink()
    home.serve()
    jobs = home.json("adopt", timeout=LIMIT)["jobs"]
    check("the job of no run", [(j["job_id"], j["name"]) for j in jobs if j["state"] == "RUNNING"], [(job, "tiny.stranger")])
    check("is taken in by its number", home.cli("adopt", job, timeout=LIMIT).stdout, "adopted tiny/stranger\n")
    wait_until("it runs", lambda: home.json("show", "stranger")["state"] == "running")
    wait_until("under its job's number", lambda: job_of(home, "stranger") == job)
    wait_step(home, "stranger", 100)
    home.cli("cancel", "stranger")
    shown = home.wait_for("stranger", ENDED, LIMIT)
    check("and ends", (shown["state"], [(a["number"], a["job_id"], a["code"]) for a in shown["attempts"]]), ("cancelled", [(1, job, 75)]))
    check_curve(home, shown)


def cancelled_unseen(home, cluster):
    """scancel while no daemon looks, until Slurm has forgotten the job: the job's own log was told."""
    home.cli("submit", home.spec(SPEC), "--run", "dense", "--name", "unseen", *LONG)
    wait_step(home, "unseen", 20)
    job = job_of(home, "unseen")
    home.stop()
    cluster.client("scancel", job)
    wait_until("Slurm has forgotten it", lambda: job not in cluster.client("squeue", "-h", "-t", "all", "-o", "%i").split())
    home.serve()
    shown = home.wait_for("unseen", ENDED, LIMIT)
    check("it is cancelled all the same", (shown["state"], shown["reason"], [a["code"] for a in shown["attempts"]]),
          ("cancelled", "cancelled, not by this daemon, stopped after saving", [75]))
    check_curve(home, shown)


def left_to_it(home, cluster):
    """`run`, watched and left by Ctrl-C: what the cluster has goes on, and nobody is kept waiting for it."""
    words = [SWITCHYARD, "run", home.spec(SPEC), "--run", "dense", "--name", "watched", *LONG]
    watching = subprocess.Popen(words, env=home.environment, cwd=home.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until("it runs", lambda: "watched" in home.cli("ls").stdout and home.json("show", "watched")["state"] == "running")
    begun = time.monotonic()
    watching.send_signal(signal.SIGINT)
    said = watching.communicate(timeout=LIMIT)[1]
    check("left at once", (watching.returncode, time.monotonic() - begun < 20), (130, True))
    contains("and says how to follow it", said, "tiny/watched goes on: `switchyard logs -f tiny/watched`")
    check("nothing is being cancelled", ("Cancelling" in said, home.json("show", "watched")["state"]), (False, "running"))
    home.cli("cancel", "watched")
    check("until it is", home.wait_for("watched", ENDED, LIMIT)["state"], "cancelled")


def main():
    skip_without_cluster()
    parts = [finishes, cancelled, waits, requeued, failed, unreached, adopted, cancelled_unseen, left_to_it]
    wanted = sys.argv[1:]
    assert set(wanted) <= {part.__name__ for part in parts}, wanted
    with Cluster(nodes=3, configuration="MinJobAge=15\n") as cluster, Home(prefix="switchyard-slurm-runs-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        home.serve()
        for part in parts:
            if not wanted or part.__name__ in wanted or part is finishes:  # the first makes the data for all
                part(home, cluster)


main()
