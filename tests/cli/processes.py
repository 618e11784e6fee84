"""Looking at a run from outside: its processes by tag, its records on disk, its rows in both databases. Standard library only."""
import collections
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time


def tagged(run_id):
    """{pid: command line words} of the living processes that carry the run's tag."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = pathlib.Path("/proc", entry, "environ").read_bytes()
            words = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"SWITCHYARD_TAG={run_id}".encode() in environment.split(b"\0"):
            found[int(entry)] = [w.decode(errors="replace") for w in words if w]
    return found


def role(words):
    if any(w.endswith("/job.sh") for w in words[:2]):
        return "job.sh"
    name = os.path.basename(words[0]) if words else ""
    return {"mpirun": "mpirun", "orterun": "mpirun", "switchyard-worker": "rank"}.get(name, "other")


def leads_session(pid):
    """job.sh does; what it forks for a $(…) is no second job.sh, though it looks like one."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def by_role(run_id):
    roles = collections.defaultdict(list)
    for pid, words in tagged(run_id).items():
        kind = role(words)
        roles["other" if kind == "job.sh" and not leads_session(pid) else kind].append(pid)
    return roles


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def start_with_pid(pid, attempts=50):
    """A `sleep` that has exactly this pid (root only), or None: for what happens when the kernel gives a recorded pid to somebody else."""
    try:
        for _ in range(attempts):
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
            decoy = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
            if decoy.pid == pid:
                return decoy
            decoy.kill()
            decoy.wait()
            if pathlib.Path("/proc", str(pid)).exists():
                time.sleep(0.1)
    except OSError:
        pass
    return None


def lines_of(directory):
    """[(attempt, line)] of all whole lines of records.jsonl, attempts in order."""
    found = []
    for path in sorted(pathlib.Path(directory).glob("attempt-*/records.jsonl"), key=lambda p: int(p.parent.name[8:])):
        for raw in path.read_bytes().split(b"\n")[:-1]:
            found.append((int(path.parent.name[8:]), json.loads(raw)))
    return found


def trackio_rows(trackio, project, run_id):
    database = sqlite3.connect(f"file:{trackio}/{project}.db?mode=ro", uri=True)
    with database:
        return [(step, json.loads(metrics), log_id) for step, metrics, log_id in database.execute(
            "SELECT step, metrics, log_id FROM metrics WHERE run_id = ? AND metrics != '{}' ORDER BY id", (run_id,))]


def superseded_rows(home, run_id):
    database = sqlite3.connect(f"file:{home}/switchyard.db?mode=ro", uri=True)
    with database:
        return [json.loads(body) for (body,) in database.execute(
            "SELECT body FROM notes JOIN runs ON runs.id = notes.run WHERE run_id = ? AND notes.kind = 'superseded'", (run_id,))]


def canonical(step, metrics):
    return json.dumps([step, metrics], sort_keys=True)


def check_records(home, shown):
    """Every metric line on disk is in Trackio's database exactly once, or set aside in ours by a later attempt; nothing else is there.
    Returns (lines, set aside)."""
    if not pathlib.Path(home.trackio, shown["project"] + ".db").exists():
        assert not [1 for _, line in lines_of(shown["directory"]) if line["kind"] == "metric"], "metrics on disk, but no database"
        return 0, 0
    lines = [line for _, line in lines_of(shown["directory"]) if line["kind"] == "metric"]
    rows = trackio_rows(home.trackio, shown["project"], shown["run_id"])
    aside = superseded_rows(home.home, shown["run_id"])
    ids = collections.Counter(log_id for _, _, log_id in rows)
    assert all(count == 1 for count in ids.values()), "a log_id is in Trackio twice"
    assert set(ids) <= {line["log_id"] for line in lines}, "Trackio has rows that no record has"
    written = collections.Counter(canonical(line["step"], line["metrics"]) for line in lines)
    stored = collections.Counter(canonical(step, metrics) for step, metrics, _ in rows)
    stored.update(canonical(row["step"], row["metrics"]) for row in aside)
    assert written == stored, f"{sum(written.values())} metric lines on disk, {len(rows)} rows in Trackio and {len(aside)} set aside differ"
    assert len({step for step, _, _ in rows}) == len(rows), "a step is in Trackio twice"
    return len(lines), len(aside)
