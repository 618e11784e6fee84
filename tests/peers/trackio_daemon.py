#!/usr/bin/env python3
"""Two daemons, each with a home of its own, train the same spec into one Trackio folder while the real client logs into that project: three
kinds of run ids, exact numbers of rows, no lock error; and the real Trackio shows each run as our records.jsonl has it."""
import collections
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import trackio_reads as judge
from support import TINY, Home

CLIENT_ROWS = 400
SPEC = TINY.replace("iterations: 8", "iterations: 40") + "environment: {variables: {MY_SERVICE_TOKEN: swordfish, OMP_PROC_BIND: 'false'}}\n"


def records(directory):
    lines = []
    for path in sorted(pathlib.Path(directory).glob("attempt-*/records.jsonl")):
        lines += [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]
    return [each for each in lines if each["kind"] == "metric"]


def main():
    root = pathlib.Path(tempfile.mkdtemp(prefix="switchyard-two-homes-"))
    folder = root / "trackio"
    with Home(trackio=folder) as one, Home(trackio=folder) as two:
        homes = (one, two)
        for home in homes:
            home.serve()
        client = subprocess.Popen([judge.PYTHON, "-c", judge.CLIENT, "tiny", str(CLIENT_ROWS)], env=judge.environment(folder), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        for home in homes:
            home.cli("submit", home.spec(SPEC))
        shown = []
        for home in homes:
            shown += [home.wait_for(f"tiny/{name}", ("succeeded", "failed"), timeout=180) for name in ("dense-1", "moe-1")]
        output = client.communicate(timeout=120)[0]
        judge.expect("states", ["succeeded"] * 4, [run["state"] for run in shown])
        judge.expect("client\n" + output, (0, False), (client.returncode, "lock" in output.lower() or "error" in output.lower()))
        judge.expect("four run ids of ours", 4, len({run["run_id"] for run in shown}))

        connection = sqlite3.connect(folder / "tiny.db")
        counts = collections.Counter(row[0] for row in connection.execute("SELECT run_id FROM metrics"))
        theirs = [row[0] for row in connection.execute("SELECT DISTINCT run_id FROM metrics WHERE run_name = 'theirs'")]
        connection.close()
        judge.expect("rows of the client", [CLIENT_ROWS], [counts.pop(run_id) for run_id in theirs])
        for run in shown:
            judge.expect(f"rows of {run['name']}", 40 + 1, counts.pop(run["run_id"]))
        judge.expect("other rows", {}, dict(counts))
        for home in homes:
            home.stop()

        before = judge.snapshot(folder / "tiny.db")
        done = subprocess.run([judge.PYTHON, "-c", judge.API, "tiny"], env=judge.environment(folder), stdout=subprocess.PIPE, text=True, check=True)
        seen = {run["id"]: run for run in json.loads(done.stdout.splitlines()[-1])["runs"]}
        judge.expect("runs that Trackio sees", 5, len(seen))
        for run in shown:
            judge.expect_rows(run["name"], records(run["directory"]), [row for row in seen[run["run_id"]]["logs"] if row["step"] > 0])
            config = seen[run["run_id"]]["config"]
            judge.expect("config", 32, config["model"]["hidden_size"])
            judge.expect("provenance in the config", run["provenance"]["machine"], config["provenance"]["machine"])
            judge.expect("no secret in Trackio", False, "swordfish" in json.dumps(config))
        server = judge.Server(folder)
        try:
            judge.expect("HTTP projects", ["tiny"], server.ask("get_all_projects"))
            for run in shown:
                rows = server.ask("get_logs", project="tiny", run=run["name"], run_id=run["run_id"])
                judge.expect_rows("HTTP " + run["name"], records(run["directory"]), [row for row in rows if row["step"] > 0], finite_only=True)
        finally:
            server.close()
        judge.expect("unchanged by Trackio", before, judge.snapshot(folder / "tiny.db"))
    shutil.rmtree(root)
    print(f"two homes and the real client on one project: 4 runs of 41 rows, {CLIENT_ROWS} rows of the client, no lock error; Trackio reads all of it unchanged")


if __name__ == "__main__":
    sys.exit(main())
