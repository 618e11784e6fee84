// Launchers that live on after the last of their ranks: Open MPI 4.1's mpirun may hang where a rank is killed while it still makes itself known
// (its PMIx server takes a lock twice). The run would be called running for ever.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct job;
struct process_table;

#define LAUNCHER_LOOK_SECONDS 5.0 // between two looks
#define LAUNCHER_PATIENCE 30.0    // seconds that a launcher gets to start its ranks

enum { LAUNCHER_SUSPECTS_MAX = 64 };
struct launcher_look {
    double looked;   // steady seconds; 0: never
    double patience; // seconds; 0: LAUNCHER_PATIENCE
    pid_t suspects[LAUNCHER_SUSPECTS_MAX];
    size_t count;
};

bool process_is_launcher(pid_t pid);
bool launcher_look_is_due(const struct launcher_look *look);
// A launcher that was alone with its job.sh in this look and the one before is killed, and the attempt's stderr.log says so. table: of this moment,
// or nearly.
void launcher_look(struct launcher_look *look, const struct job *jobs, size_t count, const struct process_table *table);
