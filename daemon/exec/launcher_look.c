#include "daemon/exec/launcher_look.h"
#include "daemon/exec/executor.h"
#include "daemon/exec/process.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool launcher_look_is_due(const struct launcher_look *look)
{
    return clock_steady() - look->looked >= LAUNCHER_LOOK_SECONDS;
}

// mpirun, mpiexec, orterun; of Open MPI 5 prterun.
bool process_is_launcher(pid_t pid)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun"};
    char path[64];
    struct text name;
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    text_init(&name, 64);
    bool is = false;
    if (file_read(path, &name, NULL) == 0)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            is |= strncmp(name.at, names[i], strlen(names[i])) == 0;
    text_release(&name);
    return is;
}

// The launcher of a job of which nobody else is there but its job.sh; 0: there is none such.
static pid_t deserted_launcher(const struct job *job, const struct process_table *table, double patience)
{
    size_t count;
    pid_t leader = (pid_t)strtol(job->id, NULL, 10), launcher = 0;
    const struct process_entry *own = process_table_find(table, job->tag, &count);
    for (size_t i = 0; i < count; i++) {
        if (own[i].pid == leader)
            continue;
        if (launcher || !process_is_launcher(own[i].pid))
            return 0;
        launcher = own[i].pid;
    }
    double started = launcher ? process_started(launcher, NULL) : 0;
    return started > 0 && process_age(started) >= patience ? launcher : 0;
}

static bool is_suspect(const struct launcher_look *look, pid_t launcher)
{
    for (size_t i = 0; i < look->count; i++)
        if (look->suspects[i] == launcher)
            return true;
    return false;
}

static void end_launcher(const struct job *job, pid_t launcher)
{
    static const char words[] = "switchyard: the launcher of the ranks hangs, though none of them is left: it is ended\n";
    char *path = run_attempt_file(job->directory, run_last_attempt(job->directory), "stderr.log");
    int log = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (log >= 0) {
        ssize_t written = write(log, words, sizeof words - 1);
        (void)written; // on a full disk it is ended without a word
        close(log);
    }
    free(path);
    process_signal_tagged(launcher, job->tag, SIGKILL);
}

void launcher_look(struct launcher_look *look, const struct job *jobs, size_t count, const struct process_table *table)
{
    struct launcher_look now = {.looked = clock_steady(), .patience = look->patience};
    double patience = look->patience > 0 ? look->patience : LAUNCHER_PATIENCE;
    for (size_t i = 0; i < count; i++) {
        pid_t launcher = jobs[i].phase == JOB_RUNNING ? deserted_launcher(&jobs[i], table, patience) : 0;
        if (!launcher)
            continue;
        if (is_suspect(look, launcher))
            end_launcher(&jobs[i], launcher);
        else if (now.count < LAUNCHER_SUSPECTS_MAX)
            now.suspects[now.count++] = launcher;
    }
    *look = now;
}
