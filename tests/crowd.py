"""Ten thousand runs without the hours that they would take: one run of each kind is made by the real programs, then its rows, files and curve are
copied, with names and ids of their own, while no daemon is there. A squeue of our own lists those that are with Slurm.

    from crowd import Crowd
    crowd = Crowd(home)                 # of a Home whose daemon does not run; it made the runs that are copied
    crowd.ended("tiny/dense-1", 10000)
"""
import contextlib
import json
import pathlib
import shutil
import sqlite3
import time
import uuid

SEPARATOR = "\x1f"


class Crowd:
    def __init__(self, home):
        self.home, self.jobs, self.next_job = home, {}, 1000

    @contextlib.contextmanager
    def state(self):
        with contextlib.closing(sqlite3.connect(self.home.home / "switchyard.db", isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    @staticmethod
    def columns(db, table, *without):
        return [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in without]

    def copies(self, db, run, count, state, prefix, **changed):
        """Rows of so many runs like that one, and the rows that belong to them: [(id, name, run_id, directory)]."""
        project, name = run.split("/")
        template, directory = db.execute("SELECT id, directory FROM runs WHERE project = ? AND name = ?", (project, name)).fetchone()
        columns = self.columns(db, "runs", "id", "name", "run_id", "directory", "state", *changed)
        made = []
        for number in range(1, count + 1):
            one, tag = f"{prefix}-{number}", uuid.uuid4().hex
            place = str(pathlib.Path(directory).parent / one)
            words = ", ".join(columns + list(changed))
            marks = ", ".join(columns + ["?"] * len(changed))
            cursor = db.execute(f"INSERT INTO runs(name, run_id, directory, state, {words}) SELECT ?, ?, ?, ?, {marks} FROM runs WHERE id = ?",
                                (one, tag, place, state, *changed.values(), template))
            made.append((cursor.lastrowid, one, tag, place))
        for table in ("documents", "attempts", "needs", "trials"):
            own = self.columns(db, table, "run")
            for identity, *_ in made:
                db.execute(f"INSERT INTO {table}(run, {', '.join(own)}) SELECT ?, {', '.join(own)} FROM {table} WHERE run = ?", (identity, template))
        return made

    def ended(self, run, count, prefix="ended"):
        """With their curves, in Trackio's database too. Their directories are gone, as those of old runs are."""
        project, name = run.split("/")
        with self.state() as db:
            made = self.copies(db, run, count, "succeeded", prefix)
            tag = db.execute("SELECT run_id FROM runs WHERE project = ? AND name = ?", (project, name)).fetchone()[0]
        with contextlib.closing(sqlite3.connect(self.home.trackio / f"{project}.db")) as db, db:
            for _, one, new, _ in made:
                db.execute("INSERT INTO metrics(run_id, timestamp, run_name, step, metrics) SELECT ?, timestamp, ?, step, metrics FROM metrics "
                           "WHERE run_id = ?", (new, one, tag))
        return made

    def queued(self, run, count, prefix="queued", executor="local"):
        with self.state() as db:
            return self.copies(db, run, count, "queued", prefix, executor=executor, attempt=0, reason="submitted", ended=0, started=0)

    def with_slurm(self, run, count, prefix, running):
        """Handed over to Slurm: as jobs that wait, or as ones that run, whose attempt has begun."""
        with self.state() as db:
            made = self.copies(db, run, count, "running" if running else "pending", prefix, executor="slurm", attempt=1,
                               reason="runs" if running else "waits for free resources", started=time.time() if running else 0)
            for identity, one, tag, place in made:
                self.next_job += 1
                db.execute("DELETE FROM attempts WHERE run = ?", (identity,))
                db.execute("INSERT INTO attempts(run, number, job, job_started, state, started, ended, code, ended_by_signal, ingest_offset, ingest_sequence) "
                           "VALUES (?, 1, ?, 0, ?, ?, 0, -1, 0, 0, 0)", (identity, str(self.next_job), "running" if running else "pending", time.time()))
                self.jobs[tag] = [str(self.next_job), "RUNNING" if running else "PENDING", f"{run.split('/')[0]}.{one}", place]
        template = pathlib.Path(made[0][3]).parent / run.split("/")[1]
        for _, one, tag, place in made:
            place = pathlib.Path(place)
            place.mkdir()
            for name in ("run.json", "job.json"):
                if (template / name).exists():
                    shutil.copy(template / name, place / name)
            (place / "submission").write_text("1\n")
            if running:
                (place / "attempt-1").mkdir()
                (place / "attempt-1" / "job.json").write_text("{}")
                self.beat(place, 0)
        return made

    @staticmethod
    def beat(place, step):
        path = pathlib.Path(place) / "attempt-1" / "heartbeat.json"
        path.with_suffix(".new").write_text(json.dumps({"v": 1, "time": time.time(), "step": step}))
        path.with_suffix(".new").rename(path)

    @staticmethod
    def write(place, tag, name, project, step, metrics):
        line = {"v": 1, "kind": "metric", "project": project, "run": name, "run_id": tag, "step": step, "metrics": metrics,
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "log_id": uuid.uuid4().hex}
        with open(pathlib.Path(place) / "attempt-1" / "records.jsonl", "a") as records:
            records.write(json.dumps(line, separators=(",", ":")) + "\n")

    def slurm(self):
        """Puts a squeue on the daemon's PATH that lists them; what each call of it was is counted. Other commands of Slurm are not there."""
        place = self.home.root / "slurm"
        place.mkdir(exist_ok=True)
        rows = [SEPARATOR.join([job, state, "0:0", "0", "0", "0:10", "n1" if state == "RUNNING" else "", "None" if state == "RUNNING" else "Resources",
                                f"switchyard:{tag}:1", name, where]) for tag, (job, state, name, where) in self.jobs.items()]
        (place / "rows").write_text("\n".join(rows) + "\n")
        (place / "squeue").write_text(f"#!/bin/sh\necho >>'{place}/asked'\nexec cat '{place}/rows'\n")
        (place / "squeue").chmod(0o755)
        self.home.environment["PATH"] = f"{place}:{self.home.environment['PATH']}"
        return lambda: (place / "asked").stat().st_size if (place / "asked").exists() else 0
