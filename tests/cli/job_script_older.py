#!/usr/bin/env python3
"""job.sh where an older attempt of its run may live on: waits for it, by its heartbeat or its processes, and not without end."""
import contextlib
import json
import os
import pathlib
import re
import signal
import threading
import time

from job_sh import SCRIPT, check, in_slurm, run_each, start, wait_for


class Beating:
    """A hand-made attempt on another machine, whose clock and disk's stamps are an hour off: its heartbeat changes."""

    def __init__(self, run, hours=-1):
        self.directory, self.off, self.over = run / "attempt-1", hours * 3600, threading.Event()
        self.directory.mkdir(parents=True)
        self.thread = threading.Thread(target=self.beat)

    def write(self):
        moment = time.time() + self.off
        part = self.directory / "heartbeat.json.tmp"
        part.write_text(json.dumps({"v": 1, "time": moment, "step": 3, "pid": 1, "host": "n1"}, separators=(",", ":")) + "\n")
        os.utime(part, (moment, moment))
        part.rename(self.directory / "heartbeat.json")

    def beat(self):
        while not self.over.wait(0.3):
            self.write()

    def __enter__(self):
        self.write()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def quick(run, patience=600):
    """The script with a minute of five seconds."""
    text = SCRIPT.read_text()
    for word, given, wanted in (("silence", 60, 5), ("watched", 15, 3), ("older_patience", 600, patience)):
        assert text.count(f"\nsy_{word}={given}") == 1, word
        text = text.replace(f"\nsy_{word}={given}", f"\nsy_{word}={wanted}")
    path = run / f"quick-{patience}"
    path.write_text(text)
    return path


def waited(job):
    """Seconds, by its own count, that it waited for an older attempt before it began."""
    check("exit", job.wait(60), 0)
    found = re.search(r"waited (\d+) s for attempt", job.stderr.read().decode())
    return int(found[1]) if found else None


def test_older_beats(run):
    """Waits for as long as it beats, whatever clocks say, asks it to stop, and says so; then is the next attempt."""
    for hours, world in ((-1, os.environ), (1, in_slurm())):
        here = run / f"{hours} h"
        with Beating(here, hours) as older:
            job = start(here, "touch", run / "ran", env=world)
            wait_for((here / "stop").exists)
            check("asks it to stop", (here / "stop").read_text(), "attempt-1\n")
            time.sleep(3)
            check("waits", (job.poll(), (here / "attempt-2").exists(), (run / "ran").exists()), (None, False, False))
            (older.directory / "exit.json").write_text("{}\n")
            os.utime(older.directory / "exit.json", (time.time() - 7200,) * 2)
            time.sleep(2)
            check("its srun was ended without it", (job.poll(), (here / "attempt-2").exists()), (None, False))
            (older.directory / "records.jsonl").write_text('{"kind":"start","v":1}\n{"kind":"end","v":1}\n')
            check("exit", job.wait(60), 0)
        (run / "ran").unlink()
        said = (here / "attempt-2" / "stderr.log").read_text()
        assert re.fullmatch(r"job\.sh: waited \d+ s for attempt 1 on n1, until it ended\n", said), said
        lines = job.stderr.read().decode().splitlines(keepends=True)
        check("first words", lines[0], "job.sh: attempt 1 on n1 has not ended: it is asked to stop, and waited for until it ends or its heartbeat has been "
              "silent for 60 s\n")
        check("last words", lines[1:], [said])
        check("nothing is left lying about", sorted(p.name for p in here.iterdir()), ["attempt-1", "attempt-2"])
    check("an attempt that wrote its end is not waited for", waited(start(here, "true")), None)


