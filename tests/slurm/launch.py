#!/usr/bin/env python3
"""The words that `plan` shows, given to a real sbatch: four ranks over two nodes with the bits of four here; the scheduler's signal saves and
a requeue continues; whatever is in a path, a word or a variable arrives as it was; and `config slurm` of a real cluster."""
import json
import os
import pathlib
import subprocess
import sys
import time

from testbed import Cluster, skip_without_cluster
from support import TINY, Home  # testbed made tests/ importable

BASE = TINY.split("runs:")[0]
SPREAD = BASE.replace("nodes: 1, ranks_per_node: 1", "nodes: 2, ranks_per_node: 2") + "slurm: {partition: main, requeue: true}\n"


def check(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: {actual!r}, expected {expected!r}")


def wait_for(what, seconds=90):
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)
    return value


def losses(directory, attempt=1):
    lines = (directory / f"attempt-{attempt}/records.jsonl").read_text().splitlines()
    return [line["metrics"]["loss"] for line in map(json.loads, lines) if "loss" in line.get("metrics", {})]


class Jobs:
    """Runs of the words of `plan`, by hand: what the daemon's executor does with them."""

    def __init__(self, cluster, home):
        self.cluster, self.home = cluster, home

    def plan(self, spec, *words):
        return self.home.json("plan", spec, *words)["runs"][0]

    def submit(self, plan, document=None, argv=None, **variables):
        directory = pathlib.Path(plan["run_directory"])
        directory.mkdir(parents=True)
        (directory / "submission").write_text("1\n")
        if document:
            (directory / "run.json").write_text(json.dumps({**document, "name": directory.name}))
        words = plan["sbatch"] if argv is None else [*plan["sbatch"][:-len(plan["argv"])], *argv]
        environment = {**self.home.environment, **dict(v.split("=", 1) for v in plan["environment"]), "SWITCHYARD_SUBMISSION": "1", **variables}
        done = subprocess.run(words, env=environment, capture_output=True, timeout=60)
        check("sbatch", (done.returncode, done.stderr), (0, b""))
        return directory, done.stdout.decode().strip()

    def state(self, job):
        done = subprocess.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"], env=self.home.environment, capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    def end(self, job, seconds=120):
        return wait_for(lambda: (s := self.state(job)) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") and s, seconds)


def configuration(home):
    home.cli("config", "slurm")
    said = home.json("config")["slurm"]
    check("mpi, gpus, default partition", (said["mpi"], said["gpus"], said["partition"]), ("pmix", "gres", "main"))
    check("main", said["partitions"]["main"], {"nodes": 2, "cpus_per_node": 16, "gpus_per_node": 8, "memory_per_node": 16000 << 20, "time_limit": None})
    check("limits", (said["max_array_size"], said["max_submit_jobs"]), (1001, 10000))
    text = (home.home / "config.yaml").read_text()
    for source in ("`srun --mpi=list`", "`sinfo`", "`scontrol show config`: MaxArraySize", "SelectType"):
        assert source in text, text


def estimates(jobs, spec):
    now = jobs.plan(spec)["slurm"]
    assert now["refusal"] is None and now["nodes"] == "n[1-2]" and abs(now["starts"] - time.time()) < 300, now
    check("a partition that is none", jobs.plan(spec, "--set", "slurm.partition=mian")["slurm"]["refusal"], "Invalid partition name specified")
    check("more nodes than there are", jobs.plan(spec, "--set", "resources.nodes=4", "--set", "resources.ranks_per_node=1")["slurm"]["refusal"], "Requested node configuration is not available")
    check("GPUs", jobs.plan(spec, "--set", "resources.gpus_per_node=8")["slurm"]["refusal"], None)


def ranks(jobs, spec, document, here):
    directory, job = jobs.submit(jobs.plan(spec), document)
    check("state", jobs.end(job), "COMPLETED")
    record = json.loads((directory / "attempt-1/exit.json").read_text())
    check("record", [record[k] for k in ("code", "nodes", "job_id", "restarts")], [0, ["n1", "n2"], job, 0])
    check("losses of two nodes and of one", losses(directory), losses(here))
    check("steps of both", len(losses(here)), document["spec"]["training"]["iterations"])


def stop_and_requeue(jobs, spec, document):
    document = json.loads(json.dumps(document))
    document["spec"]["training"]["iterations"] = 1_000_000
    directory, job = jobs.submit(jobs.plan(spec), document)

    def trains(attempt):
        records = directory / f"attempt-{attempt}/records.jsonl"
        return records.exists() and losses(directory, attempt)

    wait_for(lambda: trains(1))
    jobs.cluster.client("scancel", "--signal=USR1", "--batch", job)
    check("state", jobs.end(job), "FAILED")
    record = json.loads((directory / "attempt-1/exit.json").read_text())
    check("saved", (record["code"], record["signal"], (directory / "stop").read_text()), (75, None, "attempt-1\n"))
    saved = max(int(p.name.split("-")[1]) for p in (directory / "checkpoints").iterdir() if (p / "complete.json").exists())
    jobs.cluster.client("scontrol", "requeue", job)
    wait_for(lambda: trains(2))
    check("the stop file of the attempt before", (directory / "stop").exists(), False)
    lines = [json.loads(line) for line in (directory / "attempt-2/records.jsonl").read_text().splitlines()]
    check("continues", min(line["step"] for line in lines if "loss" in line.get("metrics", {})), saved + 1)
    jobs.cluster.client("scancel", job)  # TERM to all of the job, then KILL: it is still saved and written down
    check("state", jobs.end(job), "CANCELLED")
    record = json.loads(wait_for(lambda: (p := directory / "attempt-2/exit.json").exists() and p.read_text()))
    check("of the second start", [record[k] for k in ("code", "job_id", "restarts")], [75, job, 1])


def odd_bytes(jobs, home):
    """In a path, in words, in a variable: through sbatch, slurmctld, slurmd and job.sh they come out as they went in."""
    odd = "od d'\"$(touch evil)`touch evil`;%j%%x é&|*"
    spec = home.spec(BASE + f"slurm: {{}}\noutput: {json.dumps(str(home.work / odd).replace('$', '$$'))}\n", "odd.yaml")
    words = ["$(touch evil)", "", "a\nb\n#SBATCH --partition=none\n", "-n", "--", "\\", "'\"", "*", "%j", "~", "é\t", "x" * 5000]
    value = "$(touch evil)\nB=2\n' \\ %"
    program = "import os, sys\nos.write(1, b'\\0'.join([os.fsencode(w) for w in sys.argv[1:]] + [os.environb[b'VALUE'], os.fsencode(os.getcwd())]))"
    directory, job = jobs.submit(jobs.plan(spec), argv=[sys.executable, "-c", program, *words], VALUE=value)
    check("state", jobs.end(job), "COMPLETED")
    got = (directory / "attempt-1/stdout.log").read_bytes().split(b"\0")
    check("words, value, directory", got, [os.fsencode(w) for w in [*words, value, str(directory)]])
    check("nothing is executed", [str(p) for p in home.work.rglob("evil")], [])
    assert (directory / "submit.log").exists(), list(directory.iterdir())


def main():
    skip_without_cluster()
    with Cluster(nodes=2, gpus=8) as cluster, Home() as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        jobs, spec = Jobs(cluster, home), home.spec(SPREAD)
        configuration(home)
        estimates(jobs, spec)
        home.serve()
        home.cli("submit", home.spec(BASE.replace("ranks_per_node: 1", "ranks_per_node: 4"), "here.yaml"))
        here = pathlib.Path(home.wait_for("here-1", ("succeeded",))["directory"])
        home.stop()
        document = json.loads((here / "run.json").read_text())
        ranks(jobs, spec, document, here)
        stop_and_requeue(jobs, spec, document)
        odd_bytes(jobs, home)
    print("launch: config of a real cluster, estimates, 4 ranks over 2 nodes bit for bit, stop and requeue, odd bytes")


main()
