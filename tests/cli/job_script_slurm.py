#!/usr/bin/env python3
"""What job.sh does in a Slurm job, by the variables that tell it that it is in one: one job a submission, the scheduler's signals, steps, records."""
import json
import os
import shutil
import signal
import sys
import time

from job_sh import check, in_slurm, record, run_each, start, wait_for


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


SAVES = "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))\nprint('up', flush=True)\ntime.sleep(60)\n"


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


run_each(test_submission, test_twins, test_scheduler_signals, test_early_signal, test_date_ended, test_cancelled, test_step_again, test_nodes,
         test_memory)
