"""`evaluate`: validation's own numbers from a checkpoint, of any layout; definitions that can be recomputed; the same each time; clear faults."""
import json
import math
import subprocess

from training import BAD_INPUT, MOE, WORKER, Bench, check, close, contains, environment, merge

TRAINING = {"iterations": 6, "validation": {"interval": 3, "iterations": 2}}


def evaluate(*words, code=0):
    done = subprocess.run([str(WORKER), "evaluate", *map(str, words)], capture_output=True, text=True, env=environment(), timeout=120)
    if done.returncode != code:
        raise AssertionError(f"evaluate {words}: exit {done.returncode}, expected {code}\n{done.stderr}")
    return done.stderr if code else json.loads(done.stdout) if "--json" in words else done.stdout


with Bench() as bench:
    kinds = {
        "dense": {},
        "experts in bf16": {"model": {"moe": MOE}, "training": {"precision": "bf16"}},
        "experts chosen with a bias, limited": {"model": {"moe": {**MOE, "score_function": "sigmoid", "expert_bias": True, "bias_update_rate": 0.1,
                                                                 "capacity_factor": 1.0, "eval_capacity_factor": 1.5}}},
        "experts over two ranks": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}},
    }
    for what, sections in kinds.items():
        run = bench.make("run", **merge({"training": {**TRAINING}, "checkpoint": {"interval": 3}}, sections))
        run.train()
        # Validation reads the first 2 x 8 samples: 8 micro batches of 2.
        for step, loss in zip((3, 6), run.values("validation_loss")):
            result = evaluate(run.directory, "--batches", 8, "--step", step, "--json")
            close(f"{what}: the validation loss of step {step}", [result["loss"]], [loss], 1e-12)
            check(f"{what}: tokens and samples", (result["tokens"], result["samples"], result["step"]), (16 * 32, 16, step))
        last = evaluate(run.directory, "--batches", 8, "--json")
        check(f"{what}: the last checkpoint is the default, and twice is the same", last, result)
        check(f"{what}: a checkpoint's directory will do", evaluate(run.directory / "checkpoints" / "step-0000006", "--batches", 8, "--json"), result)
        check(f"{what}: threads do not show", evaluate(run.directory, "--batches", 8, "--threads", 1, "--json"), result)

    close("perplexity is e to the loss", [result["perplexity"]], [math.exp(result["loss"])], 1e-12)
    close("bits per byte", [result["bits_per_byte"]], [result["loss"] * result["tokens"] / math.log(2) / result["bytes"]], 1e-12)
    check("ends of documents are no bytes", 0 < result["bytes"] < result["tokens"], True)

    # The whole split, once: 5 samples a batch do not divide it, and the last batch's empty rows do not count.
    whole = evaluate(run.directory, "--json")
    odd = bench.make("odd", training={**TRAINING, "micro_batch_size": 5, "global_batch_size": 10}, checkpoint={"interval": 3}, **kinds["experts over two ranks"])
    odd.train()
    other = evaluate(odd.directory, "--json")
    check("samples of the whole split", (whole["samples"] % 5 != 0, whole["samples"] % 2, other["samples"], other["tokens"], other["bytes"]),
          (True, whole["samples"] % 2, whole["samples"], whole["tokens"], whole["bytes"]))
    train = evaluate(run.directory, "--split", "train", "--batches", 3, "--json")
    check("the training split has samples of its own", train["samples"] == 6 and train["loss"] != whole["loss"], True)

    # A model that knows nothing: ln V a token, all alike.
    blank = bench.make("blank", training={"iterations": 1, "learning_rate": {"peak": 1e-30}}, model={"init": {"std": 1e-30}},
                       checkpoint={"interval": 1})
    blank.train()
    nothing = evaluate(blank.directory, "--json")
    close("a blank model's loss is the logarithm of its vocabulary", [nothing["loss"]], [math.log(257)], 1e-6)

    masked = bench.make("masked", training=TRAINING, checkpoint={"interval": 3}, data={"eod_mask_loss": True})
    masked.train()
    fewer = evaluate(masked.directory, "--json")
    check("targets that do not count are not counted", fewer["samples"] == whole["samples"] and fewer["tokens"] < whole["tokens"], True)

    contains("people read it too", evaluate(run.directory, "--batches", 1), "bits_per_byte")
    contains("no such split", evaluate(run.directory, "--split", "dev", code=BAD_INPUT), "valid, test or train, not 'dev'")
    contains("an empty split", evaluate(run.directory, "--split", "test", code=BAD_INPUT), "the test split is empty")
    contains("no such step", evaluate(run.directory, "--step", 5, code=BAD_INPUT), "no complete checkpoint of step 5")
    contains("nothing there", evaluate(bench.root / "nothing", code=BAD_INPUT), "neither a run directory")
    contains("an option that is none", evaluate(run.directory, "--speed", code=BAD_INPUT), "no option --speed")
    contains("a number that is none", evaluate(run.directory, "--batches", "many", code=BAD_INPUT), "--batches wants a whole number of at least 1, not 'many'")
    contains("a number beyond all numbers", evaluate(run.directory, "--batches", "1" * 30, code=BAD_INPUT), "a whole number of at most 9007199254740992")
    contains("what is wrong is one line", evaluate(run.directory, "--threads", 0, code=BAD_INPUT), "switchyard-worker: --threads wants a whole number from 1 to 4096, not '0'\n")
    contains("too many words", evaluate(run.directory, "and", code=BAD_INPUT), "one word too many: and")
    contains("no words", evaluate(code=BAD_INPUT), "1 of 1 words are missing: evaluate RUN_OR_CHECKPOINT")
