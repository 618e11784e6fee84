#!/usr/bin/env python3
"""Every key that asks Slurm for something, against what a real cluster with accounting says of the job (`scontrol show job`, and sbatch's own words
as accounting keeps them): exactly the fields that the key is about differ from those of a job that does without it. Then what no field shows:
variables and modules in the job, a log that a second start goes on with, stages one after the other, and where config.yaml's values came from."""
import json
import os
import pathlib
import sys
import time

from testbed import Cluster, skip_without_cluster
from support import TINY, Home  # testbed made tests/ importable

LIMIT = 300
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost")
SPEC = TINY.split("runs:")[0].replace("project: tiny", "project: keys\nslurm: {}")

# key, its value as YAML, the fields of `scontrol show job` that differ from those of the run `plain`, the options of sbatch that do, and those of srun.
# A value of None: the field, or option, is not there.
KEYS = [
    ("slurm.partition", "scavenge", {"Partition": "scavenge"}, ["--partition=scavenge"], []),
    ("slurm.account", "moe", {"Account": "moe"}, ["--account=moe"], []),
    ("slurm.qos", "high", {"QOS": "high"}, ["--qos=high"], []),
    ("slurm.reservation", "night", {"Reservation": "night"}, ["--reservation=night"], []),
    ("slurm.constraint", "a100&fast", {"Features": "a100&fast"}, ["--constraint=a100&fast"], []),
    ("slurm.nodelist", "'n[2]'", {"ReqNodeList": "n2"}, ["--nodelist=n[2]"], []),
    ("slurm.exclude", "n1", {"ExcNodeList": "n1"}, ["--exclude=n1"], []),
    ("slurm.mpi", "pmix_v4", {}, [], ["--mpi=pmix_v4"]),
    ("slurm.exclusive", "true", {"OverSubscribe": "NO"}, ["--exclusive"], []),
    ("slurm.requeue", "true", {"Requeue": "1"}, ["--requeue"], []),
    ("slurm.signal", "TERM@90", {}, ["--signal=B:TERM@90"], []),
    ("slurm.grace", "2m", {}, ["--signal=B:USR1@120"], []),
    ("resources.nodes", "2", {"NumNodes": "2-2", "NumCPUs": "2", "NumTasks": "2"}, ["--nodes=2"], ["--nodes=2", "--ntasks=2"]),
    ("resources.ranks_per_node", "2", {"NumCPUs": "2", "NumTasks": "2", "NtasksPerN:B:S:C": "2:0:*:*"}, ["--ntasks-per-node=2"], ["--ntasks=2", "--ntasks-per-node=2"]),
    ("resources.threads_per_rank", "3", {"NumCPUs": "3", "CPUs/Task": "3"}, ["--cpus-per-task=3"], ["--cpus-per-task=3"]),
    ("resources.gpus_per_node", "4", {"TresPerNode": "gres:gpu:4"}, ["--gres=gpu:4"], ["--gres=gpu:4", "--cpu-bind=none"]),
    ("resources.memory", "1GiB", {"MinMemoryNode": "1G"}, ["--mem=1024M"], []),
    ("resources.time_limit", "25h", {"TimeLimit": "1-01:00:00"}, ["--time=1-01:00:00"], []),
]
# What a job has of its own, or what follows from those above and from the moment.
OWN = {"JobId", "JobName", "AllocNode:Sid", "Comment", "Command", "WorkDir", "StdErr", "StdOut", "StdIn", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "LastSchedEval", "Priority",
       "Reason", "Scheduler", "TRES", "Deadline", "MinMemoryCPU", "MinCPUsNode", "SchedNodeList", "RunTime"}
FIRST = {"--job-name", "--chdir", "--output", "--comment"}


def check(what, actual, expected):
    assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"
    print(f"ok  {what}", flush=True)


def wait_until(what, predicate):
    deadline = time.monotonic() + LIMIT
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.5)
    return value


def job_of(home, name):
    return home.json("show", name)["attempts"][-1]["job_id"]


def prepare(home, cluster):
    """What the values name; and the data, so that nothing else waits for anything but nodes."""
    for words in (("account", "moe", "description=moe", "organization=moe"), ("account", "other", "description=other", "organization=other"),
                  ("user", cluster.user, "account=moe,other", "defaultaccount=other"), ("qos", "high")):
        cluster.fault("admin", "sacctmgr", "-i", "add", *words)
    cluster.fault("admin", "sacctmgr", "-i", "modify", "user", cluster.user, "set", "qos+=high")
    cluster.fault("admin", "scontrol", "update", "NodeName=n[1-3]", "AvailableFeatures=a100,fast", "ActiveFeatures=a100,fast")
    cluster.fault("admin", "scontrol", "create", "reservation", "ReservationName=night", "StartTime=now+10days", "Duration=60", f"Users={cluster.user}", "Nodes=n3")
    home.cli("submit", home.spec(SPEC, "first.yaml"))
    home.wait_for("first-1", ("succeeded",), LIMIT)


