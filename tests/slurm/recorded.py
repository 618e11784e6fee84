#!/usr/bin/env python3
"""What Slurm's commands print and how they end, recorded from a real cluster in recorded.json, and asked again:

    tests/slurm/recorded.py standin   the stand-in says what was recorded
    tests/slurm/recorded.py real      a real cluster on this machine still does
    tests/slurm/recorded.py write     records it anew

So the stand-in, over which the tests with faults run, cannot drift away from what it stands for. Numbers of jobs, times and folders are
replaced by their names; lines are sorted where Slurm's order is its own.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from testbed import Cluster, skip_without_cluster

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
BIN = pathlib.Path(os.environ.get("SWITCHYARD_BIN", HERE.parent.parent / "build" / "bin"))
ARRAY = "00112233445566778899aabbccddeeff"
MARK = "--comment=switchyard:0123456789abcdef0123456789abcdef:1"
FULL, PLAIN, ACCOUNTING = subprocess.run([BIN / "slurm_simulate", "formats"], capture_output=True, text=True, check=True).stdout.splitlines()
LIST = ["squeue", "--noheader", "--all", "--array", "--states=all", f"--user={os.geteuid()}"]
DAY_BEFORE = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 86400))
PROGRAMS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "srun")
SCRIPT = """#!/bin/sh
echo up
case $1 in
code) exit "$2" ;;
signal) kill -"$2" $$ ;;
again) [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 600 ;;
-a) [ "$SLURM_ARRAY_TASK_ID" = 0 ] || exec sleep 600 ;;
sleep) exec sleep "$2" ;; # one process: a shell beside it may end with 143 before the signal is its own
esac
"""


class Real:
    """The cases as they come about on a cluster."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder, self.jobs = cluster, folder, {}

    def run(self, *words):
        environment = {**self.cluster.environment, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        return subprocess.run([str(word) for word in words], env=environment, cwd=self.folder, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120, errors="replace")

    def submit(self, name, *arguments, options=()):
        done = self.run("sbatch", "--parsable", MARK, f"--job-name={name}", "--output=/dev/null", "--open-mode=append", *options,
                        self.folder / "script.sh", *arguments)
        assert done.returncode == 0, done
        self.jobs[name] = done.stdout.strip()
        return self.jobs[name]

    def submit_array(self, name, count, *options):
        """As the daemon does: the list of its elements is there before the call."""
        place = self.folder / ".arrays" / ARRAY
        place.mkdir(parents=True, exist_ok=True)
        (place / "elements").write_text("".join(f"{number:032x} 1 run-{number}\n" for number in range(count)))
        throttle = next((word for word in options if word.startswith("%")), "")
        return self.submit(name, "-a", place, options=[f"--comment=switchyard:array:{ARRAY}", f"--array=0-{count - 1}{throttle}",
                                                       *(word for word in options if word != throttle)])

    def make_arrays(self):
        """One that waits; one whose first element has ended, whose second runs, whose third was cancelled; one that ended without having begun; one
        of which an element will be cancelled alone."""
        self.submit_array("waiting", 4, "--hold", "%2")
        begun, unbegun = self.submit_array("begun", 3), self.submit_array("unbegun", 3, "--hold")
        self.submit_array("parted", 3, "--hold")
        self.cluster.wait_job(f"{begun}_0", "COMPLETED")
        self.cluster.wait_job(f"{begun}_1", "RUNNING")
        self.cluster.wait_job(f"{begun}_2", "RUNNING")
        time.sleep(1)
        self.cluster.client("scancel", f"{begun}_2", unbegun)
        self.cluster.wait_job(f"{begun}_2", "CANCELLED")

    def make_jobs(self):
        self.make_arrays()
        wait = self.cluster.wait_job
        wait(self.submit("done", "code", "0"), "COMPLETED")
        wait(self.submit("failed", "code", "3"), "FAILED")
        wait(self.submit("killed", "signal", "9"), "FAILED")
        wait(self.submit("again", "again", options=["--requeue"]), "RUNNING")
        wait(self.submit("cancelled", "sleep", "600"), "RUNNING")
        wait(self.submit("running", "sleep", "600"), "RUNNING")
        self.submit("unstarted", "code", "0", options=["--hold"])
        self.submit("held", "code", "0", options=["--hold"])
        wait(self.submit("later", "code", "0", options=["--begin=now+3600"]), "PENDING")
        time.sleep(1)
        self.cluster.client("scontrol", "requeue", self.jobs["again"])
        self.cluster.client("scancel", self.jobs["cancelled"], self.jobs["unstarted"])
        wait(self.jobs["cancelled"], "CANCELLED")
        wait(self.jobs["again"], "COMPLETED")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and "JobHeldUser" not in self.run(*LIST, "--format=%j %r").stdout:
            time.sleep(0.2)
        time.sleep(2)  # accounting hears of it a moment later

    def controller(self, state):
        verb = {"down": "ctld-stop", "up": "ctld-start", "slow": "ctld-pause", "awake": "ctld-resume"}[state]
        self.cluster.fault(verb)

    def accounting(self, up):
        self.cluster.fault("dbd-start" if up else "dbd-kill")


class StandIn(Real):
    """The same cases, put into the simulated cluster by hand."""

    def __init__(self, folder, accounting=True):
        self.folder, self.jobs, self.file = folder, {}, folder / "cluster.simulated"
        (folder / "bin").mkdir(exist_ok=True)
        for name in PROGRAMS:
            (folder / "bin" / name).symlink_to(BIN / "slurm_standin")
        self.simulate("new", 1)
        self.simulate("cluster", f"accounting={int(accounting)}")

    def simulate(self, *words):
        subprocess.run([BIN / "slurm_simulate", self.file, *map(str, words)], check=True)

    def run(self, *words):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "SLURM_CONF": str(self.file), "SLURM_TIME_FORMAT": "%s"}
        return subprocess.run([str(word) for word in words], env=environment, cwd=self.folder, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=120, errors="replace")

    def make_jobs(self):
        start, ran = "started=1800000000", ["started=1800000000", "ended=1800000001", "nodes=n1"]
        self.simulate("cluster", "now=1800000002")
        for name in ("done", "failed", "killed", "again", "cancelled", "running", "unstarted", "held", "later"):
            self.submit(name, "code", "0")
        for name, count in (("waiting", 4), ("begun", 3), ("unbegun", 3), ("parted", 3)):
            self.submit_array(name, count, *(["%2"] if name == "waiting" else []))
            for number in range(count):
                self.simulate("job", f"{self.jobs[name]}_{number}", "reason=JobHeldUser" if name != "begun" else "reason=None")
        job = lambda name, *words: self.simulate("job", "_".join([self.jobs[name.split("_")[0]], *name.split("_")[1:]]), *words)  # noqa: E731
        job("begun_0", "state=COMPLETED", *ran)
        job("begun_1", "state=RUNNING", start, "nodes=n1")
        job("begun_2", "state=CANCELLED", f"by={os.geteuid()}", "signal=15", *ran)
        for number in range(3):
            job(f"unbegun_{number}", "state=CANCELLED", f"by={os.geteuid()}", "started=1800000001", "ended=1800000001")
        job("done", "state=COMPLETED", *ran)
        job("failed", "state=FAILED", "code=3", "reason=NonZeroExitCode", *ran)
        job("killed", "state=FAILED", "signal=9", "reason=JobLaunchFailure", *ran)
        job("again", "state=REQUEUED", "reason=None", *ran)
        self.simulate("again", self.jobs["again"])
        job("again", "state=COMPLETED", "restarts=1", *ran)
        job("cancelled", "state=CANCELLED", f"by={os.geteuid()}", "signal=15", *ran)
        job("running", "state=RUNNING", start, "nodes=n1")
        job("unstarted", "state=CANCELLED", f"by={os.geteuid()}", "reason=JobHeldUser", "started=1800000001", "ended=1800000001")
        job("held", "reason=JobHeldUser")
        job("later", "reason=BeginTime", "expected=1800003600")

    def controller(self, state):
        self.simulate("cluster", f"down={int(state == 'down')}", f"slow={int(state == 'slow')}")

    def accounting(self, up):
        self.simulate("cluster", f"accounting_down={int(not up)}")


