#!/usr/bin/env python3
"""A lost database: runs are taken in again from their directories, those that are over and one that still runs, with everything they
recorded; retry --failed; and a checkpoint's changed surroundings, accepted by name."""
import json
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import check_records, tagged, trackio_rows  # noqa: E402
from support import TINY, Home  # noqa: E402

LONG = ["--set", "training.iterations=1000000", "--set", "training.learning_rate.total_iterations=1000000",
        "--set", "checkpoint.interval=100", "--set", "checkpoint.keep=2", "--set", "training.validation.interval=0"]


def wait_step(home, name, step, limit=90):
    deadline = time.monotonic() + limit
    while home.json("show", name)["step"] < step:
        assert time.monotonic() < deadline, f"{name} never came to step {step}"
        time.sleep(0.2)


def check_eta(home):
    """The estimate goes by many steps: the last one alone may have taken ten times as long."""
    for _ in range(20):
        shown = home.json("show", "alive")
        estimate = shown["eta_seconds"] * 1000 / (shown["iterations"] - shown["step"])
        times = [row["step_time_ms"] for step, row, _ in trackio_rows(home.trackio, "tiny", shown["run_id"]) if step <= shown["step"]]
        assert min(times) * 0.999 <= estimate <= max(times) * 1.001, (estimate, min(times), max(times))
        if abs(estimate - shown["last"]["step_time_ms"]) > 1e-6 * estimate:
            return
        time.sleep(0.3)
    raise AssertionError("the estimate follows each step")


def forget(home):
    """The daemon's own database is gone; Trackio's and the run directories are not."""
    home.stop()
    for path in home.home.glob("switchyard.db*"):
        path.unlink()
    home.serve()
    assert home.json("ls")["runs"] == []


def nonsense(home):
    """What is no run is refused in words, and leaves no row behind that the daemon would stumble over."""
    home.cli("submit", home.spec(), "--run", "dense", "--name", "model")
    model = pathlib.Path(home.wait_for("model", ["succeeded"])["directory"])
    run, job = (json.loads((model / name).read_text()) for name in ("run.json", "job.json"))
    spec = run["spec"]
    cases = [({"spec": [1]}, job, "`spec` is not an object"), ({"spec": "text"}, job, "`spec` is not an object"),
             ({"plan": 5}, job, "`plan` is not an object"), ({"provenance": [1]}, job, "`provenance` is not an object"),
             ({"spec": {**spec, "checkpoint": 5}}, job, "`spec.checkpoint` is not an object"), ({"kind": "dance"}, job, "'dance'"),
             ({"kind": "tokenize"}, job, "lacks what it is made of"), ({"kind": "tokenize", "tokenize": 3}, job, "`tokenize` is not an object"),
             ({"name": "-x"}, job, "not one that a run has"), ({}, [1], "job.json is not a JSON object"), (None, job, "run.json is not a JSON object")]
    for number, (change, its_job, said) in enumerate(cases):
        directory = home.root / "nonsense" / str(number)
        shutil.copytree(model, directory)
        described = [1] if change is None else {**run, "run_id": f"{number:032x}", "name": f"nonsense-{number}", **change}
        (directory / "run.json").write_text(json.dumps(described))
        (directory / "job.json").write_text(json.dumps(its_job))
        refused = home.run("adopt", directory)
        assert refused.returncode == 3 and said in refused.stderr, (change, refused.stderr)
    for directory, said in ((home.root, "run.json: No such file"), (model / "checkpoints", "run.json: No such file"), (home.root / "none", "none")):
        refused = home.run("adopt", directory)
        assert refused.returncode == 3 and f"{directory} is no run directory" in refused.stderr and said in refused.stderr, refused.stderr
    assert not [row["name"] for row in home.json("ls")["runs"] if row["name"].startswith(("nonsense", "-"))], "a row was left"


