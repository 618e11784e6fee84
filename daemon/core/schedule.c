// The start of a job, exactly once across a crash: the intent is stored before anything is started, and the run's tag is looked for before
// anything is started again. Which run is next, the queue says (queue.c).
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDING_SAID 5.0 // seconds after which a submission that is not decided says why
#define CANCELLED_BEFORE "cancelled before it was handed over"

int job_load(const struct view *view, struct launch *launch, struct json **job, struct error *err)
{
    char *path = path_join(view->directory, JOB_FILE);
    *job = js_read_file(path, JOB_FILE_MAX, err);
    free(path);
    if (*job && launch_from_json(launch, *job, err) == 0)
        return 0;
    js_free(*job);
    *job = NULL;
    return -1;
}

void schedule_fail(struct daemon *daemon, const struct view *view, const char *reason)
{
    struct error err = {0};
    if (change_begin_of(daemon, view, &err))
        change_end_of(daemon, view, core_change(daemon, view->id, RUN_FAILED, reason, "daemon", &err), &err);
}

// ---- starting ----

static int write_job_file(const struct daemon *daemon, const struct view *view, struct json *job, int64_t attempt, struct error *err)
{
    char when[CLOCK_TEXT];
    clock_text(when, clock_wall());
    js_set(job, "executor", js_string(view->executor->calls->name));
    js_set(job, "attempt_expected", js_integer(attempt));
    js_set(job, "home", js_string(daemon->home)); // whose daemon looks after it
    js_set(job, "submitted", js_string(when));
    js_set(job, "memory_kills_before", js_integer(memory_kills()));
    char *path = path_join(view->directory, JOB_FILE);
    int status = js_write_file(path, job, JOB_FILE_MAX, 0600, err);
    free(path);
    return status;
}

// It was not handed over: the attempt is over before it began.
static void end_intent(struct daemon *daemon, const struct view *view, const struct attempt_row *intent, enum run_state to, const char *reason)
{
    struct attempt_row attempt = *intent;
    struct error err = {0};
    attempt.state = (char *)(uintptr_t)run_state_name(to);
    attempt.ended = clock_wall();
    if (!change_begin_of(daemon, view, &err))
        return;
    int status = state_put_attempt(daemon->state, &attempt, &err);
    if (status == 0)
        status = core_change(daemon, view->id, to, reason, "daemon", &err);
    change_end_of(daemon, view, status, &err);
}

static void note_job(struct daemon *daemon, const struct view *view, const struct attempt_row *intent, const struct job *job)
{
    struct attempt_row attempt = *intent;
    attempt.job = (char *)(uintptr_t)(job->id[0] ? job->id : "0"); // the executor will say which it is
    attempt.job_started = job->started;
    struct error err = {0};
    if (change_begin_of(daemon, view, &err))
        change_end_of(daemon, view, state_put_attempt(daemon->state, &attempt, &err), &err);
}

// A job of this attempt's own, that a daemon before us handed over: not one of an earlier attempt, which is over.
static bool is_handed_over(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, const struct job *job)
{
    struct attempt_row before;
    bool earlier = false;
    if (job->phase == JOB_GONE)
        return false;
    pthread_mutex_lock(&daemon->lock);
    if (job->phase == JOB_ENDED && attempt->number > 1 &&
        state_get_attempt(daemon->state, view->id, attempt->number - 1, &before, NULL) == 0) {
        earlier = before.job && strcmp(before.job, job->id) == 0;
        attempt_row_release(&before);
    }
    pthread_mutex_unlock(&daemon->lock);
    return !earlier;
}

// It was started, and may be over already: its exit record will tell.
static bool is_claimed(const struct view *view, const struct attempt_row *attempt)
{
    char *directory = run_attempt_directory(view->directory, attempt->number);
    bool claimed = file_exists(directory);
    free(directory);
    return claimed;
}

// What keeps a job that is not handed over at once: shown, but no event of the run's story.
static void say_progress(struct daemon *daemon, const struct view *view, const char *words)
{
    struct error err = {0};
    if (!words[0] || (view->reason && strcmp(view->reason, words) == 0))
        return;
    if (change_begin_of(daemon, view, &err))
        change_end_of(daemon, view, state_set_reason(daemon->state, view->id, words, &err), &err);
}

// Looks for what was handed over already. True when there is nothing, and the job may be handed over now.
static bool nothing_handed_over(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, struct job *job)
{
    const struct executor_use *executor = view->executor;
    struct error err = {0};
    if (executor->calls->find(executor->context, job, &err) != 0 || job->phase == JOB_UNKNOWN)
        return false; // looked at again in the next tick
    if (is_claimed(view, attempt) || is_handed_over(daemon, view, attempt, job)) {
        note_job(daemon, view, attempt, job);
        return false;
    }
    if (view->cancel_requested) {
        end_intent(daemon, view, attempt, RUN_CANCELLED, CANCELLED_BEFORE);
        return false;
    }
    return true;
}

// A submission that takes its time says what holds it up: an sbatch that fails or hangs is tried again and again.
static void say_way(struct daemon *daemon, const struct view *view, const struct job *job)
{
    struct watch *watch = view->watch;
    double now = clock_steady();
    watch->handing_since = !watch->handing ? 0 : watch->handing_since > 0 ? watch->handing_since : now;
    if (watch->handing && now - watch->handing_since >= HANDING_SAID)
        say_progress(daemon, view, job->reason);
}

