// An executor turns a run into a job and says what became of it. A const struct plus a context. No call waits for a scheduler: each may
// answer "unknown", and is made again in the next tick. Everything that outlives us is found again by the run's tag (its run_id), never by
// a bare job id or pid.
#pragma once
#include "daemon/exec/launcher_look.h"
#include "daemon/exec/memory.h"
#include "daemon/exec/process.h"
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_phase {
    JOB_UNKNOWN, // no answer (yet, or any more): nothing follows from it
    JOB_PENDING, // in the scheduler's queue, for the first time or to be started again
    JOB_RUNNING, // some of it is alive
    JOB_ENDED,   // the scheduler says that it is over, and how: job.end
    JOB_GONE     // there is no such job, or no process of it
};

enum job_end { // how a scheduler says that a job ended
    END_COMPLETED, // its script came to its end with code 0
    END_FAILED,    // … with another code or a signal
    END_CANCELLED, // by a person or an administrator: job.reason says who, where it is known
    END_TIME_LIMIT,
    END_OUT_OF_MEMORY,
    END_NODE_FAILED,
    END_PREEMPTED, // for good: the scheduler will not start it again
    END_REFUSED    // never ran: its nodes did not boot, its deadline passed, it was revoked
};

struct job { // what submit needs and what poll tells
    char tag[33];
    const char *name;               // "project.run": what the scheduler's own lists show
    const char *directory;          // run directory
    const char *const *argv;        // NULL-terminated: the worker's command, under its launcher where it has several ranks
    const char *const *environment; // NULL-terminated NAME=VALUE, on top of the daemon's own, cleaned
    const char *const *modules;     // NULL-terminated names of environment modules that job.sh loads (-m NAME); NULL: none
    const char *const *options;     // NULL-terminated: what the scheduler is asked for (sbatch's options); NULL for an executor without one
    int64_t memory;                 // bytes that it may use on a machine; 0: no limit
    char id[64];                    // executor's job id; empty: not known
    double started;                 // process start time that belongs to a pid; 0 where ids need none
    double ran;                     // seconds since it began to run, by a clock that nobody sets; poll's; NAN: not known
    double asked;                   // steady seconds when the answer behind phase was asked for; poll's
    double starts;                  // wall seconds at which the scheduler expects to start it; 0: it does not say
    int64_t restarts;               // how often the scheduler has started it again
    enum job_phase phase;
    enum job_end end;  // of JOB_ENDED
    int64_t code;      // of JOB_ENDED: exit code of the script, -1: none
    int signal;        // of JOB_ENDED: what ended the script; 0: none
    char nodes[256];   // where it runs or ran, in the scheduler's short form; empty: not known
    char reason[256];  // in words: why it waits, how it ended
    bool if_unbegun;   // of JOB_ENDED: only of a job that has not begun anything; one that has is JOB_GONE: who knows how it ended. poll's
    bool unlaunched;   // of JOB_GONE: nothing of it began, since the scheduler could not start it; of JOB_ENDED: so it was with its last start. poll's
    bool strange;      // of JOB_UNKNOWN: the scheduler lists it, in a state that we have no word for; reason says which. poll's
    char warning[256]; // submit's: what a person should know of the way it was handed over; empty: nothing
};

struct executor {
    const char *name;
    // Hands the job over, exactly once for each tag however often it is called: 0 and phase JOB_UNKNOWN while it is not decided (call again);
    // 0 and another phase when it is handed over: id and started are filled. -1: it was refused, err says why, and it will not run.
    // A call for a job that is on its way may leave out what is to be run (argv is NULL); phase JOB_GONE then says that it is not on its way.
    int (*submit)(void *context, struct job *job, struct error *err);
    // All runs of this executor at once, each tick, also when there are none: fills what is said to be poll's, phase and reason.
    int (*poll)(void *context, struct job *jobs, size_t count, struct error *err);
    // Asks: the stop file, and the signal that shortens the wait. The job saves and exits 75.
    int (*stop)(void *context, struct job *job, struct error *err);
    // Every job and process of the tag, now. 0: none is left; 1: asked for, call again until it is 0; -1: it cannot be done.
    int (*kill)(void *context, struct job *job, struct error *err);
    // By tag, for a job that may have been handed over before a crash: 0 with phase JOB_UNKNOWN while it is not known (call again), JOB_GONE if
    // there is none, else id, started and phase.
    int (*find)(void *context, struct job *job, struct error *err);
};

// Its context is a struct local_context.
struct local_context {
    const char *job_script; // path of job.sh
    struct memory_place memory;
    double looked;              // steady seconds when memory was last looked at
    struct launcher_look launchers;
    struct process_table table; // the machine's processes, when they were last looked at
};
void local_context_release(struct local_context *local);
const struct executor *executor_local(void);

// Writes the embedded job.sh to path, mode 0755, if it is not there with these very bytes.
int job_script_write(const char *path, struct error *err);
