// The executors of this daemon, and which of them a run belongs to.
#include "daemon/core/core.h"

#include <stdlib.h>
#include <string.h>

void executors_open(struct daemon *daemon)
{
    daemon->local = (struct local_context){.job_script = daemon->job_script};
    memory_place_find(&daemon->local.memory, "/proc/self/mountinfo", "/proc/self/cgroup");
    daemon->executors[daemon->executor_count++] = (struct executor_use){executor_local(), &daemon->local, false};
}

const struct executor_use *executor_named(const struct daemon *daemon, const char *name)
{
    for (size_t i = 0; i < daemon->executor_count; i++)
        if (strcmp(daemon->executors[i].calls->name, name ? name : "local") == 0)
            return &daemon->executors[i];
    return NULL;
}

struct job job_of(const struct view *view)
{
    struct job job = {.directory = view->directory, .code = -1, .memory = view->watch->facts.memory};
    memcpy(job.tag, view->run_id, sizeof job.tag);
    return job;
}

void executors_poll(struct daemon *daemon, const struct view *const *views, struct job *jobs, size_t count)
{
    struct job *own = allocate(count + 1, sizeof *own);
    for (size_t e = 0; e < daemon->executor_count; e++) {
        const struct executor_use *use = &daemon->executors[e];
        struct error err = {0};
        size_t found = 0;
        for (size_t i = 0; i < count; i++)
            if (views[i]->executor == use)
                own[found++] = jobs[i];
        if (use->calls->poll(use->context, own, found, &err) != 0)
            core_log("%s", err.text);
        found = 0;
        for (size_t i = 0; i < count; i++)
            if (views[i]->executor == use)
                jobs[i] = own[found++];
    }
    free(own);
}
