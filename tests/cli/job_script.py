#!/usr/bin/env python3
"""job.sh alone: attempts claimed once each under a race, exit records whole, signals forwarded, nothing of the user's evaluated."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

from job_sh import SCRIPT, check, in_slurm, record, run_each, start, wait_for


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


MODULES = """module()
{
    [ "$1" = load ] && [ $# -eq 2 ] || return 9
    case $2 in broken*) echo "no such module: $2" >&2; return 1 ;; esac
    LOADED="${LOADED:-}${LOADED:+,}$2"
    export LOADED
    unset_variable=$never_set
}
"""


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


run_each(test_race, test_gap, test_outcomes, test_words, test_signals, test_modules, test_variables, test_random_bytes, test_unwritable,
         test_full_disk)
