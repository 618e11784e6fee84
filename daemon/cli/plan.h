// How `plan` shows people the JSON that it made.
#pragma once
#include "schema/base/json.h"

// One line: the curve of [step, rate] and its corners. name: learning_rate or expert_learning_rate.
void plan_show_rates(const char *name, const struct json *points);
void plan_show_ramp(const struct json *stages); // one line: [first step, samples], …; nothing where there is no ramp
void plan_show(const struct json *runs); // on stdout; runs: an array of plans as `plan --json` prints them
