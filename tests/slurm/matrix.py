#!/usr/bin/env python3
"""On real clusters: whatever befalls a run, it ends in the state that is true, it never runs twice at once, and no metric is lost.

    tests/slurm/matrix.py [--seed N] [CASE…]

Four clusters at the same time, each with a daemon of its own: on one nodes and jobs suffer, side by side; on another, which keeps no
accounts, the controller is taken away, one case after the other; on the third the daemon, and on the fourth accounting: both soon forget
ended jobs. What befalls the runs is in cases.py, what is held against it in evidence.py. Prints a table; the exit code is 0 when every row
is right.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import threading
import time
import traceback
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from testbed import Cluster, skip_without_cluster, without_cluster, without_limits  # noqa: E402 (it makes tests/ importable)
from cases import OTHERS, accounting_suffers, controller_suffers, daemon_suffers, nodes_suffer  # noqa: E402
from evidence import Watcher, double_runs, lost_metrics  # noqa: E402
from processes import lines_of, tagged  # noqa: E402
from support import TINY, Home, corpus  # noqa: E402

ENDED = {"succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"}
SPEC = (TINY[:TINY.index("runs:")]
        .replace("project: tiny\n", "project: matrix\nexecutor: slurm\nslurm: {grace: 20s, requeue: true, mpi: pmix}\n")
        .replace("training:\n", "checkpoint: {interval: 50, keep: 2}\ntraining:\n")
        .replace("hidden_size: 32, ffn_hidden_size: 64", "hidden_size: 64, ffn_hidden_size: 128")
        .replace("sequence_length: 32", "sequence_length: 64")
        .replace("interval: 4, iterations: 1", "interval: 500, iterations: 1"))
STEPS = 500  # a second has about two hundred of them
REASON_MAX = 120  # of the table
LIMIT = 300  # seconds that anything may take: CI's two cores may have other work


class World:
    """A cluster, a daemon that works on it, and a watcher of the machine's processes."""

    def __init__(self, name, watcher, nodes, accounting, configuration="", limits=False):
        self.name, self.watcher = name, watcher
        self.cluster = Cluster(nodes=nodes, accounting=accounting, limits=limits, configuration=configuration)
        self.home = Home(prefix=f"switchyard-matrix-{name}-")
        self.asked, self.listed, self.lock = 0, None, threading.Lock()

    def __enter__(self):
        self.cluster.__enter__()
        self.home.root.chmod(0o755)
        self.home.environment.update({key: self.cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        (self.home.work / "corpus.txt").write_text(corpus(4000))
        self.home.serve(wait=60)
        Case(self, "data", "succeeded", steps=1).submit().finish()  # makes the data of all others
        return self

    def __exit__(self, kind, *rest):
        self.home.__exit__(kind, *rest)
        self.cluster.__exit__(kind, *rest)

    def ask(self, path):
        """The daemon's answer, or None: it may have been killed."""
        try:
            address = json.loads((self.home.home / "daemon.json").read_text())
            request = urllib.request.Request(address["url"] + path, headers={"Authorization": "Bearer " + address["token"]})
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def row(self, name):
        """What the daemon's list says of a run: asked for all of them at once, a few times a second."""
        with self.lock:
            if time.monotonic() - self.asked > 0.25:
                answer = self.ask("/api/v1/runs?project=matrix")
                self.listed = {row["name"]: row for row in answer["runs"]} if answer else None
                self.asked = time.monotonic()
            return (self.listed or {}).get(name)

    def scheduler(self):
        return (self.ask("/api/v1/health") or {}).get("scheduler") or {}

    def until(self, what, true, timeout=LIMIT, pause=0.2):
        deadline = time.monotonic() + timeout
        while not (value := true()):
            assert time.monotonic() < deadline, f"{self.name}: not within {timeout} s: {what}"
            time.sleep(pause)
        return value


class Case:
    """A run, what is expected of it, and what it did."""

    def __init__(self, world, name, expected, attempts=(1,), says="", nodes="", steps=STEPS, **keys):
        """attempts: how many are right; says: words of its reason; keys: of its spec, with __ for a dot."""
        self.world, self.name, self.expected, self.attempts, self.says = world, name, expected, attempts, says
        self.nodes, self.iterations = nodes, steps
        self.keys = {"training.iterations": steps, **({"slurm.nodelist": nodes} if nodes else {})}
        self.keys.update({key.replace("__", "."): value for key, value in keys.items()})
        self.directory = world.home.home / "runs" / "matrix" / name
        self.began, self.last = time.monotonic(), None

    def submit(self):
        self.began = time.monotonic()
        home, sets = self.world.home, (word for key, value in self.keys.items() for word in ("--set", f"{key}={value}"))
        home.cli("submit", home.spec(SPEC, f"{self.name}.yaml"), "--name", self.name, *sets)
        return self

    def until(self, what, true, timeout=LIMIT):
        """Of what the daemon says: true(row)."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.last = self.world.row(self.name) or self.last
            if self.last and true(self.last):
                return self.last
            assert not self.last or self.last["state"] not in ENDED, f"{self.last['state']} before it {what}: {self.last['reason']}"
            time.sleep(0.2)
        raise AssertionError(f"never {what}: {self.last and self.last['state']} ({self.last and self.last['reason']})")

    def until_waits(self, *words):
        return self.until(f"waited ({words[0]})", lambda row: row["state"] == "pending" and any(w in row["reason"].lower() for w in words))

    def until_step(self, step=30):
        """On disk, whatever the daemon knows of it."""
        def there():
            self.last = self.world.row(self.name) or self.last
            ended = self.last and self.last["state"] in ENDED
            assert self.step() >= step or not ended, f"{self.last['state']} before step {step}: {self.last['reason']}"
            return self.step() >= step
        self.world.until(f"{self.name} at step {step}", there)
        return self

    def step(self):
        return max((line["step"] for _, line in lines_of(self.directory) if line["kind"] == "metric"), default=0)

    def show(self):
        return self.world.home.json("show", f"matrix/{self.name}")

    @property
    def job(self):
        return self.until("had a job", lambda row: row["attempt"]) and self.show()["attempts"][-1]["job_id"]

    @property
    def tag(self):
        return json.loads((self.directory / "run.json").read_text())["run_id"]

    def attempt(self, number):
        return (self.directory / f"attempt-{number}").exists()

    def processes(self):
        return tagged(self.tag) if (self.directory / "run.json").exists() else {}

    def has_exit(self, number=1):
        return (self.directory / f"attempt-{number}" / "exit.json").exists()

    def finish(self, timeout=LIMIT):
        return self.until("ended", lambda row: row["state"] in ENDED, timeout)


def judge(case):
    """The row of the table: what it came to, held against what is expected and what others saw."""
    world, took = case.world, time.monotonic() - case.began
    deadline = time.monotonic() + 30
    while case.processes() and time.monotonic() < deadline:
        time.sleep(0.3)
    shown, left = case.show(), len(case.processes())
    drawn = world.ask(f"/api/v1/runs/matrix/{case.name}/metrics?names=loss&points=20000") or {}
    points = (drawn.get("metrics") or {}).get("loss", {}).get("step", [])
    attempts = len(list(case.directory.glob("attempt-*")))
    doubles, twice = double_runs(world.cluster, world.watcher, shown)
    lost, where = lost_metrics(world.home, shown, case.iterations, points)
    ends = [event for event in shown["events"] if event["kind"] == "state" and event["to"] in ENDED]
    faults = [words for wrong, words in (
        (shown["state"] != case.expected, f"{case.expected} expected"),
        (attempts not in case.attempts, f"{' or '.join(map(str, case.attempts))} attempts expected, not {attempts}"),
        (case.says not in (shown["reason"] or ""), f"its reason should say '{case.says}'"),
        (len(ends) != 1, f"it ended {len(ends)} times: {', '.join(event['to'] for event in ends)}"),
        (left, f"{left} processes left"), (doubles, twice), (lost, where)) if wrong]
    reason = f"{shown['reason']} ({ends[-1]['witness'] if ends else 'no witness'})"
    return [case.name, shown["state"], str(attempts), str(doubles), str(lost), f"{took:.0f}", reason, "; ".join(faults)]


def play(group):
    """One thing that befalls one or more runs; one row each."""
    act, cases = group
    try:
        act(*cases)
        for case in cases:
            case.finish()
        rows = [judge(case) for case in cases]
    except Exception as error:  # what breaks is a row too
        traceback.print_exc()
        last, words = [case.last or {"state": "-", "reason": None} for case in cases], (str(error).splitlines() or [repr(error)])[0][:300]
        rows = [[case.name, row["state"], "-", "0", "0", f"{time.monotonic() - case.began:.0f}", row["reason"] or "", words]
                for case, row in zip(cases, last)]
    for row in rows:
        print(f"{'WRONG' if row[-1] else 'ok   '} {row[0]}: {row[1]} in {row[5]} s {row[-1]}", flush=True)
    return rows


def audit(world, rows):
    """Once everything is over: nobody changed his mind, and Slurm has no job of ours any more."""
    listed = {row["name"]: row["state"] for row in (world.ask("/api/v1/runs?project=matrix") or {"runs": []})["runs"]}
    for row in rows:
        if listed.get(row[0]) != row[1]:
            row[-1] += f"; it was {row[1]} and is {listed.get(row[0])} now"
    for line in world.cluster.run("squeue", "-h", "-o", "%i|%j|%T|%r").stdout.splitlines():
        number, name, state, reason = line.split("|", 3)
        if name != OTHERS and state != "COMPLETING":  # over, but a controller that was away when the node said so asks it again in its own time
            rows.append([f"({world.name})", "-", "-", "0", "0", "0", "", f"a job is left: {number} {name} {state}, {reason}"])


def play_world(world, together, groups):
    with world:
        if together:
            with concurrent.futures.ThreadPoolExecutor(max_workers=len(groups)) as pool:
                rows = [row for rows in pool.map(play, groups) for row in rows]
        else:
            rows = [row for group in groups for row in play(group)]
        audit(world, rows)
        if any(row[-1] for row in rows):
            raise Wrong(rows)
        return rows


class Wrong(Exception):
    """Rows of which some are: the cluster and the home are kept for a look."""


def table(rows):
    head = ["case", "final state", "attempts", "double runs", "lost metrics", "seconds", "reason (witness)", "wrong"]
    rows = [[*row[:6], row[6] if len(row[6]) <= REASON_MAX else row[6][:REASON_MAX] + "…", row[7]] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip(), flush=True)


def worlds(watcher, chance, accounting, limits):
    """Of each: whether its groups of cases are played at the same time, and these."""
    nodes = World("nodes", watcher, 11, accounting, "PartitionName=shut Nodes=ALL State=DOWN\n")
    controller = World("controller", watcher, 2, False)
    daemon = World("daemon", watcher, 3, accounting, "MinJobAge=5\n")  # seconds that it knows ended jobs
    found = [(nodes, True, nodes_suffer(nodes, Case)), (controller, False, controller_suffers(controller, Case)),
             (daemon, False, daemon_suffers(daemon, Case, chance, accounting))]
    if accounting:
        accounts = World("accounting", watcher, 2, True, "MinJobAge=20\n", limits)
        found.append((accounts, False, accounting_suffers(accounts, Case, limits)))
    return found


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=5)
    options.add_argument("cases", nargs="*")
    options = options.parse_args()
    skip_without_cluster()
    accounting, unlimited = without_cluster(accounting=True) is None, without_limits()
    print(f"accounting: {'yes' if accounting else 'no'}; memory limits: {unlimited or 'yes'}", flush=True)
    rows, began = [], time.monotonic()
    with Watcher() as watcher, concurrent.futures.ThreadPoolExecutor() as pool:
        futures = []
        for world, together, groups in worlds(watcher, random.Random(options.seed), accounting, unlimited is None):
            chosen = [(act, cases) for act, cases in groups if not options.cases or any(case.name in options.cases for case in cases)]
            if chosen:
                futures.append(pool.submit(play_world, world, together, chosen))
        for future in futures:
            try:
                rows += future.result()
            except Wrong as wrong:
                rows += wrong.args[0]
            except Exception as error:  # a world that does not come up, or does not go, is a row too
                traceback.print_exc()
                rows.append(["(a cluster)", "-", "-", "0", "0", "0", "", repr(error)[:300]])
    table(rows)
    bad = sum(bool(row[-1]) for row in rows)
    print(f"{len(rows)} cases in {time.monotonic() - began:.0f} s, seed {options.seed}: {bad} wrong, "
          f"{sum(int(row[3]) for row in rows)} double runs, {sum(int(row[4]) for row in rows)} lost metrics")
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
