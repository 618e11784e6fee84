// Submissions under way: how far each is, how one is given up, and what becomes of one whose daemon was killed. The database says which were
// complete (state_submissions.c): the others are undone, whatever lies on the disk of them.
#include "daemon/core/draft.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS_AT_ONCE = 256 };

void submission_open(struct daemon *daemon, struct submission *submission, const struct json *body)
{
    *submission = (struct submission){.runs = js_count(js_get(body, "runs"))};
    const char *id = js_string_of(js_get(body, "id"), "");
    if (strlen(id) < sizeof submission->id)
        strcpy(submission->id, id);
    atomic_store(&submission->phase, "checking");
    pthread_mutex_lock(&daemon->lock);
    submission->next = daemon->submissions;
    daemon->submissions = submission;
    pthread_mutex_unlock(&daemon->lock);
}

void submission_close(struct daemon *daemon, struct submission *submission)
{
    pthread_mutex_lock(&daemon->lock);
    struct submission **at = &daemon->submissions;
    while (*at != submission)
        at = &(*at)->next;
    *at = submission->next;
    pthread_mutex_unlock(&daemon->lock);
}

void submission_phase(struct submission *submission, const char *phase)
{
    atomic_store(&submission->done, 0);
    atomic_store(&submission->phase, phase);
}

int submission_step(struct daemon *daemon, struct submission *submission, size_t runs, struct error *err)
{
    atomic_fetch_add(&submission->done, runs);
    if (atomic_load(&submission->cancelled))
        return error_set(err, "the submission was cancelled: nothing was submitted");
    if (atomic_load(&daemon->ending))
        return error_set(err, "the daemon is ending: nothing was submitted");
    return 0;
}

void daemon_submissions(struct daemon *daemon, struct answer *answer)
{
    struct json *list = js_array();
    pthread_mutex_lock(&daemon->lock);
    for (struct submission *at = daemon->submissions; at; at = at->next) {
        struct json *one = js_object();
        js_set(one, "id", at->id[0] ? js_string(at->id) : js_null());
        js_set(one, "runs", js_integer((int64_t)at->runs));
        js_set(one, "done", js_integer((int64_t)atomic_load(&at->done)));
        js_set(one, "phase", js_string(atomic_load(&at->phase)));
        js_append(list, one);
    }
    pthread_mutex_unlock(&daemon->lock);
    answer->status = 200;
    answer->body = js_object();
    js_set(answer->body, "submissions", list);
}

void daemon_submission_cancel(struct daemon *daemon, const char *id, struct answer *answer)
{
    bool found = false;
    pthread_mutex_lock(&daemon->lock);
    for (struct submission *at = daemon->submissions; at; at = at->next)
        if (at->id[0] && strcmp(at->id, id) == 0) {
            atomic_store(&at->cancelled, true);
            found = true;
        }
    pthread_mutex_unlock(&daemon->lock);
    if (!found) {
        answer_fail(answer, 404, "there is no submission %s under way", id);
        return;
    }
    answer->status = 202;
    answer->body = js_object();
    js_set(answer->body, "id", js_string(id));
}

void daemon_end_submissions(struct daemon *daemon)
{
    atomic_store(&daemon->ending, true);
}

// ---- by and by ----

int64_t submission_queue_some(struct daemon *daemon, int64_t experiment, int64_t limit, struct error *err)
{
    int64_t queued = -1;
    if (change_begin(daemon, err) == 0) {
        queued = state_queue_created(daemon->state, experiment, limit, clock_wall(), err);
        if (change_end(daemon, queued < 0 ? -1 : 0, err) != 0)
            queued = -1;
    }
    if (queued < 0) {
        pthread_mutex_lock(&daemon->lock);
        daemon->unqueued = true;
        pthread_mutex_unlock(&daemon->lock);
    }
    return queued;
}

int64_t submission_drop_some(struct daemon *daemon, int64_t experiment, int64_t limit, struct error *err)
{
    if (change_begin(daemon, err) != 0)
        return -1;
    int64_t dropped = state_drop_created(daemon->state, experiment, limit, err);
    return change_end(daemon, dropped < 0 ? -1 : 0, err) == 0 ? dropped : -1;
}

// ---- after a crash, or a full disk ----

// The directory of that name is removed only if it is that run's: somebody may have put another one there.
static void remove_run(const char *directory, const char *run_id)
{
    char *staging = draft_staging(directory, run_id), *aside = string_format("%s-old", staging), *path = path_join(directory, RUN_FILE);
    struct json *run = file_exists(path) ? js_read_file(path, SPEC_TEXT_MAX, NULL) : NULL;
    if (run && strcmp(js_string_of(js_get(run, "run_id"), ""), run_id) == 0)
        rename(directory, aside);
    directory_remove(staging, NULL);
    directory_remove(aside, NULL);
    js_free(run);
    free(path);
    free(aside);
    free(staging);
}

static void undo(struct daemon *daemon, int64_t experiment)
{
    struct error err = {0};
    struct json *directories = state_created_directories(daemon->state, experiment, &err);
    char *parent = NULL;
    for (void *i = js_first(directories); i; i = js_next(directories, i)) {
        const char *directory = js_string_of(js_value(i), "/");
        remove_run(directory, js_key(i));
        free(parent);
        parent = path_join(directory, "..");
    }
    if (parent)
        rmdir(parent); // where it was its first
    free(parent);
    int64_t dropped = directories ? 1 : -1;
    while (dropped > 0)
        dropped = submission_drop_some(daemon, experiment, RUNS_AT_ONCE, &err);
    if (dropped == 0)
        core_log("a submission of %zu runs that was under way when the daemon ended was undone", js_count(directories));
    else
        core_log("a submission that was under way when the daemon ended: %s", err.text);
    js_free(directories);
}

static void finish(struct daemon *daemon, int64_t experiment)
{
    struct error err = {0};
    int64_t queued = 1;
    while (queued > 0)
        queued = submission_queue_some(daemon, experiment, RUNS_AT_ONCE, &err);
    if (queued < 0)
        core_log("a submission is not in the queue yet: %s", err.text);
}

void submissions_recover(struct daemon *daemon)
{
    struct json *left = state_leftovers(daemon->state, NULL);
    for (size_t i = 0; i < js_count(left); i++) {
        const struct json *one = js_at(left, i);
        int64_t experiment = js_integer_of(js_get(one, "experiment"), 0);
        if (!js_boolean_of(js_get(one, "complete"), true))
            undo(daemon, experiment);
        else
            finish(daemon, experiment);
    }
    js_free(left);
}

void submissions_finish(struct daemon *daemon)
{
    pthread_mutex_lock(&daemon->lock);
    struct json *left = daemon->unqueued ? state_leftovers(daemon->state, NULL) : NULL;
    daemon->unqueued = false;
    pthread_mutex_unlock(&daemon->lock);
    for (size_t i = 0; i < js_count(left); i++)
        if (js_boolean_of(js_get(js_at(left, i), "complete"), false))
            finish(daemon, js_integer_of(js_get(js_at(left, i), "experiment"), 0));
    js_free(left);
}
