#!/usr/bin/env python3
"""Lists on a terminal of 80 columns: nothing is wider, what matters stays, and why a run waits or failed has a line of its own; through a pipe, all of it."""
import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import SWITCHYARD, TINY, Home  # noqa: E402

SPEC = TINY.replace("project: tiny", "project: wide-names").replace("iterations: 8", "iterations: 1000000").split("runs:")[0] + """\
runs:
  mixture:
    model: {moe: {experts: 4, top_k: 2, expert_ffn_hidden_size: 32}}
    sweep: {grid: {model.moe.top_k: [2, 3], training.learning_rate.peak: [1e-3, 3e-3], training.seed: [1, 2]}, canary: 1}
"""


def on_terminal(home, columns, *words):
    """What it prints on a terminal of so many columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen([SWITCHYARD, *words], env=home.environment, cwd=home.work, stdin=its, stdout=its, stderr=subprocess.DEVNULL)
    os.close(its)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert child.wait(timeout=60) == 0, said
    return said.decode().replace("\r\n", "\n").splitlines()


def bad_ends(home):
    """Why a run came to a bad end stands where others have what they wait for; one that ended well has nothing to explain."""
    spec = home.spec(TINY, "ends.yaml")
    home.cli("submit", spec, "--run", "dense", "--name", "well")
    home.wait_for("tiny/well", ("succeeded",))
    assert "REASON" not in home.cli("ls", "--project", "tiny").stdout
    home.cli("submit", spec, "--run", "dense", "--name", "late", "--set", "training.iterations=1000000", "--set", "resources.time_limit=2s")
    reason = home.wait_for("tiny/late", ("timed_out",))["reason"]
    piped = {line.split()[0]: line for line in home.cli("ls", "--project", "tiny").stdout.splitlines()}
    assert piped["RUN"].endswith("  REASON") and piped["tiny/late"].endswith("  " + reason) and piped["tiny/well"].endswith("  -"), piped
    lines = on_terminal(home, 80, "ls", "--project", "tiny")
    late = lines.index(next(line for line in lines if line.startswith("late ")))
    below = f"    {reason}"
    assert lines[late + 1] == (below if len(below) <= 80 else below[:79] + "…"), lines
    assert max(map(len, lines)) <= 80 and sum(line.startswith("    ") for line in lines) == 1, lines
    # A report keeps both losses, and says what it left out.
    wide = on_terminal(home, 200, "report", "tiny")
    lines = on_terminal(home, 60, "report", "tiny")
    assert wide[0].split()[:3] == ["runs", "parameters", "active"] and wide[0].endswith("tokens dropped"), wide
    assert max(map(len, lines)) <= 60 and "validation loss" in lines[0] and "training loss" in lines[0] and "tokens/s" not in lines[0], lines
    said = home.cli("report", "tiny").stderr
    assert "too narrow" not in said, said


def tallied(home):
    """A list longer than a terminal ends with how many are in which state; a short one needs no sum."""
    assert "runs:" not in home.cli("ls").stderr
    home.cli("submit", home.spec(TINY.replace("project: tiny", "project: many").split("runs:")[0] + "sweep: {grid: {training.seed: [" +
                                 ", ".join(map(str, range(1, 31))) + "]}}\nruns: {dense: {}}\n", "many.yaml"))
    home.cli("cancel", "--project", "many")
    home.wait_for("many/dense-seed30-1", ("cancelled",))
    done = home.cli("ls", "--project", "many")
    states = [line.split()[2] for line in done.stdout.splitlines()[1:]]
    told, = done.stderr.splitlines()
    assert told.startswith(f"{len(states)} runs: ") and f" {states.count('cancelled')} cancelled" in told, (told, states)


def main():
    with Home() as home:
        home.serve()
        home.cli("submit", home.spec(SPEC))
        canary = "mixture-top_k2-peak1e-3-seed1-1"
        home.wait_for(canary, ("running",))
        deadline = time.monotonic() + 60
        while not home.json("show", canary)["last"].get("validation_loss") or \
                sum(run["pending_reason"] == f"waits for wide-names/{canary}" for run in home.json("ls")["runs"]) < 7:
            assert time.monotonic() < deadline, home.cli("ls").stdout
            time.sleep(0.1)
        piped = home.cli("ls").stdout.splitlines()
        assert piped[0].split() == ["RUN", "top_k", "peak", "seed", "STATE", "STEP", "LOSS", "VALIDATION", "TOKENS/S", "ETA", "COMMIT", "REASON"], piped[0]
        assert piped[1].startswith(f"wide-names/{canary} ") and "  running" in piped[1], "what is at work comes first"
        assert piped[2].startswith("wide-names/mixture-") and piped[2].endswith(f"  waits for wide-names/{canary}"), piped[2]
        assert piped[-1].startswith("wide-names/tokenize-1 ") and "  succeeded" in piped[-1], "what is over comes last"
        assert on_terminal(home, 250, "ls")[0].split() == piped[0].split(), "wide enough for all"
        for columns in (120, 80, 60):
            lines = on_terminal(home, columns, "ls")
            assert max(map(len, lines)) <= columns, (columns, lines)
            assert lines[0] == "project wide-names" and lines[1].split()[0] == "RUN" and "STATE" in lines[1].split(), lines[:2]
            running = next(line for line in lines if line.startswith(canary + " "))
            assert "  running" in running, running
            waiting = lines.index(next(line for line in lines if line.startswith("mixture-top_k3-peak3e-3-seed2-1 ")))
            words = f"    the 7 above: waits for wide-names/{canary}"  # once for all that wait for the same
            below = lines.index(words if len(words) <= columns else words[:columns - 1] + "…")
            assert below == waiting + 7 and not any(line.startswith(" ") for line in lines[waiting:below]), lines
            assert not lines[lines.index(running) + 1].startswith(" "), "a run that waits for nothing has no line more"
            print(f"ok  {columns} columns: {' '.join(lines[1].split())}")
        for columns, wanted in ((97, {"STEP", "LOSS", "VALIDATION"}), (80, {"STEP", "LOSS", "VALIDATION"})):
            heading = on_terminal(home, columns, "ls")[1].split()  # what the names say too goes first
            assert wanted <= set(heading) and not {"seed", "ETA", "COMMIT"} & set(heading), heading
        cut = on_terminal(home, 40, "ls")
        assert f"    the 7 above: waits for wide-names/{canary}"[:39] + "…" in cut, cut
        groups = on_terminal(home, 60, "ls", "--group", "top_k")
        assert max(map(len, groups)) <= 60 and groups[0].split()[:2] == ["SWEEP", "top_k"] and "LOSS" in groups[0].split(), groups
        home.cli("cancel", canary)
        home.wait_for(canary, ("cancelled",))
        bad_ends(home)
        tallied(home)
    print("terminal: ls at 40 to 250 columns and through a pipe")


main()
