#!/usr/bin/env python3
"""kill -9 of each part of a run at each moment of its life; prints a table.

    tests/cli/kill.py [--victim daemon|job.sh|mpirun|rank|all] [--moment tokenising|step|checkpoint|exit] [--active N]

For each: the run's state is right within 90 s; every metric line on disk is in Trackio exactly once; there was one writer; no process with
the run's tag is left; a stranger that got the recorded pid (where this can be arranged: root) is untouched; and a retry of what did not
succeed ends with every step stored once. Scenarios wait side by side; only --active of them drive a run to its moment at a time.
"""
import argparse
import concurrent.futures
import os
import pathlib
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import by_role, check_records, lines_of, send, start_with_pid, tagged  # noqa: E402
from support import FAULTS, TINY, Home, corpus  # noqa: E402

VICTIMS = ["all", "daemon", "job.sh", "mpirun", "rank"]
MOMENTS = ["tokenising", "step", "checkpoint", "exit"]
ENDED = {"succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"}
STEPS = 150
SPEC = (TINY.replace("ranks_per_node: 1", "ranks_per_node: 2").replace("iterations: 8", f"iterations: {STEPS}")
        .replace("hidden_size: 32, ffn_hidden_size: 64", "hidden_size: 128, ffn_hidden_size: 256")
        .replace("interval: 4, iterations: 1", "interval: 50, iterations: 1") + "\n")
SPEC = SPEC.replace("resources:", "checkpoint: {interval: 10, keep: 2}\nresources:").replace("project: tiny", "project: kill")
# Its ranks take their time to leave, with all of their work done: long enough for a blow.
LEAVES_LATE = SPEC + f"environment: {{variables: {{LD_PRELOAD: '{FAULTS}', FAULT_FINALIZE_SECONDS: '8', ASAN_OPTIONS: verify_asan_link_order=0}}}}\n"
CORPUS = corpus(20000) * 12  # tens of MB: tokenising takes long enough to be caught at it


def expected(victim, moment):
    """States that tell the truth. Once the worker has said that all is done, it is, whoever is killed after that."""
    if moment == "exit":
        return {"succeeded"}
    states = {"daemon": {"succeeded"}, "job.sh": {"succeeded"}, "mpirun": {"failed"}, "rank": {"failed"}, "all": {"lost"}}[victim]
    return states


def at_moment(moment, directory, run_id):
    """True when the run is at that moment now; its ranks are stopped then, so that it stays there until the blow."""
    if moment == "tokenising":
        ranks = by_role(run_id)["rank"]
        send(ranks, signal.SIGSTOP)
        return bool(ranks)
    if moment == "checkpoint":
        if not list(directory.glob("checkpoints/*.tmp")):
            return False
        ranks = by_role(run_id)["rank"]
        send(ranks, signal.SIGSTOP)
        time.sleep(0.02)
        if list(directory.glob("checkpoints/*.tmp")):
            return True
        send(ranks, signal.SIGCONT)
        return False
    records = directory / "attempt-1" / "records.jsonl"
    text = records.read_bytes() if records.exists() else b""
    if moment == "step":
        return text.count(b'"kind":"metric"') >= 5
    return b'"kind":"end"' in text


def strike(home, victim, run_id):
    """Returns what was killed: the pids."""
    roles = by_role(run_id)
    pids = {"daemon": [], "job.sh": roles["job.sh"], "mpirun": roles["mpirun"], "rank": roles["rank"][-1:],
            "all": list(tagged(run_id))}[victim]
    if victim in ("daemon", "all"):
        home.stop(signal.SIGKILL)
    send(pids, signal.SIGKILL)
    send(roles["rank"], signal.SIGCONT)
    return pids


def drive(home, victim, moment):
    """Brings a run to its moment and strikes. Returns its name, its recorded pid, the time of the blow."""
    (home.work / "corpus.txt").write_text(CORPUS)
    home.serve()
    home.cli("submit", home.spec(LEAVES_LATE if moment == "exit" else SPEC), "--run", "dense")
    name = "tokenize-1" if moment == "tokenising" else "dense-1"
    shown = home.json("show", name)
    directory = pathlib.Path(shown["directory"])
    deadline = time.monotonic() + 60
    while not at_moment(moment, directory, shown["run_id"]):
        assert time.monotonic() < deadline, f"the moment '{moment}' never came"
        time.sleep(0.001)
    if moment == "exit":
        assert len(by_role(shown["run_id"])["rank"]) == 2, "its ranks have left"
    leader = (by_role(shown["run_id"])["job.sh"] or [0])[0]
    struck = strike(home, victim, shown["run_id"])
    blow = time.monotonic()
    decoy = start_with_pid(leader) if leader in struck else None
    if victim in ("daemon", "all"):
        time.sleep(1)
        home.serve()
    return name, shown["run_id"], decoy, blow, bool(struck) or victim == "daemon"


