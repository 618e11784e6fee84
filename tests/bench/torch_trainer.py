#!/usr/bin/env python3
"""A peer of the worker's steps: the same model in PyTorch or transformers, on command, in the protocol of trainer.c.

  torch_trainer.py CONFIGURATION MODEL [--bf16] [--compile] [--threads N]

MODEL: dense; moe-loop (a product an expert) or moe-grouped (torch's grouped_mm); llama, mixtral of transformers. Random tokens and
weights: only speed is measured. A step is forward, backward, clipping to 1.0 and fused AdamW. bf16 is autocast.
"""
import argparse
import glob
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import configurations


class Gather(torch.autograd.Function):
    """rows[order // k]; the backward sums each token's k rows in order, which is faster than scattering."""

    @staticmethod
    def forward(ctx, x, order, inverse, k):
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x.index_select(0, order // k)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.index_select(0, ctx.saved_tensors[0]).view(-1, ctx.k, gradient.shape[1]).sum(1), None, None, None


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.index_select(0, ctx.saved_tensors[0]), None, None


class Experts(nn.Module):
    def __init__(self, c, grouped):
        super().__init__()
        self.c, self.grouped = c, grouped
        self.router = nn.Parameter(torch.randn(c.experts, c.hidden) * 0.02)
        self.gate_up = nn.Parameter(torch.randn(c.experts, 2 * c.width, c.hidden) * 0.02)
        self.down = nn.Parameter(torch.randn(c.experts, c.hidden, c.width) * 0.02)

    def products_grouped(self, rows, counts):
        kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
        offsets = counts.cumsum(0).to(torch.int32)
        gate, up = F.grouped_mm(rows.to(kind), self.gate_up.to(kind).transpose(1, 2), offs=offsets).chunk(2, -1)
        return F.grouped_mm(F.silu(gate) * up, self.down.to(kind).transpose(1, 2), offs=offsets)

    def products_loop(self, rows, counts):
        parts = []
        for part, gate_up, down in zip(rows.split(counts.tolist()), self.gate_up.unbind(0), self.down.unbind(0)):
            gate, up = F.linear(part, gate_up).chunk(2, -1)
            parts.append(F.linear(F.silu(gate) * up, down))
        return torch.cat(parts)

    def forward(self, x):
        c, shape = self.c, x.shape
        x = x.reshape(-1, c.hidden)
        with torch.autocast("cpu", enabled=False):
            scores = F.softmax(F.linear(x.float(), self.router), -1)
            weight, chosen = scores.topk(c.top_k)
            weight = weight / weight.sum(-1, keepdim=True)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel())
        counts = torch.bincount(flat, minlength=c.experts)
        balance = c.experts * (scores.mean(0) * (counts / flat.numel())).sum()
        rows = Gather.apply(x, order, inverse, c.top_k)
        out = self.products_grouped(rows, counts) if self.grouped else self.products_loop(rows, counts)
        out = Permute.apply(out, inverse, order).view(-1, c.top_k, c.hidden)
        return (out * weight.to(out.dtype)[:, :, None]).sum(1).view(shape), balance


class Dense(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up = nn.Linear(c.hidden, 2 * c.ffn, bias=False)
        self.down = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up), 0.0


class Block(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.c = c
        self.norm1, self.norm2 = nn.RMSNorm(c.hidden, 1e-5), nn.RMSNorm(c.hidden, 1e-5)
        self.qkv = nn.Linear(c.hidden, (c.heads + 2 * c.kv_heads) * c.head, bias=False)
        self.out = nn.Linear(c.hidden, c.hidden, bias=False)
        self.mlp = Dense(c) if kind == "dense" else Experts(c, kind == "moe-grouped")

    def forward(self, x, cosines, sines):
        c, (batch, length, _) = self.c, x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, -1, c.head).transpose(1, 2)
        q, k, v = heads.split([c.heads, c.kv_heads, c.kv_heads], 1)

        def rotated(z):
            low, high = z.chunk(2, -1)
            return torch.cat((low * cosines - high * sines, high * cosines + low * sines), -1)
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        y, balance = self.mlp(self.norm2(x))
        return x + y, balance


class Model(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocabulary, c.hidden)
        self.blocks = nn.ModuleList(Block(c, kind) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, 1e-5)
        angle = torch.outer(torch.arange(c.sequence), 1e4 ** (-torch.arange(0, c.head, 2) / c.head))
        self.register_buffer("cosines", angle.cos())
        self.register_buffer("sines", angle.sin())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, labels):
        x, balance = self.embedding(ids), 0.0
        for block in self.blocks:
            x, more = block(x, self.cosines.to(x.dtype), self.sines.to(x.dtype))
            balance = balance + more
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.view(-1, self.c.vocabulary).float(), labels.view(-1)) + 1e-3 * balance


class FromTransformers(nn.Module):
    def __init__(self, c, family):
        super().__init__()
        import transformers
        common = dict(vocab_size=c.vocabulary, hidden_size=c.hidden, num_hidden_layers=c.layers, num_attention_heads=c.heads,
                      num_key_value_heads=c.kv_heads, max_position_embeddings=c.sequence, tie_word_embeddings=True, use_cache=False,
                      attn_implementation="sdpa", rms_norm_eps=1e-5)
        if family == "llama":
            self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(intermediate_size=c.ffn, **common))
        else:
            self.model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
                num_local_experts=c.experts, num_experts_per_tok=c.top_k, intermediate_size=c.width, output_router_logits=True,
                router_aux_loss_coef=1e-3, experts_implementation="grouped_mm", **common))

    def forward(self, ids, labels):
        return self.model(input_ids=ids, labels=labels).loss


def waited():
    """Seconds that this process's threads were ready but had no core."""
    total = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path) as file:
                total += int(file.read().split()[1])
        except OSError:
            pass  # the thread ended
    return total * 1e-9


class Trainer:
    def __init__(self, c, kind, bf16, compiled):
        torch.manual_seed(0)
        model = FromTransformers(c, kind) if kind in ("llama", "mixtral") else Model(c, kind)
        self.bf16, self.parameters = bf16, list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.run = torch.compile(model) if compiled else model
        data = torch.randint(0, c.vocabulary, (c.batch, c.sequence + 1))
        self.ids, self.labels = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def step(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.run(self.ids, self.labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def timed_step(self):
        before, cpu, began = waited(), time.process_time(), time.perf_counter()
        loss = self.step()
        took = time.perf_counter() - began
        print(f"step {took:.6f} {time.process_time() - cpu:.6f} {(waited() - before) / took:.4f} {loss:.6g}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("configuration", choices=configurations.ALL)
    arguments.add_argument("model", choices=["dense", "moe-loop", "moe-grouped", "llama", "mixtral"])
    arguments.add_argument("--bf16", action="store_true")
    arguments.add_argument("--compile", action="store_true")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    trainer = Trainer(configurations.ALL[options.configuration], options.model, options.bf16, options.compile)
    for line in sys.stdin:
        for _ in range(int(line.split()[1])):
            trainer.timed_step()
        print("ok", flush=True)


if __name__ == "__main__":
    main()
