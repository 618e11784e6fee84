#!/usr/bin/env python3
"""The real Trackio as judge of our store.

It must read what we wrote, value by value, by its Python API and by its own server; change nothing in doing so; log into the same project
while we write, without losing a row on either side; and import a run's records.jsonl by itself. Run by ctest; by hand:

    SWITCHYARD_BIN=build/bin python3 tests/peers/trackio_reads.py
"""
import collections
import json
import math
import os
import pathlib
import random
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("SWITCHYARD_BIN", SOURCE / "build" / "bin"))
WRITER = BIN / "trackio_writer"
PYTHON = subprocess.run([SOURCE / "tests/setup-python", "trackio", "tests/peers/requirements-trackio.txt"], cwd=SOURCE, check=True,
                        stdout=subprocess.PIPE, text=True).stdout.strip()
REBUILT = "idx_run_artifact_links_unique"  # Trackio drops and makes this index at each of its starts


def expect(what, expected, actual):
    if expected != actual:
        raise SystemExit(f"FAILED {what}\n expected {expected!r}\n actual   {actual!r}")


def environment(folder):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRACKIO_", "HF_", "GRADIO_"))}
    return {**kept, "TRACKIO_DIR": str(folder), "HF_HOME": str(folder) + ".hf", "PYTHONUNBUFFERED": "1", "NO_PROXY": "*", "HF_HUB_OFFLINE": "1"}


def writer(*words):
    return [str(WRITER), *map(str, words)]


