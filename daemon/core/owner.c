// Whose home looks after a run: its directory says so, and whoever adopts it, or takes it back by a retry, writes that down there. A daemon
// that comes back does not go on with what another home has adopted meanwhile: each would hand over a job of its own.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static struct json *read_file(const char *directory, const char *name, size_t limit)
{
    char *path = path_join(directory, name);
    struct json *json = js_read_file(path, limit, NULL);
    free(path);
    return json;
}

// A home that is no more has moved, and may be ours.
static bool is_another(const struct daemon *daemon, const char *home)
{
    struct stat ours, its;
    return home[0] == '/' && strcmp(home, daemon->home) != 0 && stat(home, &its) == 0 && stat(daemon->home, &ours) == 0 &&
        (its.st_dev != ours.st_dev || its.st_ino != ours.st_ino);
}

// The home that handed it over or adopted it last, else the one that made it, if that is not ours. NULL: it is, or is no more. free()
static char *other_home(const struct daemon *daemon, const char *directory, const struct json *job)
{
    struct json *run = js_get(job, "home") ? NULL : read_file(directory, RUN_FILE, SPEC_TEXT_MAX);
    const char *home = js_string_of(js_get(run ? run : job, "home"), "");
    char *other = string_copy(is_another(daemon, home) ? home : NULL);
    js_free(run);
    return other;
}

static bool has_daemon(const char *home)
{
    char *path = path_join(home, "daemon.lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    free(path);
    return held;
}

static int write_owner(const struct daemon *daemon, const char *directory, struct json *job, struct error *err)
{
    if (access(directory, W_OK) != 0)
        return 0; // an archive: nobody goes on with it there
    char when[CLOCK_TEXT];
    clock_text(when, clock_wall());
    js_set(job, "home", js_string(daemon->home));
    js_set(job, "adopted", js_string(when));
    char *path = path_join(directory, JOB_FILE);
    int status = js_write_file(path, job, JOB_FILE_MAX, 0600, err);
    free(path);
    return status;
}

int owner_take(const struct daemon *daemon, const char *directory, struct error *err)
{
    struct json *job = read_file(directory, JOB_FILE, JOB_FILE_MAX);
    char *home = other_home(daemon, directory, job);
    int status = 0;
    if (home && has_daemon(home))
        status = error_set(err, "%s belongs to the home %s, whose daemon runs: two would both continue it. End that daemon first", directory, home);
    else if (home && job)
        status = write_owner(daemon, directory, job, err);
    free(home);
    js_free(job);
    return status;
}

char *owner_elsewhere(const struct daemon *daemon, const char *directory)
{
    struct json *job = read_file(directory, JOB_FILE, JOB_FILE_MAX);
    char *home = js_get(job, "adopted") ? other_home(daemon, directory, job) : NULL;
    js_free(job);
    return home;
}

// Within a change.
static int close_last_attempt(struct daemon *daemon, const struct view *view, struct error *err)
{
    struct attempt_row attempt;
    int found = view->attempt > 0 ? state_get_attempt(daemon->state, view->id, view->attempt, &attempt, err) : 1, status = found < 0 ? -1 : 0;
    if (found != 0)
        return status;
    if (attempt.ended == 0) {
        free(attempt.state);
        attempt.state = string_copy(run_state_name(RUN_LOST));
        attempt.ended = clock_wall();
        status = state_put_attempt(daemon->state, &attempt, err);
    }
    attempt_row_release(&attempt);
    return status;
}

void owner_leave(struct daemon *daemon, const struct view *view)
{
    struct error err = {0};
    char *home = owner_elsewhere(daemon, view->directory);
    char *reason = string_format("the home %s has adopted it while this one had no daemon: what becomes of it is known there", home ? home : "");
    view->watch->recalled = false; // whoever takes it back is looked at anew
    if (home && change_begin_of(daemon, view, &err)) {
        int status = close_last_attempt(daemon, view, &err);
        if (status == 0)
            status = core_change(daemon, view->id, RUN_LOST, reason, "daemon", &err);
        change_end_of(daemon, view, status, &err);
    }
    free(reason);
    free(home);
}
