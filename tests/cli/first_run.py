#!/usr/bin/env python3
"""The flagship CPU experiment, shortened: what `experiments/demo` promises, with real English text.

Both runs succeed; both learn (validation loss well under the unigram entropy of the bytes, computed here from the text); dense and MoE
read the same samples at every step; what was counted equals what was planned; `run` ends with the comparison.
"""
import collections
import gzip
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import SOURCE, Home  # noqa: E402

TEXT = "/usr/share/dictd/gcide.dict.dz"
STEPS = 60


def unigram_entropy():
    """Nats a byte of the text, document ends aside."""
    counts = collections.Counter()
    with gzip.open(TEXT) as text:
        while block := text.read(1 << 20):
            counts.update(block)
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


def records(shown, kind):
    path = pathlib.Path(shown["directory"]) / "attempt-1" / "records.jsonl"
    return [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == kind]


def main():
    if not pathlib.Path(TEXT).exists():
        print(f"skipped: {TEXT} is not installed")
        sys.exit(77)
    entropy = unigram_entropy()
    with Home() as home:
        done = home.cli("run", SOURCE / "experiments" / "first-run-cpu.yaml", "--set", f"training.iterations={STEPS}",
                        "--set", "training.validation.interval=30", timeout=900)
        assert "validation_loss" in done.stdout and "dense-1" in done.stdout and "moe-1" in done.stdout, done.stdout
        home.serve()
        shown = {name: home.json("show", name) for name in ("dense-1", "moe-1")}
        print(f"unigram entropy of the text: {entropy:.4f} nats a byte")
        for name, run in shown.items():
            assert run["state"] == "succeeded" and run["step"] == STEPS, (name, run["state"], run["reason"])
            loss = run["last"]["validation_loss"]
            print(f"{name}: validation loss {loss:.4f} after {STEPS} steps, {run['tokens_per_second']:.0f} tokens/s")
            assert loss < 0.85 * entropy, (name, loss, entropy)
            assert run["measured"]["parameters"]["total"] == run["plan"]["parameters"]["total"]
            assert run["measured"]["parameters"]["active"] == run["plan"]["parameters"]["active"]
            assert run["measured"]["alltoall_bytes_per_step"] == run["plan"]["alltoall_bytes_per_step"]
        hashes = [[line["samples_sha256"] for line in records(run, "data")] for run in shown.values()]
        assert len(hashes[0]) == STEPS and hashes[0] == hashes[1] and len(set(hashes[0])) == STEPS
        print(f"dense and MoE read the same samples at each of {STEPS} steps")
        balance = [line["metrics"]["load_balancing_loss"] for line in records(shown["moe-1"], "metric")]
        assert all(0.99 < value < 4 for value in balance), balance
        assert len(records(shown["moe-1"], "expert_load")) == STEPS


main()
