"""What shows that a run never ran twice at once and lost no metric: its attempts' directories and lines, Slurm's own journal of jobs, the
processes that were seen, and the rows in both databases. Nothing here believes the daemon's word. Standard library only."""
import collections
import datetime
import json
import os
import pathlib
import time

from meanwhile import Meanwhile
from processes import canonical, lines_of, superseded_rows, trackio_rows  # noqa: E402 (its folder is on the path of whoever imports this)

SCAN = 0.4  # seconds


def wall(line):
    return datetime.datetime.fromisoformat(line["timestamp"]).timestamp()


# ---- processes ----

def living(pid):
    """Its start time while it runs, or None: also of a zombie."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]


class Watcher(Meanwhile):
    """Looks at the machine's processes all the time: the ranks of each run, by attempt, and whether two attempts of a run lived at once."""

    def __init__(self):
        super().__init__()
        self.found, self.together = {}, collections.Counter()

    def go(self):
        while not self.over.wait(SCAN):
            self.look()

    def look(self):
        found, born = collections.defaultdict(lambda: collections.defaultdict(list)), {}
        for entry in os.listdir("/proc"):
            try:
                if not entry.isdigit() or b"switchyard-worker" not in pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[0]:
                    continue
                words = dict(w.split(b"=", 1) for w in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0") if b"=" in w)
            except OSError:
                continue
            start = living(entry)
            if start and b"SWITCHYARD_TAG" in words and b"SWITCHYARD_ATTEMPT" in words:
                found[words[b"SWITCHYARD_TAG"].decode()][int(words[b"SWITCHYARD_ATTEMPT"])].append(int(entry))
                born[int(entry)] = start
        for tag, attempts in found.items():  # one may have ended while another began: looked at again
            alive = [number for number, pids in attempts.items() if any(living(pid) == born[pid] for pid in pids)]
            self.together[tag] += len(alive) > 1
        self.found = found

    def ranks(self, tag):
        return [pid for pids in self.found.get(tag, {}).values() for pid in pids]


# ---- never twice at once ----

def attempts_of(directory):
    """[(number, its lines, began, ended)] by what it wrote itself; ended is its last sign of life where it had no time to write its end."""
    lines, attempts = collections.defaultdict(list), []
    for number, line in lines_of(directory):
        lines[number].append(line)
    for path in sorted(pathlib.Path(directory).glob("attempt-*"), key=lambda p: int(p.name[8:])):
        number = int(path.name[8:])
        stamps = [wall(line) for line in lines[number]]
        end = json.loads((path / "exit.json").read_text()) if (path / "exit.json").exists() else {}
        began = end.get("started") or (stamps[0] if stamps else path.stat().st_mtime)
        attempts.append((number, lines[number], began, end.get("ended") or max(stamps + [began]), end))
    return attempts


def journal(cluster, title):
    """(first second, last second) of each time that Slurm ran a job of this name."""
    spans = []
    for line in (cluster.directory / "log" / "jobcomp.txt").read_text(errors="replace").splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("Name") == title and words.get("StartTime", "Unknown") not in ("Unknown", "None"):
            spans.append((words["StartTime"], words["EndTime"]))
    return spans


def overlaps(spans):
    return sum(max(a[0], b[0]) < min(a[1], b[1]) for i, a in enumerate(spans) for b in spans[:i])


def double_runs(cluster, watcher, shown):
    """(How often, in words)."""
    attempts, found = attempts_of(shown["directory"]), []
    found += ["two jobs at once in Slurm's journal"] * overlaps(journal(cluster, f"{shown['project']}.{shown['name']}"))
    for i, (number, lines, _, _, _) in enumerate(attempts):
        for later, _, began, _, _ in attempts[i + 1:]:
            late = sum(line["kind"] in ("metric", "checkpoint") and wall(line) > began for line in lines)
            found += [f"attempt {number} wrote {late} lines after attempt {later} had begun"] if late else []
    found += ["two attempts at once by their own records"] * overlaps([(began, ended) for _, _, began, ended, _ in attempts])
    found += ["ranks of two attempts were seen at once"] * (watcher.together[shown["run_id"]] > 0)
    known = {attempt["number"]: attempt for attempt in shown["attempts"]}
    for number, _, _, _, end in attempts:
        if number not in known:
            found.append(f"attempt {number} is on disk and the daemon does not know it")
        elif end.get("job_id") and known[number]["job_id"] != end["job_id"]:
            found.append(f"attempt {number} was job {end['job_id']}, not {known[number]['job_id']}")
    return len(found), "; ".join(found)


# ---- no metric lost ----

def curve_of(directory):
    """What should be in the store: {step: line}, and the lines that a later attempt, going on from an earlier step, writes anew."""
    kept, aside, twice = {}, [], 0
    for attempt, line in lines_of(directory):
        if line["kind"] == "start":
            resumed = line["resumed_from"] or 0
            aside += [kept.pop(step) for step in sorted(kept) if step > resumed]
        elif line["kind"] == "metric":
            twice += line["step"] in kept
            kept[line["step"]] = line
    return kept, aside, twice


def lost_metrics(home, shown, iterations, points):
    """(How many, in words): lines on disk that the store lacks or has twice or in the wrong place, and steps that nobody has.
    points: the steps that the daemon's own API draws."""
    kept, aside, twice = curve_of(shown["directory"])
    there = pathlib.Path(home.trackio, shown["project"] + ".db").exists()
    rows = trackio_rows(home.trackio, shown["project"], shown["run_id"]) if there else []
    stored, wanted = collections.Counter(row[2] for row in rows), collections.Counter(line["log_id"] for line in kept.values())
    values = collections.Counter(canonical(step, metrics) for step, metrics, _ in rows)
    values.subtract(canonical(line["step"], line["metrics"]) for line in kept.values())
    moved = collections.Counter(canonical(row["step"], row["metrics"]) for row in superseded_rows(home.home, shown["run_id"]))
    superseded = collections.Counter(canonical(line["step"], line["metrics"]) for line in aside)
    last = iterations if shown["state"] == "succeeded" else max(kept, default=0)
    faults = {
        "steps written twice": twice,
        "lines not in the store": sum((wanted - stored).values()),
        "rows too many": sum((stored - wanted).values()),
        "rows with other values": sum(abs(count) for count in values.values()),
        "superseded lines not kept aside": sum((superseded - moved).values()),
        "lines kept aside that nothing superseded": sum((moved - superseded).values()),
        "steps missing": len(set(range(1, last + 1)) ^ set(kept)),
        "rows out of order": sum(a[0] >= b[0] for a, b in zip(rows, rows[1:])),
        "steps not drawn": len(set(kept) ^ set(points)),
    }
    return sum(faults.values()), "; ".join(f"{count} {what}" for what, count in faults.items() if count)
