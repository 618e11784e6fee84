// Everything that is known about a run before it starts, in one struct and as JSON: printed by `plan`, stored with the run, shown beside
// what was measured.
#pragma once
#include "schema/shape/cost.h"

struct plan {
    struct layout layout;
    struct param_count parameters;
    double flops_per_token;
    int64_t tokens_per_step, tokens_total, micro_batches;
    double bubble;
    struct memory_cost memory;
    struct volume_cost volume;
};

// Fails, with the numbers, where ranks, experts or the batch cannot be divided as asked, or where the state exceeds resources.gpu_memory.
int plan_init(struct plan *plan, const struct spec *spec, struct error *err);
// {"name", "parameters": {"total", "active"}, "flops_per_token", "tokens_per_step", "tokens_total", "micro_batches", "layout": {…},
//  "bubble", "memory": {…}, "alltoall_bytes_per_step", "volume": {…}, "from": null or {"run", "path", "step", "upcycle": null or {"granularity", "copies", "weight_scale"}},
//  "learning_rate": [[iteration, rate], …]}
// and, where the spec has such: "expert_learning_rate": the same, "batch_ramp": [[first iteration, samples of a step], …]
struct json *plan_to_json(const struct plan *plan, const struct spec *spec);

enum { PLAN_RATES_MAX = 80 };
// Iterations that show the learning-rate curve: its corners, and some between. Ascending, each once; returns how many.
size_t plan_rate_iterations(const struct spec *spec, int64_t iterations[PLAN_RATES_MAX]);
