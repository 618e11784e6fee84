#!/usr/bin/env python3
"""job.sh alone: attempts claimed once each under a race, exit records whole, signals forwarded, nothing of the user's evaluated."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ.get("SWITCHYARD_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
SCRIPT = SOURCE / "daemon" / "exec" / "job.sh"


def start(run, *argv, **options):
    return subprocess.Popen(["/bin/sh", SCRIPT, run, "--", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


def record(run, attempt=1):
    return json.loads((run / f"attempt-{attempt}" / "exit.json").read_text())


def check(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: {actual!r}, expected {expected!r}")


def test_race(run):
    (run / "job.json").write_text('{"argv": ["x"]}')
    jobs = [start(run, "sh", "-c", 'echo "$SWITCHYARD_ATTEMPT"') for _ in range(12)]
    for job in jobs:
        check("exit", job.wait(), 0)
    for n in range(1, 13):
        check("attempt in environment", (run / f"attempt-{n}" / "stdout.log").read_text(), f"{n}\n")
        check("record", [record(run, n)[k] for k in ("v", "attempt", "code", "signal")], [1, n, 0, None])
        check("job.json", (run / f"attempt-{n}" / "job.json").read_text(), '{"argv": ["x"]}')
    check("attempts", len(list(run.glob("attempt-*"))), 12)


def test_gap(run):
    (run / "attempt-41").mkdir()
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


def fill(folder):
    with open(folder / "filler", "ab", buffering=0) as filler:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)


def test_full_disk(run):
    """Waits for room: to begin, and to write down how the command ended."""
    if os.geteuid() != 0:
        print("left out without root: a small disk")
        return
    disk = run / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "none", disk], check=True)
    try:
        fill(disk)
        taken = [disk / f"inode-{n}" for n in range(6)]
        for path in taken:
            path.touch()
        job = start(disk, "sh", "-c", "exit 3")
        time.sleep(1.5)
        check("waits to begin", (job.poll(), (disk / "attempt-1").exists()), (None, False))
        for path in taken:
            path.unlink()
        time.sleep(2.5)
        check("waits to end", (job.poll(), (disk / "attempt-1" / "exit.json").exists()), (None, False))
        (disk / "filler").unlink()
        check("exit", job.wait(10), 3)
        check("record", record(disk)["code"], 3)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def main():
    for test in (test_race, test_gap, test_outcomes, test_words, test_signals, test_unwritable, test_full_disk):
        with tempfile.TemporaryDirectory(prefix="switchyard job ") as folder:
            test(pathlib.Path(folder))
            print(f"ok {test.__name__}")


main()
