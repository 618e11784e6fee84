// Runs that have a job are looked at in a pass, oldest first: of their executors all are asked after in each tick, but of what they themselves
// have written, and what is to be done about it, a tick takes no more than its share. The next one comes at once, and goes on from there.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 64 };            // runs whose lines are stored together
#define PASS_UNTIL 0.05         // CPU seconds of a tick after which it leaves the rest of a pass; the lines of a group, or one run, may go over it
#define PASS_LEAST 0.02         // … but so many of them are the pass's own
#define BUDGET_SECONDS 0.5      // … and no more of a clock's: whoever writes waits for disks
#define LOOK_PAUSE 0.8          // between two looks at a scheduler's run of which nothing is asked and of which its scheduler says nothing new
#define WAITING_A_SECOND 500.0  // of those that wait in a scheduler's queue, so many are looked at in a second without a word from it

void budget_begin(struct daemon *daemon, double until, double least)
{
    daemon->budget = (struct budget){fmax(daemon->tick_began + until, clock_cpu() + least), clock_steady() + BUDGET_SECONDS};
}

bool budget_is_spent(const struct daemon *daemon)
{
    return clock_cpu() >= daemon->budget.cpu || clock_steady() >= daemon->budget.until;
}

// ---- who needs no look ----

static uint64_t word_of(const struct job *job)
{
    char text[sizeof job->id + sizeof job->nodes + sizeof job->reason + 80];
    snprintf(text, sizeof text, "%s %d %d %d %lld %s %.0f %s", job->id, (int)job->phase, (int)job->end, job->strange, (long long)job->restarts, job->nodes,
        job->starts, job->reason);
    uint64_t word = string_hash(text);
    return word ? word : 1;
}

// With a scheduler that says nothing new, and is not about to give it up.
static bool rests(const struct daemon *daemon, const struct view *view, const struct job *job)
{
    const struct watch *watch = view->watch;
    bool waits = view->state == RUN_PENDING, may = waits || view->state == RUN_RUNNING;
    bool plain = job->phase == JOB_PENDING || job->phase == JOB_RUNNING || job->phase == JOB_UNKNOWN;
    double pause = waits ? fmax(LOOK_PAUSE, (double)daemon->waiting / WAITING_A_SECOND) : LOOK_PAUSE;
    return view->executor->queues && may && plain && !view->cancel_requested && !watch->behind && watch->word == word_of(job) &&
        clock_steady() - watch->looked < pause;
}

// ---- what the executors say of all ----

static bool is_on_its_way(const struct view *view)
{
    return view->state == RUN_SUBMITTED && !view->job;
}

// Those with an executor. jobs[i] is what theirs says of the job of views[i], if it has one.
static size_t poll_all(struct daemon *daemon, const struct views *all, const struct view **views, struct job *jobs)
{
    const struct view **asked = allocate(all->count + 1, sizeof *asked);
    struct job *answers = allocate(all->count + 1, sizeof *answers);
    size_t count = 0, asked_count = 0;
    daemon->handovers = daemon->handovers_begun = 0;
    daemon->waiting = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct view *view = &all->at[i];
        if (!view->executor)
            continue;
        views[count++] = view;
        daemon->waiting += view->executor->queues && view->state == RUN_PENDING;
        if (!view->executor->queues)
            watch_recall(daemon, view); // how much memory it may use is looked at with the rest
        if (is_on_its_way(view)) {
            daemon->handovers += view->executor->queues;
            continue;
        }
        asked[asked_count] = view;
        struct job *job = &answers[asked_count++];
        *job = job_of(view);
        job->started = view->job_started;
        if (view->job && strcmp(view->job, "0") != 0)
            strncat(job->id, view->job, sizeof job->id - 1);
    }
    executors_poll(daemon, asked, answers, asked_count);
    for (size_t i = 0, next = 0; i < count; i++)
        jobs[i] = is_on_its_way(views[i]) ? job_of(views[i]) : answers[next++];
    free(answers);
    free(asked);
    return count;
}

// ---- some of them ----

struct group {
    const struct view *views[GROUP];
    struct attempt_row attempts[GROUP];
    struct job *jobs[GROUP];
    size_t count;
};

// From `next` on, as many as there is room for. Returns where to go on.
static size_t gather(struct daemon *daemon, struct group *group, const struct view *const *views, struct job *jobs, size_t next, size_t count)
{
    for (group->count = 0; next < count && group->count < GROUP; next++) {
        const struct view *view = views[next];
        if (rests(daemon, view, &jobs[next]))
            continue;
        watch_recall(daemon, view);
        if (view->watch->elsewhere) {
            owner_leave(daemon, view);
            continue;
        }
        if (attempt_last(daemon, view, &group->attempts[group->count]) != 0) {
            view->watch->behind = false;
            continue;
        }
        group->views[group->count] = view;
        group->jobs[group->count++] = &jobs[next];
    }
    return next;
}

static void look_at(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, struct job *job)
{
    view->watch->behind &= view->watch->shared; // else its own turn says it
    if (is_on_its_way(view)) {
        if (!attempt->job)
            schedule_submit(daemon, view, attempt);
        return; // a job that has begun without our knowing is asked after in the next tick
    }
    view->watch->looked = clock_steady();
    view->watch->word = view->executor->queues ? word_of(job) : 0;
    watch_run(daemon, view, attempt, job);
}

// Returns how many of them were looked at: one at least.
static size_t look_at_group(struct daemon *daemon, struct group *group)
{
    struct attempt_row *attempts[GROUP];
    for (size_t i = 0; i < group->count; i++)
        attempts[i] = &group->attempts[i];
    size_t ready = ingest_together(daemon, group->views, attempts, group->count), looked = 0;
    while (looked < ready && (looked == 0 || !budget_is_spent(daemon))) {
        look_at(daemon, group->views[looked], attempts[looked], group->jobs[looked]);
        looked++;
    }
    reasons_write(daemon);
    for (size_t i = 0; i < group->count; i++)
        attempt_row_release(attempts[i]);
    return looked;
}

void pass_go_on(struct daemon *daemon, const struct views *all)
{
    const struct view **views = allocate(all->count + 1, sizeof *views);
    struct job *jobs = allocate(all->count + 1, sizeof *jobs);
    struct group *group = allocate(1, sizeof *group);
    size_t count = poll_all(daemon, all, views, jobs), next = 0;
    while (next < count && views[next]->id < daemon->pass_next)
        next++;
    budget_begin(daemon, PASS_UNTIL, PASS_LEAST);
    daemon->pass_next = 0;
    while (next < count && daemon->pass_next == 0) {
        next = gather(daemon, group, views, jobs, next, count);
        size_t looked = group->count ? look_at_group(daemon, group) : 0;
        if (looked < group->count)
            daemon->pass_next = group->views[looked]->id;
        else if (next < count && budget_is_spent(daemon))
            daemon->pass_next = views[next]->id;
    }
    daemon->behind |= daemon->pass_next != 0;
    for (size_t i = 0; i < count; i++)
        daemon->behind |= views[i]->watch->behind; // its turn was in an earlier tick of this pass, maybe
    free(group);
    free(jobs);
    free(views);
}
