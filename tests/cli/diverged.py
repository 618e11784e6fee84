#!/usr/bin/env python3
"""A run whose loss is lost comes to its end like any other, and everybody is told where it was lost: state, reason, lists, the report; what
was good before stays. A loss that comes back, or that a later attempt trains anew from before, is not lost."""
import contextlib
import json
import pathlib
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import TINY, Home  # noqa: E402

# The rate destroys the model after a few steps: the warm-up is gentle, its end is not.
WILD = (TINY.replace("iterations: 8", "iterations: 20").replace("interval: 4, iterations: 1", "interval: 0, iterations: 1")
        .replace("weight_decay: 0.1, clip_grad: 1.0", "weight_decay: 1000, clip_grad: 0")
        .replace("{schedule: constant, peak: 1e-3}", "{schedule: linear, initial: 1e-4, peak: 1e3, warmup_iterations: 12}")
        .replace("resources:", "checkpoint: {interval: 2, keep: 2}\nlogging: {interval: 5}\nresources:").replace("project: tiny", "project: wild"))
CALM = TINY.replace("project: tiny", "project: wild")


def lost_at(shown):
    """The step at which the worker itself says that the loss is none, and which steps are recorded so."""
    lines = [json.loads(line) for line in pathlib.Path(shown["directory"], "attempt-1", "records.jsonl").read_text().splitlines()]
    said = [line["step"] for line in lines if line["kind"] == "event" and line["event"] == "non_finite_loss"]
    recorded = [line["step"] for line in lines if line["kind"] == "metric" and isinstance(line["metrics"]["loss"], str)]
    assert len(said) == 1 and recorded and said[0] <= recorded[0], (said, recorded)
    return said[0], recorded


def rows_of(shown):
    records = [path.read_text() for path in pathlib.Path(shown["directory"]).glob("attempt-*/records.jsonl")]
    return sum(json.loads(line)["kind"] == "metric" for text in records for line in text.splitlines())


def main():
    with Home(prefix="switchyard-diverged-") as home:
        home.serve()
        done = home.cli("run", home.spec(WILD), "--run", "dense", "--name", "lost")
        shown = home.json("show", "lost")
        step, recorded = lost_at(shown)
        assert shown["state"] == "succeeded" and shown["diverged_step"] == step, (shown["state"], shown["diverged_step"], step)
        assert shown["reason"] == f"finished with exit code 0, but diverged at step {step}: its loss is not finite from there on", shown["reason"]
        assert [e["to"] for e in shown["events"] if "diverged at step" in (e["reason"] or "")] == ["succeeded"], shown["events"]
        assert f"diverged at step {step}" in done.stderr, done.stderr
        assert f"succeeded, diverged at {step}" in home.cli("ls").stdout and f"succeeded, diverged at {step}\n" in home.cli("show", "lost").stdout
        # The newest weights that were good are there: `keep` removes none once the loss is lost.
        steps = sorted(int(p.name[5:]) for p in pathlib.Path(shown["directory"], "checkpoints").glob("step-*"))
        assert any(s < step for s in steps) and 20 in steps, (steps, step)
        home.cli("run", home.spec(CALM), "--run", "dense", "--name", "calm")
        calm = home.json("show", "calm")
        assert calm["diverged_step"] is None and calm["reason"] == "finished with exit code 0", calm["reason"]
        assert "diverged" not in [line for line in home.cli("ls").stdout.splitlines() if "/calm" in line][0]
        words = home.cli("show", "calm").stdout
        measured = words[words.index("\nMeasured\n"):words.index("\nProvenance\n")]
        assert "memory of a rank" in measured and "MiB (predicted: " in measured and "_" not in measured, measured
        # A table of means has no room for it, and says so.
        report = home.json("report", "wild")
        assert [r for g in report["groups"] for r in g["runs"]] == ["calm"], report
        assert {"name": "lost", "state": "succeeded", "diverged_step": step} in report["left_out"], report["left_out"]
        assert f"left out: lost, which is succeeded, and diverged at step {step}" in home.cli("report", "wild").stderr
        # Another daemon, without anything in its memory, says the same, and reads no curve for a list: neither this one nor, of runs that are
        # gone from memory by now or that an older version has left, more than once.
        listed = home.json("ls")["runs"]
        for forgotten in (False, True):
            home.stop()
            if forgotten:
                with contextlib.closing(sqlite3.connect(home.home / "switchyard.db")) as state, state:
                    assert state.execute("DELETE FROM outcomes").rowcount == 2
            home.serve()  # it lists them
            assert home.json("ls")["runs"] == listed, listed
            assert home.json("ls")["runs"] == listed, listed
            read = home.ask("/api/v1/health")["curve_rows_read"]
            assert (read > 0) == forgotten and read <= rows_of(shown) + rows_of(calm) + 2, f"{read} rows read for lists"
        assert home.json("show", "lost")["diverged_step"] == step and home.json("show", "lost")["last"]["loss"] == "NaN"
        more = home.ask("/api/v1/health")["curve_rows_read"] - read
        assert 0 < more <= rows_of(shown) + 1, f"{more} rows read to show one run twice"
    print(f"diverged at step {step}, first recorded so at {recorded[0]}: told everywhere")


main()
