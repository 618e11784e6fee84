#!/usr/bin/env python3
"""What runs share on this machine: GPUs (declared ones: none is used), the order of the queue, memory and its limit."""
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import by_role, check_records, send, tagged  # noqa: E402
from support import TINY, Home  # noqa: E402

ENDED = ["succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"]
LONG = ["--set", "training.iterations=1000000", "--set", "training.learning_rate.total_iterations=1000000",
        "--set", "training.validation.interval=0"]


def submit(home, name, *options, code=0):
    done = home.cli("submit", home.spec(TINY), "--run", "dense", "--name", name, *options, code=code)
    return done.stdout + done.stderr


def gpus(number):
    return ["--set", f"resources.gpus_per_node={number}", "--set", "resources.ranks_per_node=1"]


def visible(home, name):
    """What the run's worker finds in its environment, and what its description says."""
    shown = home.json("show", name)
    deadline = time.monotonic() + 20
    while not by_role(shown["run_id"])["rank"]:
        assert time.monotonic() < deadline, "no worker"
        time.sleep(0.05)
    environment = pathlib.Path(f"/proc/{by_role(shown['run_id'])['rank'][0]}/environ").read_bytes().split(b"\0")
    words = [entry.partition(b"=")[2].decode() for entry in environment if entry.startswith(b"CUDA_VISIBLE_DEVICES=")]
    job = json.loads(pathlib.Path(shown["directory"], "attempt-1", "job.json").read_text())
    assert words == [",".join(job.get("gpu_devices", []))], (words, job)
    return words[0]


def cancel(home, *names):
    for name in names:
        home.cli("cancel", name)
    for name in names:
        home.wait_for(name, ENDED, 30)


def waits(home, name, words):
    deadline = time.monotonic() + 10
    while words not in (home.json("show", name)["reason"] or ""):
        assert time.monotonic() < deadline, f"{name}: {home.json('show', name)['reason']}"
        time.sleep(0.1)
    assert home.json("show", name)["state"] == "queued"


def test_more_than_there_are(home):
    said = submit(home, "greedy", *gpus(3), code=2)
    assert "resources.gpus_per_node: 3, and this machine has 2 GPUs" in said, said
    assert not [run for run in home.json("ls")["runs"]], "something was left behind"


def test_each_its_own(home):
    """Two runs with one each; a daemon that was killed knows who holds what; what one gives back the next one gets."""
    submit(home, "a", *gpus(1), *LONG)
    submit(home, "b", *gpus(1), *LONG)
    home.wait_for("b", ["running"])
    first, second = visible(home, "a"), visible(home, "b")
    assert {first, second} == {"0", "1"}, (first, second)
    home.stop(signal.SIGKILL)
    home.serve("--gpus", "2")
    cancel(home, "a")
    submit(home, "c", *gpus(1), *LONG)
    home.wait_for("c", ["running"])
    assert visible(home, "c") == first and visible(home, "b") == second
    # As many as there are, but not free: and nobody else's is taken away by a spec that names one.
    cancel(home, "b", "c")


def test_order(home):
    """Who waits for a GPU lets those without pass, and no other that wants one."""
    submit(home, "both", *gpus(2), *LONG)
    home.wait_for("both", ["running"])
    assert visible(home, "both") == "0,1"
    submit(home, "next", *gpus(2), *LONG)
    submit(home, "small", *gpus(1), *LONG)
    submit(home, "without", "--set", "environment.variables={CUDA_VISIBLE_DEVICES: '1'}", *LONG)
    home.wait_for("without", ["running"])
    assert visible(home, "without") == "", "a run without GPUs sees those of others"
    waits(home, "next", "waits for 2 of this machine's 2 GPUs")
    waits(home, "small", "waits for 1 of this machine's 2 GPUs")
    submit(home, "crowd", *LONG)  # the cores are taken: nobody passes this one
    waits(home, "crowd", "of this machine's")
    submit(home, "behind", *LONG)
    assert home.json("show", "behind")["pending_reason"] == "waits its turn on this machine", home.json("show", "behind")["pending_reason"]
    cancel(home, "behind", "both")
    home.wait_for("next", ["running"])
    assert home.json("show", "small")["state"] == "queued"
    cancel(home, "next")
    home.wait_for("small", ["running"])
    cancel(home, "crowd", "without", "small")


def test_fewer_after_a_restart(home):
    """A run that waits for more than there are now says so, and holds up nobody."""
    submit(home, "holds", *gpus(2), *LONG)
    home.wait_for("holds", ["running"])
    submit(home, "wants", *gpus(2), *LONG)
    home.stop()
    (home.home / "config.yaml").write_text("gpus: 1\n")
    home.serve()
    cancel(home, "holds")
    submit(home, "one", *gpus(1), *LONG)
    home.wait_for("one", ["running"])
    waits(home, "wants", "waits for 2 of this machine's 1 GPUs")
    cancel(home, "one", "wants")
    home.stop()
    home.serve("--gpus", "2")


