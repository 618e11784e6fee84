// What all runs of a file come to before anything starts: counted exactly where it is arithmetic, at most where time limits say so.
#pragma once
#include "daemon/exec/launch.h"
#include "schema/spec/spec.h"

struct cost {
    size_t runs;      // that train
    double flop, tokens;
    double gpu_seconds, core_seconds; // at most: every run takes its whole time limit
    size_t unlimited; // runs without a time limit, which the seconds leave out
};

struct cost cost_of(const struct spec_file *file, const struct machine *machine);
struct json *cost_json(const struct cost *cost); // {"runs", "flop", "tokens", "gpu_hours_at_most"|null, "core_hours_at_most"|null}; null: not known
// "120 runs, 1.2e+18 FLOP, 3,300,000 tokens, at most 40 GPU-hours"
char *cost_sentence(const struct cost *cost); // free()