def adopted(home):
    home.cli("submit", home.spec(), "--run", "moe", "--name", "done", "--set", "checkpoint.interval=2")
    done = home.wait_for("done", ["succeeded"])
    home.cli("submit", home.spec(), "--run", "dense", "--name", "alive", *LONG)
    wait_step(home, "alive", 20)
    alive = home.json("show", "alive")
    check_eta(home)
    rows = trackio_rows(home.trackio, "tiny", done["run_id"])
    forget(home)
    for word in ("nonsense", "", "7x", "-"):
        begun = time.monotonic()
        refused = home.run("adopt", "--", word)
        assert refused.returncode == 3 and "no run directory, and neither" in refused.stderr, refused
        assert time.monotonic() - begun < 15, "a scheduler was waited for, and there is none"
    refused = home.run("adopt", home.work)
    assert refused.returncode == 3 and "run.json" in refused.stderr, refused
    for shown in (done, alive):
        said = home.cli("adopt", shown["directory"]).stdout
        assert said == f"adopted tiny/{shown['name']}\n", said
    again = home.run("adopt", done["directory"])
    assert again.returncode == 3 and "known already, as tiny/done" in again.stderr, again
    back = home.wait_for("done", ["succeeded"])
    for member in ("run_id", "directory", "iterations", "plan", "executor", "kind", "last"):
        assert back[member] == done[member], (member, back[member], done[member])
    assert trackio_rows(home.trackio, "tiny", done["run_id"]) == rows, "rows were doubled or lost"
    assert [(a["number"], a["state"], a["code"]) for a in back["attempts"]] == [(1, "succeeded", 0)], back["attempts"]
    check_records(home, back)
    assert home.wait_for("alive", ["running"])["run_id"] == alive["run_id"] and tagged(alive["run_id"])
    wait_step(home, "alive", alive["step"] + 20)
    home.cli("cancel", "alive")
    shown = home.wait_for("alive", ["cancelled"], 60)
    assert shown["attempts"][0]["code"] == 75 and not tagged(alive["run_id"]), shown["attempts"]
    check_records(home, shown)
    listed = home.json("adopt", timeout=60) if shutil.which("squeue") is None else {"jobs": []}
    assert listed["jobs"] == []


def failed(home):
    """Two fail, one is cancelled: --failed brings back the two, by their stored words."""
    broken = home.work / "broken"
    broken.with_suffix(".bin").write_bytes(b"x")
    broken.with_suffix(".idx").write_bytes(b"x")
    spec = home.spec(TINY.replace("text: corpus.txt", "prefix: broken"), "broken.yaml")
    for name in ("one", "two"):
        home.cli("submit", spec, "--run", "dense", "--name", name)
        home.wait_for(name, ["failed"])
    before = [(pathlib.Path(home.json("show", name)["directory"]) / "job.json").read_text() for name in ("one", "two")]
    said = home.cli("retry", "--failed", "tiny").stdout
    assert sorted(said.split("\n")[:-1]) == ["retrying tiny/one", "retrying tiny/two"], said
    for name, text in zip(("one", "two"), before):
        shown = home.wait_for(name, ["failed"])
        assert len(shown["attempts"]) == 2, shown["attempts"]
        job = json.loads((pathlib.Path(shown["directory"]) / "attempt-2" / "job.json").read_text())
        for member in ("argv", "environment", "options", "modules"):
            assert job.get(member) == json.loads(text).get(member), (member, job)
    assert home.json("show", "alive")["state"] == "cancelled"
    assert home.cli("retry", "--failed", "--submission", "one").stdout == "retrying tiny/one\n"
    assert len(home.wait_for("one", ["failed"])["attempts"]) == 3 and len(home.json("show", "two")["attempts"]) == 2
    assert "no run of that submission has failed" in home.cli("retry", "--failed", "--submission", "alive").stderr
    for words in (("--submission", "one"), ("--failed", "tiny", "--submission", "one"), ("--failed", "--submission", "a b")):
        assert home.run("retry", *words).returncode == 2, words
    assert "no run of project nothing has failed" in home.cli("retry", "--failed", "nothing").stderr
    assert home.run("retry").returncode == 2 and home.run("retry", "--failed", "a/b").returncode == 2


def accepted(home):
    """The schedule of a cancelled run is another one: it does not go on, until that is accepted."""
    shown = home.json("show", "alive")
    path = pathlib.Path(shown["directory"]) / "run.json"
    whole = json.loads(path.read_text())
    whole["spec"]["training"]["learning_rate"]["peak"] = 5e-4
    path.write_text(json.dumps(whole))
    home.cli("retry", "alive")
    refused = home.wait_for("alive", ["failed"])
    assert "accept_changed" in refused["reason"], refused["reason"]
    wrong = home.run("retry", "alive", "--accept-changed", "shedule")
    assert wrong.returncode == 3 and "one of data, schedule, model" in wrong.stderr, wrong
    path.write_text("[1]")
    broken = home.run("retry", "alive", "--accept-changed", "schedule")
    assert broken.returncode == 3 and "not a JSON object" in broken.stderr, broken
    path.write_text(json.dumps(whole))
    step = refused["step"]
    home.cli("retry", "alive", "--accept-changed", "schedule")
    wait_step(home, "alive", step + 1)
    assert home.json("show", "alive")["spec"]["checkpoint"]["accept_changed"] == ["schedule"]
    home.cli("cancel", "alive")
    done = home.wait_for("alive", ["cancelled"], 60)
    assert done["step"] > step and len(done["attempts"]) == 3, (done["step"], step, done["attempts"])
    # By what was accepted, not by what it was before; and `show` says what it trains by.
    assert done["last"]["learning_rate"] == 5e-4 and done["spec"]["training"]["learning_rate"]["peak"] == 5e-4, done["last"]


