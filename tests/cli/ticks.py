#!/usr/bin/env python3
"""What a round of the daemon costs with very many runs: CPU milliseconds of one tick, the largest and the mean, while a daemon begins, in which it
reads what each run is made of, and after that.

    tests/cli/ticks.py                                 500 that run in Slurm and write a line a second: each tick, each question and the memory are held to the promise
    tests/cli/ticks.py QUEUED ENDED RUNNING PENDING    a crowd, told of only: 10000 10000 500 10000, say
"""
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from crowd import Crowd  # noqa: E402
from support import TINY, Home  # noqa: E402

PROMISED = [0, 0, 500, 0]
QUEUED, ENDED, RUNNING, PENDING = list(map(int, sys.argv[1:])) or PROMISED
TICK_MS, RESIDENT_MB = 100, 100
QUICK, BEHIND = 300, 5  # lines a second of the quick one, and seconds that what is shown may be behind
REMEMBERED = 64  # rounds; the daemon tells of so many
WINDOWS = 3  # of so many rounds: a machine that others use too has bad moments, but not three in a row
METRICS = {"loss": 3.25, "grad_norm": 1.5, "learning_rate": 1e-3, "step_time_ms": 900.0, "tokens_per_second": 1234.5, "memory_mb": 100.0}


def resident_mb(pid):
    line = next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def working(crowd, made, over, steps):
    """A line a second of each, and a heartbeat every five: what 500 workers would write. One of them is a quick one."""
    second = 0
    while not over.wait(1):
        second += 1
        for identity, name, tag, place in made:
            for _ in range(QUICK if name == made[0][1] else 1):
                steps[name] = steps.get(name, 0) + 1
                Crowd.write(place, tag, name, "tiny", steps[name], METRICS)
            if (second + identity) % 5 == 0:
                Crowd.beat(place, steps[name])


def ticks_of(home):
    return home.ask("/api/v1/health")["ticks"]


def window(home, what, asked):
    """The next rounds, as many as the daemon remembers. The largest of them, in ms."""
    before, questions, begin = ticks_of(home)["count"], asked(), time.monotonic()
    while (ticks := ticks_of(home))["count"] < before + REMEMBERED:
        time.sleep(0.2)
    questions, took, rounds, resident = asked() - questions, time.monotonic() - begin, ticks["count"] - before, resident_mb(home.daemon.pid)
    print(f"{what}: a tick takes {ticks['cpu_ms_mean']:.1f} ms of CPU, at most {ticks['cpu_ms_largest']:.1f} (the last {ticks['recent']}; "
          f"{rounds / took:.1f} a second); {questions} squeue in {took:.0f} s; {resident:.0f} MB resident", flush=True)
    assert questions <= rounds and (resident < RESIDENT_MB or sys.argv[1:]), (questions, rounds, resident)
    return ticks["cpu_ms_largest"]


def main():
    with Home(prefix="switchyard-ticks-") as home:
        home.serve()
        home.cli("submit", home.spec(), "--run", "dense")
        home.wait_for("dense-1", ["succeeded"])
        home.stop()
        crowd, over, made, steps = Crowd(home), threading.Event(), [], {}
        crowd.ended("tiny/dense-1", ENDED)
        if QUEUED:
            crowd.queued("tiny/dense-1", QUEUED, executor="slurm" if RUNNING or PENDING else "local")
        if PENDING:
            crowd.with_slurm("tiny/dense-1", PENDING, "pending", False)
        if RUNNING:
            made = crowd.with_slurm("tiny/dense-1", RUNNING, "running", True)
        (home.home / "config.yaml").write_text(f"slurm: {{max_submit_jobs: {max(RUNNING + PENDING, 1)}}}\n")
        asked = crowd.slurm()
        home.serve(wait=120)
        worker = threading.Thread(target=working, args=(crowd, made, over, steps), daemon=True)
        worker.start()
        window(home, "begins", asked)
        largest = [window(home, f"{QUEUED} queued, {ENDED} ended, {RUNNING} running, {PENDING} pending in Slurm", asked)]
        while not sys.argv[1:] and min(largest) >= TICK_MS and len(largest) < WINDOWS:
            largest.append(window(home, "once more", asked))
        assert sys.argv[1:] or min(largest) < TICK_MS, largest
        if made:
            quick = made[0][1]
            written, shown = steps[quick], home.json("show", f"tiny/{quick}")["step"]
            print(f"of {quick}, which writes {QUICK} lines a second, {written} were written and {shown} are shown", flush=True)
            assert written - shown <= BEHIND * QUICK, (written, shown)
        over.set()
        worker.join()
        count = {}
        for run in home.json("ls")["runs"]:
            count[run["state"]] = count.get(run["state"], 0) + 1
        print(count, flush=True)
        expected = {"queued": QUEUED, "succeeded": ENDED + 2, "running": RUNNING, "pending": PENDING}
        assert count == {state: number for state, number in expected.items() if number}, (count, expected)


main()
