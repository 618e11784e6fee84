// Commands that are the worker's own: the same words and options, with a run's directory in place of its name.
#pragma once
#include "daemon/cli/command.h"
#include <stdbool.h>

// Becomes `switchyard-worker COMMAND …`, so that its exit code and signals are the command's. names_run: the first word is a run, or a directory that
// holds one, a checkpoint or a model of transformers. Returns only where that could not be done.
int worker_become(const struct arguments *arguments, bool names_run);
