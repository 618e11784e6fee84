// Memory limits where the kernel does not keep them: the processes of a run are looked at, and ended when they use more.
#pragma once
#include "daemon/exec/executor.h"
#include "daemon/exec/process.h"

// Whether this job's limit has to be looked at: it runs, and has a limit but no control group.
bool memory_is_looked_at(const struct job *job);
// All of the run's processes but job.sh are killed where together they use more than the limit. table: of this moment, or nearly.
void memory_look(const struct job *job, const struct process_table *table);
