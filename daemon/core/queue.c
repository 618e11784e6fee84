// The queue: first come, first served, as far as the machine's cores and GPUs reach (room.h); needs first. It may be ten thousand runs long,
// so it is looked at only when something has changed, as one list of a few words a run; what a run was made of is read when it is its turn.
// What is said of runs that wait, and the end of those whose needs failed, is written for some of them in each round.
#include "daemon/core/core.h"
#include "daemon/core/room.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAID_AT_ONCE = 256, REASON_MAX = 1024 };
#define LOOK_ANYWAY 5.0      // seconds
#define HANDOVERS_UNTIL 0.07 // CPU seconds of a tick after which it sends no more runs on their way to a scheduler: each is a few writes
#define HANDOVERS_LEAST 0.01 // … but so many of them are theirs

struct saying { // a new reason, or the end
    int64_t run;
    enum run_state to;
    char *reason;
};

// What this machine's queue can give, and what it has come to in this round.
struct round {
    struct daemon *daemon;
    struct room room;
    struct gpus free;
    struct sweep_places places;
    int64_t away, away_max; // jobs that are with a scheduler, and that may be; 0: any number
    struct needed_run needed; // the one that was last looked up
    int64_t needed_id;
    struct saying sayings[SAID_AT_ONCE];
    size_t said;
};

// ---- what there is ----

static bool is_here(const struct view *view)
{
    return view->executor && view->executor->calls == executor_local();
}

// The process table is the only witness that counts for this machine's cores: nobody, in every look for a while. That it is called lost takes
// longer, since its heartbeat may come from elsewhere, where this home was served before.
static bool is_deserted(const struct view *view)
{
    return view->watch->gone_since > 0 && clock_steady() - view->watch->gone_since >= DESERTED_WAIT;
}

// Found anew in each round, from the jobs' own descriptions: a daemon that was away gives no GPU twice.
static void look_at_supply(struct round *round, const struct views *views)
{
    struct daemon *daemon = round->daemon;
    round->room = (struct room){.cores = daemon->machine.cores, .gpus = (int64_t)daemon->machine.gpus.count};
    round->free = daemon->machine.gpus;
    for (size_t i = 0; i < daemon->executor_count; i++)
        if (daemon->executors[i].queues)
            round->away_max = daemon->executors[i].most;
    for (size_t i = 0; i < views->count; i++) {
        struct launch launch;
        struct json *job = NULL;
        round->away += views->at[i].executor && views->at[i].executor->queues && views->at[i].state >= RUN_SUBMITTED && views->at[i].state <= RUN_FINISHING;
        if (!is_here(&views->at[i]) || is_deserted(&views->at[i]))
            continue;
        if (job_load(&views->at[i], &launch, &job, NULL) == 0) {
            round->room.cores_taken += launch.slots;
            gpus_remove(&round->free, &launch.held);
            launch_release(&launch);
            js_free(job);
        } else {
            round->room.cores_taken += 1; // its description is gone; it still runs somewhere
        }
    }
    round->room.gpus_taken = round->room.gpus - (int64_t)round->free.count;
}

// ---- what is said ----

// A queued run says what it waits for; said once, not in each round.
static void say(struct round *round, const struct queued *queued, enum run_state to, const char *reason)
{
    if (to == RUN_QUEUED && queued->reason == string_hash(reason))
        return;
    if (round->said == SAID_AT_ONCE) {
        round->daemon->queue.again = true;
        return;
    }
    round->sayings[round->said++] = (struct saying){queued->run, to, string_copy(reason)};
}

// In one transaction. Each is looked at once more: somebody may have cancelled it meanwhile.
static void write_down(struct round *round)
{
    struct daemon *daemon = round->daemon;
    struct error err = {0};
    if (!round->said)
        return;
    int status = change_begin(daemon, &err);
    if (status == 0) {
        for (size_t i = 0; i < round->said && status == 0; i++) {
            const struct saying *saying = &round->sayings[i];
            if (core_is_queued(daemon, saying->run))
                status = core_change(daemon, saying->run, saying->to, saying->reason, "daemon", &err);
        }
        status = change_end(daemon, status, &err);
    }
    if (status != 0)
        core_log("the queue: %s", err.text);
    for (size_t i = 0; i < round->said; i++)
        free(round->sayings[i].reason);
}

static void say_waits(struct round *round, const struct queued *queued, enum place place, int64_t cores)
{
    const struct machine *machine = &round->daemon->machine;
    char reason[256];
    if (place == PLACE_GPUS)
        snprintf(reason, sizeof reason, "waits for %lld of this machine's %zu GPUs", (long long)queued->gpus, machine->gpus.count);
    else
        snprintf(reason, sizeof reason, "waits for %lld of this machine's %lld cores", (long long)cores, (long long)machine->cores);
    say(round, queued, RUN_QUEUED, reason);
}

// A need that has not succeeded: waited for, or the end of what needs it.
static void say_need(struct round *round, const struct queued *queued)
{
    struct needed_run *needed = &round->needed;
    char reason[REASON_MAX];
    if (round->needed_id != queued->need) {
        pthread_mutex_lock(&round->daemon->lock);
        int found = state_needed(round->daemon->state, queued->need, needed, NULL);
        pthread_mutex_unlock(&round->daemon->lock);
        round->needed_id = found == 0 ? queued->need : 0;
        if (found != 0)
            return;
    }
    bool over = run_state_ended(needed->state);
    if (over)
        snprintf(reason, sizeof reason, "needs %s/%s, which %s%s: %s", needed->project, needed->name, needed->state == RUN_FAILED ? "" : "was ",
            run_state_name(needed->state), needed->reason[0] ? needed->reason : "no reason known");
    else
        snprintf(reason, sizeof reason, "waits for %s/%s", needed->project, needed->name);
    say(round, queued, over ? RUN_FAILED : RUN_QUEUED, reason);
}

