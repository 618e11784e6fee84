"""A real Slurm cluster for a test: started in a temporary directory, its faults by name, stopped and removed. Standard library only.

    from testbed import Cluster, skip_without_cluster
    skip_without_cluster()                      # exits with 77 and a sentence where there can be none
    with Cluster(nodes=2) as cluster:
        cluster.client("sbatch", "--parsable", script)   # Slurm's commands, as the user who runs the test
        cluster.fault("node-kill", "n1")                 # what tests/slurm/cluster offers
        cluster.user                                     # who runs the test, and its jobs
        cluster.environment                              # SLURM_CONF on top of os.environ, for a daemon
"""
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
SCRIPT = HERE / "cluster"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
ACCOUNTING = ("slurmdbd", "mariadbd")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def without_cluster(accounting=False):
    """Why there can be no cluster here, or None."""
    missing = [name for name in PROGRAMS + (ACCOUNTING if accounting else ()) if not shutil.which(name, path=PATH)]
    if missing:
        return f"{', '.join(missing)} not installed (experiments/setup slurm)"
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and (not shutil.which("sudo") or subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode):
        return "it needs root, or sudo without a password"
    spaces = [*as_root, "unshare", "--pid", "--fork", "--mount", "--mount-proc", "--uts", "--propagation"]
    if all(subprocess.run([*spaces, propagation, "true"], capture_output=True).returncode for propagation in ("private", "unchanged")):
        return "root may not make namespaces here (CAP_SYS_ADMIN)"
    return None


def without_limits():
    """Why a cluster here cannot keep jobs within their memory, or None."""
    probe, as_root = "/sys/fs/cgroup/memory/switchyard-probe", [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not os.path.isdir(os.path.dirname(probe)):
        return "no memory control groups of version 1"
    made = subprocess.run([*as_root, "mkdir", probe], capture_output=True, text=True)
    subprocess.run([*as_root, "rmdir", probe], capture_output=True)
    if made.returncode:
        return made.stderr.strip()
    try:
        with Cluster(nodes=1, limits=True):
            return None
    except AssertionError as error:
        return f"slurmd does not come up with them: {error}"


def skip_without_cluster(accounting=False):
    reason = without_cluster(accounting)
    if reason:
        print(f"skipped: no Slurm cluster on this machine: {reason}", flush=True)
        sys.exit(77)


class Cluster:
    def __init__(self, nodes=2, gpus=0, cpus=16, accounting=False, limits=False, configuration="", directory=None):
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix="switchyard-slurm-"))
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.options = ["-n", str(nodes), "-g", str(gpus), "-c", str(cpus)] + (["-a"] if accounting else []) + (["-l"] if limits else [])
        if configuration:
            extra = self.directory / "extra.conf"
            extra.write_text(configuration)
            self.options += ["-x", str(extra)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH_", "SQUEUE_", "SACCT_", "SCONTROL_"))}
        self.environment = {**clean, "PATH": PATH, "SLURM_CONF": str(self.directory / "etc" / "slurm.conf")}

    def __enter__(self):
        self.directory.chmod(0o755)  # a job's user, slurmctld and slurmd all go through it
        try:
            self.fault("start", *self.options, timeout=600)
        except BaseException:
            print(f"kept for a look: {self.directory}", file=sys.stderr)
            raise
        for line in (self.directory / "env.sh").read_text().splitlines():  # a long path goes by a short link
            self.environment["SLURM_CONF"] = line.removeprefix("export SLURM_CONF=")
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.fault("remove")
        else:
            self.fault("stop")
            print(f"cluster kept for a look: {self.directory}", file=sys.stderr)

    def fault(self, verb, *words, timeout=180):
        """A verb of tests/slurm/cluster. Through a file, not a pipe: the daemons that it starts outlive it."""
        with tempfile.TemporaryFile() as output:
            done = subprocess.run([SCRIPT, verb, self.directory, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout)
            output.seek(0)
            text = output.read().decode(errors="replace")
        if done.returncode:
            raise AssertionError(f"cluster {verb} {' '.join(words)}: exit {done.returncode}\n{text}")
        return text

    def run(self, *words, timeout=60, **options):
        """Any outcome of a Slurm command, as the user who runs the test."""
        return subprocess.run([*map(str, words)], env=self.environment, text=True, capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=timeout, **options)

    def client(self, *words, **options):
        """Its standard output; raises where it fails."""
        done = self.run(*words, **options)
        if done.returncode:
            raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def job(self, number):
        """What `scontrol show job` says of it, as a dict; empty where there is none."""
        done = self.run("scontrol", "show", "job", number, "-o")
        return dict(word.split("=", 1) for word in done.stdout.split() if "=" in word) if done.returncode == 0 else {}

    def wait_job(self, number, *states, timeout=180):
        """Until the job is in one of these states; returns what it is then."""
        deadline, job = time.monotonic() + timeout, {}
        while time.monotonic() < deadline:
            job = self.job(number)
            if job.get("JobState") in states:
                return job
            time.sleep(0.1)
        raise AssertionError(f"job {number} is {job.get('JobState')} ({job.get('Reason')}) after {timeout} s, expected {', '.join(states)}")

    def wait_node(self, name, *states, timeout=180):
        deadline, state = time.monotonic() + timeout, None
        while time.monotonic() < deadline:
            state = self.run("sinfo", "-h", "-n", name, "-o", "%T").stdout.split()[:1]
            if state and state[0] in states:
                return
            time.sleep(0.2)
        raise AssertionError(f"node {name} is {state} after {timeout} s, expected {', '.join(states)}")

