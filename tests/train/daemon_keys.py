"""No inert key, continued: what the daemon does with its keys, seen in run.json, in the job's environment, in the record and in states."""
import json
import pathlib
import subprocess

from training import DAEMON_KEYS, check, contains
from support import TINY, Home, corpus

shown = set()
SPEC = TINY.split("runs:")[0].replace("iterations: 8", "iterations: 2").replace("  validation: {interval: 4, iterations: 1}\n", "") + \
    "checkpoint: {interval: 1}\n"


def told(key, what, actual, expected):
    shown.add(key)
    check(f"{key}: {what}", actual, expected)


with Home() as home:
    home.spec()
    (home.work / "other.txt").write_text(corpus(300))
    (home.work / "text.jsonl").write_text("".join(json.dumps({"text": f"a {i} " * 40, "body": f"b {i} " * 40}) + "\n" for i in range(99)))
    home.serve("--gpus", "2")

    def submit(name, text=SPEC, *options, states=("succeeded",)):
        """The document of a submitted run that came to one of these states."""
        home.cli("submit", home.spec(text, f"{name}.yaml"), *options)
        seen = home.wait_for(f"{name}-1", states)
        document = json.loads((pathlib.Path(seen["directory"]) / "run.json").read_text())
        job = json.loads((pathlib.Path(seen["directory"]) / "attempt-1" / "job.json").read_text())
        return document, job, seen

    def sets(name, *pairs, **more):
        return submit(name, SPEC, *[word for pair in pairs for word in ("--set", pair)], **more)

    plain, job, first = submit("plain")
    key = plain["data"]["key"]
    told("data.text", "other text, other dataset", sets("text", "data.text=other.txt")[0]["data"]["key"] == key, False)
    told("data.document", "another cut, another dataset", sets("document", "data.document=line")[0]["data"]["key"] == key, False)
    one, two = (sets(f"json-{k}", "data.text=text.jsonl", f"data.json_key={k}")[0]["data"]["key"] for k in ("text", "body"))
    told("data.json_key", "another member, another dataset", one == two, False)

    pair = plain["data"]["prefixes"][0]["path"]
    copy = home.work / "copy"
    for suffix in (".bin", ".idx"):
        copy.with_suffix(suffix).write_bytes(pathlib.Path(pair + suffix).read_bytes())
    by_prefix = SPEC.replace("text: corpus.txt", "prefix: copy")
    told("data.prefix", "that pair is read", [p["path"] for p in submit("prefix", by_prefix)[0]["data"]["prefixes"]], [str(copy)])
    (home.work / "manifest.txt").write_text(f"0.5 {copy}\n0.5 {pair}\n")
    by_manifest = SPEC.replace("text: corpus.txt", "manifest: manifest.txt")
    told("data.manifest", "all pairs are read", [p["path"] for p in submit("manifest", by_manifest)[0]["data"]["prefixes"]], [str(copy), pair])

    start = sets("run", "model.from.run=plain-1")[0]["from"]
    told("model.from.run", "the run that it starts from", start["run_directory"], first["directory"])
    told("model.from.step", "another checkpoint", sets("step", "model.from.run=plain-1", "model.from.step=1")[0]["from"]["step"], 1)
    checkpoint = pathlib.Path(first["directory"]) / "checkpoints" / "step-0000002"
    told("model.from.path", "that directory", sets("path", f"model.from.path={checkpoint}")[0]["from"]["checkpoint"], str(checkpoint))

    told("environment.variables", "the job's environment", "A_WORD=a word" in sets("variables", "environment.variables={A_WORD: a word}")[1]["environment"], True)
    _, job, seen = sets("modules", "environment.modules=[no-such/module]", states=("failed",))
    said = (pathlib.Path(seen["directory"]) / "attempt-1" / "stderr.log").read_text()
    told("environment.modules", "is loaded before the job starts, or the job fails", (job["modules"], "cannot load the module no-such/module" in said), (["no-such/module"], True))
    _, _, slow = sets("limit", "training.iterations=1000000", "resources.time_limit=2s", states=("timed_out", "succeeded", "failed"))
    told("resources.time_limit", "ends the run", slow["state"], "timed_out")
    _, job, _ = sets("gpu", "resources.gpus_per_node=2", "resources.ranks_per_node=1")
    told("resources.gpus_per_node", "so many of the machine's", job["gpu_devices"], ["0", "1"])
    _, _, large = sets("memory", "training.iterations=1000000", "resources.memory=1MiB", states=("out_of_memory", "succeeded", "failed"))
    told("resources.memory", "more ends the run", large["state"], "out_of_memory")
    refusal = home.cli("validate", home.spec(SPEC, "memory.yaml"), "--set", "resources.gpus_per_node=1", "--set", "resources.gpu_memory=100kB", code=2)
    told("resources.gpu_memory", "less than the model needs is refused", "gpu_memory" in refusal.stderr + refusal.stdout, True)

    # A run whose data is spoilt fails in each attempt.
    broken = home.work / "broken"
    broken.with_suffix(".bin").write_bytes(b"x")
    broken.with_suffix(".idx").write_bytes(b"x")
    spoilt = SPEC.replace("text: corpus.txt", "prefix: broken")

    def retried(name, retry):
        seen = submit(name, spoilt, "--set", f"retry={retry}", states=("failed",))[2]
        return seen, [event for event in seen["events"] if event["kind"] == "retry"]

    seen, events = retried("again", "{limit: 2, on: [failed], delay: 1s}")
    told("retry.limit", "so many more attempts", (len(seen["attempts"]), len(events)), (3, 2))
    contains("and the last says so", seen["reason"], "after 2 retries")
    begun = [attempt["started"] for attempt in seen["attempts"]]
    told("retry.delay", "a pause, twice as long the second time", begun[1] - begun[0] >= 1 and begun[2] - begun[1] >= 2, True)
    seen, events = retried("other", "{limit: 2, on: [lost, timed_out], delay: 0s}")
    told("retry.on", "another end is not tried again", (len(seen["attempts"]), len(events)), (1, 0))

    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", home.work, *words], check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    head = subprocess.run(["git", "-C", home.work, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    told("code.path", "that repository's commit is recorded", sets("code", "code.path=.")[2]["commit"], head)
    refusal = home.run("submit", home.spec(SPEC, "commit.yaml"), "--set", f"code.commit={'0' * 40}")
    told("code.commit", "a commit that is not checked out there is refused", refusal.returncode != 0, True)
    contains("and the fault names it", refusal.stderr + refusal.stdout, "0" * 12)

    home.cli("submit", home.spec(SPEC, "swept.yaml"), "--set", "sweep={grid: {training.seed: [5, 6]}}")
    told("sweep", "a run for each value", [home.json("show", f"swept-seed{n}-1")["spec"]["training"]["seed"] for n in (5, 6)], [5, 6])
    home.cli("submit", home.spec(SPEC + "stages: {early: {kind: train}, late: {kind: train, needs: [early]}}\n", "staged.yaml"))
    told("stages", "one needs the other", [need["run"] for need in home.json("show", "late-1")["needs"]], ["tiny/early-1"])
    home.wait_for("late-1", ("succeeded",))

check("every key of the daemon was shown", sorted(shown), sorted(DAEMON_KEYS))
