// The command of a run: argv and environment, worked out from the spec and the machine alone, so that `plan` prints exactly what the
// daemon will start. Pure but for machine_look().
#pragma once
#include "daemon/exec/gpus.h"
#include "schema/base/error.h"
#include "schema/base/json.h"
#include "schema/spec/spec.h"
#include <stdbool.h>
#include <stdint.h>

struct machine {
    int64_t cores;          // CPUs this process may run on
    struct gpus gpus;       // that may be given to runs
    bool root;              // mpirun refuses root unless told
    bool ptrace_restricted; // siblings may not read each other's memory (Yama): no single copy between ranks
};
void machine_look(struct machine *machine);

enum { LAUNCH_WORDS_MAX = 4096 };

struct launch {
    char **argv;        // NULL-terminated
    char **environment; // NULL-terminated NAME=VALUE, on top of the daemon's cleaned environment
    size_t argv_count, environment_count;
    int64_t ranks, threads; // threads a rank
    int64_t slots;          // cores it takes from the queue: at most the machine's
    bool oversubscribed;    // wants more than the machine has: runs alone
    int64_t gpus;           // GPUs it takes from the queue
    struct gpus held;       // those that this attempt was given
};

// run_directory as the worker's argument; worker: path of switchyard-worker.
int launch_train(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker,
    const char *run_directory, struct error *err);
void launch_tokenize(struct launch *launch, const struct machine *machine, const char *worker, const char *run_directory);
// The same for `check WORD run_directory`: as many ranks as the run has.
int launch_check(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker, const char *check,
    const char *run_directory, struct error *err);
void launch_release(struct launch *launch);

// Adds the variable that shows a job the GPUs it was given, and no others: it wins over what a person sets. Nothing on a machine without.
void launch_show_gpus(struct launch *launch, const struct machine *machine);

// Runs it here and now, in this terminal: it inherits standard output and error (talk: output goes to standard error too). Waits for it.
// *code: its exit code; a signal that ends it is an error, and *code 128 + its number, as shells say.
int launch_foreground(const struct launch *launch, bool talk, int *code, struct error *err);

struct json *launch_argv_json(const struct launch *launch);
// {"argv": […], "environment": […], "ranks", "threads", "slots", "oversubscribed", "gpus"}: stored as job.json, so that a retry runs the
// same. "gpu_devices" is there from its start on: the GPUs that it was given.
struct json *launch_to_json(const struct launch *launch);
int launch_from_json(struct launch *launch, const struct json *json, struct error *err);