def test_all_killed(home):
    """Who is killed whole is called lost after a minute of silence; what it held is free at once, and the words say so."""
    submit(home, "whole", *gpus(2), *LONG)
    submit(home, "heir", *gpus(2), *LONG)
    home.wait_for("whole", ["running"])
    waits(home, "heir", "waits for 2 of this machine's 2 GPUs")
    killed = home.json("show", "whole")
    deadline = time.monotonic() + 20
    while not by_role(killed["run_id"])["rank"]:
        assert time.monotonic() < deadline
    send(tagged(killed["run_id"]), signal.SIGKILL)
    home.wait_for("heir", ["running"], 25)
    killed = home.json("show", "whole")
    assert killed["state"] == "running" and "no process of attempt 1 is left on this machine" in killed["reason"] and "are free" in killed["reason"], killed["reason"]
    assert visible(home, "heir") == "0,1"
    cancel(home, "whole")
    check_records(home, home.json("show", "whole"))
    assert home.json("show", "heir")["state"] == "running"
    cancel(home, "heir")


def memory(home, name, limit, *options):
    submit(home, name, "--set", f"resources.memory={limit}", *LONG, *options)
    return home.wait_for(name, ENDED, 60)


def test_memory_limit(home, ranks, name):
    """More than its limit: ended, with both numbers, and told from any other kill; all of it is gone, nothing recorded is lost."""
    more = ["--set", f"resources.ranks_per_node={ranks}", "--set", "model.hidden_size=768", "--set", "model.ffn_hidden_size=3072"]
    shown = memory(home, name, "60MiB", *more)
    assert shown["state"] == "out_of_memory" and "60.0 MiB" in shown["reason"], (shown["state"], shown["reason"])
    assert not tagged(shown["run_id"])
    check_records(home, shown)
    outcome = json.loads(pathlib.Path(shown["directory"], "attempt-1", "memory.json").read_text())
    assert outcome["kills"] >= 1 and outcome["limit"] == 60 << 20, outcome
    warned = [e["reason"] for e in shown["events"] if e["kind"] == "warning" and "resources.memory" in e["reason"]]
    assert len(warned) == (outcome["witness"] == "looked at"), warned
    return warned[0] if warned else "the kernel keeps the limit"


def test_memory_within(home):
    submit(home, "modest", "--set", "resources.memory=4GiB")
    shown = home.wait_for("modest", ENDED, 60)
    assert shown["state"] == "succeeded", shown["reason"]


def test_plain_kill(home):
    """Killed by a person while it has a limit: failed, not out of memory."""
    submit(home, "killed", "--set", "resources.memory=4GiB", *LONG)
    shown = home.wait_for("killed", ["running"])
    visible(home, "killed")
    send(by_role(shown["run_id"])["rank"], signal.SIGKILL)
    shown = home.wait_for("killed", ENDED, 30)
    assert shown["state"] == "failed" and "SIGKILL" in shown["reason"], (shown["state"], shown["reason"])


def test_limit_without_job_script(home):
    """job.sh is gone, the daemon is killed, and the limit still holds; no exit record, but the state is right."""
    submit(home, "alone", "--set", "resources.memory=60MiB", "--set", "training.iterations=1000000",
           "--set", "training.learning_rate.total_iterations=1000000")
    shown = home.wait_for("alone", ["running"])
    visible(home, "alone")
    limit = pathlib.Path(shown["directory"], "memory.json")
    assert json.loads(limit.read_text())["limit"] == 60 << 20
    send(by_role(shown["run_id"])["job.sh"], signal.SIGKILL)
    home.stop(signal.SIGKILL)
    home.serve("--gpus", "2")
    time.sleep(2)
    assert home.json("show", "alone")["state"] == "running"
    cancel(home, "alone")


def main():
    with Home(prefix="switchyard-slots-") as home:
        home.environment["CUDA_VISIBLE_DEVICES"] = "7"  # declared ones win
        home.serve("--gpus", "2")
        assert os.sched_getaffinity(0)
        tests = [(test_more_than_there_are, ()), (test_each_its_own, ()), (test_order, ()), (test_fewer_after_a_restart, ()), (test_all_killed, ()),
                 (test_memory_limit, (1, "large")), (test_memory_limit, (2, "ranks")), (test_memory_within, ()), (test_plain_kill, ()),
                 (test_limit_without_job_script, ())]
        for test, arguments in tests:
            start = time.monotonic()
            said = test(home, *arguments)
            print(f"ok {test.__name__} ({time.monotonic() - start:.1f} s){': ' + said if said else ''}", flush=True)


main()
