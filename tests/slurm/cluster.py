#!/usr/bin/env python3
"""The test cluster itself: what other tests take for granted of it, and how the real Slurm behaves when things break. All cases run at once
on one cluster, but for those that take the controller away."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from testbed import Cluster, skip_without_cluster, without_cluster

MPI = r"""
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words)
{
    int rank, size, sum;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d: sum %d\n", rank, size, sum);
    MPI_Finalize();
}
"""


class Jobs:
    """Scripts are written to the folder, so that nothing depends on sbatch's --wrap. n2 to n5 are for those who break them."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder

    def submit(self, name, text, *options):
        script = self.folder / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n{text}\n")
        options += () if "-w" in options else ("-x", "n2,n3,n4,n5")
        return self.cluster.client("sbatch", "--parsable", "-J", name, "-D", self.folder, "--open-mode=append",
                                   "-o", self.folder / f"{name}.out", "-e", "/dev/null", *options, script)

    def out(self, name, lines=0, timeout=30):
        """Its output, waited for until it has so many lines."""
        path, deadline = self.folder / f"{name}.out", time.monotonic() + timeout
        while time.monotonic() < deadline and (not path.exists() or len(path.read_text().splitlines()) < lines):
            time.sleep(0.1)
        return path.read_text().splitlines() if path.exists() else []


def check(what, actual, expected):
    assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"


def gpus(jobs):
    number = jobs.submit("gpus", 'srun bash -c \'echo "$SLURM_PROCID $SLURMD_NODENAME $(hostname) $CUDA_VISIBLE_DEVICES"\'', "--gpus-per-node=8",
                         "-N2", "--ntasks-per-node=1")
    nodes = jobs.cluster.wait_job(number, "COMPLETED")["NodeList"]
    lines = sorted(jobs.out("gpus", 2))
    names = jobs.cluster.client("scontrol", "show", "hostnames", nodes).split()
    check("GPUs and host names", lines, [f"{rank} {name} {name} 0,1,2,3,4,5,6,7" for rank, name in enumerate(names)])


def exit_code(jobs):
    job = jobs.cluster.wait_job(jobs.submit("exit-code", "exit 3"), "FAILED")
    check("exit code", job["ExitCode"], "3:0")
    check("who", job["UserId"].split("(")[1], f"{os.getuid()})")


def pmix(jobs):
    (jobs.folder / "mpi.c").write_text(MPI)
    subprocess.run(["mpicc", jobs.folder / "mpi.c", "-o", jobs.folder / "mpi"], check=True)
    number = jobs.submit("pmix", "srun --mpi=pmix ./mpi", "-N2", "-n4")
    jobs.cluster.wait_job(number, "COMPLETED")
    check("ranks", sorted(line for line in jobs.out("pmix", 4) if line.startswith("rank")), [f"rank {n} of 4: sum 6" for n in range(4)])


def array(jobs):
    number = jobs.submit("array", "exit $SLURM_ARRAY_TASK_ID", "--array=0-3")
    deadline, rows = time.monotonic() + 60, []
    while time.monotonic() < deadline and [row.split("=")[1] for row in rows] != ["COMPLETED", "FAILED", "FAILED", "FAILED"]:
        time.sleep(0.3)
        rows = sorted(jobs.cluster.client("squeue", "-h", "-t", "all", "-r", "-j", number, "-o", "%i=%T").split())
    check("array", rows, [f"{number}_{n}={'FAILED' if n else 'COMPLETED'}" for n in range(4)])


def requeue(jobs):
    number = jobs.submit("requeue", 'echo "run ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 60', "--requeue")
    jobs.cluster.wait_job(number, "RUNNING")
    jobs.out("requeue", 1)
    jobs.cluster.client("scontrol", "requeue", number)
    job = jobs.cluster.wait_job(number, "COMPLETED")
    check("requeue", (jobs.out("requeue"), job["Restarts"]), (["run 0", "run 1"], "1"))


def preempted(jobs, partition, node, again):
    """Warned by the signal that was asked for, and ended or started again when the higher partition wants its node."""
    script = 'trap "echo warned" USR1; echo run; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || while :; do sleep 0.2; done'
    number = jobs.submit(partition, script, "-p", partition, "-w", node, "--exclusive", "--signal=B:USR1@60", "--requeue")
    jobs.cluster.wait_job(number, "RUNNING")
    jobs.out(partition, 1)
    urgent = jobs.submit(f"urgent-{partition}", "sleep 1", "-p", "urgent", "-w", node, "--exclusive")
    jobs.cluster.wait_job(urgent, "COMPLETED")
    jobs.cluster.wait_job(number, "COMPLETED" if again else "PREEMPTED")
    check(partition, jobs.out(partition), ["run", "warned", "run"] if again else ["run", "warned"])


def requeued_for_urgent(jobs):
    preempted(jobs, "scavenge", "n4", True)


def cancelled_for_urgent(jobs):
    preempted(jobs, "fragile", "n5", False)


