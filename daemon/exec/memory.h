// The memory of a run on this machine: how it is limited, and who can say that a run ended for want of it.
//   In a control group (version 2) of its own, where we may make one: the kernel keeps the limit and counts whom it killed in that very
//   group, so that an end for want of memory is told from any other SIGKILL. Also without a limit, for the witness.
//   Else the processes of the run are looked at, once a second.
// Only directories that begin with GROUP_PREFIX, in the control group that the daemon was started in, are ever made, written or removed.
//
// Files: RUN_DIR/memory.json says how the attempt that runs is watched ({"v":1,"group":path|null,"limit":bytes|null}); attempt-N/memory.json
// what came of it ({"v":1,"witness":"control group"|"looked at"|"srun","limit":bytes|null,"peak":bytes|null,"kills":N}): written before the group goes.
// kills is the kernel's count: its first victim counts twice, by itself and as one of the group that ends with it (Linux 6.1).
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GROUP_PREFIX "switchyard-"
#define GROUP_VARIABLE "SWITCHYARD_MEMORY_GROUP" // job.sh puts the command into this group

struct memory_place { // where groups of runs can be made
    char *base;       // directory of a control group that is ours to divide; NULL: there is none
    char why[256];    // then: why not
};

// mounts and own: "/proc/self/mountinfo", "/proc/self/cgroup". Where the kernel wants that a group with children has no processes itself,
// and this process is alone in its group, it moves into a child of it.
void memory_place_find(struct memory_place *place, const char *mounts, const char *own);
void memory_place_release(struct memory_place *place);

// A fresh group for the run of this tag; limit 0: none. free(); NULL: it cannot be made, err says why.
char *memory_group_make(const struct memory_place *place, const char *tag, int64_t limit, struct error *err);

// Writes down how the next attempt is watched; group NULL: by looking. Nothing is kept where there is neither group nor limit.
int memory_watch_begin(const char *run_directory, const char *group, int64_t limit, struct error *err);
// The group that was written down, or NULL: free().
char *memory_watch_group(const char *run_directory);
// No process of the run is found any more: what the group has to say is written into the attempt's directory (0: none was claimed), and the
// group is removed. Does nothing the second time. False, and nothing is done: somebody is in the group still. A process that gives its memory
// back shows no environment any more, hence no tag, and a large one takes its time.
bool memory_watch_end(const char *run_directory, int64_t attempt);
// Ends whoever is in the run's group, by the kernel's own means (from Linux 5.14 on). True: somebody was.
bool memory_watch_kill(const char *run_directory);
// By looking, it was found to use more than its limit: written down before the kill.
int memory_watch_exceeded(const char *run_directory, int64_t attempt, int64_t used, int64_t limit, struct error *err);

enum memory_verdict { MEMORY_UNKNOWN, MEMORY_NOT, MEMORY_ENDED };
// Whether that attempt was ended for want of memory, as far as its own witness knows; why: the sentence for MEMORY_ENDED.
enum memory_verdict memory_verdict(const char *run_directory, int64_t attempt, char *why, size_t size);

int64_t memory_of_process(pid_t pid); // bytes that it has to itself; 0: it is not there
// How many processes the kernel has killed for want of memory: in our control group where it tells, else on the whole machine. -1: unknown. A
// count that grows while a run has no witness of its own says that it may have been one of them.
int64_t memory_kills(void);
