// What the daemon's health says of a scheduler that is silent, in one wording for every command that tells of it.
#pragma once
#include "schema/base/json.h"
#include <stdbool.h>

// "Slurm has not answered since …: WHAT" on standard error; what: what follows from it, NULL: why it does not answer. False, and no word, where
// it is not silent.
bool silence_say(const struct json *health, const char *what);
