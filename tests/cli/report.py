#!/usr/bin/env python3
"""`report`: runs that differ in their seed only are one line with mean and range; others are lines of their own; what did not succeed is named."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import TINY, Home  # noqa: E402


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
        assert len(lines) == 5 and all(line.count("|") == 10 for line in lines), table.stdout
        assert f"{groups[0]['metrics']['validation_loss']['mean']:.4f} (" in lines[2], table.stdout
        assert "moe-4" in table.stderr, table.stderr
        assert "no runs" in home.cli("report", "other").stderr
        assert home.run("report", "../x").returncode == 2
        print(home.cli("report", "tiny").stdout)


main()
