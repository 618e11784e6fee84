"""Training runs by hand: run directories made here, the real worker, its records read back. Standard library only.

    with Bench() as bench:
        run = bench.make("dense", training={"iterations": 4})    # a run directory with run.json; sections of the spec as keywords
        done = run.train()                                       # alone, or under mpirun where the spec has several ranks
        run.metrics()[0]["loss"]
"""
import copy
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import FAULTS, SWITCHYARD, WORKER, corpus

SPEC = {
    "project": "train-tests",
    "data": {"split": [90, 10, 0], "sequence_length": 32},
    "model": {"layers": 2, "hidden_size": 32, "ffn_hidden_size": 64, "attention_heads": 4, "kv_heads": 2, "vocab_size": 257,
              "tied_embeddings": True},
    "training": {"iterations": 8, "micro_batch_size": 2, "global_batch_size": 8, "seed": 1234,
                 "learning_rate": {"schedule": "constant", "peak": 3e-3}},
    "resources": {"ranks_per_node": 1, "threads_per_rank": 1},
}
MOE = {"experts": 4, "top_k": 2, "expert_ffn_hidden_size": 32, "losses": [{"type": "aux_loss", "coefficient": 1e-2}]}
MEASURED = ("_ms", "_per_second", "_mb", "tflops")
DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 75

# Keys with which the daemon, not the worker, does something: tests/train/daemon_keys.py shows what.
DAEMON_KEYS = ["retry.limit", "retry.on", "retry.delay", "code.path", "code.commit", "environment.variables",
               "environment.modules", "resources.time_limit", "resources.gpu_memory",
               "resources.gpus_per_node", "resources.memory", "data.text", "data.document", "data.json_key", "data.prefix", "data.manifest",
               "model.from.run", "model.from.path", "model.from.step", "sweep", "stages"]


def merge(into, what):
    for key, value in what.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value
    return into


def environment():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SWITCHYARD_", "OMPI_", "PMIX_"))}
    clean.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                 OMPI_MCA_plm="isolated", OMPI_MCA_pml="ob1", OMPI_MCA_btl="self,vader", OMPI_MCA_hwloc_base_binding_policy="none",
                 LC_ALL="C.UTF-8")
    return clean