def normal(text, backend, separator=None):
    """Lines without what differs from cluster to cluster."""
    lines = []
    names = {number: name for name, number in backend.jobs.items()}
    for line in text.splitlines():
        if separator and separator in line:
            fields = line.split(separator)
            number, under, element = fields[0].partition("_")
            fields[0] = names.get(number, number) + under + element
            for form, word in ((r"\d{9,}", "TIME"), (r"\d+:\d\d", "USED"), (r"n\d+|n\[.*\]", "NODES")):
                fields = [word if re.fullmatch(form, field) else field for field in fields]
            if len(fields) == 10 and ":" in fields[2]:
                fields[5] = "USED"  # sacct's, in seconds
                fields[3] = "TIME" if fields[3] == "None" else fields[3]  # of a job that never began it says the one or the other
            line = "|".join(fields)
        if re.search("slurm_persist_conn_open|PersistInit|slurm_msg_sendto: address", line):
            continue  # how a connection failed differs from time to time; that it did is said once more
        line = re.sub(r"^\d+(?=_\d+: )", "N", line)  # scontrol's complaint of an element
        line = re.sub(r"Transport endpoint is not connected|Connection refused|Unexpected missing socket error", "NO CONNECTION", line.replace(str(backend.folder), "FOLDER"))
        lines.append(re.sub(r"(?<=job )\d+|(?<=job id )\d+|(?<=CANCELLED by )\d+", "N", line))
    return sorted(lines)


