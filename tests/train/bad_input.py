"""Everything that can be wrong with what the worker is given: one clear line, exit code 2, nothing half-written."""
import json
import os
import struct
import subprocess

from training import BAD_INPUT, FAILED, MOE, WORKER, Bench, check, contains, environment


def lines(said):
    return [line for line in said.splitlines() if line.startswith("switchyard-worker: ")]


with Bench() as bench:
    def expect(what, run, words, code=BAD_INPUT, **options):
        said = run.train(code=code, **options)
        check(f"{what}: one line", len(lines(said)), 1)
        contains(what, lines(said)[0], words)
        check(f"{what}: no step was recorded", [r["kind"] for a in run.attempts() for r in run.records(attempt=a) if r["kind"] in ("metric", "data")], [])

    def edited(name, edit, **sections):
        run = bench.make(name, **sections)
        document = json.loads((run.directory / "run.json").read_text())
        edit(document)
        (run.directory / "run.json").write_text(json.dumps(document))
        return run

    expect("another number of ranks", bench.make("ranks", resources={"ranks_per_node": 2}), "for 2 ranks (nodes * ranks_per_node), but 1 were started", ranks=1)
    expect("too many ranks", bench.make("ranks"), "for 1 ranks (nodes * ranks_per_node), but 2 were started", ranks=2)
    check("and no attempt was claimed", bench.make("ranks").attempts(), [])

    run = bench.make("gone")
    (run.directory / "run.json").unlink()
    expect("no run.json", run, "run.json: No such file")
    run = bench.make("torn")
    (run.directory / "run.json").write_text('{"v":1,"kind":')
    expect("half a run.json", run, "run.json")
    expect("another kind of run", edited("otherkind", lambda d: d.update(kind="tokenize")), 'a run of kind "tokenize", and one of kind "train" is needed')
    expect("no name", edited("name", lambda d: d.pop("name")), "project, name and run_id")
    expect("no data", edited("nodata", lambda d: d.pop("data")), "data.prefixes")
    expect("an unknown key", edited("key", lambda d: d["spec"]["model"].update(layer=2)), "layer")
    expect("a key that this build cannot run", edited("cannot", lambda d: d["spec"]["resources"].update(device="cuda")), "resources.device")
    expect("experts not divisible", bench.make("divide", model={"moe": {**MOE, "experts": 5}}, resources={"ranks_per_node": 2}, parallelism={"expert": 2}), "experts")
    expect("batch not divisible", bench.make("batch", training={"global_batch_size": 7}), "global_batch_size")
    expect("a missing pair", bench.make("missing", prefix=bench.root / "nowhere"), "nowhere.idx: No such file")
    expect("a missing pair, on 2 ranks", bench.make("missing", prefix=bench.root / "nowhere", resources={"ranks_per_node": 2}), "nowhere.idx: No such file")
    foreign = bench.root / "foreign"  # 40 documents of 50 tokens, the last of each not in the vocabulary
    foreign.with_suffix(".bin").write_bytes(struct.pack("<50H", *range(49), 300) * 40)
    foreign.with_suffix(".idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 40, 41) + struct.pack("<40i", *[50] * 40) +
                                            struct.pack("<40q", *range(0, 4000, 100)) + struct.pack("<41q", *range(41)))
    expect("tokens outside the vocabulary", bench.make("small", prefix=foreign), "holds token 300, but the vocabulary has 257 (model.vocab_size)")
    said = bench.make("small", prefix=foreign, resources={"ranks_per_node": 2}).train(code=BAD_INPUT)  # each rank may meet one of its own
    contains("the same on 2 ranks", lines(said)[0], "holds token 300")
    expect("no validation split", bench.make("split", data={"split": [100, 0, 0]}, training={"validation": {"interval": 2}}), "validation needs a share of the data")
    expect("a validation share that rounds to nothing", bench.make("split", data={"split": [99.99, 0.01, 0]}, training={"validation": {"interval": 2}}),
           "the validation split is empty")

    copy = bench.root / "copy"
    for name in ("bin", "idx"):
        copy.with_suffix(f".{name}").write_bytes(bench.prefix.with_suffix(f".{name}").read_bytes())
    os.truncate(copy.with_suffix(".bin"), 5000)
    expect("a truncated .bin", bench.make("truncated", prefix=copy), "copy.bin: truncated: 5000 bytes")
    raw = bytearray(copy.with_suffix(".idx").read_bytes())
    raw[40] ^= 0xff
    copy.with_suffix(".idx").write_bytes(raw)
    expect("a corrupt .idx", bench.make("corrupt", prefix=copy), "copy.idx: corrupt")
    copy.with_suffix(".idx").write_bytes(b"PK\3\4" + bytes(100))
    expect("something else in place of .idx", bench.make("other", prefix=copy), "not an index of Megatron's kind")

    expect("masking at an end of document that is not known", bench.make("mask", data={"eod_mask_loss": True, "tokenizer": "/a/tokenizer.json"}),
           "`data.eod_mask_loss` needs `data.eod_token`")
    tokenizer = bench.root / "tokenizer.json"
    tokenizer.write_text('{"added_tokens": [{"id": 256, "content": "<end>"}], "model": {"vocab": {"e": 101}}}')
    ends = {"tokenizer": str(tokenizer), "reset_attention_mask": True}
    expect("a token that the tokenizer does not have", bench.make("ends", data={**ends, "eod_token": "<stop>"}),
           f'data.eod_token: {tokenizer} has no token "<stop>"')
    expect("a tokenizer that is not there", bench.make("ends", data={**ends, "tokenizer": "/a/tokenizer.json", "eod_token": "e"}), "data.tokenizer: ")
    run = bench.make("file")
    (run.directory / "checkpoints").write_text("a file in its place")
    run.train()  # never saves: nothing is in the way
    run = bench.make("file", checkpoint={"interval": 4})
    (run.directory / "checkpoints").write_text("a file in its place")
    said = run.train(code=FAILED)
    contains("a file in place of the checkpoint directory", lines(said)[0], "checkpoints")
    check("the steps before it are recorded", sorted(run.metrics()), [1, 2, 3, 4])
    check("and the end with its code", run.records("end")[0]["code"], FAILED)
    check("and the reason as an event", [e["event"] for e in run.records("event")], ["failed"])
    run = bench.make("claimed")
    (run.directory / "attempt-1").write_text("a file in its place")
    contains("a file in place of the attempt", run.train(code=BAD_INPUT, SWITCHYARD_ATTEMPT="1"), "attempt-1/records.jsonl: Not a directory")
    run = bench.make("number")
    expect("a senseless attempt number", run, "SWITCHYARD_ATTEMPT=one", SWITCHYARD_ATTEMPT="one")

    for words, said in (((), "usage:"), (("dance", "/tmp"), "no such command"), (("train",), "expected a command and a directory"),
                        (("train", "/tmp", "--json"), "--json goes with inspect and --version, not with train")):
        done = subprocess.run([WORKER, *words], env=environment(), text=True, capture_output=True)
        check(f"switchyard-worker {' '.join(words)}: exit code 2", done.returncode, BAD_INPUT)
        contains("and says what was expected", done.stderr, said)
    done = subprocess.run([WORKER, "--version", "--json"], env=environment(), text=True, capture_output=True)
    check("--version --json", set(json.loads(done.stdout)), {"version", "mpi", "isa", "compiler", "build"})
    done = subprocess.run([WORKER, "--help"], env=environment(), text=True, capture_output=True)
    contains("--help", done.stdout, "switchyard-worker COMMAND")
