#!/usr/bin/env python3
"""What somebody, or the machine, may do to a run directory, to a disk and to the clock: the daemon goes on, states stay true, nothing is lost.

    tests/cli/breaks.py [NAME…]      all of them, or those named
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import lines_of, send, tagged  # noqa: E402
from support import TINY, Home  # noqa: E402

ENDED = ["succeeded", "failed", "cancelled", "timed_out", "lost"]
LONG = TINY.replace("iterations: 8", "iterations: 100000")
CLOCK = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(which, now);
    FILE *file = which == CLOCK_REALTIME ? fopen(getenv("CLOCK_OFFSET"), "r") : NULL;
    long offset = 0;
    if (file && fscanf(file, "%ld", &offset) == 1)
        now->tv_sec += offset;
    if (file)
        fclose(file);
    return status;
}
"""


def until(what, true, seconds=30):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def start(home, spec=LONG):
    """A run of some steps; returns its directory."""
    home.serve()
    home.cli("submit", home.spec(spec), "--run", "dense")
    directory = pathlib.Path(home.json("show", "dense-1")["directory"])
    until("the first steps", lambda: home.json("show", "dense-1")["step"] >= 3)
    return directory


def moves(home):
    before = home.json("show", "dense-1")["step"]
    until("more steps", lambda: home.json("show", "dense-1")["step"] > before, 10)


def cancelled(home):
    home.cli("cancel", "dense-1")
    home.wait_for("dense-1", ["cancelled"], 30)


def strange_exit_records(home):
    """Neither a FIFO, which would be waited for, nor the record of another attempt ends a run."""
    path = start(home) / "attempt-1" / "exit.json"
    os.mkfifo(path)
    moves(home)
    path.unlink()
    path.write_text('{"v":1,"attempt":7,"code":0,"signal":null,"started":1,"ended":2}')
    time.sleep(1)
    moves(home)
    shown = home.json("show", "dense-1")
    assert shown["state"] == "running", f"{shown['state']}: {shown['reason']}"
    cancelled(home)


def strange_records(home):
    """A step that no run can have is kept aside; something else than a file in the records' place does not keep a run from ending."""
    directory = start(home)
    run_id = home.json("show", "dense-1")["run_id"]
    with open(directory / "attempt-1" / "records.jsonl", "a") as records:
        records.write('{"kind":"metric","v":1,"project":"tiny","run":"dense-1","run_id":"%s","metrics":{"loss":1},"step":%d,'
                      '"timestamp":"2026-01-01T00:00:00.000000+00:00","config":null,"log_id":"x"}\n' % (run_id, 2**62))
        records.write('{"kind":"event","v":1,"run_id":"%s","event":"%s","text":"t"}\n' % (run_id, "e" * 5000))
    until("the kept line", lambda: any(e["kind"] == "malformed" for e in home.json("show", "dense-1")["events"]))
    shown = home.json("show", "dense-1")
    assert shown["step"] < 2**53 and max(len(e["kind"]) for e in shown["events"]) <= 64
    cancelled(home)
    second = directory / "attempt-2"
    (directory / "stop").unlink(missing_ok=True)
    # The next attempt's records are a FIFO from its first moment on: its directory is claimed by us, job.sh's is the one after it.
    second.mkdir()
    (second / "exit.json").touch()  # over, for job.sh: it would wait for one that may live on
    os.mkfifo(second / "records.jsonl")
    home.cli("retry", "dense-1")
    until("an attempt", lambda: (directory / "attempt-3").exists())
    home.cli("cancel", "dense-1")
    shown = home.wait_for("dense-1", ENDED, 30)
    assert any("not a regular file" in (e["reason"] or "") for e in shown["events"]), "nobody was told"


