#!/usr/bin/env python3
"""Megatron's own GPT model on the CPU judges ours: the same weights copied in, forward and backward, loss, balance loss of each layer and
every gradient compared. Models marked expert_parallel run there in two processes with half of the experts and a micro batch each.

  megatron_model.py PROBE                   runs the C program PROBE on the models below and compares
  megatron_model.py --rank R STORE MODEL    one process of two, which prints what it computed
"""
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_model as ours

DEFAULTS = dict(ours.DEFAULTS, micro_batches=1, expert_parallel=1, score="softmax", scaling=0.0, expert_bias=0, num_groups=0, group_topk=0,
                capacity=0.0, z=0.0, sequence_balance=0.0)
MOE = dict(hidden=16, heads=2, groups=1, head_dim=8, experts=8, top_k=2, expert_ffn=12, sequence=16, deviation=0.3)
MODELS = [
    dict(layers=2, hidden=24, ffn=40, heads=6, groups=2, head_dim=4, vocab=101, sequence=16, micro_batch=3),
    dict(layers=1, hidden=16, heads=4, groups=4, head_dim=4, untied=1, vocab=40, sequence=8),
    dict(hidden=24, heads=3, groups=1, head_dim=8, experts=8, top_k=2, expert_ffn=12, balance=0.02, sequence=16),
    dict(hidden=16, heads=2, groups=1, head_dim=8, experts=4, top_k=1, pre_softmax=1, expert_ffn=8, balance=0.5, sequence=8, untied=1),
    dict(layers=4, hidden=16, heads=2, groups=2, head_dim=8, experts=8, top_k=3, pre_softmax=1, expert_ffn=8, balance=0.1, sequence=8,
         layer_frequency=2, deviation=0.2),
    dict(hidden=16, heads=2, groups=1, head_dim=8, experts=8, top_k=2, expert_ffn=12, balance=0.05, sequence=8, micro_batches=2,
         expert_parallel=2),
    # GPT's family, and norms of queries and keys.
    dict(norm="layernorm", activation="gelu", bias=1, position="learned", max_positions=12, sequence=12, heads=3, groups=3, head_dim=8, hidden=24),
    dict(qk_norm="head", hidden=24, heads=6, groups=3, head_dim=4, sequence=12),
    # Every way of routing.
    dict(**MOE, z=0.01, balance=0.02),
    dict(**MOE, sequence_balance=0.1, micro_batch=3),
    dict(**MOE, score="sigmoid", expert_bias=1, scaling=2.5),
    dict(**MOE, score="sigmoid", num_groups=4, group_topk=2, expert_bias=1, balance=0.05),
    dict(**MOE, pre_softmax=1, num_groups=2, group_topk=1, balance=0.05),
    dict(**MOE, capacity=1.0, balance=0.02),
    dict(**MOE, shared=10, balance=0.02), dict(**MOE, shared=10, shared_gate=1),
    dict(**MOE, capacity=1.25, score="sigmoid", scaling=1.5, shared=6, z=0.02, balance=0.05, micro_batches=2, expert_parallel=2),
]


# ---- Megatron without a GPU ----

class Event:
    synchronize = wait = lambda self, *a: None


class Stream:
    record_event = lambda self, *a: Event()
    wait_stream = synchronize = wait_event = lambda self, *a: None


