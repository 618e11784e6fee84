#!/usr/bin/env python3
"""The promise, on a real cluster: whatever befalls a run, it ends in the state that is true, it never runs twice at once, and no metric is lost.

    tests/slurm/matrix.py [CASE…]

Cases wait side by side on one cluster, each on nodes of its own where it breaks them; those that take the controller away from everybody, and
those that kill the daemon, come after the others. Prints a table; the exit code is 0 when every row is right.
"""
import concurrent.futures
import datetime
import json
import pathlib
import random
import signal
import sys
import time
import traceback

from testbed import Cluster, skip_without_cluster, without_cluster

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from processes import by_role, check_records, lines_of, send, tagged  # noqa: E402
from support import TINY, Home, corpus  # noqa: E402

ENDED = {"succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"}
STEPS, MANY = 400, 2000  # many: so long that what takes its time happens while it runs
SPEC = (TINY.replace("project: tiny\n", "project: matrix\nexecutor: slurm\nslurm: {SLURM}\ncheckpoint: {interval: 20, keep: 2}\n")
        .replace("iterations: 8", "iterations: STEPS")
        .replace("hidden_size: 32, ffn_hidden_size: 64", "hidden_size: 128, ffn_hidden_size: 256")
        .replace("sequence_length: 32", "sequence_length: 128")
        .replace("interval: 4, iterations: 1", "interval: 200, iterations: 1"))
SPEC = SPEC[:SPEC.index("runs:")]
NODES = 13


