// The local executor: a job is job.sh in a session of its own, found in the process table by (pid, start time)
// and by its tag. It outlives the daemon: no controlling terminal, no inherited descriptor, nothing that a daemon's end would close.
#include "daemon/exec/environment.h"
#include "daemon/exec/executor.h"
#include "daemon/exec/memory_look.h"
#include "daemon/exec/process.h"
#include "daemon/exec/spawn.h"
#include "daemon/exec/word_list.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_LOOK_SECONDS 1.0
#define LOOK_AGE_MAX 0.05 // seconds: what a look at the machine is good for where it may be a little old

// In a session of its own; job.sh's own complaints go to submit.log in the run directory, which has those of the last job alone: where no attempt
// begins, they say why.
static int spawn(pid_t *pid, char *const *argv, const char **environment, const char *directory)
{
    char *path = path_join(directory, "submit.log");
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    int fault = log < 0 ? errno : spawn_apart(pid, (const char *const *)argv, environment, directory, log, log);
    if (log >= 0)
        close(log);
    free(path);
    return fault;
}

// A group of its own where one can be made, with the limit; where none can, the run is looked at, and that is said. *group: free()d by the
// caller, NULL: none.
static int begin_memory(const struct local_context *local, struct job *job, char **group, struct error *err)
{
    struct error fault = {0};
    *group = memory_group_make(&local->memory, job->tag, job->memory, &fault);
    if (!*group && job->memory > 0)
        snprintf(job->warning, sizeof job->warning, "resources.memory is looked at once a second, not kept by the kernel: %.160s", fault.text);
    return memory_watch_begin(job->directory, *group, job->memory, err);
}

static int local_submit(void *context, struct job *job, struct error *err)
{
    struct local_context *local = context;
    char *group = NULL;
    if (begin_memory(local, job, &group, err) != 0) {
        free(group);
        return -1;
    }
    struct word_list words = {0};
    word_list_add(&words, "/bin/sh");
    word_list_add(&words, local->job_script);
    word_list_add(&words, job->directory);
    for (const char *const *module = job->modules; module && *module; module++) {
        word_list_add(&words, "-m");
        word_list_add(&words, *module);
    }
    word_list_add(&words, "--");
    for (const char *const *word = job->argv; *word; word++)
        word_list_add(&words, *word);
    char *tag = string_format(TAG_VARIABLE "=%s", job->tag), *into = group ? string_format(GROUP_VARIABLE "=%s", group) : NULL;
    const char **environment = job_environment(job->environment, (const char *const[]){tag, into, NULL});
    pid_t pid = 0;
    int fault = spawn(&pid, words.at, environment, job->directory);
    free(environment);
    free(into);
    free(tag);
    word_list_release(&words);
    free(group);
    if (fault) {
        errno = fault;
        return error_errno(err, "cannot start a job in %s", job->directory);
    }
    snprintf(job->id, sizeof job->id, "%d", (int)pid);
    job->started = process_started(pid, NULL);
    job->phase = JOB_RUNNING;
    process_table_add(&local->table, pid, job->tag);
    return 0;
}

// job.sh itself is alive: the pid, with the start time that was noted, carrying the tag. In the middle of exec nothing can be read of its
// environment; the start time alone must do then.
static bool is_leader_alive(const struct job *job)
{
    pid_t pid = (pid_t)strtol(job->id, NULL, 10);
    double started = process_started(pid, NULL);
    if (started <= 0 || (job->started > 0 && job->started != started))
        return false;
    return process_has_tag(pid, job->tag, NULL) || (job->started > 0 && process_in_exec(pid));
}

// ---- asked once a tick ----

// The machine as it is now, or was a moment ago: what is looked up for many runs costs one look. What we have started since is in it.
static const struct process_table *machine_at(struct local_context *local, double age_max)
{
    if (local->table.taken == 0 || clock_steady() - local->table.taken > age_max)
        process_table_take(&local->table);
    return &local->table;
}

// What one look at its leader tells. True: job.sh is alive.
static bool look_at_leader(struct job *job)
{
    pid_t pid = (pid_t)strtol(job->id, NULL, 10);
    if (pid > 0)
        waitpid(pid, NULL, WNOHANG); // ours since this daemon started it: no zombie stays; a no-op for any other process
    job->reason[0] = 0;
    job->asked = clock_steady();
    bool alive = is_leader_alive(job);
    job->phase = alive ? JOB_RUNNING : JOB_GONE;
    job->ran = alive && job->started > 0 ? process_age(job->started) : NAN;
    if (!alive) {
        if (pid > 0)
            waitpid(pid, NULL, WNOHANG); // it may have ended since the line above
        snprintf(job->reason, sizeof job->reason, "no process of the run is alive");
    }
    return alive;
}

