#!/usr/bin/env python3
"""What a person does with runs: queue, cancel, time limit, retry, needs, a daemon that goes and comes; and what must be refused whole."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import by_role, check_records, lines_of, send, tagged, trackio_rows  # noqa: E402
from support import FAULTS, TINY, Home  # noqa: E402

LONG = ["--set", "training.iterations=100000", "--set", "training.learning_rate.total_iterations=100000",
        "--set", "checkpoint.interval=200", "--set", "checkpoint.keep=2", "--set", "training.validation.interval=0"]
ENDED = ["succeeded", "failed", "cancelled", "timed_out", "lost"]


def submit(home, *options, run="dense", text=TINY, code=0):
    done = home.cli("submit", home.spec(text), "--run", run, *options, code=code)
    return done.stdout + done.stderr


def steps(home, name):
    shown = home.json("show", name)
    return [step for step, _, _ in trackio_rows(home.trackio, shown["project"], shown["run_id"])]


def get(home, path):
    address = json.loads((home.home / "daemon.json").read_text())
    request = urllib.request.Request(address["url"] + path, headers={"Authorization": "Bearer " + address["token"]})
    return json.load(urllib.request.urlopen(request, timeout=30))


def wait_step(home, name, step, limit=60):
    deadline = time.monotonic() + limit
    while home.json("show", name)["step"] < step:
        assert time.monotonic() < deadline, f"{name} never came to step {step}"
        time.sleep(0.1)


def tree(home):
    return sorted(str(p.relative_to(home.home)) for p in (home.home / "runs").rglob("*")) if (home.home / "runs").exists() else []


def listed(home):
    runs = home.json("ls")
    return sorted(run["name"] for run in (runs["runs"] if isinstance(runs, dict) else runs))


def test_one_daemon_a_home(home):
    again = home.run("serve", "--port", "0")
    assert again.returncode == 3 and str(home.daemon.pid) in again.stderr, (again.returncode, again.stderr)
    assert home.run("ls").returncode == 0


def refused(home, *options, says, **keywords):
    before = listed(home), tree(home)
    done = home.run("submit", home.spec(keywords.get("text", TINY)), "--run", "dense", *options)
    assert done.returncode in (2, 3), (done.returncode, done.stdout, done.stderr)
    assert says in done.stderr, f"'{says}' is not in: {done.stderr}"
    assert (listed(home), tree(home)) == before, "something was left behind"


def test_refused_whole(home):
    refused(home, "--set", "data.text=/nowhere/corpus.txt", says="/nowhere/corpus.txt")
    (home.work / "blocked").write_text("a file")
    refused(home, "--set", f"output={home.work}/blocked", says="blocked")
    refused(home, "--set", "output=/proc/switchyard-runs", says="/proc/switchyard-runs")
    refused(home, "--set", f"data.text={home.work}", says="is not a file")
    refused(home, "--set", "model.from.run=nobody", says="nobody")
    refused(home, "--set", f"model.from.path={home.work}", says="neither a complete checkpoint")
    foreign = home.home / "runs" / "tiny" / "dense-1"
    foreign.mkdir(parents=True)
    (foreign / "mine").write_text("keep")
    refused(home, says=str(foreign))
    assert (foreign / "mine").read_text() == "keep"
    (foreign / "mine").unlink()
    # What a daemon of this home left that was killed between placing a run and storing it: taken over.
    (foreign / "run.json").write_text(json.dumps({"home": str(home.home), "run_id": "0" * 32}))
    submit(home)
    assert home.wait_for("dense-1", ENDED)["state"] == "succeeded"


def test_queue_and_cancel(home):
    submit(home, *LONG, "--set", "resources.threads_per_rank=2")
    home.wait_for("dense-2", ["running"])
    submit(home, *LONG, run="moe")
    time.sleep(0.6)
    assert home.json("show", "moe-1")["state"] == "queued"
    home.cli("cancel", "moe-1")
    assert home.json("show", "moe-1")["state"] == "cancelled"
    assert not pathlib.Path(home.json("show", "moe-1")["directory"], "attempt-1").exists()
    wait_step(home, "dense-2", 20)
    home.cli("cancel", "dense-2")
    shown = home.wait_for("dense-2", ENDED, 20)
    assert shown["state"] == "cancelled" and "after saving" in shown["reason"], shown["reason"]
    assert shown["attempts"][0]["code"] == 75 and not tagged(shown["run_id"])
    assert [e["witness"] for e in shown["events"] if e["kind"] == "cancel"] == ["user"]
    assert home.run("cancel", "dense-2").returncode != 0
    check_records(home, shown)


def test_retry_goes_on(home):
    """The cancelled run of the test before goes on from its last step, as a second attempt."""
    saved = max(steps(home, "dense-2"))
    home.cli("retry", "dense-2")
    wait_step(home, "dense-2", saved + 5)
    home.cli("cancel", "dense-2")
    shown = home.wait_for("dense-2", ENDED, 20)
    got = steps(home, "dense-2")
    assert got == list(range(1, max(got) + 1)), "steps are missing or doubled"
    assert [a["number"] for a in shown["attempts"]] == [1, 2]
    starts = [line for _, line in lines_of(shown["directory"]) if line["kind"] == "start"]
    assert starts[1]["resumed_from"] == saved
    check_records(home, shown)


def test_deaf_job_is_killed(home):
    submit(home, *LONG)
    shown = home.wait_for("dense-3", ["running"])
    wait_step(home, "dense-3", 3)
    send(by_role(shown["run_id"])["rank"], signal.SIGSTOP)
    start = time.monotonic()
    home.cli("cancel", "dense-3")
    shown = home.wait_for("dense-3", ENDED, 30)
    assert shown["state"] == "cancelled" and 9 < time.monotonic() - start < 25, (shown["state"], time.monotonic() - start)
    assert not tagged(shown["run_id"])
    check_records(home, shown)


def test_time_limit(home):
    """Of the run, not of a daemon: one is killed on the way, the next one goes on counting."""
    submit(home, *LONG, "--set", "resources.time_limit=4s")
    home.wait_for("dense-4", ["running"])
    home.stop(signal.SIGKILL)
    time.sleep(1.5)
    home.serve()
    shown = home.wait_for("dense-4", ENDED, 30)
    begun, over = json.loads(pathlib.Path(shown["directory"], "attempt-1", "exit.json").read_text())["uptime"]
    assert 4 <= over - begun < 8, f"ran {over - begun} s"
    assert shown["state"] == "timed_out" and "time limit" in shown["reason"], (shown["state"], shown["reason"])
    assert shown["attempts"][0]["code"] == 75
    check_records(home, shown)


def test_oversubscribed_runs_alone(home):
    submit(home, *LONG)
    home.wait_for("dense-5", ["running"])
    cores = len(os.sched_getaffinity(0))
    said = submit(home, "--set", f"resources.ranks_per_node={2 * cores}", "--set", "training.micro_batch_size=1",
                  "--set", f"training.global_batch_size={4 * cores}")
    assert said.count(f"{2 * cores} ranks of 1 thread want {2 * cores} cores, and this machine has {cores}: it runs alone, oversubscribed") == 1, said
    time.sleep(0.6)
    assert home.json("show", "dense-6")["state"] == "queued"
    home.cli("cancel", "dense-5")
    shown = home.wait_for("dense-6", ENDED)
    assert shown["state"] == "succeeded", shown["reason"]
    assert any(e["kind"] == "warning" and "oversubscribed" in e["reason"] for e in shown["events"])
    assert "--oversubscribe" in shown["argv"] and shown["argv"][shown["argv"].index("--bind-to") + 1] == "none"
    check_records(home, shown)


def test_daemon_comes_and_goes(home):
    """TERM leaves the job running; the next daemon finds it, and nothing that it wrote meanwhile is lost."""
    submit(home, *LONG)
    wait_step(home, "dense-7", 5)
    run_id = home.json("show", "dense-7")["run_id"]
    start = time.monotonic()
    home.stop()
    assert time.monotonic() - start < 5, "TERM took too long"
    before = tagged(run_id)
    time.sleep(1)
    assert set(tagged(run_id)) == set(before) and before, "the job did not outlive its daemon"
    home.serve()
    shown = home.json("show", "dense-7")
    assert shown["state"] == "running" and set(tagged(run_id)) == set(before)
    wait_step(home, "dense-7", shown["step"] + 5)
    home.cli("cancel", "dense-7")
    shown = home.wait_for("dense-7", ENDED, 20)
    assert shown["attempt"] == 1
    check_records(home, shown)
    loss = get(home, "/api/v1/runs/tiny/dense-7/metrics?names=loss&points=20000")["metrics"]["loss"]
    assert loss["total"] == shown["step"], f"the curve has {loss['total']} of {shown['step']} points after the restart"


def test_several_ranks_stop_together(home):
    submit(home, *LONG, "--set", "resources.ranks_per_node=2")
    wait_step(home, "dense-8", 20)
    start = time.monotonic()
    home.cli("cancel", "dense-8")
    shown = home.wait_for("dense-8", ENDED, 20)
    assert shown["state"] == "cancelled" and shown["attempts"][0]["code"] == 75 and shown["attempts"][0]["signal"] is None, shown["attempts"]
    assert shown["argv"][0] == "mpirun" and time.monotonic() - start < 8
    check_records(home, shown)


def test_noise_starves_nobody(home):
    """A run whose records grow by 300 MB at once is read bit by bit; another one comes and goes meanwhile."""
    submit(home, *LONG)
    wait_step(home, "dense-9", 3)
    shown = home.json("show", "dense-9")
    line = json.dumps({"kind": "noise", "v": 1, "run_id": shown["run_id"], "step": 0, "text": "x" * 100000}) + "\n"
    records = pathlib.Path(shown["directory"], "attempt-1", "records.jsonl")
    with open(records, "ab", buffering=0) as noisy:
        for i in range(3000):
            noisy.write(line.replace('"step": 0', f'"step": {i}').encode())
    submit(home)
    start = time.monotonic()
    assert home.wait_for("dense-10", ENDED, 30)["state"] == "succeeded"
    took = time.monotonic() - start
    offset = home.json("show", "dense-9")["attempts"][0]["ingest_offset"]
    assert offset < records.stat().st_size - 1000000, f"the noise was read before the other run could end ({took:.1f} s)"
    home.cli("cancel", "dense-9")
    shown = home.wait_for("dense-9", ENDED, 90)
    assert shown["state"] == "cancelled" and shown["attempts"][0]["ingest_offset"] == records.stat().st_size
    check_records(home, shown)


def test_malformed_lines(home):
    submit(home, *LONG)
    wait_step(home, "dense-11", 3)
    shown = home.json("show", "dense-11")
    stranger = {"kind": "metric", "v": 1, "project": "other", "run": "x", "run_id": "f" * 32, "metrics": {"loss": 1}, "step": 1,
                "timestamp": "2026-01-01T00:00:00.000000+00:00", "config": None, "log_id": "e" * 32}
    with open(pathlib.Path(shown["directory"], "attempt-1", "records.jsonl"), "ab") as records:
        for raw in (b"not json\n", b'{"kind": "metric", "v":1}\n', b"[1,2]\n", b"\xff\xfe\n", json.dumps(stranger).encode() + b"\n"):
            records.write(raw)
            records.flush()
    wait_step(home, "dense-11", home.json("show", "dense-11")["step"] + 5)
    home.cli("cancel", "dense-11")
    shown = home.wait_for("dense-11", ENDED, 20)
    assert len(shown["kept_aside"]) == 5, shown["kept_aside"]
    assert len([e for e in shown["events"] if e["kind"] == "malformed"]) == 1
    got = steps(home, "dense-11")
    assert got == list(range(1, max(got) + 1))
    assert not pathlib.Path(home.trackio, "other.db").exists()


def test_needs(home):
    text = TINY.replace("  moe:\n    model: {moe:", "  moe:\n    model: {from: {run: dense, upcycle: {}}, moe:")
    home.cli("submit", home.spec(text), *LONG)
    home.wait_for("dense-12", ["running"])
    shown = home.json("show", "moe-2")
    assert shown["state"] == "queued" and shown["needs"] == [{"run": "tiny/dense-12", "state": "running"}], shown["needs"]
    home.cli("cancel", "dense-12")
    shown = home.wait_for("moe-2", ENDED, 20)
    assert shown["state"] == "failed" and "dense-12" in shown["reason"] and "cancelled" in shown["reason"], shown["reason"]
    assert not pathlib.Path(shown["directory"], "attempt-1").exists()


def test_bad_data(home):
    dataset = next((home.home / "datasets").glob("*/data.bin"))
    for end in (".bin", ".idx"):
        (home.work / f"bad{end}").write_bytes(dataset.with_suffix(end).read_bytes())
    (home.work / "bad.bin").write_bytes(dataset.read_bytes()[:100])
    submit(home, "--set", f"data.prefix={home.work}/bad", text=TINY.replace("text: corpus.txt, ", ""))
    shown = home.wait_for("dense-13", ENDED, 20)
    assert shown["state"] == "failed" and shown["attempts"][0]["code"] == 2 and "bad.bin" in shown["reason"], shown["reason"]


def test_killed_when_all_was_saved(home):
    """Between its last checkpoint and its last word: the next attempt begins by itself, has nothing to train, and says so."""
    variables = f"environment: {{variables: {{LD_PRELOAD: '{FAULTS}', FAULT_KILLED_AFTER: step-0000008/complete.json, ASAN_OPTIONS: verify_asan_link_order=0}}}}\n"
    submit(home, "--name", "all-saved", text=TINY + "\ncheckpoint: {interval: 4, keep: 2}\n" + variables)
    shown = home.wait_for("all-saved", ENDED, 60)
    assert shown["state"] == "succeeded" and [a["state"] for a in shown["attempts"]] == ["requeued", "succeeded"], (shown["state"], shown["reason"], shown["attempts"])
    assert any("all steps are done and saved, but attempt 1 ended before it said so (killed by signal 9" in (e["reason"] or "") for e in shown["events"])
    assert check_records(home, shown) == (8, 0), check_records(home, shown)
    host = os.uname().nodename
    assert all(attempt["nodes"] == [host] for attempt in shown["attempts"]), shown["attempts"]


def test_logs_stay_inside(home):
    shown = home.json("show", "dense-2")
    assert "step" in home.cli("logs", "dense-2", "--stderr").stdout
    log = pathlib.Path(shown["directory"], "attempt-2", "stderr.log")
    log.rename(log.with_suffix(".kept"))
    (home.work / "secret").write_text("a secret of somebody else\n")
    log.symlink_to(home.work / "secret")
    done = home.run("logs", "dense-2", "--stderr")
    assert done.returncode != 0 and "secret of" not in done.stdout, done.stdout
    log.unlink()
    os.mkfifo(log)
    done = home.run("logs", "dense-2", "--stderr", timeout=20)
    assert done.returncode != 0


def test_variables(home):
    """They reach the job as they are, and are masked where they are shown."""
    text = TINY.replace("runs:", "environment: {variables: {MY_TOKEN: 'hush $$(touch evil)', PLAIN: 'a b;c'}}\nruns:")
    submit(home, *LONG, text=text)
    shown = home.wait_for("dense-14", ["running"])
    rank = by_role(shown["run_id"])["rank"][0]
    environment = pathlib.Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
    assert b"MY_TOKEN=hush $(touch evil)" in environment and b"PLAIN=a b;c" in environment
    assert f"SWITCHYARD_TAG={shown['run_id']}".encode() in environment and b"SWITCHYARD_ATTEMPT=1" in environment
    assert "hush" not in json.dumps(shown) and "a b;c" in json.dumps(shown)
    home.cli("cancel", "dense-14")
    home.wait_for("dense-14", ENDED, 20)
    assert b"hush" not in pathlib.Path(home.trackio, "tiny.db").read_bytes()
    assert not list(home.root.rglob("evil"))


def test_many_checkpoints(home):
    """A long run's checkpoints are one line, and leave in view what else happened to it; of more than a thousand events the oldest of them are left out."""
    submit(home, *LONG, "--set", "checkpoint.interval=100000", "--name", "saves")
    shown = home.wait_for("saves", ["running"])
    other = {"kind": "event", "v": 1, "run_id": shown["run_id"], "event": "resting", "text": "a rest"}
    saved = lambda first, last: [{"kind": "checkpoint", "v": 1, "run_id": shown["run_id"], "step": step, "directory": "x", "bytes": 1} for step in range(first, last)]
    with open(pathlib.Path(shown["directory"], "attempt-1", "records.jsonl"), "ab", buffering=0) as records:
        records.write(b"".join(json.dumps(line).encode() + b"\n" for line in saved(1, 1201) + [other] + saved(1201, 1501)))
    deadline = time.monotonic() + 30
    while "of step 1500 " not in (shown["events"][-1]["reason"] or ""):
        assert time.monotonic() < deadline, shown["events"][-3:]
        shown = home.json("show", "saves")
    others = [event for event in shown["events"] if event["kind"] != "checkpoint"]
    assert [event["to"] for event in others][-2:] == ["running", None] and "resting" == others[-1]["kind"], others
    assert shown["events"][-1]["step"] == 1500 and len(shown["events"]) == 1000 and shown["events_left_out"] == {"checkpoints": 500 + len(others), "others": 0}, shown["events_left_out"]
    lines = [line.split("  ", 1)[1] for line in home.cli("show", "saves").stdout.split("\nEvents\n")[1].splitlines()]
    assert lines[0] == f"(and {500 + len(others)} checkpoints before those that are counted here)" and len(lines) == len(others) + 3, lines
    said = [" ".join(line.split("  ")[1:]).split() for line in lines[-3:]]
    assert " ".join(said[0]) == f"checkpoint {700 - len(others)} checkpoints, the last at step 1200 (heartbeat)", lines
    assert " ".join(said[1]).startswith("resting a rest"), lines
    assert " ".join(said[2]) == "checkpoint 300 checkpoints, the last at step 1500 (heartbeat)", lines
    home.cli("cancel", "saves")
    home.wait_for("saves", ENDED, 20)


TESTS = [test_one_daemon_a_home, test_refused_whole, test_queue_and_cancel, test_retry_goes_on, test_deaf_job_is_killed, test_time_limit,
         test_oversubscribed_runs_alone, test_daemon_comes_and_goes, test_several_ranks_stop_together,
         test_noise_starves_nobody, test_malformed_lines, test_needs, test_bad_data, test_killed_when_all_was_saved, test_logs_stay_inside,
         test_variables, test_many_checkpoints]


def main():
    with Home() as home:
        home.serve()
        home.spec()
        for test in [test for test in TESTS if not sys.argv[1:] or test.__name__ in sys.argv[1:]]:
            start = time.monotonic()
            test(home)
            print(f"ok {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)


main()
