#include "daemon/exec/memory_look.h"
#include "daemon/exec/memory.h"
#include "schema/record/layout.h"

#include <signal.h>
#include <stdlib.h>

bool memory_is_looked_at(const struct job *job)
{
    if (job->memory <= 0 || job->phase != JOB_RUNNING)
        return false;
    char *group = memory_watch_group(job->directory);
    bool kept = group != NULL;
    free(group);
    return !kept;
}

void memory_look(const struct job *job, const struct process_table *table)
{
    size_t count;
    const struct process_entry *own = process_table_find(table, job->tag, &count);
    int64_t used = 0, attempt = run_last_attempt(job->directory);
    for (size_t i = 0; i < count; i++)
        used += memory_of_process(own[i].pid);
    // What is found is written down before the kill, which must not be taken for somebody else's.
    if (used <= job->memory || attempt == 0 || memory_watch_exceeded(job->directory, attempt, used, job->memory, NULL) != 0)
        return;
    pid_t leader = (pid_t)strtol(job->id, NULL, 10); // job.sh stays: it writes the exit record
    for (size_t i = 0; i < count; i++)
        if (own[i].pid != leader)
            process_signal_tagged(own[i].pid, job->tag, SIGKILL);
}
