// sinfo: with what nodes are marked, asked only of nodes of which somebody wants to know. A node that is told to start a job while it still runs
// another one under the same number refuses, and slurmctld takes it out of service with the reason "Duplicate jobid".
#pragma once
#include "daemon/exec/slurm/queue.h"

enum marks_say {
    MARKS_SILENT,   // no answer yet that counts, or none that tells of these nodes
    MARKS_OF_OTHER, // they are not marked as having refused a job in that time
    MARKS_REFUSED   // one of them is
};

struct marks; // opaque

struct marks *marks_new(const struct queue_settings *settings);
void marks_free(struct marks *marks);

// These nodes (a list as squeue prints it, which may be cut; empty: all there are) are to be asked for.
void marks_want(struct marks *marks, const char *list);
// True if a new answer has come.
bool marks_turn(struct marks *marks);
// By the last answer, if it was asked for at `since` (steady seconds) or later: whether one of these nodes refused a job between two moments
// (wall seconds, by Slurm's clock).
enum marks_say marks_look(const struct marks *marks, const char *list, double since, double from, double to);

// Whether a list of nodes ("n[1-3,07],m5") names this one.
bool node_list_has(const char *list, const char *node);
