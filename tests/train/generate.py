"""`generate`: greedy is the argmax of the model's own logits, seeds decide what is drawn, experts are read when they are chosen and no others, it
ends where it should, and refuses by name what it cannot do."""
import copy
import ctypes
import json
import mmap
import os
import pathlib
import subprocess

from training import BAD_INPUT, MOE, WORKER, Bench, check, contains, environment, merge


def generate(*words, code=0, text=False):
    done = subprocess.run([str(WORKER), "generate", *map(str, words), *([] if text or code else ["--json"])], capture_output=True, env=environment(),
                          timeout=120)
    if done.returncode != code:
        raise AssertionError(f"generate {words}: exit {done.returncode}, expected {code}\n{done.stderr.decode()}")
    return done.stderr.decode() if code else done.stdout if text else json.loads(done.stdout)


def header(path):
    """{name: (first byte, last byte + 1)} in the file."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(size))
    return {n: tuple(8 + size + at for at in e["data_offsets"]) for n, e in entries.items() if n != "__metadata__"}


def evict(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(path):
    """Which pages of a file the kernel holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = path.stat().st_size
    pages = ctypes.create_string_buffer((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
    with open(path, "rb") as file:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        assert libc.mincore(at, size, pages) == 0, os.strerror(ctypes.get_errno())
        libc.munmap(at, size)
    return [byte & 1 for byte in pages.raw]


def pages_of(spans):
    return {page for begin, end in spans for page in range(begin // mmap.PAGESIZE, (end + mmap.PAGESIZE - 1) // mmap.PAGESIZE)}


def only_chosen_pages(bench):
    """Many experts of some pages each, few of them chosen: the pages in memory afterwards are theirs."""
    moe = {"experts": 16, "top_k": 1, "pre_softmax": True, "expert_ffn_hidden_size": 128}
    run = bench.make("wide", training={"iterations": 2}, checkpoint={"interval": 2}, model={"hidden_size": 64, "moe": moe},
                     resources={"ranks_per_node": 2}, parallelism={"expert": 2})
    run.train()
    directory = run.directory / "checkpoints" / "step-0000002"
    headers = {path: header(path) for path in directory.glob("model-*.safetensors")}  # read now, since reading reads ahead
    files = [path for path, spans in headers.items() if any(".experts." in n for n in spans)]
    check("a file of experts for each rank", len(files), 2)
    generate(run.directory, "--prompt", "a", "--max-tokens", 1)  # shared libraries and the like are warm
    for path in files:
        evict(path)
    if any(any(resident(path)) for path in files):
        print("not looked at: this file system keeps pages that it is asked to drop")
        return
    result = generate(run.directory, "--prompt", "abc", "--max-tokens", 2)
    experts = result["experts"]
    matrix = 64 * 128 * 4
    check("every matrix lies as the device wants it", experts["matrices_in_place"], 2 * experts["chosen"])
    check("bytes: three matrices of each chosen expert", (experts["bytes_touched"], experts["bytes"], experts["all"]),
          (3 * matrix * experts["chosen"], 3 * matrix * 32, 32))
    check("few were chosen", 0 < experts["chosen"] < 16, True)
    held, touched = 0, set()
    for path in files:
        spans = headers[path]
        pages = {i for i, there in enumerate(resident(path)) if there}
        first = min(begin for begin, _ in spans.values())
        data = pages - pages_of([(0, first)])
        for name, (begin, end) in spans.items():
            inner = pages_of([(begin, end)]) & pages
            if len(inner) * mmap.PAGESIZE >= end - begin:
                touched.add(name)
        held += len(data)
    chosen = {n.split(".w")[0] for n in touched}
    check("experts whose pages are all in memory are as many as were chosen", len(chosen), experts["chosen"])
    check("each with its three matrices", len(touched), 3 * experts["chosen"])
    allowed = experts["bytes_touched"] // mmap.PAGESIZE + 2 * len(touched)  # a page more at either end of a matrix
    check(f"{held} pages of experts are in memory, {experts['bytes_touched'] // mmap.PAGESIZE} were asked for", held <= allowed, True)


with Bench() as bench:
    kinds = {
        "dense": {},
        "experts in bf16": {"model": {"moe": MOE}, "training": {"precision": "bf16"}},
        "experts over two ranks": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}},
        "GPT with a shared expert": {"model": {"moe": {**MOE, "shared_expert_size": 16}, "norm": "layernorm", "activation": "gelu", "bias": True,
                                               "position": "learned"}},
    }
    for what, sections in kinds.items():
        # Large initial values: what such a model says is varied, and a small error shows.
        run = bench.make("run", **merge({"model": {"init": {"std": 0.5}}, "checkpoint": {"interval": 2},
                                         "training": {"iterations": 4, "learning_rate": {"peak": 1e-2}}}, copy.deepcopy(sections)))
        run.train()
        greedy = generate(run.directory, "--prompt", "the of a", "--max-tokens", 15)
        check(f"{what}: it does not say one thing only", len(set(greedy["tokens"])) > 3, True)
        check(f"{what}: so many tokens", (len(greedy["tokens"]), greedy["stop"], greedy["prompt_tokens"]), (15, "max_tokens", 8))
        # The same continuation, each token from a prompt that holds all before it: one pass over all, nothing kept.
        text = [*b"the of a"]
        for token in greedy["tokens"]:
            alone = generate(run.directory, "--prompt-tokens", ",".join(map(str, text)), "--max-tokens", 1)
            if alone["tokens"] != [token]:
                raise AssertionError(f"{what}: after {text}: {alone['tokens']}, with kept keys {token}")
            text.append(token)
        print(f"ok  {what}: kept keys and values do not show")
        check(f"{what}: again, the same", generate(run.directory, "--prompt", "the of a", "--max-tokens", 15)["tokens"], greedy["tokens"])
        check(f"{what}: threads do not show", generate(run.directory, "--prompt", "the of a", "--max-tokens", 15, "--threads", 1)["tokens"], greedy["tokens"])
        check(f"{what}: text is the bytes", generate(run.directory, "--prompt", "the of a", "--max-tokens", 15, text=True),
              bytes(t for t in greedy["tokens"] if t < 256) + b"\n")
        drawn = [generate(run.directory, "--prompt", "", "--max-tokens", 25, "--temperature", 1, "--seed", seed)["tokens"] for seed in (1, 1, 2)]
        check(f"{what}: a seed decides", (drawn[0] == drawn[1], drawn[0] == drawn[2]), (True, False))
        check(f"{what}: top-k of one is greedy", generate(run.directory, "--prompt", "the of a", "--max-tokens", 15, "--temperature", 2, "--top-k", 1)
              ["tokens"], greedy["tokens"])
        check(f"{what}: so is hardly any top-p", generate(run.directory, "--prompt", "the of a", "--max-tokens", 15, "--temperature", 2, "--top-p", 1e-9)
              ["tokens"], greedy["tokens"])
        early = generate(run.directory, "--prompt", "the of a", "--max-tokens", 15, "--step", 2)
        check(f"{what}: an earlier checkpoint is another model", early["tokens"] != greedy["tokens"], True)

    # The context of 32: a prompt that fills it has one token to come, a longer one none.
    check("the context ends a text", [generate(run.directory, "--prompt", "a" * n, "--max-tokens", 40)["stop"] for n in (30, 31, 32)],
          ["context"] * 3)
    check("a full prompt has one more token", len(generate(run.directory, "--prompt", "a" * 32, "--max-tokens", 40)["tokens"]), 1)
    contains("a longer prompt", generate(run.directory, "--prompt", "a" * 33, code=BAD_INPUT), "the prompt has 33 tokens, and the context 32")

    # A model that has learnt that documents end at once.
    ends = bench.root / "ends.txt"
    ends.write_text("".join("a\n\n" for _ in range(3000)))
    bench.tokenize(name="tokenize-ends", input=str(ends), prefix=str(bench.root / "ends" / "data"))
    short = bench.make("short", prefix=bench.root / "ends" / "data", training={"iterations": 60, "learning_rate": {"peak": 1e-2}}, checkpoint={"interval": 60})
    short.train()
    result = generate(short.directory, "--prompt", "a")
    check("the end of the document is the end", (result["tokens"], result["stop"], result["text"]), ([256], "end_of_document", ""))
    check("an empty prompt begins a document", generate(short.directory, "--prompt", "")["tokens"], [97, 256])

    # What cannot be done, by name.
    limited = bench.make("limited", training={"iterations": 1}, checkpoint={"interval": 1}, model={"moe": {**MOE, "capacity_factor": 1.25}})
    limited.train()
    contains("capacity", generate(limited.directory, "--prompt", "a", code=BAD_INPUT), "model.moe.capacity_factor")
    contains("no prompt", generate(run.directory, code=BAD_INPUT), "--prompt TEXT, or --prompt-tokens")
    contains("two prompts", generate(run.directory, "--prompt", "a", "--prompt-tokens", "1", code=BAD_INPUT), "--prompt and --prompt-tokens are both given")
    for option in (("--top-k", 5), ("--top-p", 0.5)):
        contains(f"{option[0]} without a temperature", generate(run.directory, "--prompt", "a", *option, code=BAD_INPUT), f"{option[0]} says what to draw from")
    forced = bench.make("forced", training={"iterations": 1}, checkpoint={"interval": 1}, model={"moe": {**MOE, "force_balance": True}})
    forced.train()
    contains("forced balance", generate(forced.directory, "--prompt", "a", code=BAD_INPUT), "tokens take experts in turn")
    contains("a token that there is not", generate(run.directory, "--prompt-tokens", "1,257", code=BAD_INPUT), "numbers from 0 to 256")
    contains("no number", generate(run.directory, "--prompt-tokens", "1,x", code=BAD_INPUT), "not 'x'")
    contains("a temperature below zero", generate(run.directory, "--prompt", "a", "--temperature", "-1", code=BAD_INPUT), "--temperature wants")
    only_chosen_pages(bench)
    cut = sorted((bench.root / "wide" / "checkpoints" / "step-0000002").glob("model-*.safetensors"))[-1]
    cut.write_bytes(cut.read_bytes()[:-4096])
    contains("a file of experts that is cut off", generate(bench.root / "wide", "--prompt", "a", code=BAD_INPUT), cut.name)