def start_megatron(rank, size, store):
    """No CUDA: its streams do nothing, its random state tracker is left alone. All processes share the experts out."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.current_stream = lambda *a, **k: Stream()
    from megatron.core import parallel_state
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
    import megatron.core.tensor_parallel.random as random
    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = Stream()
    random.get_cuda_rng_tracker()
    random._CUDA_RNG_STATE_TRACKER.fork = lambda *a, **k: contextlib.nullcontext()
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    exchange = torch.distributed.all_to_all_single
    plain = lambda value: value.tolist() if hasattr(value, "tolist") else value # gloo wants lists

    def all_to_all_single(out, into, received=None, sent=None, **rest):
        splits = {} if received is None else dict(output_split_sizes=plain(received), input_split_sizes=plain(sent))
        return exchange(out, into, **splits, **{name: plain(value) for name, value in rest.items()})

    torch.distributed.all_to_all_single = all_to_all_single
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    parallel_state.initialize_model_parallel(expert_model_parallel_size=size)
    moe_utils.MoEAuxLossAutoScaler.set_loss_scale(torch.tensor(1.0))


def megatron_model(c, dtype):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    gelu = c["activation"] == "gelu"
    kind = "RMSNorm" if c["norm"] == "rmsnorm" else "LayerNorm"
    config = TransformerConfig(
        num_layers=c["layers"], hidden_size=c["hidden"], num_attention_heads=c["heads"], num_query_groups=c["groups"],
        kv_channels=c["head_dim"], ffn_hidden_size=c["ffn"], gated_linear_unit=not gelu,
        activation_func=functools.partial(F.gelu, approximate="tanh") if gelu else F.silu, add_bias_linear=bool(c["bias"]),
        normalization=kind, layernorm_epsilon=1e-5, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=dtype,
        qk_layernorm=c["qk_norm"] == "head", use_cpu_initialization=True, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, apply_rope_fusion=False, persist_layer_norm=False, gradient_accumulation_fusion=False,
        **(moe_config(c, dtype) if c["experts"] else {}))
    if c["experts"]:
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    else:
        spec = get_gpt_layer_local_spec(normalization=kind, qk_layernorm=config.qk_layernorm)
    model = GPTModel(config, spec, vocab_size=c["vocab"], max_sequence_length=c["max_positions"] or c["sequence"],
                     position_embedding_type={"rope": "rope", "learned": "learned_absolute"}[c["position"]],
                     rotary_percent=1.0, share_embeddings_and_output_weights=not c["untied"])
    return model.to(dtype)


def moe_config(c, dtype):
    sequence = c["sequence_balance"] > 0
    return dict(
        num_moe_experts=c["experts"], moe_router_topk=c["top_k"], moe_ffn_hidden_size=c["expert_ffn"],
        moe_router_pre_softmax=bool(c["pre_softmax"]), moe_router_load_balancing_type="seq_aux_loss" if sequence else "aux_loss",
        moe_aux_loss_coeff=c["sequence_balance"] or c["balance"], moe_z_loss_coeff=c["z"] or None, moe_token_dispatcher_type="alltoall",
        moe_layer_freq=c["layer_frequency"], expert_model_parallel_size=c["expert_parallel"], moe_router_score_function=c["score"],
        moe_router_topk_scaling_factor=c["scaling"] or None, moe_router_enable_expert_bias=bool(c["expert_bias"]),
        moe_router_num_groups=c["num_groups"] or None, moe_router_group_topk=c["group_topk"] or None,
        moe_expert_capacity_factor=c["capacity"] or None, moe_shared_expert_intermediate_size=c["shared"] or None,
        moe_shared_expert_gate=bool(c["shared_gate"]), moe_router_dtype="fp64" if dtype == torch.float64 else "fp32")


# ---- names and layouts: ours on the left ----

def grouped_qkv(c, q, k, v):
    """Megatron's rows: for each group its query heads, then its key head, then its value head."""
    D, share = c["head_dim"], c["heads"] // c["groups"]
    parts = []
    for g in range(c["groups"]):
        parts += [q[g * share * D:(g + 1) * share * D], k[g * D:(g + 1) * D], v[g * D:(g + 1) * D]]
    return torch.cat(parts)


def split_qkv(c, rows):
    D, share = c["head_dim"], c["heads"] // c["groups"]
    groups = rows.reshape(c["groups"], share + 2, D, *rows.shape[1:])
    flat = lambda part: part.reshape(-1, *rows.shape[1:])
    return flat(groups[:, :share]), flat(groups[:, share]), flat(groups[:, share + 1])


def pairs(c, rank):
    """(Megatron's name, our names, join ours into theirs, part theirs into ours)."""
    one, alone = (lambda t: t), (lambda t: (t,))
    join, part = (lambda *t: torch.cat(t)), (lambda t: t.chunk(len(gate_up)))
    gate_up = ["gate_proj", "up_proj"] if c["activation"] == "swiglu" else ["up_proj"]
    kinds = ["weight", "bias"] if c["bias"] else ["weight"]

    def norm(theirs, mine):
        for kind in ["weight", "bias"] if c["norm"] == "layernorm" else ["weight"]:
            yield f"{theirs}.{kind}", [f"{mine}.{kind}"], one, alone

    def ffn(theirs, mine, first, down, kinds):
        for kind in kinds:
            yield f"{theirs}linear_fc1.{kind}", [f"{mine}{name}.{kind}" for name in first], join, part
            yield f"{theirs}linear_fc2.{kind}", [f"{mine}{down}.{kind}"], one, alone

    yield "embedding.word_embeddings.weight", ["model.embed_tokens.weight"], one, alone
    if c["position"] == "learned":
        yield "embedding.position_embeddings.weight", ["model.embed_positions.weight"], one, alone
    for layer in range(c["layers"]):
        theirs, mine = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        yield from norm(theirs + "input_layernorm", mine + "input_layernorm")
        for kind in kinds:
            yield (theirs + f"self_attention.linear_qkv.{kind}", [mine + f"self_attn.{n}_proj.{kind}" for n in "qkv"],
                   lambda q, k, v: grouped_qkv(c, q, k, v), lambda t: split_qkv(c, t))
            yield theirs + f"self_attention.linear_proj.{kind}", [mine + f"self_attn.o_proj.{kind}"], one, alone
        if c["qk_norm"] == "head":
            for n in "qk":
                yield theirs + f"self_attention.{n}_layernorm.weight", [mine + f"self_attn.{n}_norm.weight"], one, alone
        yield from norm(theirs + "pre_mlp_layernorm", mine + "post_attention_layernorm")
        if not ours.is_moe(c, layer):
            yield from ffn(theirs + "mlp.", mine + "mlp.", gate_up, "down_proj", kinds)
            continue
        mine += "block_sparse_moe."
        yield theirs + "mlp.router.weight", [mine + "gate.weight"], one, alone
        local = c["experts"] // c["expert_parallel"]
        for expert in range(local):
            yield from ffn(theirs + f"mlp.experts.local_experts.{expert}.", mine + f"experts.{rank * local + expert}.", ["w1", "w3"], "w2", kinds)
        if c["shared"]:
            yield from ffn(theirs + "mlp.shared_experts.", mine + "shared_expert.", gate_up, "down_proj", ["weight"])
        if c["shared_gate"]:
            yield theirs + "mlp.shared_experts.gate_weight", [mine + "shared_expert_gate.weight"], one, alone
    yield from norm("decoder.final_layernorm", "model.norm")
    if c["untied"]:
        yield "output_layer.weight", ["lm_head.weight"], one, alone


