#!/usr/bin/env python3
"""The Slurm executor against a real cluster: executor.c plays the stories, this starts the cluster. Words: only these stories."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from testbed import SCRIPT, Cluster, skip_without_cluster, without_cluster

# Ended jobs leave squeue's list soon, so that the story of a purged one is a short one. In the story of the forgetful controller a script's end
# takes its node a while: until then it takes no other job of that number.
CONFIGURATION = "MinJobAge=20\nTaskEpilog=%s\n"
EPILOG = """#!/bin/sh
case ${SLURM_JOB_NAME:-} in stories.forgetful-*) sleep 4 ;; esac
"""

# A site's wrapper that makes two jobs of one call, in the stories that are about it. It says what the real sbatch said first, or last.
WRAPPER = """#!/bin/sh
real=%s
case " $* " in
*" --job-name=stories.twins "*) "$real" "$@" >/dev/null && exec "$real" "$@" ;;
*" --job-name=stories.twin-held-first "*) "$real" --hold "$@" && "$real" "$@" >/dev/null; exit ;;
*" --job-name=stories.twin-held-last "*) "$real" "$@" >/dev/null && exec "$real" --hold "$@" ;;
esac
exec "$real" "$@"
"""


def main():
    skip_without_cluster()
    program = pathlib.Path(os.environ["SWITCHYARD_BIN"]) / "test_slurm_executor"
    with tempfile.TemporaryDirectory(prefix="switchyard-stories-") as folder:
        os.chmod(folder, 0o755)
        accounting = without_cluster(accounting=True) is None
        tools = pathlib.Path(folder) / ".tools"
        tools.mkdir()
        (tools / "epilog").write_text(EPILOG)
        (tools / "epilog").chmod(0o755)
        with Cluster(nodes=5, accounting=accounting, configuration=CONFIGURATION % (tools / "epilog")) as cluster:
            print(f"accounting: {'yes' if accounting else 'no'}", flush=True)
            (tools / "sbatch").write_text(WRAPPER % shutil.which("sbatch", path=cluster.environment["PATH"]))
            (tools / "sbatch").chmod(0o755)
            environment = {**cluster.environment, "PATH": f"{tools}:{cluster.environment['PATH']}"}
            subprocess.run([program, SCRIPT, cluster.directory, folder, *sys.argv[1:]], env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