class Run:
    def __init__(self, directory, ranks):
        self.directory, self.ranks = directory, ranks

    def command(self, ranks=None):
        ranks = ranks or self.ranks
        launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        return [*launcher, str(WORKER), "train", str(self.directory)]

    def start(self, ranks=None, **more):
        return subprocess.Popen(self.command(ranks), env={**environment(), **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def train(self, code=DONE, ranks=None, timeout=120, **more):
        process = self.start(ranks, **more)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode != code:
            raise AssertionError(f"{' '.join(self.command(ranks))}: exit {process.returncode}, expected {code}\n{out}{err}")
        return err

    def attempts(self):
        return sorted((int(p.name.split("-")[1]) for p in self.directory.glob("attempt-*")))

    def records(self, kind=None, attempt=None):
        attempt = attempt or self.attempts()[-1]
        path = self.directory / f"attempt-{attempt}" / "records.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if kind is None or line["kind"] == kind]

    def metrics(self, attempt=None):
        """Metrics by step."""
        return {line["step"]: line["metrics"] for line in self.records("metric", attempt)}

    def values(self, name, attempt=None):
        return [line["metrics"][name] for line in self.records("metric", attempt) if name in line["metrics"]]

    def facts(self, attempt=None):
        """Everything recorded that is no measurement: the same for equal runs, bit for bit."""
        kept = []
        for line in self.records(attempt=attempt):
            line = copy.deepcopy(line)
            for key in ("timestamp", "worker", "log_id", "alert_id", "attempt", "directory", "peak_memory_bytes"):
                line.pop(key, None)
            if "metrics" in line:
                line["metrics"] = {k: v for k, v in line["metrics"].items() if not k.endswith(MEASURED)}
            kept.append(line)
        return sorted(kept, key=lambda line: line["kind"] == "checkpoint")  # they come when the disk has them, beside later steps

    def steps(self, attempt=None):
        """The part of facts() that belongs to steps, for comparing with a run that was interrupted."""
        return [line for line in self.facts(attempt) if line["kind"] in ("metric", "data", "expert_load")]

    def checkpoints(self):
        return sorted(p.name for p in (self.directory / "checkpoints").glob("*")) if (self.directory / "checkpoints").exists() else []

    def tensors(self, step):
        """SHA-256 of the tensors of a checkpoint by name, whatever files they are in."""
        found = {}
        for path in (self.directory / "checkpoints" / f"step-{step:07d}").glob("*.safetensors"):
            raw = path.read_bytes()
            size = int.from_bytes(raw[:8], "little")
            for name, entry in json.loads(raw[8:8 + size]).items():
                if name != "__metadata__":
                    begin, end = entry["data_offsets"]
                    found[name] = hashlib.sha256(raw[8 + size + begin:8 + size + end]).hexdigest()
        return found

    def wait_for_step(self, step, process, timeout=60, kind="metric"):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and process.poll() is None:
            if self.attempts() and any(line["step"] >= step for line in self._whole_lines() if line["kind"] == kind):
                return
            time.sleep(0.005)
        raise AssertionError(f"no {kind} of step {step} was recorded (exit {process.poll()}): {process.communicate()}")

    def _whole_lines(self):
        path = self.directory / f"attempt-{self.attempts()[-1]}" / "records.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]


class Bench:
    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="switchyard-train-"))
        self.prefix = self.root / "data" / "data"
        self.text = self.root / "corpus.txt"
        self.text.write_text(corpus())
        self.tokenize()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            shutil.rmtree(self.root, ignore_errors=True)
        else:
            print(f"kept for a look: {self.root}", file=sys.stderr)

    def tokenize_run(self, name="tokenize", **keys):
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        tokenize = {"input": str(self.text), "prefix": str(self.prefix), "document": "paragraph", "json_key": "text", "tokenizer": "byte", **keys}
        (directory / "run.json").write_text(json.dumps({"v": 1, "kind": "tokenize", "project": "train-tests", "name": name,
                                                        "run_id": "0" * 32, "tokenize": tokenize}))
        return Run(directory, 1)

    def tokenize(self, code=DONE, name="tokenize", **keys):
        run = self.tokenize_run(name, **keys)
        done = subprocess.run([WORKER, "tokenize", run.directory], env=environment(), text=True, capture_output=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"tokenize: exit {done.returncode}, expected {code}\n{done.stderr}")
        return done.stderr, run

    def make(self, name, origin=None, prefix=None, **sections):
        spec = merge(copy.deepcopy(SPEC), sections)
        spec["data"].setdefault("prefix", str(prefix or self.prefix))
        directory = self.root / name
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir()
        (directory / "run.json").write_text(json.dumps({
            "v": 1, "kind": "train", "project": spec["project"], "name": name, "run_id": hashlib.sha256(b"train-tests").hexdigest()[:32],
            "spec": spec, "data": {"prefixes": [{"path": str(prefix or self.prefix), "weight": 1.0}], "key": None}, "from": origin}))
        return Run(directory, spec["resources"]["ranks_per_node"])


def check(what, actual, expected):
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, expected {expected!r}")
    print(f"ok  {what}")


def close(what, actual, expected, tolerance):
    worst = max((abs(a - e) / abs(e) for a, e in zip(actual, expected)), default=float("inf"))
    if len(actual) != len(expected) or not worst <= tolerance:
        raise AssertionError(f"{what}: relative difference {worst}, allowed {tolerance}\n{actual}\n{expected}")
    print(f"ok  {what}: within {worst:.1e}")


def contains(what, text, words):
    if words not in text:
        raise AssertionError(f"{what}: {words!r} is not in:\n{text}")
    print(f"ok  {what}")
