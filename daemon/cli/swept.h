// What sweeps vary, in lists of runs: the keys that differ become columns, and runs of the same value one row.
#pragma once
#include "schema/base/json.h"
#include <stdio.h>

enum { SWEPT_SHOWN = 4 };

// The swept keys of which these runs have more than one value, at most SWEPT_SHOWN, in the order of the file. js_free()
struct json *swept_keys(const struct json *runs);
const char *swept_word(const char *key); // its last word: a heading
char *swept_value(const struct json *run, const char *key); // NULL: the run's sweep has no such key; free()

// Groups of trials by the value of a key (its path, or its last word): [{"project", "entry", "key", "value", "runs": [names], "states": {state:
// count}, "loss", "validation_loss", "tokens_per_second": {"mean", "least", "most"}|null}]. NULL: no run's sweep has it.
struct json *swept_groups(const struct json *runs, const char *key);
void swept_show_groups(FILE *out, const struct json *groups);
