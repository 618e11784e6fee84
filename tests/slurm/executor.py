#!/usr/bin/env python3
"""The Slurm executor against a real cluster: executor.c plays the stories, this starts the cluster. Words: only these stories."""
import os
import pathlib
import subprocess
import sys
import tempfile

from testbed import SCRIPT, Cluster, skip_without_cluster, without_cluster

# Ended jobs leave squeue's list soon, so that the story of a purged one is a short one.
CONFIGURATION = "MinJobAge=20\n"


def main():
    skip_without_cluster()
    program = pathlib.Path(os.environ["SWITCHYARD_BIN"]) / "test_slurm_executor"
    with tempfile.TemporaryDirectory(prefix="switchyard-stories-") as folder:
        os.chmod(folder, 0o755)
        accounting = without_cluster(accounting=True) is None
        with Cluster(nodes=5, accounting=accounting, configuration=CONFIGURATION) as cluster:
            print(f"accounting: {'yes' if accounting else 'no'}", flush=True)
            subprocess.run([program, SCRIPT, cluster.directory, folder, *sys.argv[1:]], env=cluster.environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