class Case:
    def __init__(self, world, name, act, expected, attempts, nodes, keys, ranks, steps=STEPS):
        self.cluster, self.home = world
        self.name, self.act, self.expected, self.attempts = name, act, expected, attempts
        self.nodes, self.keys, self.ranks, self.iterations = nodes, keys, ranks, steps
        self.began = time.monotonic()

    def submit(self):
        slurm = {"grace": "20s", "requeue": "true", "mpi": "pmix", **({"nodelist": f"\"{self.nodes}\""} if self.nodes else {}), **self.keys}
        limit, retry = slurm.pop("time_limit", "30m"), slurm.pop("retry", "")
        text = SPEC.replace("{SLURM}", "{" + ", ".join(f"{key}: {value}" for key, value in slurm.items()) + "}")
        text = text.replace("nodes: 1, ranks_per_node: 1", "nodes: {}, ranks_per_node: {}".format(*self.ranks)).replace("time_limit: 10m", f"time_limit: {limit}")
        text = text.replace("STEPS", str(self.iterations)) + retry
        self.home.cli("submit", self.home.spec(text, f"{self.name}.yaml"), "--name", self.name)
        self.run = f"matrix/{self.name}"

    def show(self):
        """What the daemon says; None while there is none (this case may have killed it)."""
        done = self.home.run("show", self.run, "--json", timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until(self, what, true, timeout=300):
        deadline, shown = time.monotonic() + timeout, None
        while time.monotonic() < deadline:
            shown = self.show() or shown
            if shown and (shown["state"] in ENDED or true(shown)):
                assert true(shown), f"{shown['state']} before it {what}: {shown['reason']}"
                return shown
            time.sleep(0.3)
        raise AssertionError(f"{self.run} never {what}: {shown and shown['state']} ({shown and shown['reason']})")

    def until_step(self, step=30):
        return self.until(f"reached step {step}", lambda shown: len(self.steps(shown)) >= step)

    def steps(self, shown):
        return [line for _, line in lines_of(shown["directory"]) if line["kind"] == "metric"]

    def job(self, shown):
        return shown["attempts"][-1]["job_id"]

    def finish(self, timeout=600):
        return self.until("ended", lambda shown: shown["state"] in ENDED, timeout)


# ---- what befalls them ----

def nothing(case):
    pass


def pend(case):
    """Its nodes are taken: it waits, and says why."""
    case.until("waited", lambda shown: shown["state"] == "pending" and "esources" in (shown["reason"] or "") or "riority" in (shown["reason"] or ""))
    case.cluster.client("scancel", f"--name=block-{case.name}")


def cancel(case):
    case.until_step()
    case.home.cli("cancel", case.run)


def cancel_outside(case):
    case.cluster.client("scancel", case.job(case.until_step()))


def stopped(case):
    """Its ranks sleep until the time limit comes and Slurm wakes them: they save, and the run goes on."""
    send(by_role(case.until_step()["run_id"])["rank"], signal.SIGSTOP)


def stuck(case):
    """Its ranks can never save."""
    shown = case.until_step()
    while shown and shown["state"] not in ENDED:
        send(by_role(shown["run_id"])["rank"], signal.SIGSTOP)
        time.sleep(0.1)
        shown = case.show()


def requeue(case):
    case.cluster.client("scontrol", "requeue", case.job(case.until_step()))


def preempt(case):
    case.until_step()
    node = case.nodes
    script = case.home.work / "urgent.sh"
    script.write_text("#!/bin/sh\nsleep 3\n")
    case.cluster.client("sbatch", "--parsable", "-p", "urgent", "-w", node, "--exclusive", "-o", "/dev/null", "-J", f"urgent-{case.name}", script)


def power_loss(case):
    case.until_step()
    case.cluster.fault("node-kill", case.nodes)
    time.sleep(45)  # until the controller has noticed
    case.cluster.fault("node-start", case.nodes)


def slurmd_killed(case):
    case.until_step()
    case.cluster.fault("slurmd-kill", case.nodes)
    time.sleep(3)
    case.cluster.fault("node-start", case.nodes)


def controller_killed(case):
    case.until_step()
    time.sleep(6)  # its state is saved every few seconds
    case.cluster.fault("ctld-kill")
    time.sleep(5)
    case.cluster.fault("ctld-start")


def controller_killed_at_submit(case):
    case.until("was handed over", lambda shown: shown["state"] in ("submitted", "pending", "running"))
    case.cluster.fault("ctld-kill")
    time.sleep(3)
    case.cluster.fault("ctld-start")


def controller_away_at_submit(case):
    """It was paused before the submission: sbatch gives up, and the job exists all the same."""
    time.sleep(14)
    case.cluster.fault("ctld-resume")


def daemon_killed(case):
    """Ten times, at moments between its submission and its end."""
    chance = random.Random(case.name)
    for _ in range(10):
        time.sleep(chance.uniform(0.2, 3))
        case.home.stop(signal.SIGKILL)
        time.sleep(chance.uniform(0, 1.5))
        case.home.serve(wait=60)


# ---- how it was ----

def double_runs(case, shown):
    """Pairs of jobs of the run that ran at the same time, by what the controller wrote down, and records that two attempts wrote at once."""
    spans = []
    for line in (case.cluster.directory / "log" / "jobcomp.txt").read_text(errors="replace").splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("Name") == f"matrix.{case.name}" and words.get("StartTime", "Unknown") not in ("Unknown", "None"):
            spans.append((words["JobId"], words["StartTime"], words["EndTime"]))
    jobs = sum(a[0] < b[0] and max(a[1], b[1]) < min(a[2], b[2]) for a in spans for b in spans)
    writers, begun = 0, {}
    for attempt, line in lines_of(shown["directory"]):
        if line["kind"] == "start":
            begun[attempt] = datetime.datetime.fromisoformat(line["timestamp"])
    for attempt, line in lines_of(shown["directory"]):
        later = [begun[number] for number in begun if number > attempt]
        writers += line["kind"] == "metric" and any(datetime.datetime.fromisoformat(line["timestamp"]) > moment for moment in later)
    return jobs + writers


def lost_metrics(case, shown):
    """Lines on disk that Trackio has not, and steps of a run that succeeded that nobody has."""
    total, aside = check_records(case.home, shown)
    return case.iterations - (total - aside) if shown["state"] == "succeeded" else 0


def play(case):
    try:
        if case.act is pend:
            script = case.home.work / "block.sh"
            script.write_text("#!/bin/sh\nsleep 600\n")
            case.cluster.client("sbatch", "--parsable", "-w", case.nodes, "--exclusive", "-o", "/dev/null", "-J", f"block-{case.name}", script)
        if case.act is controller_away_at_submit:
            case.cluster.fault("ctld-pause")
        case.submit()
        case.act(case)
        shown = case.finish()
        deadline = time.monotonic() + 30
        while tagged(shown["run_id"]) and time.monotonic() < deadline:
            time.sleep(0.5)
        left = len(tagged(shown["run_id"]))
        attempts = len(list(pathlib.Path(shown["directory"]).glob("attempt-*")))
        doubles, lost = double_runs(case, shown), lost_metrics(case, shown)
        right = shown["state"] == case.expected and attempts in case.attempts and not doubles and not lost and not left and shown["reason"]
        fault = "" if right else f"{shown['reason']}; {left} processes left; {shown['directory']}"
        return [case.name, shown["state"], case.expected, str(attempts), str(doubles), str(lost), f"{time.monotonic() - case.began:.0f}", fault]
    except Exception as error:  # a case that breaks is a row too
        traceback.print_exc()
        return [case.name, "-", case.expected, "-", "-", "-", f"{time.monotonic() - case.began:.0f}", str(error).splitlines()[0][:300]]


def cases(world):
    """Name, what befalls it, the true end, how many attempts, its nodes, keys under `slurm`, nodes × ranks."""
    one, four = (1, 1), (2, 2)
    beside = [
        ("four-ranks", nothing, "succeeded", [1], "n[1-2]", {}, four),
        ("pend", pend, "succeeded", [1], "n13", {"exclusive": "true"}, one),
        ("cancel", cancel, "cancelled", [1], "n1", {}, one),
        ("cancel-outside", cancel_outside, "cancelled", [1], "n1", {}, one),
        ("time-limit", stopped, "succeeded", [2], "n2", {"time_limit": "1m"}, one),
        ("time-limit-stuck", stuck, "timed_out", [1], "n3", {"time_limit": "1m", "grace": "0s"}, one),
        ("requeue", requeue, "succeeded", [2], "n2", {}, one),
        ("preempt-requeue", preempt, "succeeded", [2], "n4", {"partition": "scavenge", "exclusive": "true"}, one),
        ("preempt-cancel", preempt, "succeeded", [2], "n5", {"partition": "fragile", "exclusive": "true", "requeue": "false"}, one),
        # The second start may stumble over a socket of PMIx that the first one left on the node: it fails, and a new job is the retry.
        ("power-loss-requeue", power_loss, "succeeded", [2, 3], "n6", {"retry": "retry: {limit: 1, on: [failed], delay: 5s}\n"}, one),
        ("power-loss", power_loss, "lost", [1], "n7", {"requeue": "false"}, one),
        ("slurmd-killed", slurmd_killed, "succeeded", [1], "n8", {}, one),
    ]
    alone = [
        ("slurmctld-killed", controller_killed, "succeeded", [1], "n9", {}, one, MANY),
        ("slurmctld-killed-at-submit", controller_killed_at_submit, "succeeded", [1, 2], "n10", {}, one),
        ("sbatch-timed-out", controller_away_at_submit, "succeeded", [1], "n11", {}, one),
        ("daemon-killed-10-times", daemon_killed, "succeeded", [1], "n12", {}, one, MANY),
    ]
    return [[Case(world, *row) for row in rows] for rows in (beside, alone)]


def table(rows):
    head = ["case", "final state", "expected", "attempts", "double runs", "lost metrics", "seconds", ""]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip(), flush=True)


def main():
    skip_without_cluster()
    rows = []
    with Cluster(nodes=NODES, accounting=without_cluster(accounting=True) is None) as cluster, Home(prefix="switchyard-matrix-") as home:
        home.environment.update(SLURM_CONF=cluster.environment["SLURM_CONF"], PATH=cluster.environment["PATH"])
        (home.work / "corpus.txt").write_text(corpus(4000))
        home.serve()
        beside, alone = cases((cluster, home))
        chosen = set(sys.argv[1:]) or {case.name for case in beside + alone}
        with concurrent.futures.ThreadPoolExecutor(max_workers=32) as pool:
            rows += pool.map(play, [case for case in beside if case.name in chosen])
        for case in alone:
            if case.name in chosen:
                case.began = time.monotonic()
                rows.append(play(case))
        table(rows)
        bad = [row for row in rows if row[-1]]
        assert rows and not bad, f"{len(bad)} of {len(rows)} rows are wrong; {home.root}"
        print(f"{len(rows)} cases: 0 wrong final states, 0 double runs, 0 lost metrics")


if __name__ == "__main__":
    sys.exit(main())
