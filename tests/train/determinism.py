"""`check determinism`: equal runs pass, alone and over ranks, with all that a spec may ask for; a difference of one bit anywhere is found
and named."""
import json
import math
import subprocess

from training import BAD_INPUT, DONE, FAILED, MOE, WORKER, Bench, check, contains, environment


def judge(*words, ranks=1, code=DONE):
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launcher, str(WORKER), "check", "determinism", *map(str, words)], env=environment(), text=True, capture_output=True, timeout=120)
    if done.returncode != code:
        raise AssertionError(f"check determinism {words}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


with Bench() as bench:
    for name, sections in {
        "dense": {}, "dense on 2 threads": {"resources": {"threads_per_rank": 2}},
        "moe in a batch ramp": {"model": {"moe": MOE}, "training": {"rampup_batch_size": {"start": 2, "increment": 2, "samples": 40}}},
        "bf16 with dropout": {"model": {"hidden_dropout": 0.1, "attention_dropout": 0.1}, "training": {"precision": "bf16"}},
        "fp16 moe, steps skipped": {"model": {"moe": MOE}, "training": {"precision": "fp16", "loss_scale": {"initial": 2.0 ** 22}}},
        "moe over 2 ranks": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}},
    }.items():
        training = {"iterations": 500, "deterministic": True, "validation": {"interval": 5, "iterations": 1}, **sections.pop("training", {}),
                    "learning_rate": {"schedule": "cosine", "peak": 3e-3, "warmup_iterations": 20}}
        run = bench.make("run", training=training, logging={"interval": 100, "expert_load": False}, **sections)
        said = judge(run.directory, ranks=run.ranks)
        contains(f"{name}: says so", said, "deterministic: 12 iterations twice, every bit equal")
        check(f"{name}: skipped steps are told", " of them were skipped by the loss scale" in said, "skipped" in name)
        result = json.loads((run.directory / "determinism.json").read_text())
        check(f"{name}: 12 iterations", [row["step"] for row in result["steps"]], list(range(1, 13)))
        check(f"{name}: what is compared", set(result["steps"][-1]), {"step", "loss", "grad_norm", "grad_zeros", "equal"} | ({"load_balancing_loss"} if "moe" in name else set()))
        check(f"{name}: parameters and moments too", [(row["name"], row["equal"]) for row in result["state"]], [("parameters", True), ("optimizer's state", True), ("counters and the like", True)])
        check(f"{name}: no difference", (result["equal"], result["differences"]), (True, []))
        check(f"{name}: nothing else is left", sorted(p.name for p in run.directory.iterdir()), ["determinism.json", "run.json"])

    # The short runs are the first iterations of the long one: the same schedule, the same data.
    whole = bench.make("whole", model={"moe": MOE}, training={"iterations": 30, "learning_rate": {"schedule": "linear", "peak": 3e-3, "warmup_iterations": 4}})
    judge(whole.directory)
    tried = json.loads((whole.directory / "determinism.json").read_text())["steps"]
    whole.train()
    check("the losses are those of the whole run's first iterations", [row["loss"] for row in tried], whole.values("loss")[:12])

    # Two runs that somebody made, compared: what differs is named, wherever it is.
    first, second, other = (bench.make(name, model={"moe": MOE}, training={"seed": seed}, checkpoint={"interval": 8})
                            for name, seed in (("first", 1), ("second", 1), ("other", 2)))
    for run in (first, second, other):
        run.train()
    contains("equal runs", judge(first.directory, second.directory), "8 iterations twice, every bit equal")
    said = judge(first.directory, other.directory, code=FAILED)
    contains("another seed: in the first step", said, "NOT deterministic: the first difference is in step 1, ")

    records = second.directory / "attempt-1" / "records.jsonl"
    lines = records.read_text()
    norm = second.metrics()[7]["grad_norm"]
    next_norm = math.nextafter(norm, math.inf)
    records.write_text(lines.replace(f'"grad_norm":{norm!r}', f'"grad_norm":{next_norm!r}'))
    said = judge(first.directory, second.directory, code=FAILED)
    contains("the last bit of one norm", said, f"in step 7, grad_norm: {norm!r} and {next_norm!r}")
    check("and no other step is blamed", said.count("DIFFERENT"), 1)
    hashes = [line["samples_sha256"] for line in second.records("data")]
    records.write_text(lines.replace(hashes[3], hashes[4]))
    contains("other samples", judge(first.directory, second.directory, code=FAILED), f"in step 4, samples_sha256: {hashes[3]} and {hashes[4]}")
    records.write_text("".join(line for line in lines.splitlines(True) if '"step":8' not in line))
    contains("a step less", judge(first.directory, second.directory, code=FAILED), "in step 8, samples_sha256: ")
    records.write_text(lines)

    weights = second.directory / "checkpoints" / "step-0000008"
    for path, name in ((next(weights.glob("model-00002*")), "model.layers."), (next(weights.glob("optimizer-00001*")), ".exp_avg"),
                       (weights / "extra.safetensors", "optimizer.")):
        raw = path.read_bytes()
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        said = judge(first.directory, second.directory, code=FAILED)
        contains(f"one bit of {path.name}", said, "NOT deterministic: the first difference is ")
        contains(f"its tensor is named", said.split("first difference is ")[1], name)
        path.write_bytes(raw)
    contains("as before", judge(first.directory, second.directory), "every bit equal")

    # What cannot be tried.
    contains("no such run", judge(bench.root / "absent", code=BAD_INPUT), "run.json")
    contains("no records", judge(first.directory, bench.make("fresh").directory, code=BAD_INPUT), "no steps are recorded there")
    contains("no such check", subprocess.run([str(WORKER), "check", "weather", "x"], capture_output=True, text=True, env=environment()).stderr, "check takes a word")
    said = judge(bench.make("vocabulary", model={"vocab_size": 20}, data={"eod_mask_loss": False}).directory, code=BAD_INPUT)
    contains("a run that cannot start says why", said, "vocab")
