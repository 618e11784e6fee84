#!/usr/bin/env python3
"""config.yaml: printed with its defaults, read by the daemon as strictly as a spec, its names allowed at the gate; and `config slurm`, which
writes it from what a cluster says of itself and replaces nothing unseen."""
import http.client
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import Home, TINY  # noqa: E402

# Slurm's commands, as recorded from a 22.05 with accounting; a partition of two kinds of nodes; one whose name no spec could ask for.
SAYS = {
    "sinfo": "main*|main|up|1-12:00:00|2|16|16000|gpu:h100:8(S:0-1)\\nmain*|main|up|1-12:00:00|4|64|512000+|(null)\\n"
             "cpu|cpu|up|infinite|3|32|64000|(null)\\nodd name|odd name|up|30:00|1|1|1|(null)\\ngarbage\\n",
    "scontrol": "Configuration data as of 2026-11-30\\nClusterName             = test\\nMaxArraySize            = 1001\\nMaxJobCount             = 10000\\n"
                "SelectType              = select/cons_tres\\nSLURM_VERSION           = 22.05.8\\n",
    "srun": "MPI plugin types are...\\n\\tnone\\n\\tpmix\\n\\tpmi2\\nspecific pmix plugin versions available: pmix_v4\\n",
    "sacctmgr": "ours|200\\nothers|50\\n",
}
WRITTEN = """\
# What `switchyard config slurm` found on cluster test (Slurm 22.05.8). Change what you like: each value says where it came from, and
# `switchyard config` prints what counts. A daemon that runs takes a change over.
slurm:
  mpi: pmix # `srun --mpi=list` offers it
  gpus: gres # --gres=gpu:N; this cluster's SelectType (`scontrol show config`) takes gpus-per-node too
  # account: NAME # unset, Slurm's own default for you; `sacctmgr` knows several of yours
  max_submit_jobs: 50 # `sacctmgr show assoc`: MaxSubmitJobs
  max_array_size: 1001 # `scontrol show config`: MaxArraySize
  # gpu_type: h100 # `sinfo`: GRES; unset, any type will do
  partition: main # `sinfo` marks it as the default
  partitions: # `sinfo`: the largest node of each; no time_limit: none
    main: {nodes: 6, cpus_per_node: 64, memory_per_node: 512000MiB, gpus_per_node: 8, time_limit: 36h}
    cpu: {nodes: 3, cpus_per_node: 32, memory_per_node: 64000MiB}
"""


def fake(home, says):
    tools = home.work / "tools"
    tools.mkdir(exist_ok=True)
    for name in SAYS:
        text = says.get(name)
        (tools / name).write_text("#!/bin/sh\n" + (f"printf '{text}'\n" if text else f"echo '{name}: error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"))
        (tools / name).chmod(0o755)
    return {"PATH": f"{tools}:{os.environ['PATH']}"}


def printed(home):
    assert home.cli("config").stdout.startswith("# no config.yaml: the defaults\n")
    home.home.mkdir()
    config = home.home / "config.yaml"
    config.write_text("allowed_hosts: [login1, 'node:80']\nslurm: {mpi: pmi2, partitions: {a: {memory_per_node: 1.5GiB, time_limit: 1h30m}}}\n")
    said = home.json("config")
    assert said["file"] == str(config) and said["allowed_hosts"] == ["login1", "node:80"] and said["slurm"]["mpi"] == "pmi2" and said["slurm"]["gpus"] == "gres", said
    assert said["slurm"]["partitions"]["a"] == {"nodes": None, "cpus_per_node": None, "gpus_per_node": None, "memory_per_node": 1610612736, "time_limit": 5400.0}, said
    config.write_text(home.cli("config").stdout)  # what is printed is a config.yaml that says the same
    assert home.json("config") == said, home.json("config")
    config.unlink()


def refused(home):
    """A daemon does not start by half of a configuration."""
    config = home.home / "config.yaml"
    config.write_text("allowed_hosts: [login]\nslurm:\n  partitons: {}\n")
    for words, code in ((("config",), 2), (("serve", "--port", "0"), 3)):
        done = home.cli(*words, code=code)
        assert f"{config}:3:3: unknown key `partitons` in `slurm`; did you mean `partitions`?\n" in done.stderr and not done.stdout, done
    config.write_text("allowed_hosts: [%s]\n" % ", ".join(f"h{n}" for n in range(40)))
    assert f"{config}:1:16: `allowed_hosts`: more than 32 names" in home.cli("serve", "--port", "0", code=3).stderr
    config.write_text("port: 80\n")
    assert "unknown key `port`: the port is `switchyard serve --port N`, and a daemon's own for as long as it runs" in home.cli("config", code=2).stderr
    home.cli("config", "nonsense", code=2)