def run(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(" ".join(words[:3]), (0, False), (done.returncode, "left out" in done.stdout))
    return done.stdout


def line(kind, project, name, run_id, number, **members):
    identifier = f"{run_id[-16:]}{kind[0]}{number:015d}"
    stamp = f"2026-11-29T20:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1000000:06d}+00:00"
    key = "alert_id" if kind == "alert" else "log_id"
    return {"kind": kind, "v": 1, "project": project, "run": name, "run_id": run_id, "timestamp": stamp, **members, key: identifier}


def write_file(path, lines):
    path.write_text("".join(json.dumps(each, ensure_ascii=False, allow_nan=False) + "\n" for each in lines), encoding="utf-8")


# ---- what we write, in Python's own values ----

INFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def metrics_of(generator, step):
    metrics = {"loss": generator.uniform(0, 12), "grad_norm": generator.lognormvariate(0, 20), "tokens": step * 2097152, "learning_rate": 1e-3 / step,
               "moe/layer_00/largest_share": generator.random(), "größe η.x y": -generator.random() * 1e-300, "big": 2**62 + step}
    if step % 10 == 0:
        metrics.update(validation_loss=generator.random(), flag=step % 20 == 0, nothing=None, nested={"a": [1, 2.5, "x"], "ü": "\u2603 \U0001f600 \"q\" \\ \n"})
    if step % 7 == 0:
        metrics["loss"] = list(INFINITE)[step // 7 % 3]
    return metrics


def same(a, b):
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


def expect_rows(what, expected, actual, finite_only=False):
    expect(what + ": number of rows", len(expected), len(actual))
    for each, row in zip(expected, actual):
        wanted = {k: INFINITE.get(v, v) if isinstance(v, str) else v for k, v in each["metrics"].items()}
        if finite_only:
            wanted = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in wanted.items()}
        wanted.update(step=each["step"], timestamp=each["timestamp"])
        expect(what + ": keys", sorted(wanted), sorted(row))
        for key, value in wanted.items():
            if not same(value, row[key]):
                expect(f"{what}: {key} of step {each['step']}", value, row[key])


def snapshot(database):
    connection = sqlite3.connect(database)
    objects = {row[1]: row for row in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")}
    rebuilt = objects.pop(REBUILT)[:3]
    rows = {name: connection.execute(f"SELECT *, typeof(id) FROM {name} ORDER BY id").fetchall() for name in ("metrics", "configs", "system_metrics", "alerts")}
    version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return objects, rebuilt, rows, version


class Server:
    """Trackio's own, on a free port."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = subprocess.Popen([PYTHON, "-c", f"import trackio; trackio.show(open_browser=False, server_port={port}, host='127.0.0.1')"],
                                        env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{port}"
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(300):
            try:
                self.opener.open(self.url + "/version", timeout=5).read()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit("Trackio's server did not start:\n" + self.process.stderr.read())
                time.sleep(0.1)
        raise SystemExit("Trackio's server did not answer within 30 s")

    def ask(self, name, **parameters):
        body = json.dumps({"args": [], "kwargs": parameters}).encode()
        request = urllib.request.Request(f"{self.url}/api/{name}", data=body, headers={"Content-Type": "application/json"})
        return json.load(self.opener.open(request, timeout=60))["data"]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


# By its Python API: what it sees of a project, as JSON (non-finite numbers as Python writes and reads them).
API = """
import json, sys, trackio
from trackio.sqlite_storage import SQLiteStorage as storage
project = sys.argv[1]
seen = {"projects": storage.get_projects(), "runs": []}
for run in trackio.Api().runs(project):
    seen["runs"].append({"name": run.name, "id": run.id, "config": run.config, "alerts": run.alerts(), "logs": storage.get_logs(project, run.name, run_id=run.id),
                         "system": storage.get_system_logs(project, run.name, run_id=run.id)})
print(json.dumps(seen))
"""


def check_reading(root):
    folder, project = root / "read", "peers_1"
    generator = random.Random(7)
    config = {"model": {"layers": 4, "experts": 8}, "größe": "ß \u2603", "rate": 1e-3, "list": [1, None, True], "limit": "Infinity",
              "_Created": "2026-11-29T19:00:00.000000+00:00"}
    (root / "config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    runs = {"dense-1": "0" * 31 + "1", "moe-1": "f" * 32}
    lines = collections.defaultdict(list)
    for name, run_id in runs.items():
        run(writer(folder, "announce", project, name, run_id, root / "config.json"))
        for step in range(1, 201):
            lines[name].append(line("metric", project, name, run_id, step, metrics=metrics_of(generator, step), step=step, config=None))
        extra = [line("system_metric", project, name, run_id, n, metrics={"cpu/utilization": 3.5 + n}) for n in range(3)]
        extra.append(line("alert", project, name, run_id, 1, title="loss", text="not finite", level="error", step=7))
        write_file(root / "records.jsonl", lines[name] + extra)
        for _ in range(2):  # the second time changes nothing
            run(writer(folder, "write", project, root / "records.jsonl", 64, 0))
    database = folder / f"{project}.db"
    before = snapshot(database)
    expect("files", sorted([f"{project}.db", f"{project}.lock"]), sorted(p.name for p in folder.iterdir() if not p.name.endswith(("-wal", "-shm"))))

    done = subprocess.run([PYTHON, "-c", API, project], env=environment(folder), stdout=subprocess.PIPE, text=True, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    expect("projects", [project], seen["projects"])
    expect("runs", sorted(runs.items()), sorted((r["name"], r["id"]) for r in seen["runs"]))
    for found in seen["runs"]:
        name = found["name"]
        first, *rest = found["logs"]
        expect("the row that announces", ["step", "timestamp"], sorted(first))
        expect_rows(f"Python API, {name}", lines[name], rest)
        expect("config", {**config, "limit": math.inf, "_Username": None, "_Group": None}, found["config"])
        expect("system rows", [3.5, 4.5, 5.5], [row["cpu/utilization"] for row in found["system"]])
        expect("alerts", [("loss", "not finite", "error", 7)], [(a["title"], a["text"], a["level"], a["step"]) for a in found["alerts"]])
    expect("after Python API", before, snapshot(database))

    listed = subprocess.run([PYTHON, "-m", "trackio.cli", "list", "projects", "--json"], env=environment(folder), stdout=subprocess.PIPE, text=True)
    if listed.returncode == 0:
        expect("trackio list projects", True, project in listed.stdout)

    server = Server(folder)
    try:
        expect("HTTP projects", [project], server.ask("get_all_projects"))
        expect("HTTP runs", sorted(runs.items()), sorted((r["name"], r["id"]) for r in server.ask("get_runs_for_project", project=project)))
        configs = server.ask("get_run_configs", project=project)
        for name, run_id in runs.items():
            rows = server.ask("get_logs", project=project, run=name, run_id=run_id)
            expect_rows(f"HTTP, {name}", lines[name], rows[1:], finite_only=True)
            expect("HTTP config", config["model"], configs[run_id]["model"])
            summary = server.ask("get_run_summary", project=project, run=name, run_id=run_id)
            expect("HTTP summary", (201, 200), (summary["num_logs"], summary["last_step"]))
            values = server.ask("get_metric_values", project=project, run=name, run_id=run_id, metric_name="tokens")
            expect("HTTP metric values", [n * 2097152 for n in range(1, 201)], [row["value"] for row in values])
        flags = server.ask("get_tab_availability", project=project)
        expect("tabs", (True, True, True, False), (flags["metrics"], flags["system"], flags["reports"], flags["media"]))
    finally:
        server.close()
    expect("after its server", before, snapshot(database))
    print("read: 2 runs of 200 rows by Python API and HTTP, every value equal; objects, rows and user_version unchanged")


CLIENT = """
import sys, time, trackio
project, rows = sys.argv[1], int(sys.argv[2])
trackio.init(project, name="theirs", config={"a": 1}, auto_log_gpu=False, auto_log_cpu=False)
for step in range(rows):
    trackio.log({"x": step * 0.5}, step=step)
    time.sleep(0.005)
trackio.finish()
"""


def check_concurrent(root):
    """Two of our writers with one run name, and the real client, all starting at once on a project that does not exist yet."""
    folder, project, ours, theirs = root / "both", "shared", 20000, 600
    folder.mkdir()
    processes = []
    for number in range(2):
        run_id = f"{number:032d}"
        write_file(root / f"ours-{number}.jsonl", [line("metric", project, "moe-1", run_id, n, metrics={"loss": n / 7}, step=n, config=None) for n in range(ours)])
        processes.append(subprocess.Popen(writer(folder, "write", project, root / f"ours-{number}.jsonl", 100, 20), stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
    for _ in range(2):
        processes.append(subprocess.Popen([PYTHON, "-c", CLIENT, project, str(theirs)], env=environment(folder), stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
    for process in processes:
        output = process.communicate(timeout=300)[0]
        expect(f"no fault while both write\n{output}", (0, None), (process.returncode, re.search(r"(?i)lock(ed)?\b.*(fail|time|error)|error|could not|warning", output)))
        if process.args[0] == str(WRITER):
            print("  ours:", output.strip())
    connection = sqlite3.connect(folder / f"{project}.db")
    counts = dict(connection.execute("SELECT run_id, count(*) FROM metrics GROUP BY run_id"))
    names = connection.execute("SELECT run_name, count(DISTINCT run_id) FROM metrics GROUP BY run_name ORDER BY run_name").fetchall()
    expect("runs", [("moe-1", 2), ("theirs", 2)], names)
    expect("rows", [theirs] * 2 + [ours] * 2, sorted(counts.values()))
    total = connection.execute("SELECT sum(json_extract(CAST(metrics AS TEXT), '$.x')) FROM metrics WHERE run_name = 'theirs'").fetchone()[0]
    expect("sum of the clients' values", 2 * sum(0.5 * n for n in range(theirs)), total)
    expect("integrity", ("ok",), connection.execute("PRAGMA integrity_check").fetchone())
    expect("stray databases", [f"{project}.db"], sorted(p.name for p in folder.glob("*.db")))
    connection.close()
    print(f"concurrent: 2 writers x {ours} rows and 2 real clients x {theirs} rows on one new project: all rows there, no lock error")


def check_fragments(root):
    """A run's records.jsonl is a fragment as it is: dropped into Trackio's inbox it imports there; ours adds nothing to that afterwards."""
    folder, project, run_id = root / "inbox", "imported", "abcdef0123456789" * 2
    run(writer(root / "run", "records", project, "moe-1", run_id, 20))
    records = root / "run" / "attempt-1" / "records.jsonl"
    inbox = folder / "inbox" / "0123456789abcdef"
    inbox.mkdir(parents=True)
    shutil.copy(records, inbox / "00000001.jsonl")
    server = Server(folder)
    try:
        for _ in range(100):
            runs = server.ask("get_runs_for_project", project=project)
            if runs and not list(inbox.glob("*.jsonl")):
                break
            time.sleep(0.2)
        expect("imported run", [("moe-1", run_id)], [(r["name"], r["id"]) for r in runs])
        rows = server.ask("get_logs", project=project, run="moe-1", run_id=run_id)
        expect("imported rows", [(n, n * 2048, None if n == 3 else 10 / n) for n in range(1, 21)], [(r["step"], r["tokens"], r["loss"]) for r in rows])
        expect("imported alert", ["non-finite loss"], [a["title"] for a in server.ask("get_alerts", project=project)])
    finally:
        server.close()
    before = snapshot(folder / f"{project}.db")
    run(writer(folder, "write", project, records, 100, 0))
    expect("ours after the import", before, snapshot(folder / f"{project}.db"))
    print("fragments: records.jsonl imported by Trackio's inbox; writing it again by ourselves changed nothing")


def check_fullness(root):
    """Trackio's own new database has the same objects, columns and index columns as ours."""
    folder = root / "theirs"
    subprocess.run([PYTHON, "-c", CLIENT, "made", "3"], env=environment(folder), stdout=subprocess.DEVNULL, check=True)
    write_file(root / "one.jsonl", [line("metric", "ours", "a", "r" * 32, 1, metrics={}, step=1, config=None)])
    run(writer(folder, "write", "ours", root / "one.jsonl", 1, 0))
    shapes = []
    for name in ("made", "ours"):
        connection = sqlite3.connect(folder / f"{name}.db")
        objects = connection.execute("SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name").fetchall()
        shape = {"objects": objects, "version": connection.execute("PRAGMA user_version").fetchone(), "mode": connection.execute("PRAGMA journal_mode").fetchone()}
        for kind, each, _ in objects:
            shape[each] = connection.execute(f"PRAGMA {'table_info' if kind == 'table' else 'index_xinfo'}({each})").fetchall()
        shapes.append(shape)
        connection.close()
    expect("shape", shapes[0], shapes[1])
    expect("numbers of tables and indexes", (12, 23), tuple(sum(o[0] == kind for o in shapes[1]["objects"]) for kind in ("table", "index")))
    print("shape: 12 tables and 23 indexes, column by column Trackio's own")


def main():
    if not WRITER.exists():
        raise SystemExit(f"{WRITER} is not built")
    root = pathlib.Path(tempfile.mkdtemp(prefix="switchyard-trackio-"))
    for check in (check_fullness, check_reading, check_fragments, check_concurrent):
        check(root)
    shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
