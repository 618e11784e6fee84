// `check`: is a promise kept on this machine? Room for tests of machines; so far, of the promise to give the same bits each time.
#pragma once
#include "schema/base/json.h"
#include "worker/parallel/comm.h"

enum { DETERMINISM_ITERATIONS = 12 };
#define DETERMINISM_FILE "determinism.json"

// check WORD DIRECTORY…: the command. train: what trains a run directory (train_run), handed in since this room stands below it.
int check_command(int argc, char **argv, int (*train)(struct comm *world, const char *run_directory));

// Trains the first DETERMINISM_ITERATIONS of a run directory's run.json twice, in temporary run directories inside it, compares, prints,
// writes the result into DETERMINISM_FILE there. Collective. Exit code: EXIT_DONE if every bit is equal, EXIT_FAILED if not, or training's.
int determinism_try(struct comm *world, const char *run_directory, int (*train)(struct comm *world, const char *run_directory));

// What two run directories recorded, side by side: every metric of every step that is no measurement, the hash of the step's samples, and
// the tensors of the last checkpoint.
//   {"iterations", "equal", "steps": [{"step", "loss", …of the first, "equal"}], "state": [{"name", "tensors", "sha256", "equal"}],
//    "differences": [{"step"|null, "name", "first", "second"}]}     (at most 100, the first ones)
// NULL where there is nothing to compare.
struct json *determinism_compare(const char *first, const char *second, struct error *err);
void determinism_print(const struct json *result); // on stdout
