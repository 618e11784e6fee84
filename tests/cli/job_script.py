#!/usr/bin/env python3
"""job.sh alone: attempts claimed once each under a race, exit records whole, signals forwarded, nothing of the user's evaluated; and what it
does in a Slurm job, by the variables that tell it that it is in one."""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(os.environ.get("SWITCHYARD_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
SCRIPT = SOURCE / "daemon" / "exec" / "job.sh"


def start(run, *argv, modules=(), shell="/bin/sh", script=SCRIPT, **options):
    words = [word for module in modules for word in ("-m", module)]
    return subprocess.Popen([shell, script, run, *words, "--", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


def record(run, attempt=1):
    return json.loads((run / f"attempt-{attempt}" / "exit.json").read_text())


def check(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: {actual!r}, expected {expected!r}")


def test_race(run):
    (run / "job.json").write_text('{"argv": ["x"]}')
    jobs = [start(run, "sh", "-c", 'echo "$SWITCHYARD_ATTEMPT"') for _ in range(8)]
    for job in jobs:
        check("exit", job.wait(), 0)
    for n in range(1, 9):
        check("attempt in environment", (run / f"attempt-{n}" / "stdout.log").read_text(), f"{n}\n")
        check("record", [record(run, n)[k] for k in ("v", "attempt", "code", "signal")], [1, n, 0, None])
        check("job.json", (run / f"attempt-{n}" / "job.json").read_text(), '{"argv": ["x"]}')
    check("attempts", len(list(run.glob("attempt-*"))), 8)
    spans = [record(run, n)["uptime"] for n in range(1, 9)]
    check("none beside another", [n for n, (before, after) in enumerate(zip(spans, spans[1:]), 1) if before[1] > after[0]], [])


def test_gap(run):
    (run / "attempt-41").mkdir()
    (run / "attempt-41" / "exit.json").touch()
    (run / "attempt-x").mkdir()
    check("exit", start(run, "true").wait(), 0)
    check("after the highest", record(run, 42)["attempt"], 42)


def test_outcomes(run):
    cases = [(["false"], 1, None), (["sh", "-c", "sleep 0.5; exit 75"], 75, None), (["sh", "-c", "kill -9 $$"], 137, 9),
             (["/no/such/program"], 127, None)]
    for n, (argv, code, number) in enumerate(cases, 1):
        check(f"{argv} exit", start(run, *argv).wait(), code)
        got = record(run, n)
        check(f"{argv}", (got["code"], got["signal"]), (code, number))
        assert got["ended"] >= got["started"] > 1.7e9 and got["nodes"], got
        begun, over = got["uptime"]  # hundredths of a second
        least = 0.48 if code == 75 else 0
        assert least <= over - begun < least + 10 and over <= float(pathlib.Path("/proc/uptime").read_text().split()[0]), got


def test_words(run):
    words = ["$(touch evil)", "`touch evil`", "; touch evil", "a\nb", "*", "-n", "'\"", "$HOME"]
    start(run, "printf", "%s|", *words, cwd=run).wait()
    check("words", (run / "attempt-1" / "stdout.log").read_text(), "|".join(words) + "|")
    check("evil", (run / "evil").exists(), False)


def test_signals(run):
    code = "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: (time.sleep(0.5), sys.exit(75)))\n" \
           "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('up', flush=True)\ntime.sleep(60)\n"
    for n, (number, expected) in enumerate([(signal.SIGUSR1, 75), (signal.SIGTERM, 9)], 1):
        job = start(run, sys.executable, "-c", code)
        log = run / f"attempt-{n}" / "stdout.log"
        deadline = time.monotonic() + 20
        while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        job.send_signal(number)
        time.sleep(0.2)
        job.send_signal(signal.SIGHUP)  # a lost terminal ends nothing
        check(f"{number} exit", job.wait(20), expected)
        check(f"{number} record", (record(run, n)["code"], record(run, n)["signal"]), (expected, None))


def test_unwritable(run):
    (run / "file").write_text("")
    job = start(run / "file", "true")
    job.wait()
    assert job.returncode == 1 and b"cannot make" in job.stderr.read()
    check("usage", start(run, *[]).wait(), 2)


def in_slurm(**more):
    return {**os.environ, "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_RESTART_COUNT": "2", **more}


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


SAVES = "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))\nprint('up', flush=True)\ntime.sleep(60)\n"


def test_submission(run):
    """Only the run's last submission starts anything; a lower number in the file is an old look at it, and waited for, as is one not sent."""
    for number, expected in (("4", False), ("3", True), ("40", False)):
        (run / "submission").write_text(number)
        job = start(run, "touch", run / "ran", env={**os.environ, "SWITCHYARD_SUBMISSION": "3"})
        check("exit", job.wait(), 0)
        check(f"submission {number}", ((run / "ran").exists(), (run / "attempt-1").exists()), (expected, expected))
        assert expected or b"submission 3 of" in job.stderr.read()
        if expected:
            (run / "ran").unlink()
            (run / "attempt-1").rename(run / "earlier")
    (run / "submission").write_text("2\n")
    job = start(run, "touch", run / "ran", env={**os.environ, "SWITCHYARD_SUBMISSION": "3"})
    time.sleep(1.5)
    check("waits", job.poll(), None)
    (run / "submission").write_text("3\n")
    check("then starts", (job.wait(20), (run / "ran").exists()), (0, True))
    for decision, starts in (("3\n", True), ("4\n", False)):  # of a number that was not sent: taken back, or sent
        (run / "ran").unlink(missing_ok=True)
        (run / "submission").write_text("4 unsent\n")
        job = start(run, "touch", run / "ran", env={**os.environ, "SWITCHYARD_SUBMISSION": "3"})
        time.sleep(1.5)
        check("waits for what becomes of it", (job.poll(), (run / "ran").exists()), (None, False))
        (run / "submission").write_text(decision)
        check(f"then {decision}", (job.wait(20), (run / "ran").exists()), (0, starts))
    job = start(run / "gone", "touch", run / "again", env={**os.environ, "SWITCHYARD_SUBMISSION": "3"})
    check("a run that was removed", (job.wait(5), (run / "again").exists(), (run / "gone").exists()), (0, False, False))
    check("a number that is none", start(run, "touch", run / "again", env={**os.environ, "SWITCHYARD_SUBMISSION": "3; touch x"}).wait(5), 0)
    check("starts nothing", (run / "again").exists(), False)


def test_twins(run):
    """Of two jobs with one number the first that comes begins, however often it is started again; the other does nothing, now and ever after."""
    def job(number, submission="3", **more):
        return start(run, "sh", "-c", "echo $SLURM_JOB_ID; sleep 0.3", env=in_slurm(SLURM_JOB_ID=str(number), SWITCHYARD_SUBMISSION=submission, **more))

    (run / "submission").write_text("3\n")
    jobs = {number: job(number) for number in range(101, 113)}
    said = {number: (one.wait(60), one.stderr.read().decode()) for number, one in jobs.items()}
    check("exits", {code for code, _ in said.values()}, {0})
    owner = int((run / "submission.3").read_text())
    check("one attempt", (record(run)["job_id"], len(list(run.glob("attempt-*")))), (str(owner), 1))
    for number, (_, words) in said.items():
        expected = f"job.sh: submission 3 of {run} is job {owner}, this is job {number}: nothing is started\n"
        check(f"words of {number}", words, "" if number == owner else expected)
    check("nothing is left lying about", sorted(p.name for p in run.iterdir()), ["attempt-1", "submission", "submission.3"])
    check("the owner again", (job(owner).wait(20), record(run, 2)["job_id"]), (0, str(owner)))
    check("its twin again", (job(owner + 1).wait(20), (run / "attempt-3").exists()), (0, False))
    (run / "submission").write_text("4\n")
    check("the next submission", (job(owner + 1, "4").wait(20), record(run, 3)["job_id"], (run / "submission.4").read_text()), (0, str(owner + 1), f"{owner + 1}\n"))
    # On a disk without hard links, and where another has written half of its claim.
    tools = run / "tools"
    tools.mkdir()
    (tools / "ln").write_text("#!/bin/sh\necho 'ln: Operation not permitted' >&2\nexit 1\n")
    (tools / "ln").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    (run / "submission").write_text("5\n")
    jobs = [job(number, "5", PATH=path) for number in range(201, 213)]
    check("exits", {one.wait(60) for one in jobs}, {0})
    check("one attempt", (record(run, 4)["job_id"], len(list(run.glob("attempt-*")))), ((run / "submission.5").read_text().strip(), 4))
    (run / "submission").write_text("6\n")
    (run / "submission.6").touch()
    waiting = job(301, "6")
    time.sleep(1.5)
    check("waits for the other half", (waiting.poll(), (run / "attempt-5").exists()), (None, False))
    (run / "submission.6").write_text("300\n")
    check("then does nothing", (waiting.wait(20), (run / "attempt-5").exists()), (0, False))


def test_scheduler_signals(run):
    """Each signal of the scheduler's is a stop file with the attempt's name, then USR1 for the command; the next attempt takes the file away."""
    for n, number in enumerate((signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR2), 1):
        job = start(run, sys.executable, "-c", SAVES, env=in_slurm())
        wait_for(lambda: (run / f"attempt-{n}/stdout.log").exists() and (run / f"attempt-{n}/stdout.log").read_text())
        check("the stop of the attempt before is gone", (run / "stop").exists(), False)
        job.send_signal(number)
        check(f"{number} exit", job.wait(20), 75)
        check(f"{number} stop", (run / "stop").read_text(), f"attempt-{n}\n")
        got = record(run, n)
        check(f"{number} record", [got[k] for k in ("code", "signal", "job_id", "restarts")], [75, None, "77", 2])
        check("nothing is left lying about", sorted(p.name for p in run.iterdir() if not p.name.startswith("attempt-")), ["stop"])
    # A person's stop file is not the scheduler's: nobody writes into it, nobody removes it.
    (run / "stop").write_text("")
    job = start(run, sys.executable, "-c", SAVES, env=in_slurm())
    wait_for(lambda: (run / "attempt-4/stdout.log").exists() and (run / "attempt-4/stdout.log").read_text())
    job.send_signal(signal.SIGTERM)
    check("exit", (job.wait(20), (run / "stop").read_text()), (75, ""))


def test_early_signal(run):
    """A command that would end by the signal is left alone: the stop file says it. Nothing is started once the signal has come."""
    job = start(run, "sh", "-c", "echo up; until [ -e stop ]; do sleep 0.05; done; exit 75", env=in_slurm(), cwd=run)
    wait_for(lambda: (run / "attempt-1/stdout.log").exists() and (run / "attempt-1/stdout.log").read_text())
    job.send_signal(signal.SIGUSR1)
    check("ends by the file", (job.wait(20), record(run)["signal"]), (75, None))
    tools = run / "tools"
    tools.mkdir()
    # A launcher that takes it passes it on: to ranks that have begun, which the records show, and to no others.
    (tools / "srun").write_text("#!/bin/sh\ntrap 'exit 9' USR1\necho up\nuntil [ -e stop ]; do sleep 0.05; done\nsleep 1\nexit 75\n")
    (tools / "srun").chmod(0o755)
    for attempt, begun, code in ((2, False, 75), (3, True, 9)):
        job = start(run, tools / "srun", env=in_slurm(), cwd=run)
        wait_for(lambda: (run / f"attempt-{attempt}/stdout.log").exists() and (run / f"attempt-{attempt}/stdout.log").read_text())
        if begun:
            (run / f"attempt-{attempt}/records.jsonl").write_text("{}\n")
        job.send_signal(signal.SIGUSR1)
        check(f"srun, its ranks {'have' if begun else 'have not'} begun", job.wait(20), code)
    (tools / "scontrol").write_text(f"#!/bin/sh\ntouch '{run}/asked'\nsleep 2\necho n1\n")
    (tools / "scontrol").chmod(0o755)
    job = start(run, "touch", run / "ran", env=in_slurm(PATH=f"{tools}:{os.environ['PATH']}"))
    wait_for(lambda: (run / "asked").exists())
    job.send_signal(signal.SIGUSR1)
    check("stopped before it began", (job.wait(20), (run / "ran").exists(), record(run, 4)["code"], (run / "stop").read_text()), (75, False, 75, "attempt-4\n"))


def test_step_again(run):
    """A step of which nothing has begun, by srun's own words, is begun again, three times at most; one that has begun is not."""
    tools = run / "tools"
    tools.mkdir()
    begun = "srun: error: n1: tasks 0-1: Segmentation fault (core dumped)"
    for n, (words, writes, good, steps, code) in enumerate([
            (begun, False, 2, 2, 0), (begun, False, 9, 3, 139), (begun, True, 2, 1, 139), ("srun: error: n1: task 0: Exited with exit code 2", False, 2, 1, 139),
            ("srun: error: task 3 launch failed: Unspecified error", False, 3, 3, 0)], 1):
        here = run / f"attempt-{n}"
        (tools / "srun").write_text(f"#!/bin/sh\ncd attempt-{n}\necho step >>steps\n[ $(wc -l <steps) -ge {good} ] && exit 0\n"
                                    f"{'echo line >records.jsonl' if writes else ':'}\necho '{words}' >&2\nexit 139\n")
        (tools / "srun").chmod(0o755)
        check(f"{words}, {writes}: exit code", start(run, tools / "srun", env=in_slurm(), cwd=run).wait(60), code)
        check(f"{words}, {writes}: steps", len((here / "steps").read_text().split()), steps)


def test_nodes(run):
    tools = run / "tools"
    tools.mkdir()
    fake = {"three names": ('printf "n1\\nn2\\nn3\\n"', ["n1", "n2", "n3"]), "a quote": ("echo 'n\"1'", ["n?1"]), "no answer": ("exit 1", ["n[1-3]"])}
    for n, (what, (text, nodes)) in enumerate(fake.items(), 1):
        (tools / "scontrol").write_text(f'#!/bin/sh\n[ "$*" = "show hostnames n[1-3]" ] || exit 9\n{text}\n')
        (tools / "scontrol").chmod(0o755)
        check("exit", start(run, "true", env=in_slurm(PATH=f"{tools}:{os.environ['PATH']}")).wait(), 0)
        check(what, record(run, n)["nodes"], nodes)
    (tools / "scontrol").unlink()
    for name in ("sh", "uname", "tr", "timeout", "mkdir", "date", "mv", "cat", "head", "rm", "true"):
        (tools / name).symlink_to(shutil.which(name))
    start(run, "true", env=in_slurm(PATH=str(tools))).wait()
    check("without scontrol", record(run, 4)["nodes"], ["n[1-3]"])
    start(run, "true", env={k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}).wait()
    got = record(run, 5)
    check("outside Slurm", (got["nodes"], "job_id" in got), ([os.uname().nodename], False))


def test_date_ended(run):
    """What Slurm sends to all of a job's processes ends a `date` too: the record is whole, with its times where one answers in the end."""
    tools = run / "tools"
    tools.mkdir()
    dies, lives = "kill -TERM $$", f'exec {shutil.which("date")} "$@"'
    for attempt, body in enumerate((dies, f"[ -e '{run}/once' ] || {{ : >'{run}/once'; {dies}; }}; {lives}"), 1):
        (tools / "date").write_text(f"#!/bin/sh\n{body}\n")
        (tools / "date").chmod(0o755)
        check("exit", start(run, "true", env=in_slurm(PATH=f"{tools}:{os.environ['PATH']}")).wait(), 0)
        got = record(run, attempt)
        times = [got[key] is not None for key in ("started", "ended")]
        check("code, times, restarts", (got["code"], times, got["restarts"]), (0, [body != dies] * 2, 2))


def test_cancelled(run):
    """Slurm's own line in the job's log tells a cancel from what it does by itself; of another job it says nothing."""
    line = "slurmstepd-n1: error: *** JOB %d ON n1 CANCELLED AT 2026-11-30T15:25:25%s ***\n"
    for n, (told, code, expected) in enumerate([(line % (77, ""), 75, True), (line % (77, " DUE TO PREEMPTION"), 75, None), (line % (77, " DUE TO TIME LIMIT"), 75, None),
                                                (line % (7, ""), 75, None), (line % (177, ""), 75, None), (line % (77, ""), 0, None), ("", 75, None)], 1):
        (run / "submit.log").write_text("talk\n" + told + "more\n")
        start(run, "sh", "-c", f"exit {code}", env=in_slurm()).wait()
        check(f"told '{told.strip()}'", (record(run, n)["code"], record(run, n).get("cancelled")), (code, expected))


# ---- an older attempt that may live on ----

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


MODULES = """module()
{
    [ "$1" = load ] && [ $# -eq 2 ] || return 9
    case $2 in broken*) echo "no such module: $2" >&2; return 1 ;; esac
    LOADED="${LOADED:-}${LOADED:+,}$2"
    export LOADED
    unset_variable=$never_set
}
"""


def test_memory(run):
    """What srun says of a rank that was killed for want of memory; nobody else's words, and not where nothing went wrong."""
    told = "srun: error: n1: task 0: Out Of Memory"
    cases = [(told, 1, {}, None), (told.replace("task 0", "tasks 0-1,3"), 137, {"SLURM_MEM_PER_NODE": "100"}, 100 << 20),
             (told, 1, {"SLURM_MEM_PER_NODE": "1x"}, None)]
    cases += [(told, 0, {}, False), (told, 75, {}, False), ("loss: Out Of Memory", 1, {}, False), ("he said: " + told, 1, {}, False)]
    for n, (words, code, variables, limit) in enumerate(cases, 1):
        start(run, "sh", "-c", 'echo "$0" >&2; exit "$1"', words, str(code), env=in_slurm(**variables)).wait()
        path = run / f"attempt-{n}" / "memory.json"
        expected = False if limit is False else {"v": 1, "witness": "srun", "limit": limit, "peak": None, "kills": 1}
        check(f"{words}, exit {code}", path.exists() and json.loads(path.read_text()), expected)
        check("exit record", record(run, n)["code"], code)
    start(run, "sh", "-c", 'echo "$0" >&2; exit 1', told, env={k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}).wait()
    check("without Slurm", (run / f"attempt-{len(cases) + 1}" / "memory.json").exists(), False)


def test_modules(run):
    (run / "init").mkdir()
    (run / "init/sh").write_text(MODULES)
    site = {**os.environ, "MODULESHOME": str(run)}
    check("exit", start(run, "sh", "-c", 'printf "%s" "$LOADED"', modules=("gcc/13", "openmpi@4"), env=site).wait(), 0)
    check("both, in order", (run / "attempt-1/stdout.log").read_text(), "gcc/13,openmpi@4")
    check("exit", start(run, "touch", run / "ran", modules=("gcc/13", "broken/1", "openmpi"), env=site).wait(), 1)
    said = (run / "attempt-2/stderr.log").read_text()
    check("says which", said, "no such module: broken/1\njob.sh: cannot load the module broken/1\n")
    check("nothing is started", ((run / "ran").exists(), record(run, 2)["code"]), (False, 1))
    bare = {k: v for k, v in os.environ.items() if k not in ("MODULESHOME", "LMOD_PKG")}
    if any(pathlib.Path(p).exists() for p in ("/usr/share/modules/init/sh", "/usr/share/lmod/lmod/init/sh", "/etc/profile.d/modules.sh", "/etc/profile.d/lmod.sh")):
        print("left out: this machine has a module command")
        return
    check("exit", start(run, "true", modules=("gcc",), env=bare).wait(), 1)
    check("no command", (run / "attempt-3/stderr.log").read_text(), "job.sh: this machine has no module command: cannot load the module gcc\n")


def test_random_bytes(run):
    """Whatever bytes a path, a word, a variable or a module's name has: they arrive unchanged, nothing is evaluated, and the script is the same."""
    script, draw = SCRIPT.read_bytes(), random.Random(5)
    sharp = [b"$(touch evil)", b"`touch evil`", b";touch evil;", b"\n#SBATCH --uid=0\n", b"'", b'"', b"\\", b"*", b"?", b"[a-z]", b"~", b"-m", b"--", b"-n", b"%s%n", b"\t", b" ",
             b"!", b"&touch evil&", b"|touch evil", b">evil", b"${IFS}", b"\xff\xfe", b"\xc3\xa9", b"\r", b"=", b"#"]

    def text(forbidden=b""):
        parts = [draw.choice(sharp) if draw.random() < 0.5 else bytes(draw.randrange(1, 256) for _ in range(draw.randrange(1, 6))) for _ in range(draw.randrange(1, 5))]
        return bytes(b for b in b"".join(parts) if b not in forbidden)

    shells = [shell for shell in ("/bin/dash", "/bin/bash", "/bin/sh") if pathlib.Path(shell).exists()]
    (run / "init").mkdir()
    (run / "init/sh").write_text('module() { printf "%s\\0" "$2" >>"$MODULES_SEEN"; }\n')
    program = "import os, sys\nos.write(1, b'\\0'.join([os.fsencode(w) for w in sys.argv[1:]] + [os.environb[b'VALUE']]))"
    for n in range(40):
        folder = os.fsencode(run) + b"/" + (b"x" + text(b"/\0"))[:100]
        os.makedirs(folder, exist_ok=True)
        attempt = 1 + sum(name.startswith(b"attempt-") for name in os.listdir(folder))
        words, value = [text() for _ in range(draw.randrange(0, 6))], text()
        modules = [text() for _ in range(draw.randrange(0, 3))]
        seen = run / f"modules-{n}"
        environment = {**os.environb, b"VALUE": value, b"MODULESHOME": os.fsencode(run), b"MODULES_SEEN": os.fsencode(seen)}
        job = start(folder, sys.executable, "-c", program, *words, modules=modules, shell=draw.choice(shells), env=environment, cwd=run)
        check("exit", job.wait(), 0)
        with open(folder + b"/attempt-%d/stdout.log" % attempt, "rb") as log:
            check(f"words and value {n}", log.read(), b"\0".join([*words, value]))
        check("modules", seen.read_bytes() if seen.exists() else b"", b"".join(m + b"\0" for m in modules))
        with open(folder + b"/attempt-%d/exit.json" % attempt, "rb") as written:
            check("record", json.loads(written.read())["code"], 0)
    check("nothing was executed", [str(p) for p in run.rglob("*evil*") if p.name == "evil"], [])
    check("the script's bytes", SCRIPT.read_bytes(), script)


def test_variables(run):
    """No variable of the user's is changed on its way: those are tried that the script's own would be without their prefix, and its functions' names."""
    own = set(re.findall(r"\bsy_(\w+)", SCRIPT.read_text()))
    functions = set(re.findall(r"^(\w+)\(\)$", SCRIPT.read_text(), re.MULTILINE))
    assert {"run", "nodes", "code", "here", "idle", "word"} <= own and {"moment", "uptime"} <= functions, (own, functions)
    # What is assigned without the prefix is meant for the command, or for one command alone.
    lines = "\n".join(line for line in SCRIPT.read_text().split("\n") if not line.lstrip().startswith("#"))
    assigned = re.findall(r"(?<![\w$/.{-])([A-Za-z_]\w*)=", lines) + re.findall(r"\bfor (\w+) in", lines)
    assigned += [name for names in re.findall(r"\bread -r ([\w ]+)", lines) for name in names.split()]
    check("assigned", {n for n in assigned if not n.startswith("sy_")}, {"LC_ALL", "SWITCHYARD_ATTEMPT", "SWITCHYARD_CLAIM", "SWITCHYARD_SUBMISSION", "SWITCHYARD_TAG"})
    (run / "init").mkdir()
    (run / "init/sh").write_text('module() { :; }\n')
    (run / "folder").mkdir()
    (run / ".arrays/one").mkdir(parents=True)
    (run / ".arrays/one/elements").write_text("tag 1 folder\n")
    (run / "folder/submission").write_text("1\n")
    given = {name: f"the user's {name}" for name in own | functions}
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    worlds = {"alone": ((run / "folder",), {}), "in Slurm": ((run / "folder",), in_slurm()),
              "of an array": (("-a", run / ".arrays/one"), in_slurm(SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID="0"))}
    attempt = 0
    for shell in ("/bin/dash", "/bin/bash"):
        for what, (target, more) in worlds.items() if pathlib.Path(shell).exists() else ():
            attempt += 1
            argv = [shell, SCRIPT, *target, "-m", "one", "--", sys.executable, "-c", program]
            check("exit", subprocess.run(argv, env={**os.environ, **more, "MODULESHOME": str(run), **given}, check=False).returncode, 0)
            seen = json.loads((run / f"folder/attempt-{attempt}/stdout.log").read_text())
            check(f"{shell} {what}", {name: seen.get(name) for name in given}, given)
            check("the record is whole", record(run / "folder", attempt)["code"], 0)


def fill(folder):
    with open(folder / "filler", "ab", buffering=0) as filler:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)


def test_full_disk(run):
    """Waits for room: to begin, and to write down how the command ended. What Slurm wishes meanwhile is no person's wish."""
    if os.geteuid() != 0:
        print("left out without root: a small disk")
        return
    disk = run / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=40", "none", disk], check=True)
    try:
        fill(disk)
        taken = [disk / f"inode-{n}" for n in range(38)]
        for path in taken:
            path.touch()
        (run / "go").unlink(missing_ok=True)
        words = 'trap : USR1; echo up >>../ran; until [ -e ../go ]; do sleep 0.1; done; head -c 100000 /dev/zero >>filler; echo full >>../ran; sleep 1; exit 3'
        job = start(disk, "sh", "-c", words, env=in_slurm(), cwd=disk)
        time.sleep(1.5)
        check("waits to begin", (job.poll(), (disk / "attempt-1").exists()), (None, False))
        for path in taken:
            path.unlink()
        time.sleep(2.5)
        check("waits for room", (job.poll(), (run / "ran").exists()), (None, False))
        (disk / "filler").unlink()
        wait_for(lambda: (run / "ran").exists())
        (run / "go").touch()
        wait_for(lambda: "full" in (run / "ran").read_text())
        job.send_signal(signal.SIGUSR1)
        time.sleep(2.5)
        check("waits to end", (job.poll(), (disk / "attempt-1" / "exit.json").exists(), (disk / "stop").read_text()), (None, False, ""))
        (disk / "filler").unlink()
        check("exit", job.wait(10), 3)
        check("record", record(disk)["code"], 3)
        again = start(disk, "true", env=in_slurm())
        check("Slurm's wish has done its work", (again.wait(20), (disk / "stop").exists(), list(disk.glob(".stop*"))), (0, False, []))
        (disk / "stop").touch()
        check("a person's stays", (start(disk, "true", env=in_slurm()).wait(20), (disk / "stop").exists()), (0, True))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def main():
    for test in (test_race, test_gap, test_outcomes, test_words, test_signals, test_submission, test_twins, test_scheduler_signals, test_early_signal,
                 test_date_ended, test_cancelled, test_older_beats, test_older_silent,
                 test_older_gone, test_step_again, test_nodes, test_memory, test_modules, test_variables, test_random_bytes, test_unwritable, test_full_disk):
        with tempfile.TemporaryDirectory(prefix="switchyard job ") as folder:
            test(pathlib.Path(folder))
            print(f"ok {test.__name__}")


main()
