#!/usr/bin/env python3
"""kill -9 of the daemon while commands about many runs are carried out, and between two stages: what was answered has happened, once; what
was not has happened once or not at all, and the same command again does the rest."""
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import check_records, lines_of, tagged, trackio_rows  # noqa: E402
from support import SWITCHYARD, TINY, Home, corpus  # noqa: E402

RUNS = 12
MOMENTS_MS = [0, 10, 30, 60, 100, 160, 250, 400, 700]
ENDED = ["succeeded", "failed", "cancelled", "timed_out", "lost"]


def killed_after(home, seconds, *words):
    """The command's outcome where the daemon is killed under it; the daemon is up again then."""
    client = subprocess.Popen([SWITCHYARD, *map(str, words)], env=home.environment, cwd=home.work, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    home.stop(signal.SIGKILL)
    out, err = client.communicate(timeout=60)
    home.serve()
    return client.returncode, out, err


def all_ended(home, names):
    return {name: home.wait_for(name, ENDED, 120) for name in names}


def check_attempts(shown, count):
    numbers = list(range(1, count + 1))
    assert [a["number"] for a in shown["attempts"]] == numbers, (shown["name"], shown["attempts"])
    assert sorted(p.name for p in pathlib.Path(shown["directory"]).glob("attempt-*")) == sorted(f"attempt-{n}" for n in numbers), shown["name"]
    assert not tagged(shown["run_id"]), shown["name"]


def retried(home):
    broken = home.work / "broken"
    broken.with_suffix(".bin").write_bytes(b"x")
    broken.with_suffix(".idx").write_bytes(b"x")
    spec = home.spec(TINY.replace("text: corpus.txt", "prefix: broken"), "broken.yaml")
    names = [f"broken-{n}" for n in range(RUNS)]
    for name in names:
        home.cli("submit", spec, "--run", "dense", "--name", name)
    all_ended(home, names)
    had, cut = dict.fromkeys(names, 1), 0
    for ms in MOMENTS_MS:
        code, out, err = killed_after(home, ms / 1000, "retry", "--failed", "tiny")
        answered = {line.removeprefix("retrying tiny/") for line in out.splitlines()}
        assert answered <= set(names), out
        assert (code == 0) == (answered == set(names)), (code, out, err)
        cut += code != 0
        for name, shown in all_ended(home, names).items():
            count = len(shown["attempts"])
            assert count == had[name] + 1 or (count == had[name] and name not in answered), (ms, name, count, had[name], out)
            assert shown["state"] == "failed", (name, shown["state"], shown["reason"])
            check_attempts(shown, count)
            had[name] = count
    home.cli("retry", "--failed", "tiny")
    for name, shown in all_ended(home, names).items():
        check_attempts(shown, had[name] + 1)
    print(f"ok: {RUNS} runs, retry --failed killed {len(MOMENTS_MS)} times, {cut} of them half way")


def adopted(home):
    names = [f"done-{n}" for n in range(RUNS)]
    spec = home.spec()
    for name in names:
        home.cli("submit", spec, "--run", "dense", "--name", name, "--set", "training.iterations=2")
    before = all_ended(home, names)
    rows = {name: trackio_rows(home.trackio, "tiny", shown["run_id"]) for name, shown in before.items()}
    for ms in MOMENTS_MS:
        home.stop()
        for path in home.home.glob("switchyard.db*"):
            path.unlink()
        home.serve()
        answered = []

        def adopt_all():
            for name in names:
                if home.run("adopt", before[name]["directory"]).returncode == 0:
                    answered.append(name)

        at_work = threading.Thread(target=adopt_all)
        at_work.start()
        time.sleep(ms / 1000)
        home.stop(signal.SIGKILL)
        at_work.join()
        home.serve()
        there = {run["name"] for run in home.json("ls")["runs"]}
        assert set(answered) <= there, (ms, answered, there)
        for name in set(names) - there:
            home.cli("adopt", before[name]["directory"])
        for name, shown in all_ended(home, names).items():
            assert (shown["state"], shown["run_id"]) == ("succeeded", before[name]["run_id"]), (name, shown["state"], shown["reason"])
            check_attempts(shown, 1)
            check_records(home, shown)
            assert trackio_rows(home.trackio, "tiny", shown["run_id"]) == rows[name], f"{name}: rows were doubled or lost"
    print(f"ok: {RUNS} runs, adopt killed {len(MOMENTS_MS)} times")


def between_stages(home):
    """The stage has said its end, and whoever needs it has not begun: each is run once."""
    for turn, ms in enumerate(MOMENTS_MS):
        (home.work / f"corpus-{turn}.txt").write_text(f"The text of turn {turn}.\n\n" + corpus(100))
        spec = home.spec(TINY.replace("corpus.txt", f"corpus-{turn}.txt"), f"stages-{turn}.yaml")
        home.cli("submit", spec, "--run", "dense", "--name", f"train-{turn}", "--set", "training.iterations=2")
        known = {run["name"]: run for run in home.json("ls")["runs"]}
        stage = home.json("show", max((r for r in known.values() if r["kind"] == "tokenize"), key=lambda r: r["created"])["name"])
        deadline = time.monotonic() + 60
        while not pathlib.Path(stage["directory"], "attempt-1", "exit.json").exists():
            assert time.monotonic() < deadline, stage["name"]
            time.sleep(0.002)
        time.sleep(ms / 1000)
        home.stop(signal.SIGKILL)
        home.serve()
        for name in (stage["name"], f"train-{turn}"):
            shown = home.wait_for(name, ENDED)
            assert shown["state"] == "succeeded", (ms, name, shown["state"], shown["reason"])
            check_attempts(shown, 1)
        check_records(home, shown)
        assert len([1 for _, line in lines_of(shown["directory"]) if line["kind"] == "start"]) == 1
    print(f"ok: killed {len(MOMENTS_MS)} times between a stage and its run")


def main():
    for scenario in (retried, adopted, between_stages):
        with Home() as home:
            home.serve()
            scenario(home)


main()