def power_loss(jobs):
    """Everything on the node is gone at once; the job is NODE_FAIL when the controller has noticed; the node comes back."""
    mark = "3210987"
    job = jobs.submit("power", f"setsid sleep {mark} & sleep {mark}", "-w", "n2", "--no-requeue")
    jobs.cluster.wait_job(job, "RUNNING")

    def processes():
        return subprocess.run(["pgrep", "-fc", f"sleep {mark}"], capture_output=True, text=True).stdout.strip()

    deadline = time.monotonic() + 20
    while processes() != "2" and time.monotonic() < deadline:
        time.sleep(0.1)
    check("on the node", processes(), "2")
    jobs.cluster.fault("node-kill", "n2")
    time.sleep(0.5)
    check("left on the node", processes(), "0")
    check("exit code", jobs.cluster.wait_job(job, "NODE_FAIL")["ExitCode"], "0:0")
    jobs.cluster.fault("node-start", "n2")
    jobs.cluster.wait_node("n2", "idle", "mixed", "allocated")


def without_slurmd(jobs):
    job = jobs.submit("slurmd", "echo up; sleep 8; exit 5", "-w", "n3", "--no-requeue")
    jobs.out("slurmd", 1)  # RUNNING is said before slurmd knows of it
    jobs.cluster.fault("slurmd-kill", "n3")
    time.sleep(2)
    jobs.cluster.fault("node-start", "n3")
    check("exit code", jobs.cluster.wait_job(job, "FAILED")["ExitCode"], "5:0")


def without_slurmctld(jobs):
    job = jobs.submit("slurmctld", "sleep 12; exit 6", "-w", "n1")
    jobs.cluster.wait_job(job, "RUNNING")
    time.sleep(7)  # its state is saved by then: earlier, it would forget the job
    jobs.cluster.fault("ctld-kill")
    silent = jobs.cluster.run("squeue", "-h")
    assert silent.returncode and "slurm_load_jobs error" in silent.stderr, silent
    jobs.cluster.fault("ctld-start")
    check("exit code", jobs.cluster.wait_job(job, "FAILED")["ExitCode"], "6:0")
    return job


def slow_slurmctld(jobs):
    """The trap that exactly-once submission is about: sbatch gives up, and the job exists."""
    jobs.cluster.fault("ctld-pause")
    failed = None
    try:
        jobs.submit("slow", "exit 0")
    except AssertionError as error:
        failed = str(error)
    jobs.cluster.fault("ctld-resume")
    assert failed and "timed out" in failed, failed
    deadline = time.monotonic() + 30
    while not jobs.cluster.client("squeue", "-h", "-t", "all", "-n", "slow", "-o", "%i") and time.monotonic() < deadline:
        time.sleep(0.2)
    number = jobs.cluster.client("squeue", "-h", "-t", "all", "-n", "slow", "-o", "%i").split()
    check("jobs of the sbatch that failed", len(number), 1)
    jobs.cluster.wait_job(number[0], "COMPLETED")


def accounting(jobs, job):
    deadline, row = time.monotonic() + 30, ""
    while time.monotonic() < deadline and row != f"{job}|FAILED|6:0":
        row = jobs.cluster.client("sacct", "-X", "-P", "-n", "-j", job, "-o", "jobid,state,exitcode")
        time.sleep(0.3)
    check("sacct", row, f"{job}|FAILED|6:0")
    jobs.cluster.fault("dbd-kill")
    assert jobs.cluster.run("sacct", "-X", "-P", "-n", "-j", job).returncode, "sacct answers without slurmdbd"
    jobs.cluster.fault("dbd-start")
    check("sacct", jobs.cluster.client("sacct", "-X", "-P", "-n", "-j", job, "-o", "jobid,state,exitcode"), f"{job}|FAILED|6:0")


def stubborn(jobs):
    """For the stop: processes that ignore TERM, one of them in a session of its own."""
    jobs.submit("stubborn", "trap '' TERM; echo up; setsid bash -c \"trap '' TERM; sleep 3210988\" & sleep 3210989; sleep 9", "-w", "n2")
    jobs.out("stubborn", 1)
    jobs.cluster.wait_job(jobs.submit("held", "true", "--hold"), "PENDING")


def main():
    skip_without_cluster()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="switchyard-jobs-") as folder:
        os.chmod(folder, 0o755)
        with_accounting = without_cluster(accounting=True) is None
        with Cluster(nodes=6, gpus=8, accounting=with_accounting) as cluster:
            print(f"ok start ({time.monotonic() - began:.1f} s)", flush=True)
            jobs = Jobs(cluster, pathlib.Path(folder))
            with concurrent.futures.ThreadPoolExecutor() as pool:
                cases = {pool.submit(case, jobs): case.__name__
                         for case in (gpus, exit_code, pmix, array, requeue, requeued_for_urgent, cancelled_for_urgent, power_loss,
                                      without_slurmd)}
                for done in concurrent.futures.as_completed(cases):
                    done.result()
                    print(f"ok {cases[done]} ({time.monotonic() - began:.1f} s)", flush=True)
            for number in range(1, 7):
                cluster.wait_node(f"n{number}", "idle")
            stubborn(jobs)
            cluster.fault("status")
            ended = without_slurmctld(jobs)
            slow_slurmctld(jobs)
            if with_accounting:
                accounting(jobs, ended)
            print(f"ok slurmctld{', accounting' if with_accounting else ''} ({time.monotonic() - began:.1f} s)", flush=True)
            before = time.monotonic()
        left = subprocess.run(["pgrep", "-fc", "sleep 321098[789]"], capture_output=True, text=True).stdout.strip()
        check("left after stop", (left, cluster.directory.exists()), ("0", False))
        print(f"ok stop ({time.monotonic() - before:.1f} s)")


if __name__ == "__main__":
    sys.exit(main())
