#!/usr/bin/env python3
"""Megatron's core and PyTorch judge how we optimise: learning rates of every schedule over whole runs, batch ramps, AdamW with clipping.

  optimise.py PROBE       tests/peers/optimise_probe.c, built
"""
import copy
import json
import pathlib
import random
import subprocess
import sys
import types

import torch
from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
from torch_model import random01
from training import MOE, SPEC, STOPPED, Bench, merge

PROBE = sys.argv[1]
SCHEDULES = {"constant": "constant", "linear": "linear", "cosine": "cosine", "inverse_square_root": "inverse-square-root", "wsd": "WSD"}
STYLES = ("exponential", "linear", "cosine", "minus_sqrt")
CASES = [(schedule, None) for schedule in SCHEDULES if schedule != "wsd"] + [("wsd", style) for style in STYLES]


def batches_of(training, steps=None):
    """The samples of each step, by Megatron's calculator."""
    steps = steps or training["iterations"]
    whole, ramp = training["global_batch_size"], training.get("rampup_batch_size")
    if not ramp:
        return [whole] * steps
    calculator = RampupBatchsizeNumMicroBatchesCalculator(whole, training["micro_batch_size"], 1, False, 1, ramp["start"], ramp["increment"], ramp["samples"])
    seen, batches = 0, []
    for _ in range(steps):
        calculator.update(seen, consistency_check=True)
        batches.append(calculator.current_global_batch_size)
        assert calculator.num_micro_batches * training["micro_batch_size"] == batches[-1]
        seen += batches[-1]
    return batches


def scheduler_of(training, groups):
    """Megatron's scheduler over an optimizer of these groups; its lengths in samples are those of the run's own steps."""
    rate = training["learning_rate"]
    total = rate.get("total_iterations", training["iterations"])
    batches = batches_of(training, total)
    samples = lambda iterations: sum(batches[:iterations])
    decay = samples(total) - samples(total - rate.get("decay_iterations", 0))
    return OptimizerParamScheduler(types.SimpleNamespace(param_groups=groups), rate.get("initial", 0.0), rate["peak"], rate.get("minimum", 0.0),
                                   samples(rate.get("warmup_iterations", 0)), samples(total), SCHEDULES[rate["schedule"]], 0.1, 0.1, 0, "constant",
                                   wsd_decay_steps=decay, lr_wsd_decay_style=rate.get("decay_style", "exponential"))


def judge_rates(training, skipped=()):
    """(position, rate, the experts' rate) of each step, by Megatron; a skipped step does not call its scheduler."""
    batches = batches_of(training)
    groups = [{"lr": 0.0, "weight_decay": 0.0}, {"lr": 0.0, "weight_decay": 0.0, "max_lr": training["learning_rate"].get("expert_peak", training["learning_rate"]["peak"])}]
    scheduler, rows = scheduler_of(training, groups), []
    for step, batch in enumerate(batches, 1):
        rows.append((scheduler.num_steps, groups[0]["lr"], groups[1]["lr"]))
        if step not in skipped:
            scheduler.step(batch)
    return batches, rows


def same(actual, expected, tolerance=1e-14):
    return abs(actual - expected) <= tolerance * max(abs(expected), 1e-300) or actual == expected


# ---- 1. random runs: every schedule, ramps, skipped steps ----

