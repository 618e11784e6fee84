// The commands of switchyard-worker. Each returns the process's exit code (schema/record/layout.h): 0 done, 1 failed, 2 bad input, 75 stopped.
#pragma once
#include "worker/parallel/comm.h"
#include <stdbool.h>

int train_run(struct comm *world, const char *run_directory);
int tokenize_run(const char *run_directory);
int inspect_checkpoint(const char *directory, bool as_json);
// The parameter table that `train` would allocate for this run directory, without allocating it.
int inspect_run(const char *run_directory, bool as_json);