// Without job.sh, one process of the run is enough to call it running. The oldest is nearly as old as job.sh was.
static void look_for_others(struct job *job, const struct process_table *table)
{
    size_t count;
    const struct process_entry *own = process_table_find(table, job->tag, &count);
    for (size_t i = 0; i < count; i++) {
        double started = process_started(own[i].pid, NULL);
        if (started <= 0)
            continue;
        double age = process_age(started);
        job->ran = job->phase == JOB_RUNNING && job->ran > age ? job->ran : age;
        job->phase = JOB_RUNNING;
        snprintf(job->reason, sizeof job->reason, "job.sh is gone, process %d of the run is alive", (int)own[i].pid);
    }
    if (job->phase == JOB_GONE && !memory_watch_end(job->directory, run_last_attempt(job->directory))) {
        job->phase = JOB_RUNNING;
        snprintf(job->reason, sizeof job->reason, "processes of the run are ending: its control group is not empty yet");
    }
}

static void look_at_memory(struct local_context *local, struct job *jobs, size_t count)
{
    double now = clock_steady();
    if (now - local->looked < MEMORY_LOOK_SECONDS)
        return;
    local->looked = now;
    for (size_t i = 0; i < count; i++)
        if (memory_is_looked_at(&jobs[i]))
            memory_look(&jobs[i], machine_at(local, MEMORY_LOOK_SECONDS));
}

static int local_poll(void *context, struct job *jobs, size_t count, struct error *err)
{
    struct local_context *local = context;
    (void)err;
    double asked = clock_steady();
    for (size_t i = 0; i < count; i++)
        if (!look_at_leader(&jobs[i]))
            look_for_others(&jobs[i], machine_at(local, clock_steady() - asked)); // taken in this call, once
    look_at_memory(local, jobs, count);
    if (count && launcher_look_is_due(&local->launchers))
        launcher_look(&local->launchers, jobs, count, machine_at(local, LOOK_AGE_MAX));
    return 0;
}

// ---- asked for one run ----

static bool is_listed(const struct process_entry *list, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].pid == pid)
            return true;
    return false;
}

// A launcher passes the signal on to ranks, which must have begun: one that is still being loaded would end by it.
static bool may_be_signalled(pid_t pid, bool begun)
{
    return (begun || !process_is_launcher(pid)) && process_catches(pid, SIGUSR1);
}

// The stop file is the request; the signal only shortens the wait. It goes to the command that job.sh started (mpirun, or the one
// worker), or, where job.sh is gone, to processes of the run that have no parent in it; and only to those that handle it.
static int local_stop(void *context, struct job *job, struct error *err)
{
    char *path = path_join(job->directory, STOP_FILE);
    int status = file_exists(path) ? 0 : file_write_atomic(path, "", 0, 0644, err);
    free(path);
    char *records = run_attempt_file(job->directory, run_last_attempt(job->directory), RECORDS_FILE);
    bool begun = file_size(records) > 0;
    free(records);
    pid_t leader = (pid_t)strtol(job->id, NULL, 10);
    size_t count;
    const struct process_entry *own = process_table_find(machine_at(context, LOOK_AGE_MAX), job->tag, &count);
    for (size_t i = 0; i < count; i++) {
        pid_t parent = 0;
        pid_t pid = own[i].pid;
        if (pid == leader || process_started(pid, &parent) <= 0)
            continue;
        if ((parent == leader || !is_listed(own, count, parent)) && may_be_signalled(pid, begun))
            process_signal_tagged(pid, job->tag, SIGUSR1);
    }
    return status;
}

// Signals whom it finds, and says so: a process may have started another while we looked, so the next call looks again. Who was seen and has
// ended may have left somebody too. But a tag that nobody carried comes back only through submit, which adds to what was seen.
static int local_kill(void *context, struct job *job, struct error *err)
{
    (void)err;
    struct local_context *local = context;
    double ages[] = {LOOK_AGE_MAX, -1};
    for (size_t look = 0; look < 2; look++) {
        size_t count, killed = 0;
        const struct process_entry *own = process_table_find(machine_at(local, ages[look]), job->tag, &count);
        for (size_t i = 0; i < count; i++)
            killed += process_signal_tagged(own[i].pid, job->tag, SIGKILL);
        if (killed)
            return 1;
        if (count == 0)
            break;
    }
    return memory_watch_kill(job->directory) ? 1 : 0; // who has no tag, or shows none any more
}

// Prefers the leader of the session (job.sh), so that a run found again has the same identity as before.
static int local_find(void *context, struct job *job, struct error *err)
{
    (void)err;
    size_t count;
    const struct process_entry *own = process_table_find(machine_at(context, LOOK_AGE_MAX), job->tag, &count);
    pid_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (process_started(own[i].pid, NULL) > 0 && (!found || getsid(own[i].pid) == own[i].pid))
            found = own[i].pid;
    job->phase = found ? JOB_RUNNING : JOB_GONE;
    if (found) {
        snprintf(job->id, sizeof job->id, "%d", (int)found);
        job->started = process_started(found, NULL);
    }
    return 0;
}

void local_context_release(struct local_context *local)
{
    memory_place_release(&local->memory);
    process_table_release(&local->table);
}

const struct executor *executor_local(void)
{
    static const struct executor local = {"local", local_submit, local_poll, local_stop, local_kill, local_find};
    return &local;
}
