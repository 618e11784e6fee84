// What this program is: for `--version --json`, and for the start record of every run.
#pragma once
#include "schema/base/json.h"

struct json *version_json(void);
int version_print(bool as_json);
