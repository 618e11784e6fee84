"""What other hands do to files that the worker reads: bits that turn, files too many, FIFOs, links, hostile headers, weights that are no numbers, a
disk without room for the answer. Each is one sentence at its place: no crash, no wait, nothing believed that was not written."""
import json
import math
import os
import shutil
import struct
import subprocess

from training import BAD_INPUT, DONE, FAILED, MOE, WORKER, Bench, check, contains, environment

KEYS = {"training": {"iterations": 6}, "checkpoint": {"interval": 2, "keep": 3}}


def worker(*words, code=DONE, stdout=subprocess.PIPE, **more):
    """A FIFO that is waited for is a time-out here."""
    done = subprocess.run([str(WORKER), *map(str, words)], stdout=stdout, stderr=subprocess.PIPE, env=environment(), timeout=120, **more)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, expected {code}\n{done.stderr.decode()}")
    return done.stderr.decode()


def read(path):
    """The tensors of a file, in order: [name, dtype, shape, bytes]."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    entries = {n: e for n, e in json.loads(raw[8:8 + size]).items() if n != "__metadata__"}
    return [[n, e["dtype"], e["shape"], raw[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]] for n, e in entries.items()]


def write(path, tensors):
    header, data = {}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) * 3 // 4] ^= 0x40
    path.write_bytes(raw)


def trained(bench, name, steps=8, **more):
    """A run whose checkpoints are of steps 2, 4 and 6, with more to train."""
    run = bench.make(name, **KEYS, **more)
    run.train()
    path = run.directory / "run.json"
    job = json.loads(path.read_text())
    job["spec"]["training"]["iterations"] = steps
    job["spec"]["checkpoint"]["accept_changed"] = ["data", "schedule"]
    path.write_text(json.dumps(job))
    return run


def step(run, number):
    return run.directory / "checkpoints" / f"step-{number:07d}"


def goes_on(what, run, start, words=None, names=None):
    said = run.train(timeout=60)
    check(f"{what}: goes on from step {start}", min(run.metrics()), start + 1)
    if words:
        contains(f"{what}: it is told", said, words)
    if names is not None:
        check(f"{what}: what is there then", run.checkpoints(), names)


def resumes(bench):
    run = trained(bench, "more")
    shutil.copy(step(run, 2) / "model.safetensors", step(run, 6) / "model-00001-of-00001.safetensors")
    goes_on("weights of another step beside a checkpoint's own", run, 4, "model-00001-of-00001.safetensors: complete.json does not name it",
            ["step-0000004", "step-0000006", "step-0000006.damaged", "step-0000008"])
    run = trained(bench, "fewer")
    mark = step(run, 6) / "complete.json"
    complete = json.loads(mark.read_text())
    complete["files"] = [file for file in complete["files"] if file["name"] != "model.safetensors"]
    mark.write_text(json.dumps(complete))
    goes_on("weights of which complete.json says nothing", run, 4, "model.safetensors: complete.json does not name it")
    run = trained(bench, "fifo")
    os.mkfifo(step(run, 6) / "extra-more.safetensors")
    goes_on("a FIFO among a checkpoint's files", run, 4, "extra-more.safetensors: complete.json does not name it")
    run = trained(bench, "elsewhere")
    away = bench.root / "kept"
    step(run, 2).rename(away)
    step(run, 2).symlink_to(away)
    files = sorted(path.name for path in away.iterdir())
    goes_on("a link to a checkpoint that is kept elsewhere", run, 6, names=["step-0000004", "step-0000006", "step-0000008"])
    check("only the link was removed", sorted(path.name for path in away.iterdir()), files)
    run = trained(bench, "short-name")
    step(run, 6).rename(run.directory / "checkpoints" / "step-6")
    goes_on("a name that is nobody's", run, 4, names=["step-0000004", "step-0000006", "step-0000008", "step-6"])
    for what, target in (("a loop", "checkpoints"), ("a disk that is not mounted", "/nonexistent/disk")):
        run = trained(bench, "link")
        shutil.rmtree(run.directory / "checkpoints")
        (run.directory / "checkpoints").symlink_to(target)
        contains(f"checkpoints on {what} are no reason to begin anew", run.train(code=BAD_INPUT),
                 "checkpoints: whether this run has checkpoints cannot be told: ")


def damaged_weights(bench):
    for what, more in {"dense": {}, "experts": {"model": {"moe": MOE}}}.items():
        run = trained(bench, f"damaged-{what}", **more)
        file = step(run, 6) / ("model-00001-of-00002.safetensors" if more else "model.safetensors")
        flip(file)
        out = bench.root / f"damaged-{what}-out"
        words = f"{file}: corrupt: its SHA-256 is not that of complete.json"
        contains(f"{what}: a bit that turned is not exported", worker("export", run.directory, out, code=BAD_INPUT), words)
        check("nothing is left of it", [path.name for path in bench.root.glob(out.name + "*")], [])
        contains(f"{what}: nor evaluated", worker("evaluate", run.directory, code=BAD_INPUT), words)
        contains(f"{what}: nor believed by generate", worker("generate", run.directory, "--prompt", "a", code=BAD_INPUT), words)
        flip(file)
        flip(step(run, 6) / ("optimizer-00002-of-00002.safetensors" if more else "optimizer.safetensors"))
        worker("export", run.directory, out)
    cut = step(run, 6) / "model-00002-of-00002.safetensors"
    os.truncate(cut, cut.stat().st_size - 4)
    contains("a file of experts that is cut", worker("generate", run.directory, "--prompt", "a", code=BAD_INPUT), f"{cut}: ")


def foreign_models(bench):
    for what, more in {"dense": {}, "experts": {"model": {"moe": MOE}}}.items():
        run = trained(bench, f"foreign-{what}", **more)
        good, bad = bench.root / f"good-{what}", bench.root / "bad"
        worker("export", run.directory, good)
        tensors = read(good / "model.safetensors")
        matrix = next(i for i, t in enumerate(tensors) if t[0].endswith("experts.1.w3.weight" if more else "q_proj.weight"))
        name, _, shape, raw = tensors[matrix]

        def change(tensor, config=None):
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(good, bad)
            changed = [tensor if i == matrix else t for i, t in enumerate(tensors)]
            write(bad / "model.safetensors", [t for t in changed if t])
            if config:
                (bad / "config.json").write_text(json.dumps({**json.loads((bad / "config.json").read_text()), **config}))

        def refused(title, words, commands=("import", "export", "generate"), code=BAD_INPUT):
            for command in commands:
                more_words = {"import": [], "export": [bench.root / "never"], "generate": ["--prompt", "a", "--max-tokens", "3"]}[command]
                contains(f"{what}: {title}, {command}", worker(command, bad, *more_words, code=code), words)

        change([name, "F32", [*shape, 5000], raw * 5000])
        refused("a third dimension", f"{name} is {shape[0]} × {shape[1]} × 5000, but ")
        run = bench.make("start", origin={"run_directory": None, "checkpoint": str(bad), "step": 0}, training={"iterations": 1}, **more)
        contains(f"{what}: a third dimension, model.from", run.train(code=BAD_INPUT), f"{name} is {shape[0]} × {shape[1]} × 5000, but ")
        worker("inspect", bad)
        change([name, "F32", [1] * 5000 + [len(raw) // 4], raw])
        worker("inspect", bad)
        refused("thousands of dimensions", f"no tensor {name} in it")
        change(None)
        refused("a tensor that is missing", f"no tensor {name} in it")
        change(tensors[matrix])
        write(bad / "model-more.safetensors", [tensors[matrix]])
        refused("a tensor in two files", f"model.safetensors: tensor {name} is in ")
        change(tensors[matrix])
        (bad / "model.safetensors").unlink()
        os.mkfifo(bad / "model.safetensors")
        refused("a FIFO", "model.safetensors: not a regular file")
        change(tensors[matrix], {"rms_norm_eps": -1})
        refused("nonsense in config.json", "config.json: `model.norm_epsilon` expects a number greater than 0", ("import", "generate"))
        change(tensors[matrix])
        write(bad / "model.safetensors", [[n, d, at, struct.pack("<f", math.nan) * (len(r) // 4) if n == "model.norm.weight" else r] for n, d, at, r in tensors])
        refused("weights that are no numbers", "the model gives NaN for token ", ("generate",), code=FAILED)
    contains("a comma too many", worker("generate", good, "--prompt-tokens", "1,2,", code=BAD_INPUT), "numbers from 0 to 256 with commas between")


def data(bench):
    for suffix in ("idx", "bin"):
        prefix = bench.root / "fifo" / "data"
        shutil.rmtree(prefix.parent, ignore_errors=True)
        shutil.copytree(bench.prefix.parent, prefix.parent)
        prefix.with_suffix(f".{suffix}").unlink()
        os.mkfifo(prefix.with_suffix(f".{suffix}"))
        contains(f"a FIFO as data.{suffix}", bench.make("fifo-data", prefix=prefix).train(code=BAD_INPUT, timeout=60), f"data.{suffix}: not a regular file")
    text = bench.root / "text"
    os.mkfifo(text)
    said, _ = bench.tokenize(code=BAD_INPUT, name="fifo-text", input=str(text), prefix=str(bench.root / "never" / "data"))
    contains("a FIFO as text", said, "text: not a regular file")


def answers(bench):
    run = trained(bench, "answers")
    good = bench.root / "answers-out"
    worker("export", run.directory, good)
    for words in (("evaluate", run.directory), ("evaluate", run.directory, "--json"), ("inspect", step(run, 6)), ("inspect", "--json", step(run, 6)),
                  ("import", good), ("generate", run.directory, "--prompt", "a"), ("export", run.directory, bench.root / "told", "--json"), ("--version",)):
        with open("/dev/full", "wb") as full:
            contains(f"no room for the answer of {words[0]}", worker(*words, code=FAILED, stdout=full), "cannot write the output")
        shutil.rmtree(bench.root / "told", ignore_errors=True)
    shutil.copytree(step(run, 6), bench.root / "--json")
    worker("inspect", "--", "--json", cwd=bench.root)


with Bench() as bench:
    resumes(bench)
    damaged_weights(bench)
    foreign_models(bench)
    data(bench)
    answers(bench)
