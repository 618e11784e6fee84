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


def main():
    with Home() as home:
        home.serve()
        home.cli("submit", home.spec(SPEC))
        canary = "mixture-top_k2-peak1e-3-seed1-1"
        home.wait_for(canary, ("running",))
        piped = home.cli("ls").stdout.splitlines()
        assert piped[0].split() == ["RUN", "top_k", "peak", "seed", "STATE", "STEP", "LOSS", "VALIDATION", "TOKENS/S", "ETA", "COMMIT", "REASON"], piped[0]
        assert piped[1].startswith("wide-names/mixture-") and piped[1].endswith(f"  waits for wide-names/{canary}"), piped[1]
        assert on_terminal(home, 250, "ls")[0] == piped[0], "wide enough for all"
        for columns in (120, 80, 60):
            lines = on_terminal(home, columns, "ls")
            assert max(map(len, lines)) <= columns, (columns, lines)
            assert lines[0] == "project wide-names" and lines[1].split()[0] == "RUN" and "STATE" in lines[1].split(), lines[:2]
            running = next(line for line in lines if line.startswith(canary + " "))
            assert "  running" in running, running
            waiting = lines.index(next(line for line in lines if line.startswith("mixture-top_k3-peak3e-3-seed2-1 ")))
            assert lines[waiting + 1] == f"    waits for wide-names/{canary}", lines[waiting:waiting + 2]
            assert not lines[lines.index(running) + 1].startswith(" "), "a run that waits for nothing has no line more"
            print(f"ok  {columns} columns: {' '.join(lines[1].split())}")
        assert {"STEP", "LOSS", "top_k"} <= set(on_terminal(home, 90, "ls")[1].split()), on_terminal(home, 90, "ls")[1]
        cut = on_terminal(home, 40, "ls")
        assert f"    waits for wide-names/{canary}"[:39] + "…" in cut, cut
        home.cli("cancel", canary)
        home.wait_for(canary, ("cancelled",))
        bad_ends(home)
    print("terminal: ls at 40 to 250 columns and through a pipe")


main()
