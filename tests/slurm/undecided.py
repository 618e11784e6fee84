#!/usr/bin/env python3
"""Runs whose sbatch does not say whether there is a job: they say what it says, and they can be cancelled. Scripts stand in for the commands."""
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from support import TINY, Home  # noqa: E402

LIMIT = 90
HEAD = TINY.split("runs:")[0]
SPEC = HEAD.replace("project: tiny\n", "project: tiny\nexecutor: slurm\n")
LIMITED = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (MaxSubmitJobsPerUser limit)"
COMMANDS = {
    # How often it was called is the length of a file; with `silent` there it makes a job and says nothing.
    "sbatch": f"""echo >>calls
if [ -e silent ]; then
    for word; do case $word in --comment=*) mark=${{word#--comment=}} ;; --chdir=*) place=${{word#--chdir=}} ;; esac; done
    printf '7\\037PENDING\\0370\\0370\\037N/A\\0370:00\\037\\037Priority\\037%s\\037name\\037%s\\n' "$mark" "$place" >jobs
    exit 0
fi
echo '{LIMITED}' >&2
exit 1
""",
    "squeue": "cat jobs\n",
    "scancel": 'for word; do echo "$word" >>cancelled; done; : >jobs\n',
    "sacct": "echo 'Slurm accounting storage is disabled' >&2; exit 1\n",
}


def put_commands(home):
    place = home.root / "slurm"
    place.mkdir()
    (place / "jobs").touch()
    for name, script in COMMANDS.items():
        (place / name).write_text(f"#!/bin/sh\ncd '{place}'\n{script}")
        (place / name).chmod(0o755)
    home.environment["PATH"] = f"{place}:{home.environment['PATH']}"
    return place


def wait_until(what, predicate):
    deadline = time.monotonic() + LIMIT
    while not predicate():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.2)


def check_cancelled(home, name):
    home.cli("cancel", name)
    shown = home.wait_for(name, ["cancelled"], LIMIT)
    assert shown["reason"] == "cancelled before it was handed over", shown["reason"]
    assert [(a["state"], a["ended"] is not None) for a in shown["attempts"]] == [("cancelled", True)], shown["attempts"]


def says_why(home, place):
    home.cli("submit", home.spec(SPEC), "--name", "limited")
    wait_until("sbatch's own words", lambda: "MaxSubmitJobsPerUser" in (home.json("show", "limited")["pending_reason"] or ""))
    assert home.json("show", "limited")["state"] == "submitted"
    check_cancelled(home, "limited")
    calls = (place / "calls").stat().st_size
    time.sleep(5)
    assert (place / "calls").stat().st_size == calls, "sbatch is called for a run that is over"
    assert not (place / "cancelled").exists(), "a job that there is not was cancelled"


def silence(place):
    (place / "squeue").rename(place / "squeue.away")
    (place / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n")
    (place / "squeue").chmod(0o755)


def says_silence(home, place):
    """Whoever submits is told that Slurm does not answer at present."""
    (place / "silent").unlink()
    assert "has not answered" not in home.cli("submit", home.spec(SPEC), "--name", "early").stderr
    silence(place)
    wait_until("its silence", lambda: home.ask("/api/v1/health")["scheduler"]["silent_since"])
    told = home.cli("submit", home.spec(SPEC), "--name", "late").stderr
    assert "\nSlurm has not answered since " in told and told.endswith(" UTC: the daemon hands the runs over when it does\n"), told
    told = home.run("adopt", timeout=LIMIT).stderr
    assert told.startswith("Slurm has not answered since ") and "Unable to contact slurm controller" in told, told
    (place / "squeue.away").rename(place / "squeue")
    told = home.run("cancel", "--submission", "early", "--project", "tiny").stderr
    assert told == "switchyard: cancel needs one of: runs, --submission RUN, --project NAME\n", told
    assert home.cli("cancel", "--submission", "early").stdout == "stopping 1 run\n"
    home.wait_for("early", ["cancelled"], LIMIT)
    check_cancelled(home, "late")


def ends_what_came(home, place):
    (place / "silent").touch()
    silence(place)  # what has come of it is not known
    home.cli("submit", home.spec(SPEC), "--name", "silent")
    wait_until("sbatch was called", lambda: (place / "jobs").stat().st_size > 0)
    time.sleep(1)
    home.cli("cancel", "silent")
    time.sleep(5)
    shown = home.json("show", "silent")
    assert shown["state"] == "submitted" and "as soon as its scheduler answers" in shown["reason"], "over, though its job may be there: " + shown["reason"]
    (place / "squeue.away").rename(place / "squeue")
    check_ended = home.wait_for("silent", ["cancelled"], LIMIT)
    assert check_ended["reason"] == "cancelled before it was handed over", check_ended["reason"]
    words = (place / "cancelled").read_text().split() if (place / "cancelled").exists() else []
    assert [word for word in words if word.isdigit()] == ["7"], f"its job was left there: {words}"


def main():
    with Home(prefix="switchyard-slurm-undecided-") as home:
        place = put_commands(home)
        home.serve()
        home.cli("submit", home.spec(HEAD, "data.yaml"))  # on this machine: the data of all others
        home.wait_for("data-1", ["succeeded"])
        for part in (says_why, ends_what_came, says_silence):
            part(home, place)
            print(f"ok  {part.__name__}", flush=True)


main()