def allowed(home):
    (home.home / "config.yaml").write_text("allowed_hosts: [login1.cluster, 'node7:8642']\n")
    home.serve("--allow-host", "by-option")
    address = json.loads((home.home / "daemon.json").read_text())
    port = int(address["url"].rsplit(":", 1)[1])
    for host, status in (("login1.cluster", 200), ("LOGIN1.cluster:99", 200), ("node7:8642", 200), ("node7:1", 403), ("by-option", 200), ("login2.cluster", 403), ("localhost", 200)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/v1/runs", headers={"Host": host, "Authorization": f"Bearer {address['token']}"})
        assert connection.getresponse().status == status, (host, status)
        connection.close()
    home.stop()
    (home.home / "config.yaml").unlink()


def status_of(home, host):
    address = json.loads((home.home / "daemon.json").read_text())
    connection = http.client.HTTPConnection("127.0.0.1", int(address["url"].rsplit(":", 1)[1]), timeout=20)
    connection.request("GET", "/api/v1/health", headers={"Host": host, "Authorization": f"Bearer {address['token']}"})
    answer = connection.getresponse()
    health = json.loads(answer.read())
    connection.close()
    return answer.status, health


def until(look, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if look():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come about")


def sbatch_words(home):
    """What a run would ask Slurm for that is submitted now: as its job's description has it."""
    spec = home.spec(TINY.replace("resources:", "slurm: {requeue: false}\nresources:"), "cluster.yaml")
    run = home.json("submit", spec, "--run", "dense",)["runs"][-1]
    directory = pathlib.Path(home.json("show", f"{run['project']}/{run['name']}")["directory"])
    job = json.loads((directory / "job.json").read_text())
    home.cli("cancel", f"{run['project']}/{run['name']}")
    return job["options"], job["argv"]


def doubted(home):
    """What the cluster's partitions cannot give is said when a run is submitted, once for all runs that ask for it."""
    config = home.home / "config.yaml"
    config.write_text("slurm: {partitions: {main: {nodes: 4, time_limit: 5m}}}\n")
    home.environment["PATH"] = f"{home.work}/none:/usr/bin:/bin"
    home.serve()
    text = TINY[:TINY.index("runs:")].replace("resources:", "slurm: {partition: mian}\nresources:")
    spec = home.spec(text + "sweep: {grid: {training.seed: [1, 2, 3]}}\nruns: {dense: {}}\n", "doubt.yaml")
    done = home.cli("submit", spec, "--name", "typo", "--run", "dense-seed1")
    assert f"warning: dense-seed1: {config} says: the cluster has no partition mian (did you mean main?)\n" in done.stderr, done
    done = home.cli("plan", spec, "--run", "dense", "--set", "slurm.partition=gpux")
    assert f" {config} says: the cluster has no partition gpux: it has main\n" in done.stderr, done
    done = home.cli("submit", spec, "--set", "slurm.partition=main", "--set", "resources.time_limit=10m")
    assert done.stderr.count(" says: a time limit of 10m 00s is more than the 5m 00s of partition main: ") == 1, done
    assert "submitted tiny/dense-seed3-1\n" in done.stdout and "says:" not in home.cli("submit", spec, "--set", "executor=local").stderr
    home.cli("cancel", "--project", "tiny")
    home.stop()
    config.unlink()


def live(home):
    """A daemon that runs takes a change over: names, GPUs, the cluster. A broken file changes nothing, and is told everywhere."""
    config = home.home / "config.yaml"
    home.environment["PATH"] = f"{home.work}/none:/usr/bin:/bin"
    daemon = home.serve()
    assert status_of(home, "late")[0] == 403
    config.write_text("allowed_hosts: [late]\ngpus: 3\nslurm: {mpi: pmi2, partition: fast}\n")
    until(lambda: status_of(home, "late")[0] == 200)
    health = status_of(home, "late")[1]
    assert health["gpus"] == 3 and health["config"]["file"] == str(config) and health["config"]["fault"] is None, health
    options, argv = sbatch_words(home)
    assert "--partition=fast" in options and "--mpi=pmi2" in argv, (options, argv)
    config.write_text("allowed_hosts: [later]\ngpus: many\n")
    until(lambda: status_of(home, "late")[1].get("config", {}).get("fault"))
    status, health = status_of(home, "late")
    assert status == 200 and status_of(home, "later")[0] == 403 and health["gpus"] == 3, health
    assert health["config"]["fault"].startswith(f"{config}:2:7: "), health["config"]
    said = home.cli("ls").stderr
    assert f"{config} is broken; what it said before counts until it is mended:\n{config}:2:7: " in said, said
    config.write_text("allowed_hosts: [later]\n")
    until(lambda: status_of(home, "later")[0] == 200)
    assert status_of(home, "late")[0] == 403 and "broken" not in home.cli("ls").stderr
    config.unlink()  # as one that never was
    until(lambda: status_of(home, "later")[0] == 403)
    assert daemon.poll() is None and status_of(home, "localhost")[1]["config"]["file"] is None
    home.stop()
    # What the command line says goes before what the file says, also later.
    home.serve("--gpus", "2")
    config.write_text("gpus: 5\n")
    until(lambda: "`gpus: 5` does not count, this daemon was started with --gpus 2" in (home.root / "daemon.log").read_text())
    assert status_of(home, "localhost")[1]["gpus"] == 2
    home.stop()
    config.unlink()


def slurm(home):
    config, tools = home.home / "config.yaml", fake(home, SAYS)
    home.cli("config", "slurm", environment=tools)
    assert config.read_text() == WRITTEN, config.read_text()
    said = home.json("config")["slurm"]
    assert said["partitions"]["main"]["time_limit"] == 129600.0 and said["max_submit_jobs"] == 50, said
    again = home.cli("config", "slurm", environment=tools)
    assert "says so already" in again.stderr and not again.stdout, again
    # What a person wrote is shown before it would go, kept where no command knows better, and never lost.
    mine = "allowed_hosts: [login]\nslurm: {account: me, mpi: pmix_v4, gpus: gpus-per-node, gpu_type: a100, partition: cpu}\n"
    config.write_text(mine)
    done = home.cli("config", "slurm", environment=tools, code=1)
    assert config.read_text() == mine and "-slurm: {account: me," in done.stdout and "+  max_array_size: 1001" in done.stdout and "--force" in done.stderr, done
    home.cli("config", "slurm", "--force", environment=tools)
    assert (home.home / "config.yaml.old").read_text() == mine
    kept = home.json("config")
    assert kept["allowed_hosts"] == ["login"] and [kept["slurm"][k] for k in ("account", "mpi", "gpus", "gpu_type", "partition")] == \
        ["me", "pmix_v4", "gpus-per-node", "a100", "cpu"], kept
    # A broken file stays, unless it is told to go.
    config.write_text("slurm: {mpy: pmix}\n")
    assert "unknown key `mpy`" in home.cli("config", "slurm", environment=tools, code=2).stderr and config.read_text() == "slurm: {mpy: pmix}\n"
    home.cli("config", "slurm", "--force", environment=tools)
    assert config.read_text() == WRITTEN
    # Without accounting, without an answer of srun: written all the same, and said. Without a controller: nothing is written.
    config.unlink()
    home.cli("config", "slurm", environment=fake(home, {k: v for k, v in SAYS.items() if k in ("sinfo", "scontrol")}))
    text = config.read_text()
    assert "# mpi: pmix # `srun --mpi=list` did not answer" in text and "max_submit_jobs: 10000 # `scontrol show config`: MaxJobCount, of all users together" in text, text
    config.unlink()
    done = home.cli("config", "slurm", environment=fake(home, {}), code=3)
    assert done.stderr == "switchyard: no Slurm answers here: sinfo: error: Unable to contact slurm controller (connect failure)\n" and not config.exists(), done
    lost = fake(home, {})
    (home.work / "tools" / "sinfo").write_text("#!/bin/sh\necho 'sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host' >&2\n"
                                               "echo 'sinfo: fatal: Could not establish a configuration source' >&2\nexit 1\n")
    done = home.cli("config", "slurm", environment=lost, code=3)
    assert done.stderr == "switchyard: no Slurm answers here: sinfo finds no slurm.conf: is SLURM_CONF set, and is this a machine of the cluster?\n", done
    done = home.cli("config", "slurm", environment={"PATH": "/nonexistent"}, code=3)
    assert "no Slurm answers here: there is no sinfo on PATH" in done.stderr, done


def main():
    with Home() as home:
        printed(home)
        refused(home)
        allowed(home)
        slurm(home)
        doubted(home)
        live(home)
    print("config: defaults, faults, allowed hosts, a cluster's own words, nothing replaced unseen, changes taken over by a daemon that runs")


main()
