// How `plan` shows people the JSON that it made.
#pragma once
#include "schema/base/json.h"

void plan_show(const struct json *runs); // on stdout; runs: an array of plans as `plan --json` prints them