// Cancelled while it is on its way: nothing more is asked for, and what has come of it, or may yet, is ended. What began all the same is
// watched like any other job.
static void give_up(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, struct job *job)
{
    struct error err = {0};
    int left = view->executor->calls->kill(view->executor->context, job, &err);
    if (left < 0)
        log_run(view, &err);
    bool claimed = is_claimed(view, attempt);
    view->watch->handing = !claimed && left != 0;
    view->watch->handing_since = 0;
    if (claimed)
        note_job(daemon, view, attempt, job);
    else if (left == 0)
        end_intent(daemon, view, attempt, RUN_CANCELLED, CANCELLED_BEFORE);
    else
        say_progress(daemon, view, "cancelled; what may have come of its submission is ended as soon as its scheduler answers");
}

static void settle_handover(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, const struct job *job, int status,
    const struct error *err)
{
    view->watch->handing = status == 0 && job->phase == JOB_UNKNOWN;
    if (status != 0)
        end_intent(daemon, view, attempt, RUN_FAILED, err->text);
    else if (!view->watch->handing)
        note_job(daemon, view, attempt, job);
    say_way(daemon, view, job);
    if (job->warning[0])
        change_event(daemon, view, "warning", job->warning, "daemon");
}

// What is on its way to a scheduler already is only asked after: hundreds may be, and what is to be run is not read again in each tick.
static void hand_on(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, struct job *job)
{
    struct error err = {0};
    int status = view->executor->calls->submit(view->executor->context, job, &err);
    if (status == 0 && job->phase == JOB_GONE)
        view->watch->handing = false; // from the beginning, in the next tick
    else
        settle_handover(daemon, view, attempt, job, status, &err);
}

// The second half of a start, and all that is left to do after a crash in between: a stored intent without a job. Called in each tick
// until it is decided.
void schedule_submit(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt)
{
    const struct executor_use *executor = view->executor;
    struct watch *watch = view->watch;
    struct error err = {0};
    struct job job = job_of(view);
    if (watch->handing && view->cancel_requested) {
        give_up(daemon, view, attempt, &job);
        return;
    }
    if (watch->handing && executor->queues) {
        hand_on(daemon, view, attempt, &job);
        return;
    }
    if (!watch->handing && !nothing_handed_over(daemon, view, attempt, &job))
        return;
    struct launch launch;
    struct json *description = NULL;
    if (job_load(view, &launch, &description, &err) != 0) {
        end_intent(daemon, view, attempt, RUN_FAILED, err.text);
        return;
    }
    if (executor->calls == executor_local())
        launch_show_gpus(&launch, &daemon->machine);
    if (view->excluded) {
        launch_leave_out(&launch, view->excluded);
        js_set(description, "left_out", js_string(view->excluded));
    }
    job.argv = (const char *const *)launch.argv.at;
    job.environment = (const char *const *)launch.environment.at;
    job.modules = (const char *const *)launch.modules.at;
    job.options = (const char *const *)launch.options.at;
    int status = watch->handing ? 0 : write_job_file(daemon, view, description, attempt->number, &err);
    watch->handing = status == 0;
    if (status == 0)
        status = executor->calls->submit(executor->context, &job, &err);
    settle_handover(daemon, view, attempt, &job, status, &err);
    launch_release(&launch);
    js_free(description);
}

// Stores the intent. The state is looked at once more under the lock: a cancel may have come first.
static bool store_intent(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, const struct launch *launch)
{
    struct error err = {0};
    char reason[128];
    snprintf(reason, sizeof reason, "attempt %lld handed to the %s executor", (long long)attempt->number, view->executor->calls->name);
    if (!change_begin_of(daemon, view, &err))
        return false;
    bool queued = core_is_queued(daemon, view->id);
    int status = queued ? state_put_attempt(daemon->state, attempt, &err) : 0;
    if (queued && status == 0)
        status = core_change(daemon, view->id, RUN_SUBMITTED, reason, "daemon", &err);
    if (queued && status == 0 && launch->oversubscribed)
        core_event(daemon, view->id, "warning", "wants more cores than this machine has: runs alone, oversubscribed", "daemon", clock_wall());
    return change_end_of(daemon, view, status, &err) == 0 && queued;
}

void schedule_begin(struct daemon *daemon, const struct view *view, const struct launch *launch, struct json *job)
{
    struct error err = {0};
    struct job leftovers = job_of(view);
    bool first = view->attempt == 0 && run_last_attempt(view->directory) == 0; // never begun: nobody can be left of it
    daemon->handovers += view->executor->queues;
    daemon->handovers_begun += view->executor->queues;
    int left = first ? 0 : view->executor->calls->kill(view->executor->context, &leftovers, &err);
    if (left < 0)
        core_log("%s/%s: cannot start: %s", view->project, view->name, err.text);
    if (left != 0)
        return; // tried again in the next tick
    char *stop = path_join(view->directory, STOP_FILE);
    unlink(stop);
    free(stop);
    // The number that the job will claim: a row whose job never began is used again.
    struct attempt_row attempt = {.run = view->id, .number = run_last_attempt(view->directory) + 1, .started = clock_wall(), .code = -1};
    if (attempt.number < view->attempt)
        attempt.number = view->attempt + 1;
    attempt.state = string_copy("submitted");
    // Written down before the intent: whoever finds the intent knows which GPUs are this run's.
    if (launch->held.count)
        js_set(job, "gpu_devices", gpus_to_json(&launch->held));
    if (launch->held.count && write_job_file(daemon, view, job, attempt.number, &err) != 0)
        core_log("%s/%s: cannot start: %s", view->project, view->name, err.text);
    else if (store_intent(daemon, view, &attempt, launch)) {
        watch_new_job(view->watch);
        schedule_submit(daemon, view, &attempt);
    }
    attempt_row_release(&attempt);
}