def asked_for(cluster, job):
    """Fields of `scontrol show job`, sbatch's options, srun's: as they are known to Slurm."""
    words = wait_until("the job's words in accounting", lambda: cluster.client("sacct", "-nPX", "-j", job, "-o", "SubmitLine")).split()
    script = next(i for i, word in enumerate(words) if word.endswith("/job.sh"))
    return cluster.job(job), words[1:script], words[words.index("srun") + 1:]


def each_key(home, cluster):
    for partition in ("main", "scavenge"):
        cluster.fault("admin", "scontrol", "update", f"PartitionName={partition}", "State=DOWN")  # takes jobs and starts none
    names = {key: key.replace(".", "-") for key, *_ in KEYS}
    spec = SPEC + "runs:\n  plain: {}\n" + "".join(f"  {names[key]}: {{{key.split('.')[0]}: {{{key.split('.')[1]}: {value}}}}}\n" for key, value, *_ in KEYS)
    home.cli("submit", home.spec(spec, "keys.yaml"))
    for name in ("plain", *names.values()):
        wait_until(f"{name} is handed over", lambda: (shown := home.json("show", f"{name}-1"))["state"] == "pending" and shown["attempts"][-1]["job_id"])
    plain, options, srun = asked_for(cluster, job_of(home, "plain-1"))
    print("    " + " ".join(options), flush=True)
    assert {"--open-mode=append", "--no-requeue", "--signal=B:USR1@60", "--export=ALL", "--parsable"} <= set(options), options
    check("a job that asks for nothing", {name: plain[name] for name in ("Partition", "Account", "QOS", "Requeue", "NumNodes", "OverSubscribe", "TimeLimit", "ReqNodeList", "ExcNodeList", "Features")},
          {"Partition": "main", "Account": "other", "QOS": "normal", "Requeue": "0", "NumNodes": "1-1", "OverSubscribe": "OK", "TimeLimit": "00:10:00", "ReqNodeList": "(null)", "ExcNodeList": "(null)",
           "Features": "(null)"})
    run = home.json("show", "plain-1")
    check("its name, mark, directory and log", (plain["JobName"], plain["Comment"], plain["WorkDir"], plain["StdOut"]),
          ("keys.plain-1", f"switchyard:{run['run_id']}:1", run["directory"], run["directory"] + "/submit.log"))
    for key, value, fields, sbatch_words, srun_words in KEYS:
        job, words, started = asked_for(cluster, job_of(home, f"{names[key]}-1"))
        other = {name: job.get(name) for name in plain.keys() | job.keys() if name not in OWN and not name.startswith("-") and job.get(name) != plain.get(name)}
        check(f"{key}: {value}: scontrol says {fields or 'nothing of it'}", {name: text for name, text in other.items() if name != "NumCPUs" or "NumCPUs" in fields}, fields)
        check(f"{key}: sbatch is told {sbatch_words}", [word for word in words if word not in options and word.split("=")[0] not in FIRST], sbatch_words)
        check(f"{key}: srun is told {srun_words}", [word for word in started if word.startswith("-") and word not in srun], srun_words)
    for partition in ("main", "scavenge"):
        cluster.fault("admin", "scontrol", "update", f"PartitionName={partition}", "State=UP")

MODULES = """module()
{
    printf '%s\\n' "$2" >>"$MODULES_SEEN"
    LOADED="${LOADED:-}[$2]"
    export LOADED
}
"""


def environment_of(pid):
    return [pair for pair in pathlib.Path("/proc", pid, "environ").read_bytes().split(b"\0") if pair]


