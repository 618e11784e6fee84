"""What befalls the runs of matrix.py: each function does it to its runs, and returns when it is done; what they come to is judged
afterwards. Waits are for events (a step on disk, a word of the daemon's, a node's state), clocks run only where Slurm's own do."""
import os
import pathlib
import signal
import time

from meanwhile import Meanwhile
from processes import role  # its folder is on the path of whoever imports this

OTHERS = "other"  # the name of jobs that are none of ours
FEW, LONG, FOR_EVER = 100, 1000, 1000000  # steps: ranks that wait for each other are slow on two cores
DONE = "finished with exit code 0"
FOUR = {"resources__nodes": 2, "resources__ranks_per_node": 2}


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def has_begun(case):
    """Its last attempt's ranks have found each other."""
    last = max(case.directory.glob("attempt-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)
    return last is not None and (last / "records.jsonl").exists()


class Slowly(Meanwhile):
    """Its ranks get a twentieth of the time, some ten steps a second: it lives, and comes forward, for as long as something takes. Not before they
    have begun: a rank that is held within MPI_Init, while the others are through, may be hit by a message that Open MPI 4.1 does not outlive."""

    def __init__(self, *cases):
        super().__init__()
        self.cases = cases

    def go(self):
        tags = {}
        while not self.over.is_set():
            tags.update({case: case.tag for case in self.cases if case not in tags and (case.directory / "run.json").exists()})
            ranks = [pid for case, tag in tags.items() if has_begun(case) for pid in case.world.watcher.ranks(tag)]
            send(ranks, signal.SIGSTOP)
            self.over.wait(0.45)
            send(ranks, signal.SIGCONT)
            time.sleep(0.02)


def occupy(case, partition="main", seconds=600):
    """Somebody else's job takes its nodes whole; returns its number."""
    script = case.world.home.work / f"other-{case.name}.sh"
    script.write_text(f"#!/bin/sh\nsleep {seconds}\n")
    return case.world.cluster.client("sbatch", "--parsable", "-p", partition, "-w", case.nodes, "--exclusive", "-o", "/dev/null",
                                     "-J", OTHERS, script)


def scontrol(case, *words):
    case.world.cluster.client("scontrol", *words)


# ---- what befalls jobs and nodes ----

def nothing(case):
    case.submit()


def pend(case):
    other = occupy(case)
    case.world.cluster.wait_job(other, "RUNNING")
    case.submit()
    case.until_waits("nodes", "resources", "priority")
    case.world.cluster.client("scancel", other)


def held(case):
    other = occupy(case)
    case.world.cluster.wait_job(other, "RUNNING")
    case.submit()
    case.until("was in the queue", lambda row: row["state"] == "pending")
    scontrol(case, "hold", case.job)
    case.until_waits("held")
    case.world.cluster.client("scancel", other)
    case.world.cluster.wait_node(case.nodes, "idle")
    assert not case.attempt(1), "it began although it was held"
    scontrol(case, "release", case.job)


def moved(case):
    """Its partition takes no jobs; an administrator puts it into another."""
    case.submit()
    case.until_waits("partition")
    scontrol(case, "update", f"JobId={case.job}", "Partition=main")


def cancel_pending(case):
    case.submit()
    case.until_waits("partition")
    case.world.cluster.client("scancel", case.job)


def cancel(case):
    case.submit().until_step()
    case.world.home.cli("cancel", f"matrix/{case.name}")


def cancel_outside(case):
    case.submit().until_step()
    case.world.cluster.client("scancel", case.job)


def time_limit(case):
    """Its ranks sleep until Slurm's signal comes; it saves, and the run goes on: in how many minutes is the machine's matter."""
    case.submit()
    with Slowly(case):
        case.until_step()
    send(case.world.until("its ranks are seen", lambda: case.world.watcher.ranks(case.tag)), signal.SIGSTOP)
    case.world.until("Slurm's signal before the time limit", (case.directory / "stop").exists)
    send(case.world.watcher.ranks(case.tag), signal.SIGCONT)


def time_limit_stuck(case):
    """It sleeps in a validation that is longer than any patience: woken by Slurm at the limit, it has no time to save."""
    case.submit().until_step(39)
    while not case.has_exit():
        send(case.world.watcher.ranks(case.tag), signal.SIGSTOP)
        time.sleep(0.1)


def requeue(case):
    case.submit()
    with Slowly(case):
        case.until_step(40)
        scontrol(case, "requeue", case.job)
        case.world.until("its second attempt", lambda: case.attempt(2))


def preempt(case):
    case.submit()
    with Slowly(case):
        case.until_step(40)
        occupy(case, "urgent", 2)
        case.world.until("its second attempt", lambda: case.attempt(2))


def power_loss(case):
    case.submit()
    with Slowly(case):
        case.until_step(40)
        case.world.cluster.fault("node-kill", case.nodes)
    case.world.cluster.wait_node(case.nodes, "down", "down*")
    case.world.cluster.fault("node-start", case.nodes)


def slurmd_killed(case):
    """It goes on without its slurmd, which is back before anybody misses it; a slow machine's controller may miss it, and start it again."""
    case.submit()
    with Slowly(case):
        case.until_step()
        case.world.cluster.fault("slurmd-kill", case.nodes)
        case.until_step(case.step() + 5)
        case.world.cluster.fault("node-start", case.nodes)
        case.world.cluster.wait_node(case.nodes, "mixed", "allocated")


def cut_off(case):
    """Its node is gone for Slurm, which starts it again on another one: there it waits until the old processes, which live, have saved and ended."""
    case.submit()
    with Slowly(case):
        case.until_step()
        node = case.world.cluster.job(case.job)["NodeList"]
        case.world.cluster.fault("slurmd-pause", node)
        case.world.until("its second attempt", lambda: case.attempt(2))
    log = case.directory / "attempt-2" / "stderr.log"
    case.world.until("it says that it waited", lambda: log.exists() and f"s for attempt 1 on {node}, until it" in log.read_text())
    case.world.cluster.fault("slurmd-resume", node)


def ranks_of(case, *which):
    """Process ids of its ranks with these numbers, which Slurm gives them."""
    found = {}
    for pid, words in case.processes().items():
        try:
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if role(words) == "rank":
            found.update({number: pid for number in which if f"SLURM_PROCID={number}".encode() in variables})
    return found if len(found) == len(which) else None


def rank_killed(case):
    """One of four: the others, which wait for it, do not wait for ever."""
    case.submit().until_step()
    send(case.world.until("its rank is seen", lambda: ranks_of(case, 3)).values(), signal.SIGKILL)


def ranks_die_early(case):
    """Those of one node, while all are within MPI_Init, where nobody tells the others: the step is ended all the same, and begun again."""
    case.submit()
    case.world.until("it has a directory", (case.directory / "run.json").exists)
    send(case.world.until("its ranks are seen", lambda: ranks_of(case, 0), pause=0.02).values(), signal.SIGSTOP)
    send(case.world.until("the others are seen", lambda: ranks_of(case, 2, 3)).values(), signal.SIGSEGV)
    assert not has_begun(case), "it began too soon for this"
    send(ranks_of(case, 0).values(), signal.SIGCONT)
    log = case.directory / "attempt-1" / "stderr.log"
    case.world.until("another step is begun", lambda: "another one is begun" in log.read_text())


# ---- what befalls the controller ----

def state_saved(case):
    """The controller writes its state down some seconds after something has changed; what it has not written it forgets."""
    path, now = case.world.cluster.directory / "state" / "job_state", time.time()
    script = case.world.home.work / "true.sh"
    script.write_text("#!/bin/sh\n")
    case.world.cluster.client("sbatch", "--parsable", "-o", "/dev/null", "-J", OTHERS, script)  # a change
    case.world.until("its state is saved", lambda: path.exists() and path.stat().st_mtime > now + 0.5)


def silence(case):
    case.world.until("the daemon says that Slurm is silent", lambda: case.world.scheduler().get("answers") is False)


def controller_killed(case):
    case.submit()
    with Slowly(case):
        case.until_step()
        state_saved(case)
        case.world.cluster.fault("ctld-kill")
        silence(case)
        case.until_step(case.step() + 20)
        row = case.world.row(case.name)
        assert row["state"] == "running", f"{row['state']} while the controller is away: {row['reason']}"
        case.world.cluster.fault("ctld-start")
        case.world.until("Slurm answers", lambda: case.world.scheduler().get("answers") is True)


def controller_killed_at_submit(case):
    """As soon as sbatch has answered: nothing of it is written down, but for what came before it, and its script may have begun."""
    state_saved(case)
    case.submit()
    case.until("was handed over", lambda row: row["state"] in ("submitted", "pending", "running"))
    case.world.cluster.fault("ctld-kill")
    silence(case)
    case.world.cluster.fault("ctld-start")


def controller_away_at_end(case):
    case.submit()
    with Slowly(case):
        case.until_step()
        state_saved(case)
        case.world.cluster.fault("ctld-kill")
    case.world.until("its end", case.has_exit)
    silence(case)
    case.world.cluster.fault("ctld-start")


def controller_away_at_cancel(case):
    case.submit().until_step()
    state_saved(case)
    case.world.cluster.fault("ctld-kill")
    silence(case)
    case.world.home.cli("cancel", f"matrix/{case.name}")
    case.world.until("its end", case.has_exit)
    case.world.cluster.fault("ctld-start")


def controller_paused_at_submit(case):
    """sbatch gives up, and the job exists all the same."""
    case.world.cluster.fault("ctld-pause")
    case.submit()
    case.until("was given up by sbatch", lambda row: "could not hand it over" in (row["reason"] or ""))
    case.world.cluster.fault("ctld-resume")


# ---- what befalls the daemon and accounting ----

def daemon_killed(chance):
    """Ten times: before the jobs begin, at ten drawn steps of theirs, after their ends. The last of the runs is requeued in between."""
    def act(*cases):
        home = cases[0].world.home

        def kill():
            home.stop(signal.SIGKILL)
            time.sleep(chance.uniform(0, 1.5))
            home.serve(wait=60)
        for case in cases:
            case.submit()
        time.sleep(chance.uniform(0, 0.5))
        kill()
        with Slowly(*cases):
            for number, share in enumerate(sorted(chance.uniform(0, 0.15) for _ in range(7))):
                case = cases[number % len(cases)]
                step = 1 + int(share * case.iterations)
                case.world.until(f"{case.name} at step {step}", lambda: case.step() >= step or case.has_exit())
                if number == 3:
                    scontrol(cases[-1], "requeue", cases[-1].job)
                kill()
        case.world.until("the end of one", lambda: any(case.has_exit(max(case.attempts)) for case in cases))
        kill()
        case.world.until("the end of all", lambda: all(case.has_exit(max(case.attempts)) for case in cases))
        time.sleep(chance.uniform(0, 2))
        kill()
    return act


def accounting_killed(during, at_end, cancelled):
    """While three runs are there: one outlives it, one ends without it, one is cancelled by somebody of whom nobody can tell."""
    cluster = during.world.cluster
    for case in (during, at_end, cancelled):
        case.submit()
    with Slowly(during):
        with Slowly(at_end, cancelled):
            for case in (during, at_end, cancelled):
                case.until_step()
            cluster.fault("dbd-kill")
            cluster.client("scancel", cancelled.job)
        at_end.finish()
        cancelled.finish()
        cluster.fault("dbd-start")


def forgotten(case):
    """Slurm lists it no more."""
    return not case.world.cluster.client("squeue", "-h", "-t", "all", "-n", f"matrix.{case.name}", "-o", "%i")


def purged(*cases):
    """The daemon is killed; the runs end: by themselves, by somebody's scancel, by a kill of everything; Slurm forgets them; the daemon is
    back, and has the disk and accounting to go by. What Slurm writes down of a batch step that the kernel ended for want of memory is put
    into the accounts of the third, as it was recorded of a real one: state OUT_OF_MEMORY, exit code 0:125."""
    done, cancelled, killed = cases
    world, jobs = done.world, {}
    for case in cases:
        case.submit()
    with Slowly(*cases):
        for case in cases:
            case.until_step()
            jobs[case] = case.job
        world.home.stop(signal.SIGKILL)
    world.cluster.client("scancel", jobs[cancelled])
    send(killed.processes(), signal.SIGKILL)
    world.until("their ends", lambda: not any(case.processes() for case in cases))
    world.until("Slurm forgets them", lambda: all(forgotten(case) for case in cases))
    out_of_memory(world.cluster, jobs[killed])
    world.home.serve(wait=60)


def out_of_memory(cluster, job):
    end = "update testbed_job_table set state = 11, exit_code = 125 where id_job = " + str(int(job))
    socket = cluster.directory / "run" / "my.sock"
    cluster.fault("admin", "mariadb", "--no-defaults", "-u", "root", "-S", socket, "slurm_acct_db", "-e", end)
    line = cluster.client("sacct", "-X", "-P", "-n", "-j", job, "-o", "state,exitcode")
    assert line == "OUT_OF_MEMORY|0:125", line


def purged_without_accounting(done, killed):
    """As before, and accounting is gone too: only the disk is left."""
    world = done.world
    for case in (done, killed):
        case.submit()
    with Slowly(done, killed):
        for case in (done, killed):
            case.until_step()
        world.home.stop(signal.SIGKILL)
        world.cluster.fault("dbd-kill")
    send(killed.processes(), signal.SIGKILL)
    world.until("their ends", lambda: not done.processes() and not killed.processes())
    world.until("Slurm forgets them", lambda: forgotten(done) and forgotten(killed))
    world.home.serve(wait=60)
    done.finish()
    killed.finish()
    world.cluster.fault("dbd-start")


# ---- where ----

def nodes_suffer(world, Case):
    def case(act, name, expected, attempts=(1,), says=DONE, nodes="", **more):
        return act, [Case(world, name, expected, attempts, says, nodes, **more)]
    whole = {"slurm__exclusive": "true"}
    return [
        case(nothing, "four-ranks", "succeeded", nodes="n[1-2]", steps=FEW, **FOUR),
        case(rank_killed, "rank-killed", "failed", says="srun: error: n2: task 3: Killed", nodes="n[1-2]", steps=FOR_EVER, **FOUR),
        case(ranks_die_early, "ranks-die-within-mpi-init", "succeeded", nodes="n[1-2]", steps=FEW, **FOUR),
        case(pend, "pend", "succeeded", nodes="n3", **whole),
        case(held, "held", "succeeded", nodes="n4", **whole),
        case(moved, "moved-to-another-partition", "succeeded", nodes="n1", slurm__partition="shut"),
        case(cancel, "cancel", "cancelled", says="stopped after saving", nodes="n1", steps=FOR_EVER),
        case(cancel_outside, "cancel-outside", "cancelled", says="not by this daemon", nodes="n1", steps=FOR_EVER),
        case(cancel_pending, "cancel-outside-pending", "cancelled", [0], "not by this daemon", "n1", slurm__partition="shut"),
        case(time_limit, "time-limit", "succeeded", range(2, 9), nodes="n1", resources__time_limit="1m"),
        case(time_limit_stuck, "time-limit-stuck", "timed_out", says="time limit", nodes="n1", steps=FOR_EVER, resources__time_limit="1m",
             slurm__grace="0s", training__validation="{interval: 40, iterations: 1000000}"),
        case(requeue, "requeue", "succeeded", [2], nodes="n2"),
        case(preempt, "preempt-requeue", "succeeded", [2], nodes="n5", slurm__partition="scavenge", **whole),
        case(preempt, "preempt-cancel", "succeeded", [2], nodes="n6", slurm__partition="fragile", slurm__requeue="false", **whole),
        # Slurm's own PMIx does not start a step twice under one number on a node that lost its power (its socket is still there): job.sh starts another.
        case(power_loss, "power-loss-requeue", "succeeded", [2], nodes="n7"),
        case(power_loss, "power-loss", "lost", says="nodes: n8", nodes="n8", slurm__requeue="false", steps=FOR_EVER),
        case(slurmd_killed, "slurmd-killed", "succeeded", [1, 2], nodes="n9"),
        case(cut_off, "slurmd-away-requeue", "succeeded", [2], slurm__exclude="n[1-9]", steps=LONG),
    ]


def controller_suffers(world, Case):
    return [(act, [Case(world, name, expected, attempts, says, **more)]) for act, name, expected, attempts, says, more in (
        (controller_killed, "slurmctld-killed", "succeeded", [1], DONE, {}),
        (controller_killed_at_submit, "slurmctld-killed-at-submit", "succeeded", [1, 2], DONE, {}),
        (controller_away_at_end, "slurmctld-away-at-end", "succeeded", [1], DONE, {}),
        (controller_away_at_cancel, "slurmctld-away-at-cancel", "cancelled", [1], "stopped after saving", {"steps": FOR_EVER}),
        (controller_paused_at_submit, "sbatch-timed-out", "succeeded", [1], DONE, {}),
    )]


def daemon_suffers(world, Case, chance, accounting):
    groups = [(daemon_killed(chance), [
        Case(world, "daemon-killed-10-times", "succeeded", says=DONE, steps=LONG),
        Case(world, "daemon-killed-four-ranks", "succeeded", says=DONE, steps=FEW, **FOUR),
        Case(world, "daemon-killed-requeued", "succeeded", [2], DONE, steps=LONG)])]
    if accounting:
        groups.append((purged, [
            Case(world, "purged", "succeeded", says=DONE),
            Case(world, "purged-cancelled", "cancelled", says="by root" if os.geteuid() == 0 else "by this user", steps=FOR_EVER),
            Case(world, "purged-out-of-memory", "out_of_memory", says="out of memory", steps=FOR_EVER)]))
    return groups


def accounting_suffers(world, Case, limits):
    # Its model has more than twice the memory that it asks for.
    memory = Case(world, "out-of-memory", "out_of_memory", says="out of memory", resources__memory="100MiB", model__hidden_size=1536)
    return [(nothing, [memory])] * limits + [
        (accounting_killed, [
            Case(world, "slurmdbd-killed", "succeeded", says=DONE, steps=LONG),
            Case(world, "slurmdbd-away-at-end", "succeeded", says=DONE),
            Case(world, "slurmdbd-away-at-cancel", "cancelled", says="cancelled, not by this daemon", steps=FOR_EVER)]),
        (purged_without_accounting, [
            Case(world, "purged-no-accounting", "succeeded", says=DONE),
            Case(world, "purged-no-witness", "lost", says="does not know the job any more", steps=FOR_EVER)]),
    ]