// ---- what starts ----

static void start_if_room(struct round *round, const struct queued *queued, const struct view *view, struct sweep_place *sweep_place)
{
    struct daemon *daemon = round->daemon;
    struct launch launch;
    struct json *job = NULL;
    struct error err = {0};
    if (job_load(view, &launch, &job, &err) != 0) {
        schedule_fail(daemon, view, err.text);
        return;
    }
    enum place place = is_here(view) ? room_ask(&round->room, launch.slots, launch.gpus) : PLACE_NOW;
    if (place == PLACE_NOW && is_here(view)) {
        gpus_take(&launch.held, &round->free, launch.gpus);
        gpus_remove(&round->free, &launch.held);
    }
    if (place == PLACE_NOW) {
        if (sweep_place)
            sweep_place->taken++;
        round->away += view->executor->queues;
        daemon->queue.again = true; // what could not be begun is tried again in the next tick
        schedule_begin(daemon, view, &launch, job);
    } else {
        say_waits(round, queued, place, launch.slots);
    }
    launch_release(&launch);
    js_free(job);
}

static void start_one(struct round *round, const struct queued *queued, struct sweep_place *place)
{
    struct views views;
    struct error err = {0};
    if (views_load_one(round->daemon, &views, queued->run, &err) != 0) {
        core_log("run %lld: %s", (long long)queued->run, err.text);
        return;
    }
    const struct view *view = views.count ? &views.at[0] : NULL;
    if (view && view->state == RUN_QUEUED && !view->executor)
        schedule_fail(round->daemon, view, "its executor is not one of this build's");
    else if (view && view->state == RUN_QUEUED && view->watch->elsewhere)
        owner_leave(round->daemon, view);
    else if (view && view->state == RUN_QUEUED)
        start_if_room(round, queued, view, place);
    views_release(&views);
}

// Waits before a retry. A clock that was set meanwhile keeps nobody waiting for longer than the longest pause.
static bool is_paused(const struct queued *queued)
{
    double left = queued->retry_at - clock_wall();
    return left > 0 && left <= RETRY_DELAY_MAX;
}

static bool has_begun_enough(const struct daemon *daemon)
{
    return daemon->handovers_begun > 0 && budget_is_spent(daemon);
}

static void start_if_ready(struct round *round, const struct queued *queued)
{
    struct queue_look *look = &round->daemon->queue;
    if (is_paused(queued)) {
        look->due = fmin(look->due, queued->retry_at);
        return;
    }
    if (queued->need) {
        say_need(round, queued);
        return;
    }
    struct sweep_place *place = places_of(round->daemon, &round->places, queued);
    if (place && place->taken >= place->most) {
        char reason[128];
        snprintf(reason, sizeof reason, "waits for one of the sweep's %lld places (`sweep.concurrency`)", (long long)place->most);
        say(round, queued, RUN_QUEUED, reason);
    } else if (!queued->here && round->away_max > 0 && round->away >= round->away_max) {
        char reason[160];
        snprintf(reason, sizeof reason, "waits for one of the %lld jobs that may be in the scheduler's queue at once (`slurm.max_submit_jobs`)",
            (long long)round->away_max);
        say(round, queued, RUN_QUEUED, reason);
    } else if (!queued->here && (round->daemon->handovers >= HANDOVERS_MAX || has_begun_enough(round->daemon))) {
        look->again = true; // its description is not read before it is its turn
    } else if (queued->here && round->room.cores_awaited) {
        return;
    } else if (queued->here && round->room.gpus_awaited && queued->gpus > 0) {
        say_waits(round, queued, PLACE_GPUS, 0); // known without its description
    } else {
        start_one(round, queued, place);
    }
}

// ---- when ----

static bool is_due(struct daemon *daemon, const struct views *views, int64_t changes)
{
    const struct queue_look *look = &daemon->queue;
    for (size_t i = 0; i < views->count; i++)
        if (is_here(&views->at[i]) && views->at[i].watch->gone_since > 0) // its cores may be free without a word
            return true;
    return look->looked == 0 || look->again || look->changes != changes || clock_wall() >= look->due || clock_steady() - look->looked >= LOOK_ANYWAY;
}

void queue_start(struct daemon *daemon, const struct views *views)
{
    struct queued *queue = NULL;
    size_t count = 0;
    struct error err = {0};
    pthread_mutex_lock(&daemon->lock);
    int64_t changes = state_changes(daemon->state);
    bool due = is_due(daemon, views, changes);
    int status = due ? state_queue(daemon->state, &queue, &count, &err) : 0;
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0)
        core_log("the queue: %s", err.text);
    if (!due || status != 0)
        return;
    daemon->queue = (struct queue_look){.changes = changes, .due = INFINITY, .looked = clock_steady(), .waiting = count};
    if (count) {
        struct round *round = allocate(1, sizeof *round);
        round->daemon = daemon;
        look_at_supply(round, views);
        budget_begin(daemon, HANDOVERS_UNTIL, HANDOVERS_LEAST);
        for (size_t i = 0; i < count; i++)
            start_if_ready(round, &queue[i]);
        write_down(round);
        places_release(&round->places);
        free(round);
    }
    free(queue);
}
