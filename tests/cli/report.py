#!/usr/bin/env python3
"""`report`: runs that differ in their seed only are one line with mean and range; others are lines of their own; what did not succeed is named."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import TINY, Home  # noqa: E402


def spread_text(told, runs):
    return f"{told['mean']:.4f}" + (f" ({told['least']:.4f}–{told['most']:.4f})" if runs > 1 else "")


def without_validation(home):
    """Who trains without validation sees the training loss, and in words that it is that."""
    text = TINY.replace("  validation: {interval: 4, iterations: 1}\n", "").replace("project: tiny", "project: bare")
    assert "validation" not in text
    for seed in (1, 2):
        home.cli("run", home.spec(text, "bare.yaml"), "--run", "dense", "--set", f"training.seed={seed}")
    group, = home.json("report", "bare")["groups"]
    assert group["metrics"]["validation_loss"] is None, group
    done = home.cli("report", "bare", "--markdown")
    heading, _, line = done.stdout.splitlines()
    assert heading.split(" | ")[4:6] == ["training loss", "tokens/s"] and "validation" not in heading, heading
    assert line.split(" | ")[4] == spread_text(group["metrics"]["loss"], 2), (line, group)
    assert done.stderr.startswith("no validation in these runs: the training loss is that of the last step, of its own batch ("), done.stderr
    # Beside one that was validated it has no validation loss, and is named.
    home.cli("run", home.spec(text, "bare.yaml"), "--run", "moe", "--set", "training.validation={interval: 4, iterations: 1}")
    done = home.cli("report", "bare", "--markdown")
    lines = [line.split(" | ")[4:6] for line in done.stdout.splitlines()]
    assert lines[0] == ["validation loss", "training loss"] and lines[2] == ["-", spread_text(group["metrics"]["loss"], 2)] and "-" not in lines[3], done.stdout
    assert done.stderr == "no validation: dense; a training loss is that of the last step, of its own batch, and compares with training losses only\n", done.stderr


def main():
    with Home() as home:
        home.serve()
        spec = home.spec()
        for seed in (1, 2, 3):
            asked = home.spec("# Asked in other words?\n" + TINY, "asked.yaml") if seed == 2 else spec
            home.cli("run", asked, "--set", f"training.seed={seed}")
        home.cli("run", spec, "--run", "dense", "--set", "training.learning_rate.peak=2e-3")
        home.cli("submit", spec, "--run", "moe", "--set", "training.iterations=100000")
        home.wait_for("moe-4", {"running"})
        home.cli("cancel", "moe-4")
        home.wait_for("moe-4", {"cancelled"})
        report = home.json("report", "tiny")
        groups = report["groups"]
        assert [(g["name"], g["runs"], g["seeds"]) for g in groups] == [
            ("dense", ["dense-1", "dense-2", "dense-3"], [1, 2, 3]), ("moe", ["moe-1", "moe-2", "moe-3"], [1, 2, 3]),
            ("dense", ["dense-4"], [1234])], groups
        for group in groups:
            losses = [home.json("show", run)["last"]["validation_loss"] for run in group["runs"]]
            told = group["metrics"]["validation_loss"]
            assert told == {"mean": sum(losses) / len(losses), "least": min(losses), "most": max(losses)}, (told, losses)
            losses = [home.json("show", run)["last"]["loss"] for run in group["runs"]]
            assert group["metrics"]["loss"] == {"mean": sum(losses) / len(losses), "least": min(losses), "most": max(losses)}, (group, losses)
            assert group["metrics"]["tokens_per_second"]["least"] > 0
        assert len({home.json("show", f"dense-{n}")["last"]["validation_loss"] for n in (1, 2, 3)}) == 3, "seeds change nothing"
        shares = home.json("show", "moe-2")["last"]
        busiest = 4 * (shares["moe/layer_00/largest_share"] + shares["moe/layer_01/largest_share"]) / 2
        spread = groups[1]["metrics"]["busiest_expert"]
        assert spread["least"] <= busiest <= spread["most"] and 1 <= spread["least"], (spread, busiest)
        assert groups[0]["metrics"]["busiest_expert"] is None and groups[0]["metrics"]["load_balancing_loss"] is None
        assert [left["name"] for left in report["left_out"]] == ["moe-4"], report["left_out"]

        assert [d["key"] for d in home.json("compare", "dense-1", "dense-2")["configuration"]] == ["training.seed"]
        other = home.run("compare", "dense-1", "tokenize-1")
        assert other.returncode == 3 and "nothing to compare" in other.stderr, (other.returncode, other.stderr)

        labels = [line.split("  ")[0].strip() for line in home.cli("report", "tiny").stdout.splitlines()[1:]]
        assert labels == ["dense: dense-1", "moe", "dense: dense-4"], labels  # lines of one name are told apart

        table = home.cli("report", "tiny", "--markdown")
        lines = table.stdout.splitlines()
        assert len(lines) == 5 and all(line.count("|") == 11 for line in lines), table.stdout
        assert lines[0].split(" | ")[4:6] == ["validation loss", "training loss"], table.stdout
        for column, metric in ((4, "validation_loss"), (5, "loss")):
            for line, group in zip(lines[2:], groups):
                assert line.split(" | ")[column] == spread_text(group["metrics"][metric], len(group["runs"])), (table.stdout, group)
        assert table.stderr == "left out: moe-4, which is cancelled\n", table.stderr
        assert "no runs" in home.cli("report", "other").stderr
        assert home.run("report", "../x").returncode == 2
        print(home.cli("report", "tiny").stdout)
        without_validation(home)

        # Of a sweep that was left out a line says all.
        home.cli("submit", home.spec(TINY + "sweep: {grid: {training.seed: [11, 12, 13, 14, 15, 16, 17]}}\n", "many.yaml"), "--run", "dense")
        home.cli("cancel", "--submission", "dense-seed11-1")
        home.wait_for("dense-seed11-1", {"cancelled"})
        left = home.cli("report", "tiny").stderr.splitlines()
        assert len(left) == 1 and left[0].startswith("left out: moe-4, dense-seed1") and left[0].endswith(" and 3 more, which are cancelled"), left
        assert home.cli("cancel", "--project", "tiny").stdout == "nothing to cancel: every run of it is over\n"
        refused = home.cli("cancel", "--project", "tinny", code=3)
        assert refused.stderr == "switchyard: there is no run of project tinny\n", refused


main()