def ask(backend, answers, label, *words, separator=None):
    done = backend.run(*words)
    answers[label] = {"code": done.returncode, "out": normal(done.stdout, backend, separator), "talk": normal(done.stderr, backend)}


def questions(backend):
    """Every question, in the order in which the cluster is made ready for it."""
    answers = {}
    backend.make_jobs()
    ids = ",".join(backend.jobs.values())
    account = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", "--delimiter=\x1f", f"--jobs={ids},99999", ACCOUNTING]
    ask(backend, answers, "squeue, all fields", *LIST, FULL, separator="\x1f")
    ask(backend, answers, "squeue, few fields", *LIST, PLAIN, separator="\x1f")
    ask(backend, answers, "sacct", *account, separator="\x1f")
    named = [word for word in account if not word.startswith("--jobs=")] + ["--name=failed,unstarted,held,begun,unbegun,nosuch", f"--starttime={DAY_BEFORE}"]
    ask(backend, answers, "sacct, by name", *named, separator="\x1f")
    elements = ",".join(f"{backend.jobs[name]}_1" for name in ("waiting", "begun", "unbegun"))
    ask(backend, answers, "sacct, elements", *(f"--jobs={elements}" if word.startswith("--jobs=") else word for word in account), separator="\x1f")
    ask(backend, answers, "squeue, unknown option", "squeue", "--nosuch")
    ask(backend, answers, "squeue, unknown field", *LIST, "--Format=nosuch:0")
    ask(backend, answers, "scancel, unknown option", "scancel", "--nosuch", "1")
    ask(backend, answers, "scancel, unknown job", "scancel", "99999")
    ask(backend, answers, "scancel, ended job", "scancel", backend.jobs["done"])
    ask(backend, answers, "scancel, another name", "scancel", "--name=nosuch", backend.jobs["running"])
    element = f"{backend.jobs['parted']}_1"
    ask(backend, answers, "scontrol update, waiting element", "scontrol", "update", f"JobId={element}", "Switches=0")
    ask(backend, answers, "scancel, its own record", "scancel", "--name=parted", element)
    if isinstance(backend, StandIn):
        backend.simulate("job", element, "state=CANCELLED", "ended=1800000001")
    ask(backend, answers, "scontrol update, ended element", "scontrol", "update", f"JobId={element}", "Switches=0")
    ask(backend, answers, "scontrol update, running element", "scontrol", "update", f"JobId={backend.jobs['begun']}_1", "Switches=0")
    ask(backend, answers, "scontrol update, no such element", "scontrol", "update", f"JobId={backend.jobs['begun']}_7", "Switches=0")
    ask(backend, answers, "squeue after it", *LIST, "--format=%j\x1f%T", separator="\x1f")
    ask(backend, answers, "scontrol requeue, unknown job", "scontrol", "requeue", "99999")
    ask(backend, answers, "sbatch, unknown partition", "sbatch", "--parsable", "--partition=nosuch", backend.folder / "script.sh")
    ask(backend, answers, "sbatch, unknown option", "sbatch", "--parsable", "--nosuch", backend.folder / "script.sh")
    ask(backend, answers, "sbatch, no script", "sbatch", "--parsable", "nosuch.sh")
    ask(backend, answers, "srun, kinds of MPI", "srun", "--mpi=list")
    backend.controller("slow")
    ask(backend, answers, "squeue, slow controller", *LIST, FULL)
    ask(backend, answers, "sbatch, slow controller", "sbatch", "--parsable", MARK, "--job-name=slow", "--hold", backend.folder / "script.sh", "code", "0")
    backend.controller("awake")
    deadline, made = time.monotonic() + 30, []
    while not made and time.monotonic() < deadline:
        time.sleep(0.3)
        if isinstance(backend, StandIn):
            backend.simulate("cluster", "now=1800000100")
        made = [line for line in backend.run(*LIST, "--format=%j").stdout.split() if line == "slow"]
    answers["sbatch, slow controller"]["jobs"] = len(made)
    backend.accounting(False)
    ask(backend, answers, "sacct, no slurmdbd", *account)
    backend.accounting(True)
    backend.controller("down")
    ask(backend, answers, "squeue, no controller", *LIST, FULL)
    ask(backend, answers, "sbatch, no controller", "sbatch", "--parsable", backend.folder / "script.sh")
    ask(backend, answers, "scancel, no controller", "scancel", backend.jobs["running"])
    backend.controller("up")
    return answers


