#!/usr/bin/env python3
"""What becomes of runs under a memory limit where control groups of version 2 can be written: the daemon is put into a group as systemd, a
container's runtime or nobody would. Run by tests/cgroup/run in a machine of its own, as root; without a name it lists the cases.

A line of each: what was tried, the state that it came to, and by whose word: the control group's, or `looked at` where there is none to be had."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]
import support  # noqa: E402
from processes import by_role, send, tagged  # noqa: E402
from support import SWITCHYARD, TINY, Home  # noqa: E402

GROUPS = pathlib.Path("/sys/fs/cgroup")
ENDED = ["succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"]
LONG = ["--set", "training.iterations=1000000", "--set", "training.learning_rate.total_iterations=1000000", "--set", "training.validation.interval=0"]
LARGE = ["--set", "model.hidden_size=768", "--set", "model.ffn_hidden_size=3072", *LONG]
NOBODY, LIMIT = 65534, 240
BY_GROUP, BY_LOOK = "control group", "looked at"


def put(path, text):
    with open(path, "w") as file:
        file.write(text)


def group(name, owner=None):
    place = GROUPS / name
    place.mkdir(parents=True, exist_ok=True)
    for file in [place] + [place / f"cgroup.{what}" for what in ("procs", "subtree_control", "threads")] if owner else []:
        os.chown(file, owner, owner)
    return place


def serve(home, place, user=None, before=()):
    """A daemon that begins in that group."""
    words = ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(place)]
    if user:
        words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    log = open(home.root / "daemon.log", "ab")
    home.daemon = subprocess.Popen([*words, *before, SWITCHYARD, "serve", "--port", "0"], env=home.environment, cwd=home.work, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
    deadline = time.monotonic() + LIMIT
    while home.run("ls").returncode != 0:
        assert time.monotonic() < deadline and home.daemon.poll() is None, (home.root / "daemon.log").read_text()
        time.sleep(0.3)


def as_user(home, user):
    """Whatever is asked of the daemon from here on is asked by that user."""
    wrapper = home.root / "as-user"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv --reuid={user} --regid={user} --clear-groups -- {SWITCHYARD} "$@"\n')
    wrapper.chmod(0o755)
    support.SWITCHYARD = wrapper
    home.spec(TINY)
    subprocess.run(["chown", "-R", f"{user}:{user}", home.root], check=True)
    home.root.chmod(0o755)


def submit(home, name, memory=None, ranks=1, more=LONG):
    limit = ["--set", f"resources.memory={memory}"] if memory else []
    home.cli("submit", home.spec(TINY), "--run", "dense", "--name", name, "--set", f"resources.ranks_per_node={ranks}", *limit, *more)


def rank_of(home, name):
    """The process of its rank, at work."""
    run = home.json("show", name)["run_id"]
    deadline = time.monotonic() + LIMIT
    while not by_role(run)["rank"] or home.json("show", name)["state"] != "running":
        assert time.monotonic() < deadline, f"{name} does not run"
        time.sleep(0.2)
    return by_role(run)["rank"]


def group_of(home, name):
    return pathlib.Path(json.loads(pathlib.Path(home.json("show", name)["directory"], "memory.json").read_text())["group"])


def expect(home, name, state, witness, kills=None):
    shown = home.wait_for(name, ENDED, LIMIT)
    told = pathlib.Path(shown["directory"], "attempt-1", "memory.json")
    told = json.loads(told.read_text()) if told.exists() else {}
    time.sleep(1)
    left = [str(path) for path in GROUPS.rglob("switchyard-" + "?" * 32)] + list(tagged(shown["run_id"]))
    right = (shown["state"], told.get("witness"), left) == (state, witness, []) and (kills is None or bool(told["kills"]) == kills)
    print(f"CASE {'right' if right else 'wrong'} | {name} | {shown['state']}: {shown['reason'][:100]} | {told.get('witness')}, peak {told.get('peak')}, "
          f"kills {told.get('kills')} | left {left}", flush=True)


# ---- the daemon's own group, delegated to it ----

def over_its_limit(home):
    serve(home, group("service"))
    submit(home, "over-its-limit", "60MiB", more=LARGE)
    expect(home, "over-its-limit", "out_of_memory", BY_GROUP, True)


def four_ranks(home):
    serve(home, group("service"))
    submit(home, "four-ranks-over-their-limit", "260MiB", 4, LARGE)
    expect(home, "four-ranks-over-their-limit", "out_of_memory", BY_GROUP, True)


def other_ends(home):
    serve(home, group("service"))
    submit(home, "rank-killed-by-a-person", "1GiB")
    send(rank_of(home, "rank-killed-by-a-person"), signal.SIGKILL)
    expect(home, "rank-killed-by-a-person", "failed", BY_GROUP, False)
    submit(home, "within-its-limit", "1GiB", 2, [])
    expect(home, "within-its-limit", "succeeded", BY_GROUP, False)
    submit(home, "all-killed-by-a-person", "1GiB")
    rank_of(home, "all-killed-by-a-person")
    send(tagged(home.json("show", "all-killed-by-a-person")["run_id"]), signal.SIGKILL)
    expect(home, "all-killed-by-a-person", "lost", BY_GROUP, False)
    submit(home, "no-limit")
    rank_of(home, "no-limit")
    home.cli("cancel", "no-limit")
    expect(home, "no-limit", "cancelled", BY_GROUP, False)


def stray(home):
    """Somebody without the run's tag is in its group: the run is over when he is gone too, and he is ended with it."""
    serve(home, group("service"))
    submit(home, "stray-in-its-group", "1GiB")
    rank = rank_of(home, "stray-in-its-group")
    other = subprocess.Popen(["sleep", "1000"], env={})
    put(group_of(home, "stray-in-its-group") / "cgroup.procs", str(other.pid))
    send(rank, signal.SIGKILL)
    expect(home, "stray-in-its-group", "failed", BY_GROUP, False)
    assert other.wait(10) == -signal.SIGKILL, other.returncode