def expert_bias(c, layer):
    """As model_probe.c makes it."""
    return torch.tensor([0.6 * (ours.random01(11, layer * c["experts"] + e) - 0.5) for e in range(c["experts"])])


def run(config, dtype, rank=0):
    """Loss, balance losses and gradients of this process: its experts', and its part of those that all processes have."""
    from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, get_moe_layer_wise_logging_tracker
    c = dict(DEFAULTS, **config)
    weights = {name: ours.values(name, shape, c["deviation"]).detach() for name, shape in ours.shapes(c)}
    losses = get_moe_layer_wise_logging_tracker()
    losses.clear()
    model = megatron_model(c, dtype)
    parameters, used = dict(model.named_parameters()), set()
    with torch.no_grad():
        for theirs, mine, join, _ in pairs(c, rank):
            parameters[theirs].copy_(join(*(weights[name] for name in mine)).to(dtype))
            used.add(theirs)
        for layer in range(c["layers"] if c["expert_bias"] else 0):
            model.decoder.layers[layer].mlp.router.expert_bias.copy_(expert_bias(c, layer))
    if used != set(parameters):
        raise SystemExit(f"Megatron has parameters that were not filled: {sorted(set(parameters) - used)}")
    share = 1 / c["micro_batches"]
    MoEAuxLossAutoScaler.set_loss_scale(torch.tensor(share))
    S, total = c["sequence"], 0.0
    blocked = torch.ones(S, S, dtype=torch.bool).triu(1)[None, None]
    for micro_batch in [rank] if c["expert_parallel"] > 1 else range(c["micro_batches"]):
        tokens, targets = ours.batch(c, micro_batch)
        logits = model(tokens, torch.arange(S)[None].expand(tokens.shape[0], S), blocked)
        loss = share * F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        loss.backward()
        total += loss.item()
    gradients = {}
    for theirs, mine, _, part in pairs(c, rank):
        for name, gradient in zip(mine, part(parameters[theirs].grad), strict=True):
            gradients[name] = gradient.flatten().tolist()
    result = {"loss": total, "gradients": gradients}
    for name, key in (("balance", "load_balancing_loss"), ("sequence_balance", "seq_load_balancing_loss"), ("z", "z_loss")):
        if c["experts"] and c[name]:
            result[name] = (losses[key]["values"] * share).tolist()
    return result


def run_two(model):
    """Two processes; what both have is the sum of their parts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--rank"]
        ranks = [subprocess.Popen([*command, str(rank), folder + "/store", str(model)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
        results = [json.loads(rank.communicate(timeout=300)[0].splitlines()[-1]) for rank in ranks]
    whole, other = results
    add = lambda a, b: [x + y for x, y in zip(a, b, strict=True)]
    for name, gradient in other["gradients"].items():
        whole["gradients"][name] = add(whole["gradients"][name], gradient) if name in whole["gradients"] else gradient
    for name in whole.keys() - {"loss", "gradients"}:
        whole[name] = add(whole[name], other[name])
    return dict(whole, loss=whole["loss"] + other["loss"])


def probe(program, config, device):
    words = [f"{k}={v}" for k, v in dict(DEFAULTS, **config).items() if k != "expert_parallel"] + [f"device={device}"]
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    if sys.argv[1] == "--rank":
        rank, store, model = int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
        start_megatron(rank, 2, store)
        print(json.dumps(run(MODELS[model], torch.float64, rank)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        start_megatron(0, 1, folder + "/store")
    lines = []
    for model, config in enumerate(MODELS):
        name = " ".join(f"{k}={v}" for k, v in config.items())
        for dtype, device, floor in ((torch.float64, "reference_f64", 0), (torch.float32, "cpu", 1e-2)):
            wanted = run_two(model) if config.get("expert_parallel", 1) > 1 else run(config, dtype)
            worst, more = ours.differences(f"{name} on {device}", probe(sys.argv[1], config, device), wanted, 1e-5, floor)
            print(f"{device:14s} {worst:8.2g}  {name}", flush=True)
            lines += more
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
