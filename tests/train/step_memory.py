"""A step asks the C library for no memory: what it needs is there after the first steps."""
import subprocess

from training import MOE, WORKER, Bench, check, environment

with Bench() as bench:
    for name, sections in {
        "dense": {},
        "moe": {"model": {"moe": {**MOE, "grouped_gemm": True, "per_layer_metrics": True}}},
        "dense, two threads": {"resources": {"threads_per_rank": 2}},
    }.items():
        run = bench.make("run", training={"iterations": 20}, **sections)
        done = subprocess.run([WORKER.parent / "bench_trainer", run.directory], input="steps 2\nallocations 3\n", env=environment(), text=True,
                              capture_output=True, timeout=60, check=True)
        answer = next(line for line in done.stdout.splitlines() if line.startswith("allocations"))
        if answer == "allocations -1":
            print("skipped: a sanitizer has the memory")
            raise SystemExit(77)
        check(f"{name}: allocations in three steps", answer, "allocations 0")