# ---- daemons that come and go ----

def restart(home):
    first, second = group("first"), group("second")
    serve(home, first)
    submit(home, "daemon-in-another-group", "1GiB")
    rank_of(home, "daemon-in-another-group")
    home.stop(signal.SIGKILL)
    serve(home, second)
    put(group_of(home, "daemon-in-another-group") / "memory.max", "20M")
    expect(home, "daemon-in-another-group", "out_of_memory", BY_GROUP, True)
    submit(home, "while-no-daemon-ran", "1GiB")
    rank_of(home, "while-no-daemon-ran")
    place = group_of(home, "while-no-daemon-ran")
    home.stop(signal.SIGKILL)
    put(place / "memory.max", "20M")
    time.sleep(5)
    serve(home, second / "switchyard-daemon")
    expect(home, "while-no-daemon-ran", "out_of_memory", BY_GROUP, True)


# ---- other groups ----

def shared_group(home):
    place = group("shared")
    other = subprocess.Popen(["sleep", "1000"])
    put(place / "cgroup.procs", str(other.pid))
    serve(home, place)
    submit(home, "group-with-others-in-it", "60MiB", more=LARGE)
    expect(home, "group-with-others-in-it", "out_of_memory", BY_LOOK)
    other.kill()


def no_controller(home):
    group("plain")
    serve(home, group("plain/child"))
    submit(home, "parent-without-the-controller", "60MiB", more=LARGE)
    expect(home, "parent-without-the-controller", "out_of_memory", BY_LOOK)


def container(home):
    inside = 'umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup /sys/fs/cgroup && exec "$@"'
    serve(home, group("box"), before=["unshare", "-C", "-m", "sh", "-c", inside, "sh"])
    submit(home, "control-group-namespace", "60MiB", more=LARGE)
    expect(home, "control-group-namespace", "out_of_memory", BY_GROUP, True)


# ---- ordinary users ----

def own_group(home):
    as_user(home, NOBODY)
    serve(home, group("theirs", NOBODY), NOBODY)
    submit(home, "ordinary-user-own-group", "150MiB", 2, LARGE)
    expect(home, "ordinary-user-own-group", "out_of_memory", BY_GROUP, True)


def foreign_group(home):
    as_user(home, NOBODY)
    serve(home, group("foreign"), NOBODY)
    submit(home, "ordinary-user-foreign-group", "60MiB", more=LARGE)
    expect(home, "ordinary-user-foreign-group", "out_of_memory", BY_LOOK)


# ---- the machine ----

def machine_full(home):
    """Somebody takes all that the machine has, and is never chosen himself: the kernel's victim is told from a run that a person ends meanwhile."""
    serve(home, group("service"))
    for name in ("victim-of-a-full-machine", "beside-the-victim"):
        submit(home, name)
    victim, beside = rank_of(home, "victim-of-a-full-machine"), rank_of(home, "beside-the-victim")
    put(f"/proc/{victim[0]}/oom_score_adj", "1000")
    greedy = subprocess.Popen([sys.executable, "-c", "import time\nopen('/proc/self/oom_score_adj', 'w').write('-1000')\nheld = []\n"
                               "while True:\n    held.append(b'x' * (8 << 20))\n    time.sleep(0.01)\n"])
    deadline = time.monotonic() + LIMIT
    while pathlib.Path(f"/proc/{victim[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    greedy.kill()
    greedy.wait()
    send(beside, signal.SIGKILL)
    expect(home, "beside-the-victim", "failed", BY_GROUP, False)
    expect(home, "victim-of-a-full-machine", "out_of_memory", BY_GROUP, True)


def swap(home):
    put("/sys/block/zram0/disksize", "512M")
    subprocess.run("mkswap /dev/zram0 && swapon /dev/zram0", shell=True, check=True, stdout=subprocess.DEVNULL)
    serve(home, group("service"))
    submit(home, "over-its-limit-with-swap", "60MiB", more=LARGE)
    expect(home, "over-its-limit-with-swap", "out_of_memory", BY_GROUP, True)


CASES = [over_its_limit, four_ranks, other_ends, stray, restart, shared_group, no_controller, container, own_group, foreign_group, machine_full, swap]


def main():
    if len(sys.argv) != 2:
        print("\n".join(case.__name__ for case in CASES))
        return
    case = next(case for case in CASES if case.__name__ == sys.argv[1])
    put(GROUPS / "cgroup.subtree_control", "+memory")
    with Home(prefix="switchyard-cgroup-") as home:
        try:
            case(home)
        except BaseException:
            traceback.print_exc()
            print((home.root / "daemon.log").read_text()[-2000:])
            print(f"CASE wrong | {case.__name__}", flush=True)


main()
