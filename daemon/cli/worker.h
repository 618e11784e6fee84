// Commands that are the worker's own: the same words and options, with a run's directory in place of its name.
#pragma once
#include "daemon/cli/command.h"
#include <stdbool.h>

// Rows for the option table of such a command where it takes a run: the daemon is asked for the run's directory, and the rest is the worker's.
#define MODEL_OPTION_ROWS \
    {"json", 0, NULL, false, "as JSON"}, \
    {"url", 0, "URL", false, "where a run is named: a daemon elsewhere, whose runs lie on this machine too (default: SWITCHYARD_URL, else this home's)"}

// Becomes `switchyard-worker COMMAND …`, so that its exit code and signals are the command's. names_run: the first word is a run, or a directory that
// holds one, a checkpoint or a model of transformers. Returns only where that could not be done.
int worker_become(const struct arguments *arguments, bool names_run);
