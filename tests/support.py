"""What every script test needs: the real programs in an empty home. Standard library only.

    from support import Home
    with Home() as home:                     # a temporary SWITCHYARD_HOME and TRACKIO_DIR, removed on success
        home.serve()                         # the real daemon on a free port
        home.cli("submit", spec)             # the real command line; raises with its output when the exit code is another one
        home.json("show", "dense-1")         # the same with --json, parsed
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = pathlib.Path(os.environ.get("SWITCHYARD_SOURCE", pathlib.Path(__file__).resolve().parent.parent))
BIN = pathlib.Path(os.environ.get("SWITCHYARD_BIN", SOURCE / "build" / "bin"))
SWITCHYARD = BIN / "switchyard"
WORKER = BIN / "switchyard-worker"
FAULTS = BIN / "faults.so"  # tests/faults.c: for LD_PRELOAD

# A spec small enough for a test: seconds for both runs. Keys are set on top with `spec_text(overrides)`.
TINY = """\
# Does a tiny mixture learn as a tiny dense model does?
project: tiny
data: {text: corpus.txt, document: paragraph, tokenizer: byte, split: [90, 10, 0], sequence_length: 32}
model: {layers: 2, hidden_size: 32, ffn_hidden_size: 64, attention_heads: 4, kv_heads: 2, vocab_size: 257, tied_embeddings: true}
training:
  iterations: 8
  micro_batch_size: 2
  global_batch_size: 8
  precision: fp32
  optimizer: {name: adamw, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip_grad: 1.0}
  learning_rate: {schedule: constant, peak: 1e-3}
  validation: {interval: 4, iterations: 1}
  seed: 1234
resources: {nodes: 1, ranks_per_node: 1, threads_per_rank: 1, time_limit: 10m}
runs:
  dense: {}
  moe:
    model: {moe: {experts: 4, top_k: 2, expert_ffn_hidden_size: 32, losses: [{type: aux_loss, coefficient: 1e-2}], per_layer_metrics: true}}
"""


def corpus(paragraphs=400):
    """English-looking text, the same on every machine."""
    words = "the a of to and in is it that was for on are with as his they at be this from have or by one had not but what all".split()
    state, lines = 12345, []
    for _ in range(paragraphs):
        sentence = []
        for _ in range(12 + state % 30):
            state = (state * 1103515245 + 12345) % 2**31
            sentence.append(words[(state >> 8) % len(words)])
        lines.append(" ".join(sentence) + ".\n")
    return "\n".join(lines)


class Home:
    def __init__(self, trackio=None, prefix="switchyard-test-"):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
        self.home = self.root / "home"
        self.trackio = pathlib.Path(trackio) if trackio else self.root / "trackio"
        self.trackio.mkdir(parents=True, exist_ok=True)
        self.work = self.root / "work"
        self.work.mkdir()
        self.daemon = None
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SWITCHYARD_", "OMPI_", "TRACKIO_"))}
        self.environment.update(SWITCHYARD_HOME=str(self.home), TRACKIO_DIR=str(self.trackio), LC_ALL="C.UTF-8")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop()
        self.end_runs()
        if kind is None:
            shutil.rmtree(self.root, ignore_errors=True)
        else:
            print(f"kept for a look: {self.root}", file=sys.stderr)

    def end_runs(self):
        """What a test that failed has left running: it would train for ever beside those that come after."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                mine = os.fsencode(self.root) in (entry / "cmdline").read_bytes() and b"SWITCHYARD_TAG=" in (entry / "environ").read_bytes()
                if mine:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue

    def spec(self, text=TINY, name="tiny.yaml", with_corpus=True):
        """Writes a spec (and its corpus) into the work folder; returns its path."""
        if with_corpus and not (self.work / "corpus.txt").exists():
            (self.work / "corpus.txt").write_text(corpus())
        path = self.work / name
        path.write_text(text)
        return path

    def serve(self, *options, port=0, wait=15):
        log = open(self.root / "daemon.log", "ab")
        self.daemon = subprocess.Popen([SWITCHYARD, "serve", "--port", str(port), *options], env=self.environment, cwd=self.work,
                                       stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if self.run("ls").returncode == 0:
                return self.daemon
            if self.daemon.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError("the daemon did not start:\n" + (self.root / "daemon.log").read_text(errors="replace"))

    def stop(self, how=signal.SIGTERM):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(how)
            self.daemon.wait(timeout=10)
        self.daemon = None

    def run(self, *words, timeout=120, **options):
        """Any outcome: a CompletedProcess with text output."""
        environment = {**self.environment, **options.pop("environment", {})}
        return subprocess.run([SWITCHYARD, *map(str, words)], env=environment, cwd=self.work, text=True, capture_output=True,
                              timeout=timeout, stdin=subprocess.DEVNULL, **options)

    def cli(self, *words, code=0, **options):
        done = self.run(*words, **options)
        if done.returncode != code:
            raise AssertionError(f"switchyard {' '.join(map(str, words))}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *words, **options):
        return json.loads(self.cli(*words, "--json", **options).stdout)

    def ask(self, path, timeout=60):
        """What the daemon answers over HTTP, parsed."""
        address = json.loads((self.home / "daemon.json").read_text())
        request = urllib.request.Request(address["url"] + path, headers={"Authorization": f"Bearer {address['token']}"})
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return json.load(reply)

    def wait_for(self, run, states, timeout=90):
        """Polls until the run is in one of these states; returns what `show` says then."""
        deadline, shown = time.monotonic() + timeout, None
        while time.monotonic() < deadline:
            shown = self.json("show", run)
            if shown["state"] in states:
                return shown
            time.sleep(0.2)
        raise AssertionError(f"{run} is {shown and shown['state']} ({shown and shown['reason']}) after {timeout} s, expected {states}")
