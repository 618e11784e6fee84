// The local executor: a job is job.sh in a session of its own, started by posix_spawn, found in the process table by (pid, start time)
// and by its tag. It outlives the daemon: no controlling terminal, no inherited descriptor, nothing that a daemon's end would close.
#include "daemon/exec/environment.h"
#include "daemon/exec/executor.h"
#include "daemon/exec/process.h"
#include "daemon/exec/word_list.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILL_ROUNDS = 100, KILL_PAUSE_MS = 5, TAGGED_MAX = 4096 };
#define MEMORY_LOOK_SECONDS 1.0

// Own session, default signals, /dev/null as input; job.sh's own complaints go to submit.log in the run directory.
static int spawn(pid_t *pid, char *const *argv, const char **environment, const char *directory)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addchdir_np(&actions, directory);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "submit.log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int fault = posix_spawn(pid, argv[0], &actions, &attributes, argv, (char *const *)(uintptr_t)environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
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
    const struct local_context *local = context;
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

struct tagged {
    const char *tag;
    pid_t pids[TAGGED_MAX];
    size_t count;
};

static void collect(void *context, pid_t pid, const char *tag)
{
    struct tagged *list = context;
    if (strcmp(tag, list->tag) == 0 && list->count < TAGGED_MAX)
        list->pids[list->count++] = pid;
}

static struct tagged *tagged_new(const char *tag)
{
    struct tagged *list = allocate(1, sizeof *list);
    list->tag = tag;
    process_each_tagged(collect, list);
    return list;
}

static bool is_listed(const struct tagged *list, pid_t pid)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->pids[i] == pid)
            return true;
    return false;
}

// ---- memory, where the kernel does not keep the limit ----

struct memory_look {
    struct job **jobs;
    int64_t *used;
    size_t count;
};

static void add_memory(void *context, pid_t pid, const char *tag)
{
    struct memory_look *look = context;
    for (size_t i = 0; i < look->count; i++)
        if (strcmp(look->jobs[i]->tag, tag) == 0)
            look->used[i] += memory_of_process(pid);
}

// All but job.sh, which writes the exit record. What it finds is written down first: the kill must not be taken for somebody else's.
static void end_for_memory(const struct job *job, int64_t used)
{
    int64_t attempt = run_last_attempt(job->directory);
    if (attempt == 0 || memory_watch_exceeded(job->directory, attempt, used, job->memory, NULL) != 0)
        return; // looked at again in a second
    pid_t leader = (pid_t)strtol(job->id, NULL, 10);
    struct tagged *list = tagged_new(job->tag);
    for (size_t i = 0; i < list->count; i++)
        if (list->pids[i] != leader)
            process_signal_tagged(list->pids[i], job->tag, SIGKILL);
    free(list);
}

static bool is_looked_at(const struct job *job)
{
    if (job->memory <= 0 || job->phase != JOB_RUNNING)
        return false;
    char *group = memory_watch_group(job->directory);
    bool kept = group != NULL;
    free(group);
    return !kept;
}

static void look_at_memory(struct local_context *local, struct job *jobs, size_t count)
{
    double now = clock_steady();
    if (now - local->looked < MEMORY_LOOK_SECONDS)
        return;
    local->looked = now;
    struct memory_look look = {allocate(count + 1, sizeof *look.jobs), allocate(count + 1, sizeof *look.used), 0};
    for (size_t i = 0; i < count; i++)
        if (is_looked_at(&jobs[i]))
            look.jobs[look.count++] = &jobs[i];
    if (look.count)
        process_each_tagged(add_memory, &look);
    for (size_t i = 0; i < look.count; i++)
        if (look.used[i] > look.jobs[i]->memory)
            end_for_memory(look.jobs[i], look.used[i]);
    free(look.jobs);
    free(look.used);
}

// ---- asked once a tick ----

struct poll_scan {
    struct job *jobs;
    bool *led; // job.sh is alive
    size_t count;
};

static void mark_alive(void *context, pid_t pid, const char *tag)
{
    struct poll_scan *scan = context;
    for (size_t i = 0; i < scan->count; i++) {
        struct job *job = &scan->jobs[i];
        if (scan->led[i] || strcmp(job->tag, tag) != 0)
            continue;
        double age = process_age(process_started(pid, NULL));
        if (job->phase != JOB_RUNNING || age > job->ran) // its oldest process is nearly as old as job.sh was
            job->ran = age;
        job->phase = JOB_RUNNING;
        snprintf(job->reason, sizeof job->reason, "job.sh is gone, process %d of the run is alive", (int)pid);
    }
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

static int local_poll(void *context, struct job *jobs, size_t count, struct error *err)
{
    (void)err;
    bool scan_needed = false;
    struct poll_scan scan = {jobs, allocate(count + 1, sizeof(bool)), count};
    for (size_t i = 0; i < count; i++) {
        scan.led[i] = look_at_leader(&jobs[i]);
        scan_needed |= !scan.led[i];
    }
    if (scan_needed)
        process_each_tagged(mark_alive, &scan);
    free(scan.led);
    for (size_t i = 0; i < count; i++)
        if (jobs[i].phase == JOB_GONE)
            memory_watch_end(jobs[i].directory, run_last_attempt(jobs[i].directory));
    look_at_memory(context, jobs, count);
    return 0;
}

// The stop file is the request; the signal only shortens the wait. It goes to the command that job.sh started (mpirun, or the one
// worker), or, where job.sh is gone, to processes of the run that have no parent in it; and only to those that handle it.
static int local_stop(void *context, struct job *job, struct error *err)
{
    (void)context;
    char *path = path_join(job->directory, STOP_FILE);
    int status = file_exists(path) ? 0 : file_write_atomic(path, "", 0, 0644, err);
    free(path);
    pid_t leader = (pid_t)strtol(job->id, NULL, 10);
    struct tagged *list = tagged_new(job->tag);
    for (size_t i = 0; i < list->count; i++) {
        pid_t parent = 0;
        pid_t pid = list->pids[i];
        if (pid == leader || process_started(pid, &parent) <= 0)
            continue;
        if ((parent == leader || !is_listed(list, parent)) && process_catches(pid, SIGUSR1))
            process_signal_tagged(pid, job->tag, SIGUSR1);
    }
    free(list);
    return status;
}

// Repeats until nobody is left, since a process may start another while we look. Bounded: what is left is tried again at the next call.
static int local_kill(void *context, struct job *job, struct error *err)
{
    (void)context;
    size_t left = 0;
    for (int round = 0; round < KILL_ROUNDS; round++) {
        struct tagged *list = tagged_new(job->tag);
        left = list->count;
        for (size_t i = 0; i < list->count; i++)
            process_signal_tagged(list->pids[i], job->tag, SIGKILL);
        free(list);
        if (left == 0)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = KILL_PAUSE_MS * 1000000L}, NULL);
    }
    return error_set(err, "%zu processes of the run are still there after SIGKILL", left);
}

// Prefers the leader of the session (job.sh), so that a run found again has the same identity as before.
static int local_find(void *context, struct job *job, struct error *err)
{
    (void)context;
    (void)err;
    struct tagged *list = tagged_new(job->tag);
    pid_t found = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!found || getsid(list->pids[i]) == list->pids[i])
            found = list->pids[i];
    free(list);
    job->phase = found ? JOB_RUNNING : JOB_GONE;
    if (found) {
        snprintf(job->id, sizeof job->id, "%d", (int)found);
        job->started = process_started(found, NULL);
    }
    return 0;
}

const struct executor *executor_local(void)
{
    static const struct executor local = {"local", local_submit, local_poll, local_stop, local_kill, local_find};
    return &local;
}