def without_accounting(backend):
    answers = {}
    ask(backend, answers, "sacct, no accounting", "sacct", "--allocations", "--noheader", "--parsable2", "--jobs=1", ACCOUNTING)
    return answers


def differences(answers, recorded, subset):
    """subset: standard error need only hold lines that were recorded, since the real commands say more in places."""
    faults = [f"{label}: not asked" for label in recorded if label not in answers]
    for label, got in answers.items():
        want = recorded.get(label, {})
        for part in sorted({*got, *want}):
            mine, theirs = got.get(part), want.get(part)
            if mine != theirs and not (subset and part == "talk" and mine and theirs and set(mine) <= set(theirs)):
                faults.append(f"{label}: {part} is {json.dumps(mine, indent=1)}, recorded {json.dumps(theirs, indent=1)}")
    return faults


def in_folder(act):
    with tempfile.TemporaryDirectory(prefix="switchyard-recorded-") as name:
        os.chmod(name, 0o755)
        folder = pathlib.Path(name)
        (folder / "script.sh").write_text(SCRIPT)
        return act(folder)


def from_real():
    skip_without_cluster(accounting=True)
    with Cluster(nodes=1, accounting=True) as cluster:
        answers = in_folder(lambda folder: questions(Real(cluster, folder)))
    with Cluster(nodes=1) as cluster:
        answers.update(in_folder(lambda folder: without_accounting(Real(cluster, folder))))
    return answers


def from_standin():
    answers = in_folder(lambda folder: questions(StandIn(folder)))
    answers.update(in_folder(lambda folder: without_accounting(StandIn(folder, accounting=False))))
    return answers


def main():
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what not in ("standin", "real", "write"):
        sys.exit(__doc__)
    answers = from_standin() if what == "standin" else from_real()
    if what == "write":
        RECORDED.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
        return 0
    faults = differences(answers, json.loads(RECORDED.read_text()), subset=what == "standin")
    print("\n".join(faults) if faults else f"{len(answers)} answers as recorded")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
