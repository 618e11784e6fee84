"""The tokenise stage as a process: what it records, what it leaves behind when killed, and one line for every bad input."""
import gzip
import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

from training import BAD_INPUT, WORKER, Bench, check, contains, environment


def documents(prefix):
    """The documents of a pair, read by the format alone."""
    raw = prefix.with_suffix(".idx").read_bytes()
    code, sequences, entries = struct.unpack_from("<BQQ", raw, 17)
    assert raw[:17] == b"MMIDIDX\0\0" + struct.pack("<Q", 1) and code == 8 and entries == sequences + 1
    lengths = struct.unpack_from(f"<{sequences}i", raw, 34)
    offsets = struct.unpack_from(f"<{sequences}q", raw, 34 + 4 * sequences)
    data = prefix.with_suffix(".bin").read_bytes()
    return [struct.unpack_from(f"<{n}H", data, at) for n, at in zip(lengths, offsets)]


with Bench() as bench:
    # By the format and by Python's own idea of a paragraph.
    text = bench.text.read_bytes()
    expected = [tuple(p.strip(b"\n")) + (256,) for p in text.split(b"\n\n") if p.strip()]
    check("every paragraph, byte for byte, with its end of document", documents(bench.prefix), expected)
    complete = json.loads((bench.prefix.parent / "complete.json").read_text())
    check("complete.json: documents and tokens", (complete["documents"], complete["tokens"]), (len(expected), sum(map(len, expected))))
    for kind in ("bin", "idx"):
        check(f"complete.json: hash of .{kind}", complete[f"{kind}_sha256"], hashlib.sha256(bench.prefix.with_suffix(f".{kind}").read_bytes()).hexdigest())
    run = bench.tokenize_run()
    check("records of the stage", [r["kind"] for r in run.records()], ["start", "progress", "end"])
    last = run.records("progress")[-1]
    check("progress reaches its total", last["done"], last["total"])
    check("the end says what came out", (run.records("end")[0]["code"], run.records("end")[0]["tokens"]), (0, complete["tokens"]))
    check("nothing else is left beside the pair", sorted(p.name for p in bench.prefix.parent.iterdir() if p.is_file()), ["complete.json", "data.bin", "data.idx"])

    big = bench.root / "big.txt.gz"
    with gzip.open(big, "wb", compresslevel=1) as out:
        for i in range(150):
            out.write(text + b"\n" + str(i).encode() * 50 + b"\n\n")
    whole = bench.root / "whole" / "data"
    bench.tokenize(name="whole-run", input=str(big), prefix=str(whole))
    check("gzip by content: tokens are its bytes less blank lines", len(documents(whole)), 150 * (len(expected) + 1))

    # Killed at any moment: no pair that looks whole, and the next attempt makes the same bytes.
    again = bench.root / "again" / "data"
    run = bench.tokenize_run("again-run", input=str(big), prefix=str(again))
    kills = 0
    for delay in (0.01, 0.03, 0.06):
        process = subprocess.Popen([WORKER, "tokenize", run.directory], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        if not (again.parent / "complete.json").exists():
            continue
        break
    check("it was killed in the middle", kills > 0, True)
    bench.tokenize(name="again-run", input=str(big), prefix=str(again))
    for kind in ("bin", "idx"):
        check(f"after kills: the same .{kind}", again.with_suffix(f".{kind}").read_bytes() == whole.with_suffix(f".{kind}").read_bytes(), True)
    check("attempts are numbered on", run.attempts(), list(range(1, len(run.attempts()) + 1)))

    # Memory does not grow with the text, not even where all of it is one document.
    peak = {}
    for name, size in (("small", 20), ("large", 400)):
        path = bench.root / f"{name}.txt"
        path.write_bytes(text * size)
        _, run = bench.tokenize(name=f"{name}-run", input=str(path), prefix=str(bench.root / name / "data"), document="file")
        peak[name] = run.records("end")[0]["peak_memory_bytes"] // 1024
        check(f"one document of {path.stat().st_size} bytes", len(documents(bench.root / name / "data")), 1)
    check(f"memory for twenty times the text (KiB: {peak})", peak["large"] - peak["small"] < 2048, True)

    # Bad input: code 2, one line, no pair.
    def refused(what, words, content=None, **keys):
        path = bench.root / keys.pop("file", "bad.txt")
        if content is not None:
            path.write_bytes(content)
        prefix = bench.root / "bad" / "data"
        said, run = bench.tokenize(code=BAD_INPUT, name="bad-run", input=str(path), prefix=str(prefix), **keys)
        check(f"{what}: one line", len([l for l in said.splitlines() if l.startswith("switchyard-worker: ")]), 1)
        contains(what, said, words)
        check(f"{what}: nothing half-written", sorted(p.name for p in prefix.parent.glob("*")), [])
        check(f"{what}: recorded", run.records("event")[-1]["event"], "failed")

    packed = gzip.compress(text)
    refused("a corrupt gzip", "corrupt gzip", packed[:200] + bytes([packed[200] ^ 255]) + packed[201:])
    refused("a cut gzip", "it ends inside its data", packed[:-100])
    refused("a missing corpus", "nowhere.txt: No such file", file="nowhere.txt")
    refused("an empty corpus", "no text in it", b"\n\n")
    refused("another tokenizer", "this build has only byte", b"text", tokenizer="/a/tokenizer.json")
    refused("JSONL without the member", 'bad.jsonl:1: no string member "body"', b'{"text": "a"}\n', file="bad.jsonl", json_key="body")
    run = bench.tokenize_run("file-run", prefix=str(bench.text / "data"))
    done = subprocess.run([WORKER, "tokenize", run.directory], env=environment(), text=True, capture_output=True)
    check("a file in place of the directory: code 2", done.returncode, BAD_INPUT)
    contains("and says so", done.stderr, "not a directory")
