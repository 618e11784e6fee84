#!/usr/bin/env python3
"""transformers judges what we export and makes what we import.

  transformers_models.py PROBE

Out: runs of ours, trained for a few steps, are exported and loaded by AutoModelForCausalLM; logits, loss and every gradient agree with what
our devices compute from the checkpoint. In: models that transformers made and saved, in every precision, sharding and naming, compute the same
logits when we read them. The byte tokenizer that we write gives bytes, and its own end token.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors.torch import save_file
from training import MOE, WORKER, Bench, environment, merge

PROBE = sys.argv[1]
TOLERANCE = 1e-5
DEVICES = {"reference_f64": torch.float64, "reference": torch.float32, "cpu": torch.float32}
faults = []


def relative(a, b):
    """How far a is from b, by their norms."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()


def agree(what, error):
    print(f"{error:8.1e}  {what}")
    if not error <= TOLERANCE:
        faults.append(f"{what}: relative difference {error:.3g}, allowed {TOLERANCE}")


def same(what, got, wanted):
    print(f"{'same' if got == wanted else 'OTHER':>8s}  {what}")
    if got != wanted:
        faults.append(f"{what}: {got!r}, expected {wanted!r}")


def batch(vocabulary, rows=3, length=13):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, vocabulary, (rows, length), generator=generator)
    targets = torch.cat((tokens[:, 1:], torch.full((rows, 1), -1)), 1)
    return tokens, targets


def probe(path, device, tokens, targets):
    text = json.dumps({"tokens": tokens.tolist(), "targets": targets.tolist()})
    done = subprocess.run([PROBE, str(path), device], input=text, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{PROBE} {path} {device}: {done.stderr}")
    return json.loads(done.stdout)


def load(path, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32 if dtype == torch.float64 else dtype)
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")  # the default knows no float64
    return model.to(dtype).eval()


def gradients_by_our_names(model):
    """transformers keeps a layer's experts in one tensor; ours are one by one."""
    found = {}
    for name, parameter in model.named_parameters():
        g = parameter.grad
        layer = name.split(".mlp.")[0] + ".block_sparse_moe"
        if name.endswith("mlp.gate.weight"):
            found[layer + ".gate.weight"] = g
        elif name.endswith("experts.gate_up_proj"):
            for e in range(g.shape[0]):
                found[f"{layer}.experts.{e}.w1.weight"], found[f"{layer}.experts.{e}.w3.weight"] = g[e].chunk(2)
        elif name.endswith("experts.down_proj"):
            for e in range(g.shape[0]):
                found[f"{layer}.experts.{e}.w2.weight"] = g[e]
        else:
            found[name] = g
    return found


def judge(what, path, exported):
    """What our devices compute from `path` against what transformers computes from `exported`."""
    for device, dtype in DEVICES.items():
        model = load(exported, dtype)
        tokens, targets = batch(model.config.vocab_size)
        out = model(input_ids=tokens, labels=tokens)
        out.loss.backward()
        ours = probe(path, device, tokens, targets)
        logits = torch.tensor(ours["logits"], dtype=torch.float64).reshape(out.logits.shape)
        agree(f"{what}: loss, {device}", abs(ours["loss"] - out.loss.item()) / out.loss.item())
        agree(f"{what}: logits, {device}", relative(logits, out.logits))
        wanted = gradients_by_our_names(model)
        same(f"{what}: tensors, {device}", sorted(ours["gradients"]), sorted(wanted))
        worst = max((relative(torch.tensor(ours["gradients"][n], dtype=torch.float64), g.flatten()), n) for n, g in wanted.items())
        agree(f"{what}: the worst gradient, {worst[1]}, {device}", worst[0])


def worker(*words):
    done = subprocess.run([str(WORKER), *map(str, words)], capture_output=True, text=True, env=environment())
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr}")
    return done.stdout


# ---- out ----

TRAINING = {"iterations": 6, "learning_rate": {"peak": 1e-2}}
EXPORTED = {
    "llama": ("LlamaForCausalLM", dict(model={"tied_embeddings": False, "norm_epsilon": 1e-4})),
    "llama, wide heads, another base": ("LlamaForCausalLM", dict(model={"head_dim": 16, "kv_heads": 4, "rope_base": 500000})),
    "llama, narrow heads": ("LlamaForCausalLM", dict(model={"head_dim": 4, "kv_heads": 4})),
    "llama, positions scaled as Llama 3 does": ("LlamaForCausalLM", dict(model={"rope_base": 500000, "rope_scaling_factor": 8,
                                                                               "rope_scaling_original_length": 16})),
    "llama with biases": ("LlamaForCausalLM", dict(model={"bias": True})),
    "mixtral": ("MixtralForCausalLM", dict(model={"moe": MOE})),
    "mixtral with a window": ("MixtralForCausalLM", dict(model={"moe": MOE, "attention_window": 5})),
    "olmoe": ("OlmoeForCausalLM", dict(model={"moe": {**MOE, "pre_softmax": True}, "qk_norm": True, "qk_norm_over": "projection"})),
    "olmoe, weights that add up to 1": ("OlmoeForCausalLM", dict(model={"moe": {**MOE, "experts": 5}, "qk_norm": True, "kv_heads": 4,
                                                                       "qk_norm_over": "projection"})),
    "mixtral, saved by two ranks": ("MixtralForCausalLM", dict(model={"moe": {**MOE, "experts": 6, "top_k": 3}, "tied_embeddings": False},
                                                               resources={"ranks_per_node": 2}, parallelism={"expert": 2})),
}