def test_older_silent(run):
    """One that has fallen silent is waited for until the minute is over, and watched for a part of it; signals, a stop file and a limit end the wait."""
    script, hasty = quick(run), quick(run, 2)
    for name, hours, expected in (("now", 1, 5), ("long ago", -1, 3)):
        with Beating(run / name, hours):
            pass
        check(name, waited(start(run / name, "true", script=script)), expected)
        assert "until its heartbeat fell silent" in (run / name / "attempt-2" / "stderr.log").read_text()
    def told(job):
        job.send_signal(signal.SIGTERM)
    ends = {"signal": told, "signal in Slurm": told, "stop file": lambda job: (run / "stop file" / "stop").write_text(""), "limit": lambda job: None}
    for name, end in ends.items():
        with Beating(run / name):
            job = start(run / name, "true", script=hasty if name == "limit" else script, env=in_slurm() if name == "signal in Slurm" else os.environ)
            wait_for((run / name / "stop").exists)
            end(job)
            check(f"{name}: exit", job.wait(60), 0)
        check(f"{name}: nothing is started", (run / name / "attempt-2").exists(), False)
        words = "attempt 1 on n1 lives on after 2 s: " if name == "limit" else "stopped while it waited for attempt 1 on n1: "
        check(f"{name}: says so", job.stderr.read().decode().splitlines()[-1], f"job.sh: {words}nothing is started")


def test_older_gone(run):
    """One of this machine is not waited for once its processes are gone, all of them, or the machine was started anew."""
    def killed(number):
        """An attempt whose claimant was killed: what it told, and its child, which lives on."""
        job, begin = start(run, "sleep", "60"), run / f"attempt-{number}" / "begin.json"
        child = None
        while not child:
            with contextlib.suppress(OSError):
                (child,) = [int(pid) for pid in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
                            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"] or [None]
        job.kill()
        job.wait()
        told = json.loads(begin.read_text())
        check("who it is", (told["host"], told["pid"], told["nodes"], told["by"]), (os.uname().nodename, job.pid, [os.uname().nodename], "job.sh"))
        return begin, told, child

    begin, told, child = killed(1)
    job = start(run, "true")
    wait_for((run / "stop").exists)
    time.sleep(1.5)
    check("its child lives", (job.poll(), (run / "attempt-2").exists()), (None, False))
    os.kill(child, signal.SIGKILL)
    assert 1 <= waited(job) < 30
    begin, told, child = killed(3)
    os.kill(child, signal.SIGKILL)
    check("gone at the first look", waited(start(run, "true")), None)
    begin, told, child = killed(5)
    begin.write_text(begin.read_text().replace(told["boot"], "another"))
    check("the machine was started anew", waited(start(run, "true")), None)
    os.kill(child, signal.SIGKILL)
    # What a worker did without this script: by its last word, or by where its heart beat.
    beat = {"v": 1, "time": 1.0, "step": 3, "host": told["host"], "boot": told["boot"], "pid_namespace": told["pid_namespace"]}
    for number, pid, last, expected in ((7, os.getpid(), "end", None), (9, child, "start", None), (11, os.getpid(), "start", 0)):
        (run / f"attempt-{number}").mkdir()
        (run / f"attempt-{number}" / "heartbeat.json").write_text(json.dumps({**beat, "pid": pid}, separators=(",", ":")) + "\n")
        (run / f"attempt-{number}" / "records.jsonl").write_text(f'{{"kind":"{last}","v":1}}\n')
        job = start(run, "true")
        if expected is None:
            check(f"by hand, {last}", waited(job), None)
            continue
        wait_for((run / "stop").exists)
        job.terminate()
        check("by hand, and alive", (job.wait(60), (run / f"attempt-{number + 1}").exists()), (0, False))
        (run / "stop").unlink()
    told["nodes"] = ["n1", "n2"]  # it may live on elsewhere
    (run / "attempt-13").mkdir()
    (run / "attempt-13" / "begin.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
    job = start(run, "true")
    wait_for((run / "stop").exists)
    job.terminate()
    check("it had two nodes", (job.wait(60), (run / "attempt-14").exists()), (0, False))


run_each(test_older_beats, test_older_silent, test_older_gone)
