#!/usr/bin/env python3
"""kill -9 of the daemon while runs are being submitted and started, at many moments: after it comes back, each run exists whole or not at
all, is started exactly once, and the next submission works."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import check_records, lines_of, tagged  # noqa: E402
from support import SWITCHYARD, TINY, Home  # noqa: E402

ENDED = ["succeeded", "failed", "cancelled", "timed_out", "lost"]
MOMENTS_MS = [0, 5, 10, 20, 30, 40, 50, 60, 80, 100, 130, 160, 200, 250, 300, 400, 600]
LATER_MS = [1000, 2000, 4000, 8000] # until one submission was accepted before the kill: on a slow machine none of those above is
TAIL = "checkpoint: {interval: 4, keep: 1}\nruns:"


def runs_of(home):
    listed = home.json("ls")
    return listed["runs"] if isinstance(listed, dict) else listed


def check_run(home, run):
    shown = home.wait_for(f"{run['project']}/{run['name']}", ENDED, 60)
    assert shown["state"] == "succeeded", f"{run['name']}: {shown['state']}: {shown['reason']}"
    directory = pathlib.Path(shown["directory"])
    assert [a["number"] for a in shown["attempts"]] == [1], shown["attempts"]
    assert [p.name for p in directory.glob("attempt-*")] == ["attempt-1"], "started more than once"
    assert len([1 for _, line in lines_of(directory) if line["kind"] == "start"]) == 1
    assert not tagged(shown["run_id"])
    if shown["kind"] == "train":
        assert check_records(home, shown) == (8, 0)


def left_behind():
    """What a killed daemon can leave at a run's place gives the name back; what is somebody else's keeps it."""
    with Home() as home:
        spec = home.spec()
        home.serve()
        project = home.home / "runs" / "tiny"
        home.cli("submit", spec, "--run", "dense", "--name", "pattern", "--set", "training.iterations=1")
        home.wait_for("pattern", ["succeeded"])
        (project / "dense-1").mkdir()
        for name in ("dense-2", "dense-3"):
            shutil.copytree(project / "pattern", project / name)
            shutil.rmtree(project / name / "attempt-1")
            (project / name / "more").write_text("of an orphan")
        run = json.loads((project / "dense-3" / "run.json").read_text())
        (project / "dense-3" / "run.json").write_text(json.dumps({**run, "home": "/elsewhere"}))
        for name in ("dense-1", "dense-2"):
            home.cli("submit", spec, "--run", "dense")
            shown = home.wait_for(name, ENDED)
            assert shown["state"] == "succeeded" and not (project / name / "more").exists(), shown
        done = home.cli("submit", spec, "--run", "dense", code=2)
        assert f"{project / 'dense-3'} is there already, and not a run of this daemon" in done.stderr, done.stderr
        assert (project / "dense-3" / "more").exists() and {p.name for p in project.glob(".new-*")} == set()
        print("ok: empty places and orphans give their names back, others keep theirs")


def main():
    left_behind()
    with Home() as home:
        spec = home.spec(TINY.replace("runs:", TAIL))
        counts = []
        for ms in MOMENTS_MS + LATER_MS:
            if ms in LATER_MS and max(counts) >= 2:
                break
            home.serve()
            before = {run["run_id"] for run in runs_of(home)}
            client = subprocess.Popen([SWITCHYARD, "submit", spec], env=home.environment, cwd=home.work, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(ms / 1000)
            home.stop(signal.SIGKILL)
            said = client.communicate(timeout=30)
            home.serve()
            new = [run for run in runs_of(home) if run["run_id"] not in before]
            assert len([run for run in new if run["kind"] == "train"]) in (0, 2), f"half a submission after {ms} ms: {new}"
            assert client.returncode != 0 or new, f"accepted, then forgotten: {said}"
            for run in new:
                check_run(home, run)
            counts.append(len(new))
            home.stop()
        home.serve()
        home.cli("submit", spec, "--run", "dense")
        for run in runs_of(home):
            check_run(home, run)
        places = {p.name for p in (home.home / "runs" / "tiny").iterdir()}
        assert places == {run["name"] for run in runs_of(home)}, f"left over: {places}"
        assert 0 in counts and max(counts) >= 2, f"the moments missed what they aim at: {counts}"
        print(f"ok: {len(counts)} kills, runs there afterwards: {counts}")


main()
