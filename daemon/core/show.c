// One run in full: what it was made of, what happened to it, its curves, its logs.
#include "daemon/core/core.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NEEDS_MAX = 1100, EVENTS_SHOWN = 1000 };

static struct json *needs_json(struct daemon *daemon, const struct run_row *row)
{
    int64_t needed[NEEDS_MAX];
    size_t count = 0;
    struct json *list = js_array();
    if (state_needs(daemon->state, row->id, needed, NEEDS_MAX, &count, NULL) != 0)
        return list;
    for (size_t i = 0; i < count; i++) {
        struct run_row other;
        if (state_get_run(daemon->state, needed[i], &other, NULL) != 0)
            continue;
        char *name = string_format("%s/%s", other.project, other.name);
        struct json *need = js_object();
        js_set(need, "run", js_string(name));
        js_set(need, "state", js_string(run_state_name(other.state)));
        js_append(list, need);
        free(name);
        run_row_release(&other);
    }
    return list;
}

static struct json *attempts_json(struct daemon *daemon, const struct run_row *row)
{
    struct json *attempts = state_attempts(daemon->state, row->id, NULL);
    for (size_t i = 0; i < js_count(attempts); i++) {
        struct json *attempt = js_at(attempts, i);
        const struct json *job = js_get(attempt, "job");
        bool by_hand = !job || strcmp(js_string_of(job, ""), "0") == 0;
        js_set(attempt, "job_id", by_hand ? js_null() : js_keep(job));
        js_set(attempt, "nodes", attempt_nodes(row->directory, js_integer_of(js_get(attempt, "number"), 0)));
    }
    return attempts ? attempts : js_array();
}

static bool is_checkpoint(const struct json *event)
{
    return strcmp(js_string_of(js_get(event, "kind"), ""), CHECKPOINT_NOTE) == 0;
}

// A run that says much keeps its newest events in view; all of them are in the stream. Its checkpoints go first: a long run has thousands, and
// that it was preempted or warned about is older than the last thousand of them.
static void add_events(struct daemon *daemon, const struct run_row *row, struct json *body)
{
    struct json *all = state_events(daemon->state, row->id, NULL), *shown = js_array(), *left_out = js_object();
    size_t count = js_count(all), over = count > EVENTS_SHOWN ? count - EVENTS_SHOWN : 0, checkpoints = 0;
    for (size_t i = 0; i < count; i++)
        checkpoints += is_checkpoint(js_at(all, i));
    size_t checkpoints_over = over < checkpoints ? over : checkpoints, others_over = over - checkpoints_over;
    js_set(left_out, "checkpoints", js_integer((int64_t)checkpoints_over));
    js_set(left_out, "others", js_integer((int64_t)others_over));
    for (size_t i = 0; i < count; i++) {
        struct json *event = js_at(all, i);
        size_t *still_over = is_checkpoint(event) ? &checkpoints_over : &others_over;
        if (*still_over > 0) {
            --*still_over;
            continue;
        }
        if (is_checkpoint(event))
            js_set(event, "step", js_integer(checkpoint_step_said(js_string_of(js_get(event, "reason"), ""))));
        js_append(shown, js_keep(event));
    }
    js_set(body, "events", shown);
    js_set(body, "events_left_out", left_out);
    js_free(all);
}

static struct json *or_object(const struct json *value)
{
    return value ? js_keep(value) : js_object();
}

static struct json *or_array(struct json *value)
{
    return value ? value : js_array();
}

