#!/usr/bin/env python3
"""transformers' own modules judge attention and positions: our values in their models, their loss and every gradient beside ours.

  attention_modules.py PROBE

Llama with the scaled rotary frequencies of Llama 3.1, Qwen3's norm of each head's queries and keys, OLMoE's over the whole projection,
Mistral's window, GPT-2's learned positions and biases. transformers makes rotary angles in float32 whatever the model's type.
"""
import json
import subprocess
import sys

import torch
import transformers

from torch_model import DEFAULTS, batch, values

PROBE = sys.argv[1]
TOLERANCE = 1e-5
SMALL = dict(layers=2, hidden=24, ffn=40, heads=6, groups=2, head_dim=4, vocab=101, sequence=33, micro_batch=2, deviation=0.2)
faults = []


def relative(a, b):
    """How far a is from b, by their norms."""
    a, b = a.double().flatten(), b.double().flatten()
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()


def agree(what, error, tolerance=TOLERANCE):
    print(f"{error:8.1e}  {what}")
    if not error <= tolerance:
        faults.append(f"{what}: relative difference {error:.3g}, allowed {tolerance}")


def probe(config, device):
    words = [f"{k}={v}" for k, v in dict(DEFAULTS, **config).items()] + [f"device={device}"]
    done = subprocess.run([PROBE, *words], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{PROBE} {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def judge(name, config, model, ours_of):
    """ours_of(name of theirs, shape): our tensor's (name, shape) and the way from ours to theirs, which is a transpose or a part."""
    c = dict(DEFAULTS, **config)
    for device, dtype in (("reference_f64", torch.float64), ("reference", torch.float32), ("cpu", torch.float32)):
        model = model.to(dtype).eval()
        model.zero_grad()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                value = theirs(ours_of(key, parameter.shape), lambda n, shape: values(n, shape, c["deviation"]).detach())
                parameter.copy_(value.reshape(parameter.shape))
        tokens, targets = batch(c)
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        loss.backward()
        got, worst = probe(config, device), 0.0
        wanted = {}
        for key, parameter in model.named_parameters():
            for (ours, shape), gradient in parts(ours_of(key, parameter.shape), parameter.grad):
                wanted[ours] = gradient.reshape(shape)
        if set(got["gradients"]) != set(wanted):
            faults.append(f"{name}: other tensors: {sorted(set(got['gradients']) ^ set(wanted))}")
            return
        for ours, gradient in wanted.items():
            if gradient.abs().max() > 1e-6:  # not a key's bias that nothing turns
                worst = max(worst, relative(torch.tensor(got["gradients"][ours]), gradient))
        agree(f"{name}, {device}: loss", abs(got["loss"] - loss.item()) / abs(loss.item()))
        agree(f"{name}, {device}: worst gradient of {len(wanted)}", worst)


def theirs(ours, make):
    names, transposed = ours
    whole = torch.cat([make(n, shape) for n, shape in names])
    return whole.T if transposed else whole


def parts(ours, gradient):
    names, transposed = ours
    gradient = gradient.T if transposed else gradient.flatten(0, -2) if gradient.dim() > 2 else gradient  # experts one below the other
    at = 0
    for n, shape in names:
        yield (n, shape), gradient[at:at + shape[0]]
        at += shape[0]


def same_names(key, shape):
    return [(key, tuple(shape))], False


def sizes(c, **more):
    return dict(vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
                num_key_value_heads=c["groups"], head_dim=c["head_dim"], rms_norm_eps=1e-5, tie_word_embeddings=False, attn_implementation="eager",
                max_position_embeddings=8192, use_cache=False, pad_token_id=None, bos_token_id=None, eos_token_id=None, **more)


def check_llama():
    scaling = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    ours = dict(SMALL, untied=1, bias=1, head_dim=16, rope_factor=8.0, rope_low=1.0, rope_high=4.0, rope_original=32)
    config = transformers.LlamaConfig(**sizes(ours, rope_parameters=scaling, attention_bias=True, mlp_bias=True))
    judge("Llama 3.1's scaling", ours, transformers.LlamaForCausalLM(config), same_names)


def check_qwen3():
    ours = dict(SMALL, untied=1, qk_norm="head")
    config = transformers.Qwen3Config(**sizes(ours, rope_parameters=dict(rope_type="default", rope_theta=10000.0)))
    judge("Qwen3's norm of heads", ours, transformers.Qwen3ForCausalLM(config), same_names)


def check_mistral():
    ours = dict(SMALL, untied=1, window=5)
    config = transformers.MistralConfig(**sizes(ours, rope_parameters=dict(rope_type="default", rope_theta=10000.0), sliding_window=5))
    judge("Mistral's window", ours, transformers.MistralForCausalLM(config), same_names)


def check_olmoe():
    ours = dict(SMALL, untied=1, qk_norm="projection", experts=4, top_k=2, pre_softmax=1, expert_ffn=12)
    config = transformers.OlmoeConfig(**sizes(dict(ours, ffn=12), rope_parameters=dict(rope_type="default", rope_theta=10000.0), num_experts=4,
                                              num_experts_per_tok=2, norm_topk_prob=False))
    model = transformers.OlmoeForCausalLM(config)
    model.set_experts_implementation("eager")  # the default knows no float64

    def name(key, shape):
        """Experts lie in one tensor there: (experts, gate|up or hidden, …)."""
        layer = key.split(".mlp.")[0] + ".block_sparse_moe."
        if key.endswith("mlp.gate.weight"):
            return [(layer + "gate.weight", tuple(shape))], False
        if key.endswith("gate_up_proj"):
            return [(f"{layer}experts.{e}.{w}.weight", (shape[1] // 2, shape[2])) for e in range(shape[0]) for w in ("w1", "w3")], False
        if key.endswith("experts.down_proj"):
            return [(f"{layer}experts.{e}.w2.weight", (shape[1], shape[2])) for e in range(shape[0])], False
        return same_names(key, shape)

    judge("OLMoE's norm of projections", ours, model, name)


def check_gpt2():
    ours = dict(SMALL, position="learned", max_positions=40, bias=1, norm="layernorm", activation="gelu", groups=6)
    config = transformers.GPT2Config(vocab_size=ours["vocab"], n_positions=40, n_embd=24, n_layer=2, n_head=6, n_inner=40, activation_function="gelu_new",
                                     resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, layer_norm_epsilon=1e-5, attn_implementation="eager", use_cache=False,
                                     pad_token_id=None, bos_token_id=None, eos_token_id=None)
    direct = {"wte.weight": "model.embed_tokens.weight", "wpe.weight": "model.embed_positions.weight", "ln_f.weight": "model.norm.weight",
              "ln_f.bias": "model.norm.bias"}
    own = {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.c_proj": "self_attn.o_proj", "mlp.c_fc": "mlp.up_proj",
           "mlp.c_proj": "mlp.down_proj"}

    def name(key, shape):
        key = key.removeprefix("transformer.")
        if key in direct:
            return [(direct[key], tuple(shape))], False
        _, layer, rest = key.split(".", 2)
        at, (module, kind) = f"model.layers.{layer}.", rest.rsplit(".", 1)
        matrix = len(shape) == 2  # of GPT-2's: (in, out)
        if module == "attn.c_attn":
            part = (shape[1] // 3, shape[0]) if matrix else (shape[0] // 3,)
            return [(f"{at}self_attn.{n}_proj.{kind}", part) for n in "qkv"], matrix
        return [(f"{at}{own[module]}.{kind}", tuple(reversed(shape)))], matrix

    judge("GPT-2's positions and biases", ours, transformers.GPT2LMHeadModel(config), name)


torch.manual_seed(0)
for check in (check_llama, check_qwen3, check_mistral, check_olmoe, check_gpt2):
    check()
for line in faults:
    print(line, file=sys.stderr)
sys.exit(1 if faults else 0)
