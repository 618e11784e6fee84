// A scheduler's command as a child process that nobody waits for: it is started, looked at now and then, and has a deadline. It runs in a
// session (and so a process group) of its own; past the deadline, or when it says more than it may, the whole group is killed. Whoever
// it leaves behind in its group when it ends by itself is killed too.
#pragma once
#include "schema/base/error.h"
#include "schema/base/text.h"
#include <stdbool.h>
#include <stddef.h>

enum { COMMAND_TALK_MAX = 16 << 10 }; // bytes kept of standard error; the rest is read and dropped

enum command_end {
    COMMAND_EXITED,  // by itself: code
    COMMAND_KILLED,  // by a signal that was not ours: signal
    COMMAND_LATE,    // by us, at its deadline
    COMMAND_FLOODING // by us: it said more than its limit on standard output
};

struct command_request {
    const char *const *argv;        // NULL-terminated; argv[0] is looked for on PATH
    const char *const *environment; // NULL-terminated, all that it gets
    const char *directory;          // where it runs; NULL: here
    double deadline;                // seconds from now
    size_t output_max;              // bytes of standard output that are kept
};

struct command_result {
    enum command_end end;
    int code, signal;        // of COMMAND_EXITED and COMMAND_KILLED
    struct text output, talk; // standard output; standard error
    double asked, took;      // steady seconds when it was started; so many later it was last seen at work: who looks seldom does not make it slow
};

struct command; // opaque

// NULL: it could not be started at all.
struct command *command_start(const struct command_request *request, struct error *err);
// Looks without blocking. NULL while it runs; then the result, lent until command_free.
const struct command_result *command_poll(struct command *command);
// Kills what still runs. NULL is fine.
void command_free(struct command *command);

// One sentence on how it ended, for people: "exit code 1: squeue: error: …", "no answer within 60 s".
void command_describe(char *out, size_t size, const struct command_result *result);

// A site's own script around Slurm's command may lose its exit code, in a pipe that takes a banner out, say: exit code 0 and no answer, but
// on standard error Slurm's own words that there is none.
bool command_is_refuted(const struct command_result *result);

// What a command that only asks gets around it: this process's environment without the variables that change what Slurm's commands do or
// print (SLURM_…, SBATCH_…, SQUEUE_…, SACCT_…, SCANCEL_…, SINFO_…; where the cluster is, SLURM_CONF, stays), with LC_ALL=C and times as
// seconds since 1970. The list is free()d by the caller, its entries are lent.
const char **command_environment(void);

// Is there such a program on this process's PATH?
bool command_on_path(const char *program);