void daemon_show(struct daemon *daemon, const char *run, struct answer *answer)
{
    struct run_row row;
    pthread_mutex_lock(&daemon->lock);
    if (answer_run(daemon, run, &row, answer) == 0) {
        const struct json *argv = js_get(row.provenance, "argv");
        series_need(daemon, &row);
        struct json *body = run_summary(daemon, &row);
        js_set(body, "attempts", attempts_json(daemon, &row));
        js_set(body, "provenance", or_object(row.provenance));
        js_set(body, "plan", or_object(row.plan));
        struct json *measured = run_measured(daemon, &row);
        js_set(body, "measured", measured ? measured : js_null());
        js_set(body, "predicted", run_predicted(daemon, &row));
        js_set(body, "spec", spec_shown(&row));
        js_set(body, "last", series_last(daemon->series, row.run_id));
        add_events(daemon, &row, body);
        js_set(body, "argv", argv ? js_keep(argv) : js_array());
        js_set(body, "metrics", series_names(daemon->series, row.run_id));
        js_set(body, "needs", needs_json(daemon, &row));
        js_set(body, "kept_aside", or_array(state_kept_aside(daemon->state, row.id, NULL)));
        answer->status = 200;
        answer->body = body;
        run_row_release(&row);
    }
    pthread_mutex_unlock(&daemon->lock);
}

void daemon_metrics(struct daemon *daemon, const char *run, const char *const *names, size_t count, int64_t after_step, int64_t max_points,
    struct answer *answer)
{
    struct run_row row;
    pthread_mutex_lock(&daemon->lock);
    if (answer_run(daemon, run, &row, answer) == 0) {
        series_need(daemon, &row);
        char *name = string_format("%s/%s", row.project, row.name);
        answer->body = js_object();
        js_set(answer->body, "run", js_string(name));
        js_set(answer->body, "last_step", js_integer(series_last_step(daemon->series, row.run_id)));
        js_set(answer->body, "metrics", series_read(daemon->series, row.run_id, names, count, after_step, max_points));
        answer->status = 200;
        free(name);
        run_row_release(&row);
    }
    pthread_mutex_unlock(&daemon->lock);
}

// ---- logs ----

// Opens directory/attempt-N/name without ever leaving the directory or following a symbolic link. A kernel without openat2 walks by hand.
static int open_beneath(const char *directory, const char *attempt, const char *name)
{
    int root = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    char relative[128];
    snprintf(relative, sizeof relative, "%s/%s", attempt, name);
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, root, relative, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS) {
        int inner = openat(root, attempt, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        fd = inner < 0 ? -1 : openat(inner, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (inner >= 0)
            close(inner);
    }
    int saved = errno;
    close(root);
    errno = saved;
    return fd;
}

// job.sh leaves a note of the job in the attempt that it claims; the worker alone does not.
static bool started_by_hand(const char *directory, const char *attempt)
{
    char *job = string_format("%s/%s/%s", directory, attempt, JOB_FILE), *records = string_format("%s/%s/%s", directory, attempt, RECORDS_FILE);
    bool by_hand = !file_exists(job) && file_exists(records);
    free(job);
    free(records);
    return by_hand;
}

int daemon_open_log(struct daemon *daemon, const char *run, int64_t attempt, const char *stream, struct answer *answer)
{
    bool errors = strcmp(stream, "stderr") == 0;
    if (!errors && strcmp(stream, "stdout") != 0)
        return answer_fail(answer, 400, "a log is stdout or stderr, not '%.40s'", stream);
    struct run_row row;
    pthread_mutex_lock(&daemon->lock);
    int found = answer_run(daemon, run, &row, answer);
    pthread_mutex_unlock(&daemon->lock);
    if (found != 0)
        return -1;
    char number[40];
    int64_t begun = attempt > 0 ? attempt : run_last_attempt(row.directory);
    snprintf(number, sizeof number, "attempt-%lld", (long long)begun);
    int fd = open_beneath(row.directory, number, errors ? "stderr.log" : "stdout.log");
    struct stat info;
    if (fd < 0 && begun == 0) {
        answer_fail(answer, 404, "%s/%s has no logs, for it %s: %s", row.project, row.name, row.ended > 0 ? "never began" : "has not begun",
            row.reason ? row.reason : "?");
    } else if (fd < 0) {
        answer_fail(answer, 404, "%s/%s has no %s log of %s%s", row.project, row.name, stream, number,
            started_by_hand(row.directory, number) ? ": it was started by hand, and printed where that was" : " yet");
    } else if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        fd = answer_fail(answer, 404, "%s/%s: the %s log of %s is not a file", row.project, row.name, stream, number);
    }
    run_row_release(&row);
    return fd;
}
