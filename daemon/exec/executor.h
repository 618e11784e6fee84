// An executor turns a run into a job and says what became of it. A const struct plus a context; each call may answer "unknown", and none
// blocks the tick loop. Everything that outlives us is found again by the run's tag (its run_id), never by a bare pid.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>

enum job_phase { JOB_UNKNOWN, JOB_PENDING, JOB_RUNNING, JOB_GONE };

struct job { // what submit needs and what poll tells
    char tag[33];
    const char *directory;          // run directory
    const char *const *argv;        // NULL-terminated: the worker's command, under its launcher where it has several ranks
    const char *const *environment; // NULL-terminated NAME=VALUE, on top of the daemon's own, cleaned
    char id[64];                    // executor's job id; empty: not known
    double started;                 // start time that belongs to id
    double ran;                     // seconds since then, by a clock that nobody sets; poll's; NAN: not known
    enum job_phase phase;
    char reason[256]; // in words
};

struct executor {
    const char *name;
    int (*submit)(void *context, struct job *job, struct error *err);              // fills id and started
    int (*poll)(void *context, struct job *jobs, size_t count, struct error *err); // all runs at once: fills phase and reason
    int (*stop)(void *context, struct job *job, struct error *err);                // ask: stop file + SIGUSR1; the job saves and exits 75
    int (*kill)(void *context, struct job *job, struct error *err);                // every process of the tag, now
    int (*find)(void *context, struct job *job, struct error *err); // by tag: fills id, started, phase; JOB_UNKNOWN if there is none
};

// Its context is a struct local_context.
struct local_context {
    const char *job_script; // path of job.sh
};
const struct executor *executor_local(void);

// Writes the embedded job.sh to path, mode 0755, if it is not there with these very bytes.
int job_script_write(const char *path, struct error *err);
