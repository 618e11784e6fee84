// How `plan` shows people the JSON that it made.
#pragma once
#include "schema/base/json.h"
#include "schema/spec/spec.h"

// One line: the curve of [step, rate] and its corners. name: learning_rate or expert_learning_rate.
void plan_show_rates(const char *name, const struct json *points);
void plan_show_ramp(const struct json *stages); // one line: [first step, samples], …; nothing where there is no ramp
// The plan of one run, in the same words and without the table of others beside it; nothing where there is no plan.
void plan_show_one(const struct json *plan);
void plan_show(const struct json *runs); // on stdout; runs: an array of plans as `plan --json` prints them

// plan_sweep.c: [{"entry", "trials", "first", "last", "canary", "concurrency", "keys": {key: [its values]}}], and the same for people.
struct json *plan_sweeps(const struct spec_file *file);
void plan_show_sweeps(const struct json *sweeps);
