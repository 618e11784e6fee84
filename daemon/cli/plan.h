// How `plan` shows people the JSON that it made.
#pragma once
#include "schema/base/json.h"

void plan_show_rates(const struct json *points); // one line: the curve of [step, rate] and its corners
void plan_show(const struct json *runs); // on stdout; runs: an array of plans as `plan --json` prints them
