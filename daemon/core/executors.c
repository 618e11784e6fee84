// The executors of this daemon, and which of them a run belongs to.
#include "daemon/core/core.h"

#include <stdlib.h>
#include <string.h>

void executors_open(struct daemon *daemon)
{
    daemon->local = (struct local_context){.job_script = daemon->job_script};
    memory_place_find(&daemon->local.memory, "/proc/self/mountinfo", "/proc/self/cgroup");
    daemon->slurm = slurm_new(&(struct slurm_settings){.job_script = daemon->job_script});
    daemon->executors[daemon->executor_count++] = (struct executor_use){.calls = executor_local(), .context = &daemon->local};
    daemon->executors[daemon->executor_count++] = (struct executor_use){.calls = executor_slurm(), .context = daemon->slurm, .queues = true};
}

void executors_limit(struct daemon *daemon)
{
    const struct config_slurm *site = &daemon->settings.config.slurm;
    for (size_t i = 0; i < daemon->executor_count; i++)
        if (daemon->executors[i].calls == executor_slurm())
            daemon->executors[i].most = site->max_submit_jobs;
    slurm_set_array_max(daemon->slurm, site->max_array_size);
}

void executors_close(struct daemon *daemon)
{
    local_context_release(&daemon->local);
    if (daemon->slurm)
        slurm_free(daemon->slurm);
}

static struct json *time_or_null(double seconds)
{
    return seconds > 0 ? js_real(seconds) : js_null();
}

struct json *executors_health(struct daemon *daemon)
{
    static const char *const accounting[] = {
        [ACCOUNT_UNKNOWN] = "unknown", [ACCOUNT_WORKS] = "works", [ACCOUNT_ABSENT] = "absent", [ACCOUNT_SILENT] = "silent"};
    struct slurm_health health;
    slurm_health(daemon->slurm, &health);
    if (!health.queue.asked_ever)
        return js_null();
    struct json *json = js_object();
    bool silent = health.queue.silent_since > 0;
    const char *faults[] = {silent ? health.queue.fault : "", health.accounting_silent_since > 0 ? health.accounting_fault : "", health.cancel_fault};
    js_set(json, "name", js_string("slurm"));
    js_set(json, "answers", js_boolean(health.queue.answered_ever && !silent));
    js_set(json, "silent_since", time_or_null(health.queue.silent_since));
    js_set(json, "answered", time_or_null(health.queue.answered));
    js_set(json, "accounting", js_string(accounting[health.accounting]));
    js_set(json, "accounting_silent_since", time_or_null(health.accounting_silent_since));
    struct json *list = js_array();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i][0])
            js_append(list, js_string(faults[i]));
    js_set(json, "faults", list);
    js_set(json, "jobs", js_integer((int64_t)health.jobs));
    js_set(json, "malformed_lines", js_integer((int64_t)health.queue.malformed));
    return json;
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
    struct job job = {.directory = view->directory, .name = view->title, .code = -1, .memory = view->watch->facts.memory};
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
