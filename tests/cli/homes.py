#!/usr/bin/env python3
"""Two daemons of two homes write into one TRACKIO_DIR, both with a moe-1 of one project, while a third writer takes the same lock as
Trackio's client does: three run ids, every row exactly once, nobody starved of the lock."""
import fcntl
import json
import pathlib
import sqlite3
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import check_records, trackio_rows  # noqa: E402
from support import TINY, Home  # noqa: E402

STEPS = 400
SPEC = TINY.replace("iterations: 8", f"iterations: {STEPS}").replace("interval: 4,", "interval: 100,")
FOREIGN = "c" * 32


def foreign_writer(folder, project, stop, written, longest):
    """As Trackio's client writes: flock tried every 0.1 s for 10 s, one transaction a batch, then let go."""
    database = folder / f"{project}.db"
    while not database.exists() and not stop.is_set():
        time.sleep(0.02)
    while not stop.is_set():
        with open(folder / f"{project}.lock", "w") as lock:
            begun = time.monotonic()
            for attempt in range(100):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.1)
            else:
                raise AssertionError("a polite client did not get the lock for 10 s")
            longest[0] = max(longest[0], time.monotonic() - begun)
            connection = sqlite3.connect(database, timeout=30)
            connection.execute("PRAGMA journal_mode=WAL")
            with connection:
                connection.execute("INSERT INTO metrics(run_id, timestamp, run_name, step, metrics) VALUES (?, ?, 'client', ?, ?)",
                                   (FOREIGN, "2026-01-01T00:00:00+00:00", written[0], json.dumps({"x": written[0]})))
            connection.close()
            written[0] += 1
        time.sleep(0.01)


def main():
    with tempfile.TemporaryDirectory(prefix="switchyard-shared-trackio-") as folder:
        folder = pathlib.Path(folder)
        with Home(trackio=folder) as one, Home(trackio=folder) as two:
            stop, written, longest = threading.Event(), [0], [0.0]
            writer = threading.Thread(target=foreign_writer, args=(folder, "tiny", stop, written, longest))
            writer.start()
            for home in (one, two):
                home.serve()
                home.cli("submit", home.spec(SPEC), "--run", "moe")
            shown = [home.wait_for("moe-1", ["succeeded", "failed", "lost"]) for home in (one, two)]
            stop.set()
            writer.join()
            for home, run in zip((one, two), shown):
                assert run["state"] == "succeeded", run["reason"]
                assert check_records(home, run) == (STEPS, 0)
                assert not [e for e in run["events"] if e["kind"] == "warning"], run["events"]
            rows = trackio_rows(folder, "tiny", FOREIGN)
            assert [step for step, _, _ in rows] == list(range(written[0])) and written[0] > 20, (len(rows), written[0])
            database = sqlite3.connect(f"file:{folder}/tiny.db?mode=ro", uri=True)
            ids = {i for (i,) in database.execute("SELECT DISTINCT run_id FROM metrics")}
            assert ids == {shown[0]["run_id"], shown[1]["run_id"], FOREIGN} and len(ids) == 3, ids
            database.close()
            print(f"ok: 2 x {STEPS} rows of moe-1, {written[0]} rows of another client, which waited for the lock at most {longest[0]:.2f} s")


main()
