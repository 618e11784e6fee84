"""job.sh alone, as its tests start it: in a folder of its own, outside Slurm or with the variables that tell it of a Slurm job."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ.get("SWITCHYARD_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
SCRIPT = SOURCE / "daemon" / "exec" / "job.sh"


def start(run, *argv, modules=(), shell="/bin/sh", script=SCRIPT, **options):
    words = [word for module in modules for word in ("-m", module)]
    return subprocess.Popen([shell, script, run, *words, "--", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


def record(run, attempt=1):
    return json.loads((run / f"attempt-{attempt}" / "exit.json").read_text())


def check(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: {actual!r}, expected {expected!r}")


def in_slurm(**more):
    return {**os.environ, "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_RESTART_COUNT": "2", **more}


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def run_each(*tests):
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="switchyard job ") as folder:
            test(pathlib.Path(folder))
            print(f"ok {test.__name__}")
