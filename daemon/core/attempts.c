// A run's attempts as rows. A job claims its attempts by itself, also while the daemon is away: what is in the run's directory is the truth,
// and the rows follow it. Only the newest attempt may be open; every other is over, and says how as far as it is known.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// job.sh leaves a note of the job in the attempt that it claims; the worker alone does not.
static bool claimed_by_job(const struct view *view, int64_t number)
{
    char *path = run_attempt_file(view->directory, number, JOB_FILE);
    bool claimed = file_exists(path);
    free(path);
    return claimed;
}

bool attempt_left(const struct view *view, int64_t number, struct exit_record *end)
{
    char *path = run_attempt_file(view->directory, number, EXIT_FILE);
    bool left = exit_record_read(end, path, NULL) == 0 && end->attempt == number;
    free(path);
    return left;
}

// Code 0 of a scheduler's launcher proves nothing (srun ends so where a node fails): the worker's own word counts, where it is known.
static int64_t code_of(const struct view *view, int64_t number, const struct exit_record *end)
{
    const struct watch *watch = view->watch;
    bool bare = view->executor && view->executor->queues && strcmp(view->kind, "check") != 0 && end->code == EXIT_DONE && !end->signal;
    if (!bare)
        return end->code;
    return watch && watch->end_attempt == number ? watch->end_code : -1;
}

// Another attempt came after it: the scheduler, or a person, started the run once more.
static void close_row(const struct view *view, struct attempt_row *attempt)
{
    struct exit_record end;
    bool left = attempt_left(view, attempt->number, &end);
    bool by_jobs = claimed_by_job(view, attempt->number) && claimed_by_job(view, attempt->number + 1);
    free(attempt->state);
    attempt->state = string_copy(by_jobs ? "requeued" : "superseded");
    attempt->ended = left && isfinite(end.ended) ? end.ended : clock_wall();
    attempt->code = left ? code_of(view, attempt->number, &end) : -1;
    attempt->ended_by_signal = left ? end.signal : 0;
}

// Under the lock.
static int close_before(struct daemon *daemon, const struct view *view, int64_t number, struct error *err)
{
    int status = 0;
    for (number--; number >= 1 && status == 0; number--) {
        struct attempt_row attempt;
        int found = state_get_attempt(daemon->state, view->id, number, &attempt, err);
        if (found != 0)
            return found < 0 ? -1 : 0;
        bool open = attempt.ended == 0;
        if (open) {
            close_row(view, &attempt);
            status = state_put_attempt(daemon->state, &attempt, err);
        }
        attempt_row_release(&attempt);
        if (!open)
            break;
    }
    return status;
}

static int begin_row(struct daemon *daemon, const struct view *view, int64_t number, struct attempt_row *attempt, struct error *err)
{
    *attempt = (struct attempt_row){
        .run = view->id, .number = number, .state = string_copy("running"), .started = clock_wall(), .code = -1};
    struct attempt_row before;
    int found = claimed_by_job(view, number) ? state_get_attempt(daemon->state, view->id, number - 1, &before, err) : 1;
    attempt->job = string_copy(found == 0 && before.job ? before.job : "0");
    if (found == 0) {
        attempt->job_started = before.job_started;
        attempt_row_release(&before);
    }
    if (found < 0)
        return -1;
    if (number < run_last_attempt(view->directory) || number < view->attempt)
        close_row(view, attempt);
    return state_put_attempt(daemon->state, attempt, err);
}

static int make_row(struct daemon *daemon, const struct view *view, int64_t number, struct attempt_row *attempt, struct error *err)
{
    if (change_begin(daemon, err) != 0)
        return -1;
    int status = begin_row(daemon, view, number, attempt, err);
    if (status == 0)
        status = close_before(daemon, view, number, err);
    return change_end(daemon, status, err);
}

int attempt_of(struct daemon *daemon, const struct view *view, int64_t number, struct attempt_row *attempt)
{
    struct error err = {0};
    *attempt = (struct attempt_row){0};
    pthread_mutex_lock(&daemon->lock);
    int found = state_get_attempt(daemon->state, view->id, number, attempt, &err);
    pthread_mutex_unlock(&daemon->lock);
    if (found == 1)
        found = make_row(daemon, view, number, attempt, &err); // nobody else makes one meanwhile: this is the tick thread's
    if (found == 0)
        return 0;
    log_run(view, &err);
    attempt_row_release(attempt);
    return -1;
}

int attempt_last(struct daemon *daemon, const struct view *view, struct attempt_row *attempt)
{
    int64_t number = run_last_attempt(view->directory);
    return attempt_of(daemon, view, number < view->attempt ? view->attempt : number, attempt);
}

static bool ended_its_run(struct daemon *daemon, const struct view *view, int64_t number)
{
    struct attempt_row attempt;
    bool ended = false;
    pthread_mutex_lock(&daemon->lock);
    if (state_get_attempt(daemon->state, view->id, number, &attempt, NULL) == 0) {
        ended = attempt.ended > 0 && strcmp(attempt.state, "requeued") != 0 && strcmp(attempt.state, "superseded") != 0;
        attempt_row_release(&attempt);
    }
    pthread_mutex_unlock(&daemon->lock);
    return ended;
}

void attempts_progress(struct daemon *daemon, const struct view *view, int64_t number, int64_t *furthest, int64_t *idle)
{
    *furthest = 0;
    *idle = 0;
    for (int64_t before = 1; before < number; before++) {
        char *path = run_attempt_file(view->directory, before, HEARTBEAT_FILE);
        int64_t step = heartbeat_step(path);
        free(path);
        *idle = step > *furthest || ended_its_run(daemon, view, before) ? 0 : *idle + 1;
        *furthest = step > *furthest ? step : *furthest;
    }
}