def clock_set(home):
    """The time of day is set: two hours on, a day back. A run of ten minutes' limit is not over, and one that was killed is noticed."""
    source, library, offset = home.root / "clock.c", home.root / "clock.so", home.root / "offset"
    source.write_text(CLOCK)
    offset.write_text("0")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    home.environment.update(LD_PRELOAD=str(library), CLOCK_OFFSET=str(offset))
    beat = start(home) / "attempt-1" / "heartbeat.json"
    for seconds in (7200, -86400, 86400):
        offset.write_text(str(seconds))
        time.sleep(1)
        moves(home)
        shown = home.json("show", "dense-1")
        assert shown["state"] == "running", f"{seconds}: {shown['state']}: {shown['reason']}"
        assert not any(e["kind"] == "stopping" for e in shown["events"]), f"{seconds}: asked to stop"
        for _ in range(2):  # the wait for the first had begun before
            before = beat.read_text()
            until("a heartbeat", lambda: beat.read_text() != before, 20)
    # One that fails an hour and more after its start, by the clock that was set, has failed: it is not over its time.
    offset.write_text("0")
    home.cli("submit", home.spec(LONG), "--run", "dense")
    until("the second run's first steps", lambda: home.json("show", "dense-2")["step"] >= 3)
    offset.write_text("7200")
    send([pid for pid, words in tagged(home.json("show", "dense-2")["run_id"]).items() if "switchyard-worker" in words[0]], signal.SIGKILL)
    failed = home.wait_for("dense-2", ENDED, 30)
    assert failed["state"] == "failed" and "SIGKILL" in failed["reason"], f"{failed['state']}: {failed['reason']}"
    offset.write_text("86400")
    time.sleep(6)  # a heartbeat from tomorrow
    offset.write_text("0")
    send(list(tagged(shown["run_id"])), signal.SIGKILL)
    home.wait_for("dense-1", ["lost"], 90)