def wait_ended(home, name, run_id, limit):
    """What `show` says when the run has ended. Looks at its writers on the way."""
    most, deadline = 0, time.monotonic() + limit
    while True:
        most = max(most, len(by_role(run_id)["job.sh"]))
        shown = home.json("show", name)
        if shown["state"] in ENDED:
            return shown, most
        assert time.monotonic() < deadline, f"{name} is still {shown['state']} after {limit} s: {shown['reason']}"
        time.sleep(0.25)


def check_one_writer(shown, attempts, most):
    assert most <= 1, f"{most} job.sh of one run at the same time"
    assert len(list(pathlib.Path(shown["directory"]).glob("attempt-*"))) == attempts, "more attempts than were asked for"
    starts = [attempt for attempt, line in lines_of(shown["directory"]) if line["kind"] == "start"]
    assert len(starts) == len(set(starts)), f"an attempt started twice: {starts}"


def retry(home, limit=90):
    """What did not succeed is tried again, with what it needs, and ends with every step once."""
    home.cli("retry", "dense-1")
    shown, most = wait_ended(home, "dense-1", home.json("show", "dense-1")["run_id"], limit)
    assert shown["state"] == "succeeded", f"retry: {shown['state']}: {shown['reason']}"
    assert not tagged(shown["run_id"]), "retry: processes left"
    return shown


def scenario(victim, moment, turn):
    with Home(prefix=f"switchyard-kill-{victim}-{moment}-") as home:
        with turn:
            name, run_id, decoy, blow, struck = drive(home, victim, moment)
        shown, most = wait_ended(home, name, run_id, 90)
        seconds = time.monotonic() - blow
        assert shown["state"] in expected(victim, moment), f"{shown['state']}: {shown['reason']}"
        assert shown["reason"], "no reason"
        left = tagged(run_id)
        assert not left, f"processes left: {left}"
        if decoy:
            assert decoy.poll() is None, "a stranger with the recorded pid was killed"
            assert "T" not in pathlib.Path(f"/proc/{decoy.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            decoy.kill()
            decoy.wait()
        check_one_writer(shown, 1, most)
        lines, _ = check_records(home, shown)
        final, _ = wait_ended(home, "dense-1", home.json("show", "dense-1")["run_id"], 90)
        if name == "tokenize-1" and shown["state"] != "succeeded":
            assert final["state"] == "failed" and "tokenize-1" in final["reason"], f"its dependant: {final['state']}: {final['reason']}"
        again = "-"
        if final["state"] != "succeeded":
            final = retry(home)
            again = "ok"
        total, aside = check_records(home, final)
        assert total - aside == STEPS, f"{total} lines, {aside} set aside, expected {STEPS} steps"
        state = shown["state"] + ("" if struck else " (was over)")
        return [victim, moment, state, f"{seconds:.1f}", str(lines), "reused" if decoy else "-", again, str(aside)]


def show(rows):
    head = ["kill -9 of", "while", "state", "seconds", "lines", "pid", "retry", "set aside"]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--victim", action="append", choices=VICTIMS)
    parser.add_argument("--moment", action="append", choices=MOMENTS)
    parser.add_argument("--active", type=int, default=1)
    options = parser.parse_args()
    # While tokenising there is no mpirun: one process.
    chosen = [(v, m) for v in options.victim or VICTIMS for m in options.moment or MOMENTS if (v, m) != ("mpirun", "tokenising")]
    turn = threading.Semaphore(options.active)
    rows, faults, started = [], 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(chosen)) as pool:
        futures = {pool.submit(scenario, v, m, turn): (v, m) for v, m in chosen}
        for future in concurrent.futures.as_completed(futures):
            try:
                rows.append(future.result())
            except BaseException as fault:
                faults += 1
                rows.append([*futures[future], f"WRONG: {fault}".split("\n")[0][:150], "", "", "", "", ""])
                traceback.print_exc()
    rows.sort(key=lambda row: (VICTIMS.index(row[0]), MOMENTS.index(row[1])))
    show(rows)
    print(f"{len(rows)} scenarios, {faults} wrong, {time.monotonic() - started:.0f} s")
    sys.exit(faults != 0)


if __name__ == "__main__":
    main()
