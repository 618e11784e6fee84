// The command of a run: argv and environment, worked out from the spec and the machine alone, so that `plan` prints exactly what the
// daemon will start. Pure but for machine_look().
#pragma once
#include "daemon/exec/gpus.h"
#include "daemon/exec/word_list.h"
#include "schema/base/error.h"
#include "schema/base/json.h"
#include "schema/spec/config.h"
#include "schema/spec/spec.h"
#include <stdbool.h>
#include <stdint.h>

struct machine {
    int64_t cores;          // CPUs this process may run on
    struct gpus gpus;       // that may be given to runs
    bool root;              // mpirun refuses root unless told
    bool ptrace_restricted; // siblings may not read each other's memory (Yama): no single copy between ranks
    const struct config_slurm *slurm; // what config.yaml says of the cluster, lent; NULL: nothing
};
void machine_look(struct machine *machine);

// Threads of each rank of a run here: what the spec says, or the rank's share of the machine.
int64_t launch_threads(const struct spec *spec, const struct machine *machine);

struct launch {
    struct word_list argv;
    struct word_list environment; // NAME=VALUE, on top of the daemon's cleaned environment
    struct word_list options;     // of the scheduler; none for a local run
    struct word_list modules;     // environment modules, loaded by the job's script
    int64_t ranks, threads;       // threads a rank
    int64_t slots;                // cores it takes from this machine's queue: at most the machine's; 0: it runs elsewhere
    bool oversubscribed;          // wants more than the machine has: runs alone
    int64_t gpus;                 // GPUs it takes from this machine's queue
    struct gpus held;             // those that this attempt was given
};

// By the spec's executor: mpirun here, or srun in a Slurm job. run_directory as the worker's argument; worker: path of switchyard-worker.
int launch_train(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker,
    const char *run_directory, struct error *err);
// spec: of a run that needs the data; NULL: one process on this machine.
int launch_tokenize(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker,
    const char *run_directory, struct error *err);
// The same for `check WORD run_directory`: as many ranks as the run has.
int launch_check(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker, const char *check,
    const char *run_directory, struct error *err);
void launch_release(struct launch *launch);

// The scheduler is asked to leave these nodes out (names with commas between), if the launch goes to one.
void launch_leave_out(struct launch *launch, const char *nodes);

// Adds the variable that shows a job the GPUs it was given, and no others: it wins over what a person sets. Nothing on a machine without.
void launch_show_gpus(struct launch *launch, const struct machine *machine);

// Runs it here and now, in this terminal: it inherits standard output and error (talk: output goes to standard error too). Waits for it.
// *code: its exit code; a signal that ends it is an error, and *code 128 + its number, as shells say.
int launch_foreground(const struct launch *launch, bool talk, int *code, struct error *err);

// {"argv": […], "environment": […], "options": […], "modules": […], "ranks", "threads", "slots", "oversubscribed", "gpus"}: stored as job.json,
// so that a retry runs the same. "gpu_devices" is there from its start on: the GPUs that it was given.
struct json *launch_to_json(const struct launch *launch);
int launch_from_json(struct launch *launch, const struct json *json, struct error *err);