def refused(home):
    """What no acceptance makes possible, and a description that is none, are refused when they are asked for, not by a job that fails."""
    shown = home.json("show", "alive")
    path = pathlib.Path(shown["directory"]) / "run.json"
    before = path.read_text()
    for part, value, words in (("hidden_size", 64, "its model.embed_tokens.weight is 257 × 32, and this model's 257 × 64"),
                               ("layers", 3, "there is no model.layers.2.input_layernorm.weight in it"), ("layers", "many", "model.layers"), (None, 5, "not a JSON object")):
        whole = json.loads(before)
        whole["spec"] = value if part is None else whole["spec"]
        if part:
            whole["spec"]["model"][part] = value
        path.write_text(json.dumps(whole))
        for options in ([], ["--accept-changed", "model"]):
            said = home.cli("retry", "alive", *options, code=3).stderr
            assert words in said, said
            assert ("whatever is accepted" in said) == (value in (64, 3)), said
    assert home.json("show", "alive")["state"] == "cancelled" and len(home.json("show", "alive")["attempts"]) == 3
    # fp16 has a state that the checkpoint lacks: it begins anew, once the change is accepted.
    whole = json.loads(before)
    whole["spec"]["training"].update(precision="fp16", iterations=whole["spec"]["training"]["iterations"])
    path.write_text(json.dumps(whole))
    home.cli("retry", "alive", "--accept-changed", "schedule")
    wait_step(home, "alive", shown["step"] + 1)
    home.cli("cancel", "alive")
    done = home.wait_for("alive", ["cancelled"], 60)
    # Who wants to start from it is shown the way: it has not succeeded, but what it saved is there.
    start = ("submit", home.spec(TINY), "--run", "dense", "--set")
    said = home.cli(*start, "model.from.run=alive", code=2).stderr
    saved = max((pathlib.Path(shown["directory"]) / "checkpoints").glob("step-*[0-9]"))
    words = f"model.from.run: {done['project']}/alive is cancelled; `model.from: {{path: {saved}}}` starts from its last checkpoint, of step {int(saved.name[5:])}, all the same"
    assert words in said, said
    home.cli(*start, f"model.from.path={saved}", "--name", "heir")
    assert home.wait_for("heir", ["succeeded", "failed"], 60)["state"] == "succeeded"
    assert done["last"]["loss_scale"] <= 2.0**32 and done["spec"]["training"]["precision"] == "fp16", done["last"]


def of_another(home):
    """A run that another home's daemon looks after is not taken by a second one; when that daemon has ended, it is, and then it is the first
    one's no more: not what runs, and not what waits. Who wants it back tries it again there, once the second daemon has ended too."""
    home.cli("submit", home.spec(), "--run", "dense", "--name", "shared", *LONG)
    wait_step(home, "shared", 1)
    home.cli("submit", home.spec(), "--run", "dense", "--name", "waits", *LONG, "--set", "resources.threads_per_rank=4096")
    shown = {name: home.json("show", name) for name in ("shared", "waits")}
    assert shown["waits"]["state"] == "queued", shown["waits"]["state"]
    with Home() as second:
        second.serve()
        for name in shown:
            refused = second.run("adopt", shown[name]["directory"])
            assert refused.returncode == 3 and f"belongs to the home {home.home}, whose daemon runs" in refused.stderr, refused
        assert second.json("ls")["runs"] == []
        home.stop()
        for name in shown:
            assert second.cli("adopt", shown[name]["directory"]).stdout == f"adopted tiny/{name}\n"
        second.wait_for("shared", ["running"])
        home.serve()
        for name in shown:
            left = home.wait_for(name, ["lost"])
            assert f"the home {second.home} has adopted it" in left["reason"], left["reason"]
            refused = home.run("retry", name)
            assert refused.returncode == 3 and f"belongs to the home {second.home}, whose daemon runs" in refused.stderr, refused
        for name in ("waits", "shared"):
            second.cli("cancel", name)
        there = second.wait_for("shared", ["cancelled"], 60)
        time.sleep(3)
        assert home.json("show", "shared")["state"] == "lost" and not tagged(there["run_id"]), "it was begun once more"
        second.stop()
        home.cli("retry", "shared")
        wait_step(home, "shared", there["step"] + 1)
        home.cli("cancel", "shared")
        back = home.wait_for("shared", ["cancelled"], 60)
        assert [attempt["state"] for attempt in back["attempts"]] == ["lost", "cancelled"], back["attempts"]
        check_records(home, back)
        second.serve()
        assert second.json("show", "shared")["state"] == "cancelled"


with Home() as home:
    home.serve()
    for part in (adopted, failed, accepted, refused, nonsense, of_another):
        part(home)
        print(f"ok  {part.__name__}", flush=True)