def judge_exports(bench, folder):
    for number, (what, (kind, sections)) in enumerate(EXPORTED.items()):
        run = bench.make(f"run-{number}", training=TRAINING, checkpoint={"interval": 6}, **merge({"model": {"init": {"std": 0.1}}}, sections))
        run.train()
        path = folder / f"exported-{number}"
        worker("export", run.directory, path)
        same(f"{what}: the class", type(transformers.AutoModelForCausalLM.from_pretrained(path)).__name__, kind)
        judge(what, run.directory, path)
        judge(what + ", read back", path, path)
        judge_generation(what, run.directory, path)
        judge_generation(what + ", read back", path, path)
        cut = folder / f"cut-{number}"
        worker("export", run.directory, cut, "--dtype", "bf16", "--max-shard-size", 20000)
        whole, narrow = load(path, torch.float32), load(cut, torch.bfloat16)
        same(f"{what}: bf16 in several files is the same, rounded",
             all(torch.equal(a.to(torch.bfloat16), b) for a, b in zip(whole.state_dict().values(), narrow.state_dict().values(), strict=True)), True)


def judge_generation(what, run, path):
    """Greedy, from prompts of several lengths, to where the context is full."""
    model = load(path, torch.float32)
    for length in (1, 9, 30):
        prompt = batch(256, 1, length)[0]
        with torch.no_grad():
            wanted = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=32 - length)
        ours = json.loads(worker("generate", run, "--prompt-tokens", ",".join(map(str, prompt[0].tolist())), "--max-tokens", 32 - length, "--json"))
        same(f"{what}: greedy from {length} tokens", ours["tokens"], wanted[0, length:].tolist())


def judge_tokenizer(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "exported-0")
    for text in ("plain", " two  spaces\n\tand\r\n", "Fünf Äpfel, 五つ, \U0001f34e\0", "a text may say <|endoftext|> too"):
        ids = tokenizer(text)["input_ids"]
        same(f"the tokens of {text!r} are its bytes", ids, list(text.encode()))
        same(f"and decode to it", tokenizer.decode(ids), text)
    same("the end of a document is token 256", tokenizer.eos_token_id, 256)


# ---- in ----

SMALL = dict(vocab_size=61, hidden_size=24, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=None, eos_token_id=None, bos_token_id=None, initializer_range=0.2)
IMPORTED = {
    "llama": transformers.LlamaConfig(**SMALL, rms_norm_eps=1e-6),
    "llama, tied, wide heads": transformers.LlamaConfig(**SMALL, head_dim=10, tie_word_embeddings=True, rope_parameters={
        "rope_type": "default", "rope_theta": 500000.0}),
    "llama, positions scaled": transformers.LlamaConfig(**SMALL, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}),
    "llama with biases": transformers.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "mistral with a window": transformers.MistralConfig(**SMALL, sliding_window=6),
    "mixtral": transformers.MixtralConfig(**SMALL, num_local_experts=5, num_experts_per_tok=2),
    "olmoe": transformers.OlmoeConfig(**SMALL, num_experts=6, num_experts_per_tok=3),
    "olmoe, weights that add up to 1": transformers.OlmoeConfig(**SMALL, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True),
}


def randomise(model):
    """Norms of a fresh model are all ones, biases zeros: they would hide a mistake."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def save_in_memory_names(model, path):
    path.mkdir()
    state = {n: t.contiguous().clone() for n, t in model.state_dict().items() if not (n == "lm_head.weight" and model.config.tie_word_embeddings)}
    save_file(state, path / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(path)


def judge_imports(folder):
    for number, (what, config) in enumerate(IMPORTED.items()):
        torch.manual_seed(number)
        made = randomise(transformers.AutoModelForCausalLM.from_config(config))
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for form in ("one file", "many files", "names in memory"):
                path = folder / f"in-{number}-{dtype}-{form}".replace(" ", "-")
                model = made.to(dtype)
                if form == "names in memory":
                    save_in_memory_names(model, path)
                else:
                    model.save_pretrained(path, max_shard_size="20KB" if form == "many files" else "5GB")
                if form == "many files":
                    same(f"{what}, {dtype}: is cut", len(list(path.glob("model-*.safetensors"))) > 1, True)
                wide = load(path, torch.float32).double()
                tokens, targets = batch(config.vocab_size)
                ours = probe(path, "reference_f64", tokens, targets)
                logits = torch.tensor(ours["logits"], dtype=torch.float64)
                agree(f"{what}, {dtype}, {form}: logits", relative(logits, wide(input_ids=tokens).logits.flatten(0, 1)))
        judge(what + " as transformers saved it", folder / f"in-{number}-torch.float32-one-file", folder / f"in-{number}-torch.float32-one-file")


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name, Bench() as bench:
        folder = pathlib.Path(name)
        judge_exports(bench, folder)
        judge_tokenizer(folder)
        judge_imports(folder)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
