"""`export` and `import`: a checkpoint becomes a directory of Hugging Face's with the same bits, whole or not at all; a run starts from such a
directory; config.json is compared with the spec; what cannot be said is refused with the keys that are why."""
import json
import os
import shutil
import signal
import subprocess
import time

from training import BAD_INPUT, FAILED, FAULTS, MOE, SWITCHYARD, WORKER, Bench, check, close, contains, environment

TRAINING = {"iterations": 4, "validation": {"interval": 2, "iterations": 2}}


def worker(*words, code=0):
    done = subprocess.run([str(WORKER), *map(str, words)], capture_output=True, text=True, env=environment(), timeout=120)
    if done.returncode != code:
        raise AssertionError(f"{words}: exit {done.returncode}, expected {code}\n{done.stderr}")
    return done.stderr if code else done.stdout


def tensors(directory):
    """{name: (dtype, shape, bytes)} of all files, and how many files."""
    found, files = {}, sorted(directory.glob("model*.safetensors"))
    for path in files:
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], raw[8 + size + begin:8 + size + end])
    return found, len(files)


def rounded(raw):
    """float32 to bfloat16, to the nearest, ties to even."""
    words = memoryview(raw).cast("I")
    return b"".join(((w + 0x7FFF + (w >> 16 & 1)) >> 16 & 0xFFFF).to_bytes(2, "little") for w in words)