def database_locked(home):
    """Somebody else holds our database: a submission is refused as the daemon's trouble, nothing is left behind, and the next one goes."""
    home.serve()
    home.spec()
    with contextlib.closing(sqlite3.connect(home.home / "switchyard.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        done = home.run("submit", home.spec(), "--run", "dense")
        assert done.returncode == 3 and "locked by another program" in done.stderr, (done.returncode, done.stderr)
        waits = []
        for _ in range(3):
            begun = time.monotonic()
            assert "locked by another program" in home.cli("ls").stderr
            waits.append(time.monotonic() - begun)
        print(f"database_locked: ls answers in {min(waits):.2f} s while it lasts", flush=True)
        assert min(waits) < 4, "each look waits as long as the first change did: five seconds"
        holder.execute("ROLLBACK")
    until("the fault is over, though nothing was to be stored", lambda: "locked" not in home.cli("ls").stderr, 15)
    assert home.json("ls")["runs"] == [] and not list(home.home.glob("runs/*/*")), "something was left behind"
    home.cli("submit", home.spec(), "--run", "dense")
    shown = home.wait_for("dense-1", ENDED, 60)
    assert shown["state"] == "succeeded", shown["reason"]


def database_removed(home):
    """Our database is removed under the daemon, sidecars and all: it is there again, whole, and a restart knows everything. Another file in its
    place is not written into: the daemon ends, and the run goes on."""
    directory = start(home)
    for path in home.home.glob("switchyard.db*"):
        path.unlink()
    until("the file again", lambda: (home.home / "switchyard.db").exists(), 10)
    moves(home)
    assert (home.home / "switchyard.db").stat().st_mode & 0o777 == 0o600
    before = home.json("show", "dense-1")
    home.stop(signal.SIGKILL)
    home.serve()
    shown = home.json("show", "dense-1")
    assert shown["run_id"] == before["run_id"] and shown["step"] >= before["step"] and shown["state"] == "running", shown["state"]
    assert [e["id"] for e in shown["events"]][:len(before["events"])] == [e["id"] for e in before["events"]]
    os.rename(home.home / "switchyard.db", home.root / "mine.db")
    (home.home / "switchyard.db").write_bytes(b"")
    home.daemon.wait(20)
    assert home.daemon.returncode == 3 and tagged(shown["run_id"]), "the run did not go on"
    assert "replaced by another file" in (home.root / "daemon.log").read_text()
    home.daemon = None
    os.rename(home.root / "mine.db", home.home / "switchyard.db")
    home.serve()
    moves(home)
    cancelled(home)
    assert (directory / "attempt-1").exists() and not (directory / "attempt-2").exists()


def logs_removed(home):
    """The logs of both databases are removed under the daemon, not the databases: what was in them, and what comes after, is there after a kill."""
    directory = start(home)
    for folder in (home.home, home.trackio):
        for path in folder.glob("*.db-*"):
            path.unlink()
    moves(home)
    until("logs again", lambda: list(home.home.glob("*.db-wal")) and list(home.trackio.glob("*.db-wal")), 10)
    home.cli("submit", home.spec(), "--run", "moe")
    home.wait_for("moe-1", ["succeeded"], 60)
    before = home.json("show", "dense-1")
    home.stop(signal.SIGKILL)
    home.serve()
    assert {row["name"]: row["state"] for row in home.json("ls")["runs"]} == {"tokenize-1": "succeeded", "dense-1": "running", "moe-1": "succeeded"}
    assert [e["id"] for e in home.json("show", "dense-1")["events"]][:len(before["events"])] == [e["id"] for e in before["events"]]
    moves(home)
    cancelled(home)
    last = max(line["step"] for _, line in lines_of(directory) if line["kind"] == "metric")
    assert sorted(rows_of(home, before["run_id"])) == list(range(1, last + 1)), "a step is missing, or there twice"


def directory_renamed(home):
    """A run's directory is renamed while it trains: it is said that nobody sees what it does, by the next daemon too; back again, nothing is lost."""
    directory = start(home)
    away = directory.rename(directory.with_name("away"))
    said = lambda: "its directory is not there any more" in home.json("show", "dense-1")["reason"]
    until("a word of it", said, 10)
    home.stop(signal.SIGKILL)
    home.serve()
    until("a word of the next daemon's", said, 10)
    assert home.json("show", "dense-1")["state"] == "running"
    away.rename(directory)
    moves(home)
    until("no word of it", lambda: not said(), 10)
    cancelled(home)
    last = max(line["step"] for _, line in lines_of(directory) if line["kind"] == "metric")
    assert sorted(rows_of(home, home.json("show", "dense-1")["run_id"])) == list(range(1, last + 1)), "a step is missing, or there twice"


def retries(shown):
    return [event["reason"] for event in shown["events"] if (event["reason"] or "").startswith("retry requested")]


def never_begins(home):
    """A job that cannot make its attempt's directory has failed, within seconds, and says why: it is not one that somebody killed."""
    home.serve()
    home.cli("submit", home.spec(TINY.replace("resources:", "environment: {variables: {PATH: /nowhere}}\nresources:")), "--run", "dense")
    shown = home.wait_for("dense-1", ENDED, 30)
    assert shown["state"] == "failed" and "ended before an attempt began: " in shown["reason"] and "not found" in shown["reason"], shown["reason"]
    home.cli("retry", "dense-1")
    home.wait_for("dense-1", ENDED, 30)
    assert retries(home.json("show", "dense-1")) == ["retry requested"], "there is no checkpoint to speak of"


def data_cut(home):
    """The tokens are cut short while they are mapped: a failure that names the file, not a hang and not a stack of addresses."""
    start(home, LONG.replace("ranks_per_node: 1", "ranks_per_node: 2"))
    data = next(home.home.glob("datasets/*/data.bin"))
    os.truncate(data, 0)
    shown = home.wait_for("dense-1", ENDED, 60)
    assert shown["state"] == "failed" and "data.bin" in shown["reason"], f"{shown['state']}: {shown['reason']}"


def neighbour(home):
    """A home whose name is a pattern clears away its own staging, not that of the homes which the pattern matches."""
    home.home = home.root / "h*"
    home.environment["SWITCHYARD_HOME"] = str(home.home)
    staged = [home.root / name / "runs" / "tiny" / ".new-abcdef" for name in ("h*", "h2")]
    for path in staged:
        path.mkdir(parents=True)
    home.serve()
    assert [path.exists() for path in staged] == [False, True], "own staging is cleared away, a neighbour's is not"


@contextlib.contextmanager
def small_disk(path, megabytes):
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    with open(path / "filler", "ab", buffering=0) as filler:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)


def rows_of(home, run_id):
    database = next(home.trackio.glob("*.db"))
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT step FROM metrics WHERE run_id = ? AND metrics LIKE '%\"loss\"%'", (run_id,))]


def disk_full(home):
    """The disk of home and runs is full in the middle of a run, and has room again: the state says why, and a retry has every step once."""
    with small_disk(home.home, 30):
        start(home, TINY.replace("iterations: 8", "iterations: 3000"))
        fill(home.home)
        time.sleep(3)
        told = "switchyard.db: the disk is full"
        assert told in home.cli("ls").stderr and told in home.ask("/api/v1/health")["database"]["fault"], home.ask("/api/v1/health")
        home.cli("submit", home.spec(), "--run", "dense", code=3)
        (home.home / "filler").unlink()
        until("the fault is over", lambda: home.ask("/api/v1/health")["database"] == {"fault": None, "since": None} and home.cli("ls").stderr == "", 15)
        shown = home.wait_for("dense-1", ENDED, 30)
        assert shown["state"] == "failed" and ("No space left" in shown["reason"] or "was its disk full?" in shown["reason"]), f"{shown['state']}: {shown['reason']}"
        fill(home.home)
        time.sleep(0.2)
        (home.home / "filler").unlink()
        home.cli("retry", "dense-1")
        shown = home.wait_for("dense-1", ENDED, 60)
        assert shown["state"] == "succeeded", f"{shown['state']}: {shown['reason']}"
        assert sorted(rows_of(home, shown["run_id"])) == list(range(1, 3001)), "a step is missing, or there twice"
        home.stop()


def damaged_checkpoint(home):
    """The newest checkpoint of a cancelled run is damaged: a retry goes on from the one before it, says so, and has every step once."""
    directory = start(home, TINY.replace("iterations: 8", "iterations: 400").replace("resources:", "checkpoint: {interval: 20, keep: 3}\nresources:"))
    marks = lambda: sorted(directory.glob("checkpoints/step-*/complete.json"))
    until("two checkpoints", lambda: len(marks()) >= 2)
    home.cli("cancel", "dense-1")
    home.wait_for("dense-1", ENDED, 30)
    newest, before = marks()[-1].parent, marks()[-2].parent
    tensors = newest / "optimizer.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-4] + b"oops")
    home.cli("retry", "dense-1")
    shown = home.wait_for("dense-1", ENDED, 90)
    assert shown["state"] == "succeeded", f"{shown['state']}: {shown['reason']}"
    assert retries(shown) == [f"retry requested: its last checkpoint is of step {int(newest.name[5:])}"], retries(shown)
    said = [event["reason"] for event in shown["events"] if event["kind"] == "checkpoint_damaged"]
    assert len(said) == 1 and str(tensors) in said[0] and "is damaged and was set aside" in said[0], shown["events"]
    start_line = [json.loads(line) for line in (directory / "attempt-2" / "records.jsonl").read_text().splitlines() if '"start"' in line][0]
    assert start_line["resumed_from"] == int(before.name[5:]), start_line
    assert (directory / "checkpoints" / f"{newest.name}.damaged").is_dir()
    assert sorted(rows_of(home, shown["run_id"])) == list(range(1, 401)), "a step is missing, or there twice"


def attempt(trial):
    begun = time.monotonic()
    try:
        with Home(prefix=f"switchyard-breaks-{trial.__name__}-") as home:
            trial(home)
    except Exception:
        print(f"{trial.__name__}: failed\n{traceback.format_exc()}", flush=True)
        return False
    print(f"{trial.__name__}: ok, {time.monotonic() - begun:.0f} s", flush=True)
    return True


def main():
    trials = [clock_set, database_locked, database_removed, logs_removed, directory_renamed, strange_exit_records, strange_records, never_begins, data_cut, neighbour,
              damaged_checkpoint, disk_full]
    trials = [trial for trial in trials if not sys.argv[1:] or trial.__name__ in sys.argv[1:]]
    if disk_full in trials and os.geteuid() != 0:
        trials.remove(disk_full)
        print("disk_full: left out, it needs root to mount a small disk")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # the first one mostly waits
        sys.exit(0 if all(list(pool.map(attempt, trials))) else 1)


main()
