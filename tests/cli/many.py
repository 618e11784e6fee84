#!/usr/bin/env python3
"""Ten thousand runs: submitted while everything else goes on, all or nothing whatever happens in the middle (Ctrl-C, kill -9 of the daemon, a full
disk), listed and waited for at little cost, and cancelled at one word. Times are CPU seconds of the daemon where they are held to a limit:
other work on the machine is none of ours."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import SWITCHYARD, TINY, Home  # noqa: E402

HEAD = TINY[:TINY.index("runs:")]
MANY, SOME, SHORT = 10000, 2000, 200
LIMIT = 600
CPU_MS_A_RUN, PAUSE_SECONDS, TICK_MS, RESIDENT_MB, SUBMITTING_MB = 3, 3, 100, 200, 300


def sweep_of(home, count, more="canary: 1"):
    rates = [round(1e-5 * (i + 1), 8) for i in range(count // SHORT)]
    text = HEAD + f"sweep: {{limit: {MANY}, {more}, grid: {{training.learning_rate.peak: {json.dumps(rates)}, " \
        f"training.seed: {json.dumps(list(range(1, SHORT + 1)))}}}}}\nruns: {{many: {{}}}}\n"
    return home.spec(text, f"many-{count}.yaml")


def cpu_seconds(pid, thread=None):
    place = f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat"
    words = pathlib.Path(place).read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid, what):
    return int(re.search(rf"{what}:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def places(home):
    root = home.home / "runs" / "tiny"
    return {p.name for p in root.iterdir()} if root.exists() else set()


class Looking:
    """Somebody who asks for a run again and again meanwhile: the longest wait for an answer."""

    def __init__(self, home):
        self.home, self.longest, self.answers, self.over = home, 0, 0, False
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over:
            begin = time.monotonic()
            self.home.cli("show", "tiny/first", "--json")
            self.longest, self.answers = max(self.longest, time.monotonic() - begin), self.answers + 1
            time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


def submitted(home):
    """A run trains on meanwhile; the submission is told how far it is."""
    home.cli("submit", home.spec(HEAD + "runs: {first: {}}\n", "first.yaml"), "--name", "first", "--set", "training.iterations=1000000",
             "--set", "training.learning_rate.total_iterations=1000000")
    home.wait_for("tiny/first", ["running"])
    spec, pid = sweep_of(home, MANY), home.daemon.pid
    before, step, begin = cpu_seconds(pid), home.json("show", "tiny/first")["step"], time.monotonic()
    with Looking(home) as looking:
        done = home.cli("submit", spec, "--yes", timeout=LIMIT)
    seconds, spent = time.monotonic() - begin, cpu_seconds(pid) - before
    assert len(done.stdout.splitlines()) == MANY, done.stdout[:500]
    stepped = home.json("show", "tiny/first")["step"] - step
    print(f"{MANY} runs submitted in {seconds:.1f} s, {1000 * seconds / MANY:.2f} ms a run; CPU of the daemon {1000 * spent / MANY:.2f} ms a run; "
          f"meanwhile {looking.answers} answers to somebody else, the longest after {looking.longest:.2f} s; a run made {stepped} steps; "
          f"at most {memory_mb(pid, 'VmHWM'):.0f} MB resident, {memory_mb(pid, 'VmRSS'):.0f} MB afterwards", flush=True)
    assert 1000 * spent / MANY < CPU_MS_A_RUN and looking.longest < PAUSE_SECONDS and stepped > 0
    assert memory_mb(pid, "VmHWM") < SUBMITTING_MB and memory_mb(pid, "VmRSS") < RESIDENT_MB
    assert seconds < 2 or "submitting: " in done.stderr, done.stderr
    names = [line.removeprefix("submitted tiny/") for line in done.stdout.splitlines()]
    assert len(set(names)) == MANY and places(home) - {"tokenize-1", "first"} == set(names)
    one = json.loads((home.home / "runs" / "tiny" / names[-1] / "run.json").read_text())
    assert one["name"] == names[-1] and one["spec"]["training"]["seed"] == SHORT, one["name"]
    assert (home.home / "runs" / "tiny" / names[-1] / "job.json").exists()


def reasons_of_queued(home):
    return {run["pending_reason"] for run in home.json("ls", "-p", "tiny")["runs"] if run["state"] == "queued"}


def waited(home):
    """They wait for the canary, then for cores: what that costs while some run and end, and what the lists do."""
    pid = home.daemon.pid
    home.cli("cancel", "tiny/first")
    home.wait_for("tiny/first", ["cancelled"])
    time.sleep(30)
    before, begin = cpu_seconds(pid, pid), time.monotonic()
    time.sleep(20)
    spent = 1000 * (cpu_seconds(pid, pid) - before) / (time.monotonic() - begin)
    print(f"{MANY} runs wait: {spent:.0f} ms of CPU a second in the thread that ticks", flush=True)
    for words in (["ls", "-p", "tiny"], ["ls", "-p", "tiny", "--group", "peak"]):
        before, begin = cpu_seconds(pid), time.monotonic()
        out = home.cli(*words, timeout=LIMIT).stdout
        print(f"{' '.join(words)}: {len(out.splitlines())} lines, {time.monotonic() - begin:.1f} s, {cpu_seconds(pid) - before:.2f} s of the daemon's CPU", flush=True)
        assert cpu_seconds(pid) - before < 5
    assert spent < 5 * TICK_MS and memory_mb(pid, "VmRSS") < RESIDENT_MB
    deadline = time.monotonic() + 30  # between the start of one run and the word that the next is given, all of them wait their turn
    while not any(reason.startswith("waits for ") for reason in reasons_of_queued(home)):
        assert time.monotonic() < deadline, reasons_of_queued(home)
        time.sleep(0.5)


def cancelled(home):
    begin = time.monotonic()
    said = home.json("cancel", "--submission", "tiny/many-peak1e-5-seed2-1", timeout=LIMIT)
    print(f"cancelled at one word in {time.monotonic() - begin:.1f} s: {said}", flush=True)
    assert said["cancelled"] > MANY / 2 and said["stopping"] <= os.cpu_count(), said  # some have run meanwhile
    deadline = time.monotonic() + 60
    while (alive := [run["name"] for run in home.json("ls", "-p", "tiny")["runs"] if run["state"] not in ("cancelled", "succeeded")]):
        assert time.monotonic() < deadline, alive[:5]
        time.sleep(1)


def one_too_many(home):
    spec = home.spec(HEAD + f"sweep: {{limit: 10000, grid: {{training.seed: {json.dumps(list(range(101)))}, training.iterations: {json.dumps(list(range(1, 101)))}}}}}\n", "more.yaml")
    refused = home.run("submit", spec, "--yes", timeout=LIMIT)
    assert refused.returncode == 2 and "10100 trials, more than the 10000 of `limit`" in refused.stderr, refused.stderr


def begin_submitting(home, spec):
    return subprocess.Popen([SWITCHYARD, "submit", spec, "--yes"], env=home.environment, cwd=home.work, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_phase(home, client, phase, done):
    """Until the submission under way has come so far; False: it was over before."""
    while client.poll() is None:
        for one in ask(home)["submissions"]:
            if one["phase"] == phase and one["done"] >= done:
                return True
        time.sleep(0.01)
    return False


def ask(home):
    address = json.loads((home.home / "daemon.json").read_text())
    request = urllib.request.Request(address["url"] + "/api/v1/submissions", headers={"Authorization": f"Bearer {address['token']}"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def trials(home):
    return [run["name"] for run in home.json("ls", "-p", "tiny")["runs"] if run["name"].startswith("many")]


def given_up():
    with Home(prefix="switchyard-many-") as home:
        home.serve()
        spec = sweep_of(home, SOME)
        client = begin_submitting(home, spec)
        assert wait_phase(home, client, "writing", 50), client.communicate()
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=LIMIT)
        assert client.returncode == 130 and "cancelled: nothing was submitted" in said, (client.returncode, said)
        assert places(home) == set() and home.json("ls")["runs"] == [], places(home)
        home.cli("submit", spec, "--yes", timeout=LIMIT)  # and the names are free
        assert len(trials(home)) == SOME
        home.cli("cancel", "--project", "tiny", timeout=LIMIT)
    print("ok: Ctrl-C in the middle leaves nothing", flush=True)


def killed():
    """The daemon, in each phase. What the next one shows is all or nothing, on the disk too."""
    chance, counts = random.Random(7), []
    with Home(prefix="switchyard-many-") as home:
        for phase in ("naming", "writing", "writing", "storing", "storing"):
            home.serve(wait=60)
            before = places(home)
            client = begin_submitting(home, sweep_of(home, SOME))
            reached = wait_phase(home, client, phase, chance.randrange(1, SOME // 2) if phase != "naming" else 1)
            home.stop(signal.SIGKILL)
            client.communicate(timeout=LIMIT)
            home.serve(wait=60)
            new = trials(home)
            assert len(new) in (0, SOME), f"{phase}: {len(new)} of {SOME}"
            assert client.returncode != 0 or len(new) == SOME, "accepted, then forgotten"
            listed = {run["name"] for run in home.json("ls", "-p", "tiny")["runs"]}
            assert places(home) == listed, f"{phase}: {sorted(places(home) ^ listed)[:5]}"
            assert all((home.home / "runs" / "tiny" / name / "job.json").exists() for name in new)
            counts.append((phase, reached, len(new)))
            if new:
                home.cli("cancel", "--project", "tiny", timeout=LIMIT)
                break
            assert places(home) == before
            home.stop()
    print(f"ok: kill -9 of the daemon in the middle: {counts}", flush=True)


@contextlib.contextmanager
def small_disk(place, megabytes):
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def disk_full():
    if os.geteuid() != 0:
        print("skipped: a small disk needs root", flush=True)
        return
    with Home(prefix="switchyard-many-") as home, small_disk(home.root / "small", 12):
        home.serve()
        spec = sweep_of(home, SOME)
        spec.write_text(spec.read_text().replace("project: tiny\n", f"project: tiny\noutput: {home.root / 'small' / 'runs'}\n"))
        refused = home.run("submit", spec, "--yes", timeout=LIMIT)
        assert refused.returncode == 3 and "nothing was submitted" in refused.stderr and "No space left on device" in refused.stderr, refused.stderr
        assert list((home.root / "small").iterdir()) == [] and home.json("ls")["runs"] == [], list((home.root / "small").iterdir())
        home.cli("submit", spec, "--run", "many-peak1e-5-seed1")  # one has room
        home.stop()
    print("ok: a disk that is full in the middle: an error, and nothing left", flush=True)


def main():
    given_up()
    killed()
    disk_full()
    with Home(prefix="switchyard-many-") as home:
        home.serve()
        for scene in (one_too_many, submitted, waited, cancelled):
            begin = time.monotonic()
            scene(home)
            print(f"{scene.__name__}: {time.monotonic() - begin:.1f} s", flush=True)


main()
