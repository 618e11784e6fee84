#!/usr/bin/env python3
"""Bad input ends in one clear line at its place, an exit code that is not 0, and nothing half-written.

Each case runs the real programs; a row of the table is printed for each. A case states the words that the message must hold.
"""
import os
import pathlib
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import TINY, WORKER, Home  # noqa: E402

rows, failures = [], 0


def check(name, ok, shown):
    global failures
    first = next((line for line in shown.splitlines() if line.strip()), "(nothing)")
    rows.append((name, "ok" if ok else "FAIL", first[:110]))
    if not ok:
        failures += 1
        print(f"--- {name} failed, it said:\n{shown}\n---", file=sys.stderr)


def entries(home):
    """All that a submission could leave: run directories and rows."""
    left = [p for p in (home.home / "runs").rglob("*")] if (home.home / "runs").exists() else []
    return left + home.json("ls")["runs"]


def refused(home, name, text, words, code=2, with_corpus=True, options=()):
    """The spec is refused by `submit`, at its place, and leaves nothing."""
    path = home.spec(text, with_corpus=with_corpus)
    done = home.run("submit", path, *options)
    said = done.stderr
    ok = done.returncode == code and all(w in said for w in words) and not entries(home)
    check(name, ok, said + (f"(exit {done.returncode}, expected {code}; left {entries(home)})" if not ok else ""))


def specs(home):
    refused(home, "unknown key", TINY.replace("layers: 2", "layres: 2"), ["tiny.yaml:4:9", "layres", "layers"])
    refused(home, "duplicate key", TINY.replace("  seed: 1234", "  seed: 1234\n  seed: 99"), ["tiny.yaml:14:3", "seed", "line 13", "line 14"])
    refused(home, "wrong type", TINY.replace("iterations: 8", "iterations: many"), ["tiny.yaml:6:15", "many", "whole number"])
    refused(home, "wrong boolean", TINY.replace("tied_embeddings: true", "tied_embeddings: yes"), ["tiny.yaml:4", "true"])
    refused(home, "octal-looking integer", TINY.replace("iterations: 8", "iterations: 010"), ["tiny.yaml:6:15", "010"])
    refused(home, "experts not divisible by EP", TINY + "    parallelism: {expert: 3}\n", ["4", "3", "expert"])
    refused(home, "batch not divisible", TINY.replace("global_batch_size: 8", "global_batch_size: 7"), ["7", "2", "global_batch_size"])
    refused(home, "heads not divisible", TINY.replace("attention_heads: 4", "attention_heads: 5"), ["5", "32"])
    refused(home, "two errors at once", TINY.replace("layers: 2", "layres: 2").replace("iterations: 8", "iterations: many"),
            ["layres", "many"])
    refused(home, "--set with an unknown key", TINY, ["--set", "training.iteratoins"], options=("--set", "training.iteratoins=3"))
    refused(home, "missing variable", TINY.replace("corpus.txt", "${NO_SUCH_VARIABLE}/corpus.txt"), ["tiny.yaml:3", "NO_SUCH_VARIABLE"])
    refused(home, "a key that cannot run yet", TINY.replace("time_limit: 10m", "time_limit: 10m, device: cuda"), ["tiny.yaml:14", "cuda", "yet"])


def files(home):
    path = home.spec(TINY.replace("corpus.txt", "absent.txt"))
    done = home.run("submit", path)
    check("missing corpus", done.returncode in (2, 3) and "absent.txt" in done.stderr and not entries(home), done.stderr)

    done = home.run("submit", home.work / "no-such.yaml")
    check("missing spec", done.returncode == 2 and "no-such.yaml" in done.stderr, done.stderr)

    with open(home.work / "huge.yaml", "wb") as huge:
        huge.truncate(100 << 20)
    done = home.run("submit", home.work / "huge.yaml")
    check("spec of 100 MB", done.returncode == 2 and "huge.yaml" in done.stderr and len(done.stderr) < 2000, done.stderr)

    (home.work / "broken.yaml").write_bytes(b"project: [\xff\xfe\n")
    done = home.run("validate", home.work / "broken.yaml")
    check("bytes that are not UTF-8", done.returncode == 2 and "broken.yaml:1" in done.stderr, done.stderr)

    (home.work / "file-in-place").write_text("")
    path = home.spec(TINY.replace("project: tiny", "project: tiny\noutput: file-in-place"))
    done = home.run("submit", path)
    check("a file in place of the output directory", done.returncode in (2, 3) and "file-in-place" in done.stderr and not entries(home), done.stderr)


def indexed(home):
    """A pair PREFIX.bin / PREFIX.idx that is damaged: the worker says which file and why, exit code 2."""
    for name, damage, words in (("truncated .bin", truncate_bin, ["data.bin"]), ("corrupt .idx magic", corrupt_magic, ["data.idx"]),
                                ("truncated .idx", truncate_idx, ["data.idx"]), ("missing .bin", remove_bin, ["data.bin"])):
        prefix = write_pair(home.work)
        damage(prefix)
        text = TINY.replace("text: corpus.txt, document: paragraph", "prefix: data")
        before = len(home.json("ls")["runs"])
        done = home.run("run", home.spec(text), "--run", "dense", timeout=60)
        said = done.stderr + done.stdout
        runs = home.json("ls")["runs"]
        ok = done.returncode != 0 and all(w in said for w in words)
        if len(runs) > before:  # accepted, and then ended by the worker: in the right state, with the reason
            ok = ok and runs[0]["state"] == "failed" and all(w in (runs[0]["reason"] or "") for w in words)
        check(name, ok, said + str(runs[:1]))


def write_pair(folder):
    tokens, lengths = [i % 256 for i in range(40000)], [100] * 400
    (folder / "data.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    offsets = [200 * i for i in range(400)]
    (folder / "data.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 400, 401) + struct.pack("<400i", *lengths)
                                      + struct.pack("<400q", *offsets) + struct.pack("<401q", *range(401)))
    return folder / "data"


def truncate_bin(prefix):
    os.truncate(f"{prefix}.bin", 30000)


def truncate_idx(prefix):
    os.truncate(f"{prefix}.idx", 1000)


def corrupt_magic(prefix):
    path = pathlib.Path(f"{prefix}.idx")
    path.write_bytes(b"XX" + path.read_bytes()[2:])


def remove_bin(prefix):
    os.unlink(f"{prefix}.bin")


def port_in_use(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Home() as other:
            done = other.run("serve", "--port", port, timeout=20)
            check("port in use", done.returncode not in (0, None) and str(port) in done.stderr and "use" in done.stderr, done.stderr)


def worker_by_hand(home):
    done = subprocess.run([WORKER, "train", home.work / "nowhere"], text=True, capture_output=True, timeout=30)
    check("worker without run.json", done.returncode == 2 and "nowhere" in done.stderr, done.stderr)
    (home.work / "bad").mkdir()
    (home.work / "bad" / "run.json").write_text('{"v": 1, "kind": "train", ')
    done = subprocess.run([WORKER, "train", home.work / "bad"], text=True, capture_output=True, timeout=30)
    check("worker with a torn run.json", done.returncode == 2 and "run.json" in done.stderr, done.stderr)


def main():
    with Home() as home:
        home.serve()
        specs(home)
        files(home)
        indexed(home)
        port_in_use(home)
        worker_by_hand(home)
        print(f"{'bad input':42} {'':5} what it says")
        for name, verdict, line in rows:
            print(f"{name:42} {verdict:5} {line}")
        print(f"{len(rows) - failures} of {len(rows)} as they should be")
        assert failures == 0


main()