def random_training(rng, schedule, style):
    iterations = rng.randint(20, 160)
    micro = rng.choice([1, 2, 4])
    training = {"iterations": iterations, "micro_batch_size": micro, "global_batch_size": micro * rng.randint(1, 40)}
    if rng.random() < 0.5:
        start, increment, stages = micro * rng.randint(1, 4), micro * rng.randint(1, 4), rng.randint(1, 12)
        training["global_batch_size"] = start + stages * increment
        training["rampup_batch_size"] = {"start": start, "increment": increment, "samples": stages * rng.randint(1, 300)}
    total = rng.choice([iterations, iterations, iterations - 5, iterations + rng.randint(1, 50)])
    warmup = rng.choice([0, 1, rng.randint(0, total // 3)])
    peak = 10 ** rng.uniform(-5, -2)
    rate = {"schedule": schedule, "peak": peak, "minimum": peak * rng.choice([0, 0.1, 0.5]), "initial": peak * rng.choice([0, 0.01]),
            "warmup_iterations": warmup, "total_iterations": total, "expert_peak": peak * rng.uniform(0.6, 1.7)}
    if schedule == "wsd":
        rate.update(decay_iterations=rng.randint(1, total - warmup), decay_style=style)
    return {**training, "learning_rate": rate}


def random_runs():
    rng = random.Random(4)
    asked, expected = [], []
    for schedule, style in CASES * 25:
        training = random_training(rng, schedule, style)
        skipped = {step for step in range(1, training["iterations"] + 1) if rng.random() < 0.1} if rng.random() < 0.5 else ()
        batches, rows = judge_rates(training, skipped)
        spec = merge(copy.deepcopy(SPEC), {"data": {"prefix": "/none"}, "model": {"moe": MOE}, "training": training})
        asked.append({"spec": spec, "positions": [row[0] for row in rows]})
        expected.append((schedule, style, training, batches, rows))
    done = subprocess.run([PROBE, "rates"], input=json.dumps(asked), capture_output=True, text=True, check=True)
    steps = 0
    for (schedule, style, training, batches, rows), ours in zip(expected, json.loads(done.stdout), strict=True):
        assert ours["batches"] == batches, (training, ours["batches"], batches)
        for step, (row, mine) in enumerate(zip(rows, ours["rates"], strict=True), 1):
            assert same(mine[0], row[1]) and same(mine[1], row[2]), (schedule, style, training, step, row, mine)
            steps += 1
    ramps = sum("rampup_batch_size" in e[2] for e in expected)
    print(f"ok  {len(expected)} runs, {steps} steps, {ramps} with a batch ramp: batches equal, rates within 1e-14 of Megatron's")


# ---- 2. real runs, stopped and continued ----

def real_runs():
    with Bench() as bench:
        for schedule, style, precision in [(*case, "fp32") for case in CASES] + [("linear", None, "fp16")]:
            training = {"iterations": 26, "micro_batch_size": 2, "global_batch_size": 8, "rampup_batch_size": {"start": 2, "increment": 2, "samples": 60},
                        "learning_rate": {"schedule": schedule, "peak": 3e-3, "minimum": 1e-4, "initial": 1e-5, "warmup_iterations": 4, "expert_peak": 1e-3}}
            if schedule == "wsd":
                training["learning_rate"].update(decay_iterations=9, decay_style=style)
            training["precision"] = precision
            run = bench.make("run", model={"moe": MOE}, training=training, checkpoint={"interval": 6})
            process = run.start()
            run.wait_for_step(7, process)
            (run.directory / "stop").touch()
            stopped = process.wait(timeout=60) == STOPPED  # else it was too quick for us: then there is nothing to continue
            (run.directory / "stop").unlink()
            if stopped:
                run.train()
            recorded = {}
            for attempt in run.attempts():
                recorded.update({line["step"]: line["metrics"] for line in run.records("metric", attempt)})
            counted = [0, *(recorded[step].get("skipped_steps", 0) for step in range(1, 27))]
            skipped = {step for step in range(1, 27) if counted[step] > counted[step - 1]}
            assert bool(skipped) == (precision == "fp16"), skipped  # the first scale, 2^32, is too large for any model
            batches, rows = judge_rates(training, skipped)
            seen = 0
            for step, (batch, row) in enumerate(zip(batches, rows), 1):
                seen += batch * SPEC["data"]["sequence_length"]
                mine = recorded[step]
                assert mine["tokens"] == seen, (step, mine["tokens"], seen)
                assert same(mine["learning_rate"], row[1]) and same(mine["expert_learning_rate"], row[2]), (schedule, style, step, row, mine)
            print(f"ok  {schedule}{' ' + style if style else ''} in {precision}, {len(skipped)} steps skipped: 26 recorded steps of a run with a ramp, {'stopped and continued' if stopped else 'in one go'}, as Megatron's")


# ---- 3. AdamW ----

def distance(actual, expected):
    """(norm of the difference to norm, largest difference to largest value) of two lists of tensors by name, the worst tensor."""
    gap = {name: actual[name].double() - expected[name].double() for name in expected}
    return (max((gap[n].norm() / expected[n].double().norm()).item() for n in gap), max((gap[n].abs().max() / expected[n].abs().max()).item() for n in gap))


def adamw(device, dtype, tolerance, exact=None):
    """Against torch.optim.AdamW in this precision; exact: its values in double, to which float32 may not be farther than PyTorch's is."""
    ours = json.loads(subprocess.run([PROBE, "adamw", device], capture_output=True, text=True, check=True).stdout)
    names = list(ours["0"])
    shape = lambda name: (-1,) if "norm" in name else (1, -1)  # Megatron's rule asks for the dimensions alone
    parameters = {name: torch.nn.Parameter(torch.tensor(ours["0"][name], dtype=torch.float64).to(dtype).reshape(shape(name))) for name in names}
    is_expert = lambda name: ".experts." in name
    group = lambda expert, vector: {
        "params": [p for n, p in parameters.items() if is_expert(n) == expert and (p.ndim == 1) == vector],
        "wd_mult": 0.0 if vector else 1.0, **({"max_lr": 1e-3} if expert else {})}
    groups = [g for g in (group(e, v) for e in (False, True) for v in (False, True)) if g["params"]]
    assert len(groups) == 3  # experts have no vectors here
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    training = {"iterations": 100, "micro_batch_size": 4, "global_batch_size": 4, "learning_rate": {"schedule": "cosine", "peak": 3e-3, "minimum": 1e-4, "initial": 1e-5,
                                                                            "warmup_iterations": 10, "total_iterations": 100}}
    scheduler = scheduler_of(training, optimizer.param_groups)
    clipped, kept = 0, {}
    for update in range(1, 101):
        for i, name in enumerate(names):
            count = parameters[name].numel()
            values = [(random01(update * 1000 + i, j) - 0.5) * 2.0 ** (update % 7 - 5) for j in range(count)]
            parameters[name].grad = torch.tensor(values, dtype=torch.float64).to(dtype).reshape(parameters[name].shape)
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0, foreach=False).item()
        clipped += norm > 1
        assert same(ours["norms"][update - 1], norm, 2e-6 if dtype == torch.float32 else 1e-13), (update, ours["norms"][update - 1], norm)
        optimizer.step()
        scheduler.step(4)
        if str(update) in ours:
            kept[update] = {name: parameters[name].detach().flatten().clone() for name in names}
    mine = {update: {name: torch.tensor(values, dtype=torch.float64) for name, values in ours[str(update)].items()} for update in kept}
    apart = {update: distance(mine[update], kept[update]) for update in kept}
    assert 10 < clipped < 90 and max(norm for norm, _ in apart.values()) <= tolerance, (device, clipped, apart)
    print(f"ok  AdamW on {device}: 100 updates, {clipped} of them clipped, experts at a rate of their own: relative distance to torch.optim.AdamW "
          + ", ".join(f"{norm:.1e} (largest {most:.1e}) after {update}" for update, (norm, most) in apart.items()))
    if exact:
        own, theirs = distance(mine[100], exact[100]), distance(kept[100], exact[100])
        assert own[0] <= 1.5 * theirs[0] and own[1] <= 1.5 * theirs[1], (own, theirs)
        print(f"    distance to double: {own[0]:.1e} (largest {own[1]:.1e}), PyTorch's float32 {theirs[0]:.1e} (largest {theirs[1]:.1e})")
    return kept


random_runs()
real_runs()
exact = adamw("reference_f64", torch.float64, 1e-12)
adamw("reference", torch.float32, 1e-6, exact)
adamw("cpu", torch.float32, 1e-6, exact)
