// Opening and closing: one daemon a home, by a flock that the kernel gives back whatever way the daemon ends.
#include "daemon/core/draft.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

// Who holds the lock is written into the file, for the message only: the flock itself is the truth.
static int take_home(struct daemon *daemon, struct error *err)
{
    int status = -1;
    char *path = path_join(daemon->home, "daemon.lock");
    daemon->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (daemon->lock_fd < 0) {
        error_errno(err, "%s", path);
        goto out;
    }
    if (flock(daemon->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        char holder[32] = "";
        ssize_t got = errno == EWOULDBLOCK ? pread(daemon->lock_fd, holder, sizeof holder - 1, 0) : -1;
        if (got < 0)
            error_errno(err, "%s: cannot lock", path);
        else
            error_set(err, "%s: another daemon (pid %.*s) serves this home", daemon->home, (int)strcspn(holder, "\n"), holder);
        goto out;
    }
    char mine[32];
    int length = snprintf(mine, sizeof mine, "%d\n", (int)getpid());
    if (ftruncate(daemon->lock_fd, 0) != 0 || pwrite(daemon->lock_fd, mine, (size_t)length, 0) != length)
        error_errno(err, "%s", path);
    else
        status = 0;
out:
    free(path);
    return status;
}

// A path as a pattern that matches itself only.
static char *glob_quoted(const char *path)
{
    char *quoted = allocate(2 * strlen(path) + 1, 1), *out = quoted;
    for (; *path; path++) {
        if (strchr("*?[\\", *path))
            *out++ = '\\';
        *out++ = *path;
    }
    return quoted;
}

// What a daemon that ended in the middle of a submission had prepared. Only beneath the home: nobody else writes there.
static void remove_staging(const struct daemon *daemon)
{
    char *home = glob_quoted(daemon->home), *pattern = string_format("%s/runs/*/.new-*", home);
    free(home);
    glob_t found;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            directory_remove(found.gl_pathv[i], NULL);
        globfree(&found);
    }
    free(pattern);
}

int daemon_open(struct daemon **out, const struct daemon_options *options, struct error *err)
{
    struct daemon *daemon = allocate(1, sizeof *daemon);
    daemon->home = string_copy(options->home);
    daemon->trackio_path = string_copy(options->trackio);
    daemon->worker = string_copy(options->worker);
    daemon->job_script = options->job_script ? string_copy(options->job_script) : path_join(options->home, "job.sh");
    executors_open(daemon);
    daemon->lock_fd = -1;
    daemon->started = clock_wall();
    pthread_mutex_init(&daemon->lock, NULL);
    pthread_mutex_init(&daemon->wake_lock, NULL);
    clock_condition_init(&daemon->changed);
    clock_condition_init(&daemon->wake);
    char *database = path_join(daemon->home, "switchyard.db");
    int status = -1;
    if (settings_begin(daemon, options->gpus, err) == 0 && directory_make(daemon->home, err) == 0 && take_home(daemon, err) == 0 &&
        job_script_write(daemon->job_script, err) == 0 &&
        state_open(&daemon->state, database, err) == 0 && directory_make(daemon->trackio_path, err) == 0 &&
        trackio_open(&daemon->writer, daemon->trackio_path, err) == 0 && trackio_open(&daemon->reader, daemon->trackio_path, err) == 0) {
        daemon->series = series_new();
        submissions_recover(daemon);
        remove_staging(daemon);
        status = 0;
    }
    free(database);
    if (status != 0) {
        daemon_close(daemon);
        daemon = NULL;
    }
    *out = daemon;
    return status;
}

void daemon_close(struct daemon *daemon)
{
    if (!daemon)
        return;
    watches_sweep(daemon);
    watches_sweep(daemon);
    executors_close(daemon);
    free(daemon->reasons.at);
    if (daemon->series)
        series_free(daemon->series);
    if (daemon->reader)
        trackio_close(daemon->reader);
    if (daemon->writer)
        trackio_close(daemon->writer);
    if (daemon->state)
        state_close(daemon->state);
    if (daemon->lock_fd >= 0)
        close(daemon->lock_fd);
    pthread_cond_destroy(&daemon->wake);
    pthread_cond_destroy(&daemon->changed);
    pthread_mutex_destroy(&daemon->wake_lock);
    pthread_mutex_destroy(&daemon->lock);
    settings_close(&daemon->settings);
    free(daemon->home);
    free(daemon->trackio_path);
    free(daemon->worker);
    free(daemon->job_script);
    free(daemon);
}