def worker_of(run_id):
    """The worker's process on its node, found by the run's tag: variables and modules have come as far as it."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"SWITCHYARD_TAG=" + run_id.encode() in environment_of(entry.name) and pathlib.Path(os.readlink(entry / "exe")).name == "switchyard-worker":
                return entry.name
        except OSError:
            continue
    return None


def in_the_job(home, cluster):
    """Variables and modules reach the worker on its node as they are written; a second start goes on in the log of the first."""
    site = home.work / "modules"
    (site / "init").mkdir(parents=True)
    (site / "init/sh").write_text(MODULES)
    odd = "a b;$(touch evil)'\"\n%j"
    variables = {"ODD": odd, "MODULESHOME": str(site), "MODULES_SEEN": str(site / "seen"), "NCCL_SOCKET_IFNAME": "^lo,docker0,veth_def_agent"}
    long = SPEC.replace("iterations: 8", "iterations: 1000000").replace("slurm: {}", "slurm: {requeue: true}\ncheckpoint: {interval: 1000000}") + \
        f"environment: {{modules: [gcc/13, 'openmpi@4'], variables: {json.dumps(variables).replace('$', '$$')}}}\n"
    home.cli("submit", home.spec(long, "long.yaml"))
    run = home.wait_for("long-1", ("running",), LIMIT)
    worker = wait_until("the worker runs", lambda: worker_of(run["run_id"]))
    seen = dict(pair.split(b"=", 1) for pair in environment_of(worker))
    check("variables of the worker on its node", {name: seen[name.encode()].decode() for name in variables}, variables)
    check("modules are loaded in their order", (seen[b"LOADED"].decode(), (site / "seen").read_text()), ("[gcc/13][openmpi@4]", "gcc/13\nopenmpi@4\n"))
    check("nothing of it was executed", list(home.root.rglob("evil")), [])
    job, log = job_of(home, "long-1"), pathlib.Path(run["directory"]) / "submit.log"
    cluster.client("scontrol", "requeue", job)
    wait_until("Slurm says so in the log", lambda: "REQUEUE" in log.read_text())
    wait_until("it runs again", lambda: (shown := home.json("show", "long-1"))["attempts"][-1]["number"] == 2 and shown["state"] == "running")
    check("the log of the first start is not lost (--open-mode=append)", "REQUEUE" in log.read_text(), True)
    home.cli("cancel", "long-1")
    home.wait_for("long-1", ENDED, LIMIT)


def stages(home, cluster):
    """One after the other: the second job is not even submitted before the first has ended well."""
    spec = TINY.split("runs:")[0].replace("project: tiny", "project: ordered\nslurm: {}") + \
        "stages:\n  second: {kind: train, needs: [first]}\n  first: {kind: train}\n  never: {kind: train, needs: [broken]}\n  broken: {kind: train, slurm: {nodelist: n9}}\n"
    home.cli("submit", home.spec(spec, "stages.yaml"))
    second = home.wait_for("ordered/second-1", ENDED, LIMIT)
    check("the second stage", (second["state"], second["needs"]), ("succeeded", [{"run": "ordered/first-1", "state": "succeeded"}]))
    first, later = (cluster.job(job_of(home, f"ordered/{name}-1")) for name in ("first", "second"))
    assert later["SubmitTime"] >= first["EndTime"] and first["JobState"] == later["JobState"] == "COMPLETED", (first, later)
    never = home.wait_for("ordered/never-1", ENDED, LIMIT)
    check("a stage whose need failed never becomes a job", (never["state"], never["attempts"]), ("failed", []))
    assert never["reason"].startswith("needs ordered/broken-1, which failed: sbatch refused the job"), never["reason"]
    print(f"ok  {never['reason']}", flush=True)


def configured(home, cluster):
    """`config slurm` against this very cluster, each value with where it came from; and what it says counts for the jobs of a daemon that runs."""
    home.cli("config", "slurm")
    path = home.home / "config.yaml"
    text = path.read_text()
    for value in ("mpi: pmix # `srun --mpi=list` offers it", "gpus: gres # --gres=gpu:N; this cluster's SelectType (`scontrol show config`) takes gpus-per-node too",
                  "max_array_size: 1001 # `scontrol show config`: MaxArraySize", "# gpu_type: h100 # `sinfo`: GRES; unset, any type will do", "partition: main # `sinfo` marks it as the default",
                  "partitions: # `sinfo`: the largest node of each; no time_limit: none",
                  "    urgent: {nodes: 3, cpus_per_node: 16, memory_per_node: 16000MiB, gpus_per_node: 8}"):
        assert value in text, (value, text)

    def asked(name):
        home.cli("submit", home.spec(SPEC, "site.yaml"), "--name", name, "--set", "resources.gpus_per_node=2")
        wait_until(f"{name} is handed over", lambda: (shown := home.json("show", name))["state"] == "pending" and shown["attempts"][-1]["job_id"])
        job = cluster.job(job_of(home, name))
        home.cli("cancel", name)
        return job["Partition"], job["Account"], job["TresPerNode"]

    cluster.fault("admin", "scontrol", "update", "PartitionName=fragile", "State=DOWN")
    cluster.fault("admin", "scontrol", "update", "PartitionName=main", "State=DOWN")
    first = asked("site")
    path.write_text(text.replace("gpus: gres", "gpus: gpus-per-node").replace("# gpu_type: h100", "gpu_type: h100").replace("partition: main", "partition: fragile").replace("# account: NAME", "account: moe"))
    check("a cluster's own words for what the spec does not say", first, ("main", "other", "gres:gpu:2"))
    deadline, number, there = time.monotonic() + LIMIT, 0, None
    while there != ("fragile", "moe", "gres:gpu:h100:2"):  # taken over within seconds, for what is submitted from then on
        assert time.monotonic() < deadline, f"config.yaml does not count: {there}"
        number += 1
        there = asked(f"site-{number}")
    print(f"ok  what a person writes there counts where the spec is silent: {there}", flush=True)
    path.unlink()


def main():
    skip_without_cluster(accounting=True)
    with Cluster(nodes=3, gpus=8, accounting=True) as cluster, Home(prefix="switchyard-slurm-keys-") as home:
        home.root.chmod(0o755)
        home.environment.update({key: cluster.environment[key] for key in ("SLURM_CONF", "PATH")})
        home.serve()
        prepare(home, cluster)
        each_key(home, cluster)
        for part in (in_the_job, stages, configured):
            part(home, cluster)
    print(f"keys: {len(KEYS)} keys against what a real cluster says of the job")


if __name__ == "__main__":
    main()