with Bench() as bench:
    kinds = {
        "dense": {},
        "experts": {"model": {"moe": MOE}, "resources": {"ranks_per_node": 2}, "parallelism": {"expert": 2}},
    }
    for what, sections in kinds.items():
        run = bench.make(what, training=TRAINING, checkpoint={"interval": 2}, **sections)
        run.train()
        one, cut, narrow, early = (bench.root / f"{what}-{n}" for n in ("one", "cut", "narrow", "early"))
        said = json.loads(worker("export", run.directory, one, "--json"))
        saved, _ = tensors(run.directory / "checkpoints" / "step-0000004")
        whole, files = tensors(one)
        check(f"{what}: one file with the checkpoint's tensors, bit for bit", (whole == saved, files), (True, 1))
        check(f"{what}: what it says of itself", (said["step"], said["files"], said["parameters"], said["dtype"]),
              (4, 1, sum(len(raw) // 4 for _, _, raw in whole.values()), "fp32"))
        worker("export", run.directory, early, "--step", 2)
        check(f"{what}: another step", tensors(early)[0] == tensors(run.directory / "checkpoints" / "step-0000002")[0], True)
        worker("export", run.directory, cut, "--max-shard-size", 30000)
        for size in ("30kB", "29.296875 KiB"):
            worker("export", run.directory, bench.root / f"{what}-{size}", "--max-shard-size", size)
            check(f"{what}: {size} is as many bytes", tensors(bench.root / f"{what}-{size}"), tensors(cut))
        pieces, files = tensors(cut)
        index = json.loads((cut / "model.safetensors.index.json").read_text())
        check(f"{what}: cut, with the same tensors", (pieces == whole, files > 2), (True, True))
        check(f"{what}: the map names them all", (sorted(index["weight_map"]), index["metadata"]["total_size"]),
              (sorted(whole), sum(len(raw) for _, _, raw in whole.values())))
        check(f"{what}: no file is larger than asked, but for a tensor alone", all(sum(len(whole[n][2]) for n in names) <= 30000 or len(names) == 1
              for file in set(index["weight_map"].values()) for names in [[n for n, f in index["weight_map"].items() if f == file]]), True)
        worker("export", run.directory, narrow, "--dtype", "bf16")
        halves, _ = tensors(narrow)
        check(f"{what}: bf16 is rounded to nearest", {n: (d, s, raw) for n, (d, s, raw) in halves.items()},
              {n: ("BF16", s, rounded(raw)) for n, (_, s, raw) in whole.items()})
        config = json.loads((one / "config.json").read_text())
        check(f"{what}: the class", config["architectures"], ["MixtralForCausalLM" if "model" in sections else "LlamaForCausalLM"])

        # A run that starts from the exported directory has the losses of one that starts from the checkpoint.
        from_run = bench.make("from-run", origin={"run_directory": str(run.directory), "checkpoint": None, "step": 0}, training=TRAINING, **sections)
        for path in (one, cut):
            start = bench.make("from-path", origin={"run_directory": None, "checkpoint": str(path), "step": 0}, training=TRAINING, **sections)
            start.train()
            if not from_run.attempts():
                from_run.train()
            check(f"{what}: a run starts from {path.name}", start.values("loss"), from_run.values("loss"))
        half = bench.make("from-half", origin={"run_directory": None, "checkpoint": str(narrow), "step": 0}, training=TRAINING, **sections)
        half.train()
        close(f"{what}: and from bf16", half.values("loss")[:1], from_run.values("loss")[:1], 2e-2)

        contains(f"{what}: what is there is left alone", worker("export", run.directory, one, code=FAILED), "is there already")
        check(f"{what}: nothing half done is left", sorted(p.name for p in [*bench.root.glob("*.tmp"), *bench.root.glob(".export-*")]), [])

        # import: the model section, and a spec that takes it up.
        part, spec = bench.root / f"{what}-model.yaml", bench.root / f"{what}.yaml"
        worker("import", one, "-o", part)
        contains(f"{what}: import does not overwrite", worker("import", one, "-o", part, code=FAILED), "is there already")
        spec.write_text(f"base: {part}\nproject: imported\ndata: {{prefix: {bench.prefix}, sequence_length: 32}}\n"
                        "training: {iterations: 1, micro_batch_size: 1, global_batch_size: 1, learning_rate: {peak: 1e-3}}\n")
        plan = json.loads(subprocess.run([str(SWITCHYARD), "plan", str(spec), "--json"], capture_output=True, text=True, check=True).stdout)["runs"][0]
        check(f"{what}: the imported spec plans the model that was exported", plan["parameters"]["total"], said["parameters"])

    # Whole or absent, wherever and however: a name as long as names can be; a file system that cannot rename without replacing; a signal.
    dense_run, faults = bench.root / "dense", {**environment(), "LD_PRELOAD": str(FAULTS), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    long_name = bench.root / ("n" * 255)
    worker("export", dense_run, long_name)
    check("a name of 255 bytes", tensors(long_name)[0] == tensors(bench.root / "dense-one")[0], True)

    def on_nfs(target):
        return subprocess.run([str(WORKER), "export", str(dense_run), str(target)], capture_output=True, text=True, env={**faults, "FAULT_RENAME_FLAGS": "1"}, timeout=120)

    done = on_nfs(bench.root / "nfs")
    check("a rename that cannot promise not to replace", (done.returncode, done.stderr if done.returncode else "", tensors(bench.root / "nfs")[0] == tensors(bench.root / "dense-one")[0]), (0, "", True))
    for what in ("a file", "a directory", "a full directory"):
        target = bench.root / f"taken by {what}"
        target.write_text("mine") if what == "a file" else target.mkdir()
        if what == "a full directory":
            (target / "mine").write_text("mine")
        done = on_nfs(target)
        check(f"{what} in its place stays", (done.returncode, "is there already" in done.stderr, target.is_file(), [p.name for p in target.glob("*")]),
              (FAILED, True, what == "a file", ["mine"] if what == "a full directory" else []))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        target = bench.root / "interrupted"
        slow = subprocess.Popen([str(WORKER), "export", str(dense_run), str(target)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**faults, "FAULT_WRITE_MICROSECONDS": "300000"})
        deadline = time.monotonic() + 60
        while not list(bench.root.glob(".export-*.tmp/model*")):
            assert slow.poll() is None and time.monotonic() < deadline, slow.communicate()
            time.sleep(0.005)
        slow.send_signal(number)
        said = slow.communicate(timeout=60)[1]
        check(f"signal {number.name}: ended by it, nothing is left", (slow.returncode, target.exists(), [p.name for p in bench.root.glob(".export-*")]), (-number, False, []))
        contains("and it says so", said, f"stopped by signal {int(number)}: nothing of ")
    # What was killed is taken away by the next export to there, once it is old; what somebody else made, or fills, is not.
    slow = subprocess.Popen([str(WORKER), "export", str(dense_run), str(bench.root / "killed")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**faults, "FAULT_WRITE_MICROSECONDS": "300000"})
    deadline = time.monotonic() + 60
    while not (left := list(bench.root.glob(".export-*.tmp"))):
        assert slow.poll() is None and time.monotonic() < deadline, slow.communicate()
        time.sleep(0.005)
    other = left[0].with_name(left[0].name.replace(".export-", ".export-elsewhere-"))
    other.mkdir()
    for path in (left[0], other):
        os.utime(path, (time.time() - 3600,) * 2)
    worker("export", dense_run, bench.root / "beside")
    check("one that is being filled stays", left[0].exists(), True)
    slow.kill()
    slow.communicate()
    os.utime(left[0])
    worker("export", dense_run, bench.root / "young")
    check("one that is young stays", left[0].exists(), True)
    os.utime(left[0], (time.time() - 3600,) * 2)
    done = subprocess.run([str(WORKER), "export", str(dense_run), str(bench.root / "after")], capture_output=True, text=True, env=environment(), timeout=120)
    check("one that was killed goes", (left[0].exists(), f"removed {left[0]}, which an export that was killed had left" in done.stderr), (False, True))
    check("that of another machine stays", other.exists(), True)
    other.rmdir()

    # A dense directory becomes a mixture: every expert a copy, so before the first update the loss is the dense model's.
    origin = {"run_directory": None, "checkpoint": str(bench.root / "dense-one"), "step": 0}
    dense = bench.make("dense-again", origin=origin, training=TRAINING)
    dense.train()
    mixture = bench.make("mixture", origin=origin, training=TRAINING,
                         model={"moe": {"experts": 4, "top_k": 2, "expert_ffn_hidden_size": 64}, "from": {"path": str(bench.root / "dense-one"), "upcycle": {"granularity": 1}}})
    mixture.train()
    close("a mixture out of a dense directory: the first loss", mixture.values("loss")[:1], dense.values("loss")[:1], 1e-6)

    # config.json against the spec: each difference names both values.
    def refused(words, change=None, **model):
        path = bench.root / "changed"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(bench.root / "dense-one", path)
        config = json.loads((path / "config.json").read_text())
        config.update(change or {})
        (path / "config.json").write_text(json.dumps(config))
        run = bench.make("refused", origin={"run_directory": None, "checkpoint": str(path), "step": 0}, training=TRAINING, model=model)
        contains(f"refused: {words}", run.train(code=BAD_INPUT), words)

    refused("num_hidden_layers is 2, but model.layers is 3", layers=3)
    refused("num_key_value_heads is 2, but model.kv_heads is 4", kv_heads=4)
    refused("rms_norm_eps is 1e-05, but model.norm_epsilon is 0.001", norm_epsilon=1e-3)
    refused("tie_word_embeddings is true, but model.tied_embeddings is false", tied_embeddings=False)
    refused("rope_theta is 500000, but model.rope_base is 10000", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})
    refused("rope_theta is 500000, but model.rope_base is 10000", {"rope_parameters": None, "rope_theta": 500000.0})
    llama3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    refused("the factor of rope_parameters is 8, but model.rope_scaling_factor is 0", {"rope_parameters": llama3})
    refused("high_freq_factor is 4, but model.rope_scaling_high_freq_factor is 5", {"rope_parameters": llama3}, rope_scaling_factor=8,
            rope_scaling_high_freq_factor=5)
    refused("rope_type llama3 needs a factor", {"rope_parameters": {**llama3, "high_freq_factor": 1.0}})
    refused("intermediate_size is 64, but model.ffn_hidden_size is 96", ffn_hidden_size=96)
    refused('model_type is "qwen2"', {"model_type": "qwen2"})
    refused('hidden_act is "gelu"', {"hidden_act": "gelu"})
    refused("attention_bias is true and mlp_bias false", {"attention_bias": True})
    refused("the model has RMSNorm, but model.norm is layernorm", norm="layernorm")
    refused("the model has no norms of queries and keys, but model.qk_norm is true", qk_norm=True)
    refused('rope_type is "yarn"', {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}})
    refused("num_attention_heads must be a whole number", {"num_attention_heads": "four"})

    def unfit(words, **model):
        run = bench.make("unfit", training={"iterations": 1}, checkpoint={"interval": 1}, model=model)
        run.train()
        contains(f"no class for {words}", worker("export", run.directory, bench.root / "unfit-out", code=BAD_INPUT), words)
        check("and nothing is written", (bench.root / "unfit-out").exists(), False)

    unfit("model.moe.pre_softmax true (without model.qk_norm)", moe={**MOE, "pre_softmax": True})
    unfit("model.qk_norm_over head (with experts)", moe=MOE, qk_norm=True)
    unfit("model.moe.layer_frequency (layers differ)", moe={**MOE, "layer_frequency": 2})
    unfit("model.norm layernorm, model.activation gelu, model.position learned", norm="layernorm", activation="gelu", position="learned")
    unfit("model.moe.shared_expert_size 16", moe={**MOE, "shared_expert_size": 16})
    unfit("model.bias true (with experts)", bias=True, moe=MOE)
    unfit("model.qk_norm true (without experts)", qk_norm=True)
    unfit("model.attention_window 8", attention_window=8)

    contains("a checkpoint that is cut off", (lambda path: (path.write_bytes(path.read_bytes()[:-100]),
             worker("export", bench.root / "dense", bench.root / "cut-off", code=BAD_INPUT))[1])(
             bench.root / "dense" / "checkpoints" / "step-0000004" / "model.safetensors"), "model.safetensors")
    contains("a size that is none", worker("export", run.directory, bench.root / "none", "--max-shard-size", "5 potatoes", code=BAD_INPUT),
             "--max-shard-size wants a size, such as 5GB")
    contains("a size of nothing", worker("export", run.directory, bench.root / "none", "--max-shard-size", 0, code=BAD_INPUT), "wants a size")
    contains("import of a run", worker("import", run.directory, code=BAD_INPUT), "a run directory, which needs no import")
    contains("import of a checkpoint", worker("import", run.directory / "checkpoints" / "step-0000004", code=BAD_INPUT), "a checkpoint of a run, which needs no import")
    contains("import of a file", worker("import", run.directory / "run.json", code=BAD_INPUT), "not a directory")
    contains("import of what is not there", worker("import", bench.root / "nowhere", code=BAD_INPUT), "nowhere: No such file or directory")
    contains("import of nothing", worker("import", bench.root, code=BAD_INPUT), "config.json")
