// The Slurm executor. Its context is a struct slurm; it keeps no state on disk but each run directory's file `submission`, and finds
// everything again by its mark (rows.h). Every call returns at once; the commands that were started are looked at in each poll.
//
// The file `submission` holds the number of the last sbatch call that counts for the run. It is raised before each call, and when a job is
// to be ended for good; job.sh, which is told its own number, does nothing where the file holds another. So a job that Slurm made although
// sbatch said that it did not, or one that it starts again after we gave it up, never runs beside its successor. And of several jobs that
// one call made only the first that comes to job.sh begins (claim.c).
#pragma once
#include "daemon/exec/executor.h"
#include "daemon/exec/slurm/queue.h"

#define SUBMISSION_FILE "submission"                  // in the run directory: a number and a newline
#define SUBMISSION_VARIABLE "SWITCHYARD_SUBMISSION" // in the job's environment: its own number

struct slurm_settings { // 0 or NULL: the default
    const char *job_script;
    double interval;      // seconds between two questions, at least (3)
    double interval_max;  // … while no answer comes (60)
    double deadline;      // seconds that a command may take (60)
    double patience;      // seconds that accounting gets to say what became of a job that squeue lists no longer (60)
    int submissions_max;  // sbatch commands at a time (4)
    int64_t array_max;    // elements of an array (1001 is Slurm's own); 1: each run is handed over by itself
};

struct slurm; // opaque

struct slurm *slurm_new(const struct slurm_settings *settings);
void slurm_free(struct slurm *slurm); // jobs stay
void slurm_set_array_max(struct slurm *slurm, int64_t array_max); // 0: the default

const struct executor *executor_slurm(void);

struct slurm_health {
    struct queue_health queue;
    enum account_state accounting;
    double accounting_silent_since; // wall seconds; 0: it is not silent
    char accounting_fault[512];
    char cancel_fault[512]; // what scancel complained of last; empty: nothing
    size_t jobs;            // with our mark, in the last answer
    size_t submissions;     // that are not decided yet
};
// May be called from another thread than the executor's.
void slurm_health(struct slurm *slurm, struct slurm_health *health);

struct slurm_stranger {
    char id[32], tag[33], state[64], name[160];
    int64_t submission;
    enum job_phase phase; // JOB_UNKNOWN: a state that we do not know
    char *directory;      // run directory; NULL: not said
};
// Jobs that carry a mark of ours and were not asked for in the last poll. 0, or 1 while there is no fresh answer: poll goes on, call again.
// May be called from another thread.
int slurm_strangers(struct slurm *slurm, struct slurm_stranger **list, size_t *count);
void slurm_strangers_free(struct slurm_stranger *list, size_t count);
