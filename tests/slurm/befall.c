// What befalls the jobs of a simulated cluster, and the cluster itself: starts, lost nodes, preemption, outsiders, a controller that is away.
#include "tests/slurm/players.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OUTSIDER "an outsider's"

// ---- what befalls jobs ----

static void put_back(struct world *world, struct simulated_job *job, const char *reason)
{
    struct simulated_job copy = *job;
    if (job->accounted && world->simulation->job_count < SIMULATED_JOBS_MAX) { // accounting keeps each start
        struct simulated_job *kept = &world->simulation->jobs[world->simulation->job_count++];
        *kept = copy;
        kept->serial = ++world->simulation->next_serial;
        kept->listed = false;
        snprintf(kept->state, sizeof kept->state, "%s", strcmp(reason, "BeginTime") == 0 ? "REQUEUED" : reason);
        kept->ended = world->simulation->now;
    }
    job->restarts++;
    job->requeue_asked = false;
    job->started = job->ended = 0;
    job->nodes[0] = 0;
    job->code = job->signal = 0;
    strcpy(job->state, "PENDING");
    strcpy(job->reason, "BeginTime");
}

// Processes are gone at once, or live on for a while where nobody can reach them.
static void lose_node(struct world *world, struct simulated_job *job, struct player *player)
{
    struct execution *execution = execution_of(world, job);
    bool lives_on = chance(world, 0.3);
    if (execution && lives_on) {
        execution->alone = true;
        execution->final[0] = 0;
        execution->ends = world->simulation->now + draw(world, 5, 200);
        execution->silent_end = execution->code != 0 && chance(world, 0.5);
    } else if (execution) {
        execution->alive = false;
    }
    if (job->may_requeue) {
        put_back(world, job, "NODE_FAIL");
        settle(world, player, is_given_up(player) ? BIT(RUN_FAILED) : 0, 0);
    } else {
        finish_job(world, job, "NODE_FAIL", -1);
        settle_end(world, player, "NODE_FAIL", -1);
    }
    player_tell(world, player, "%s of job %lld is lost%s: %s", job->may_requeue ? "node" : "node, for good,", (long long)job->id,
        lives_on ? ", its processes live on" : "", job->state);
}

static void preempt(struct world *world, struct simulated_job *job, struct player *player)
{
    struct execution *execution = execution_of(world, job);
    bool saves = execution && chance(world, 0.7);
    if (execution) {
        execution->alive = false;
        if (saves)
            write_exit(world, execution, 75);
    }
    if (job->may_requeue) {
        put_back(world, job, "PREEMPTED");
        settle(world, player, is_given_up(player) ? BIT(RUN_FAILED) : 0, 0);
    } else {
        finish_job(world, job, "PREEMPTED", -1);
        settle_end(world, player, "PREEMPTED", saves ? 75 : -1);
    }
    player_tell(world, player, "job %lld is preempted%s: %s", (long long)job->id, saves ? " after saving" : "", job->state);
}

// Of an array's elements that have not begun Slurm keeps one record: which of them are left, and nothing of those that are not, but for the last.
static bool leaves_no_trace(const struct world *world, const struct simulated_job *job)
{
    const struct simulation *simulation = world->simulation;
    for (size_t i = 0; i < simulation->job_count && job->element >= 0 && job->started == 0 && job->restarts == 0; i++) {
        const struct simulated_job *other = &simulation->jobs[i];
        if (other != job && other->id == job->id && other->element >= 0 && other->listed && other->started == 0 && other->restarts == 0 &&
            !simulated_job_over(other))
            return true;
    }
    return false;
}

static void cancel_now(struct world *world, struct simulated_job *job, struct player *player)
{
    struct execution *execution = execution_of(world, job);
    bool saves = execution && chance(world, 0.5), current = is_current(player, job);
    if (execution) {
        execution->alive = false;
        if (saves)
            write_exit(world, execution, chance(world, 0.5) ? 75 : 143);
    }
    bool gone = leaves_no_trace(world, job);
    finish_job(world, job, "CANCELLED", -1);
    if (strcmp(job->nodes, "") == 0)
        job->signal = 0;
    if (gone)
        job->listed = job->accounted = false;
    player_tell(world, player, "job %lld of submission %lld is cancelled by %lld%s", (long long)job->id, (long long)job->submission, job->cancelled_by,
        current ? "" : ", which was given up");
    bool outside = job->cancelled_by != (long long)geteuid();
    player->cancelled |= current && outside;
    if (current && (outside || player->cancel_requested))
        settle_end(world, player, "CANCELLED", -1);
}

static void befall_running(struct world *world, struct simulated_job *job, struct player *player)
{
    static const char *const words[] = {"RUNNING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED", "COMPLETING", "UPDATE_DB", "DREAMING"};
    struct execution *execution = execution_of(world, job);
    if (!execution) {
        launch(world, job, player);
        return;
    }
    if (job->signalled && execution->ends > world->simulation->now + SAVE_SECONDS) { // job.sh writes the stop file, the worker saves
        execution->ends = world->simulation->now + SAVE_SECONDS;
        execution->code = 75;
        execution->silent_end = false;
    }
    job->signalled = false;
    if (chance(world, 0.02))
        strcpy(job->state, words[simulation_draw(world->simulation, sizeof words / sizeof *words)]);
    else if (chance(world, 0.2))
        strcpy(job->state, "RUNNING");
    if (world->calm)
        return;
    if (job->requeue_asked || chance(world, player->stuck ? 0.1 : 0.002)) {
        execution->alive = false;
        put_back(world, job, "BeginTime");
        settle(world, player, is_given_up(player) ? BIT(RUN_FAILED) : 0, 0);
        player_tell(world, player, "job %lld is requeued", (long long)job->id);
    } else if (chance(world, 0.003)) {
        lose_node(world, job, player);
    } else if (chance(world, 0.003)) {
        preempt(world, job, player);
    } else if (chance(world, 0.001)) {
        job->cancel_asked = true;
        job->cancelled_by = 4242;
    }
}

static void befall_pending(struct world *world, struct simulated_job *job, struct player *player)
{
    static const char *const words[] = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD", "CONFIGURING", "POWER_UP_NODE",
        "BROODING"};
    static const char *const reasons[] = {"Resources", "Priority", "JobHeldUser", "BeginTime", "ReqNodeNotAvail, UnavailableNodes:n7", "None"};
    static const char *const refusals[] = {"BOOT_FAIL", "DEADLINE", "REVOKED"};
    bool pending = strcmp(job->state, "PENDING") == 0;
    if (chance(world, 0.02))
        strcpy(job->state, words[simulation_draw(world->simulation, sizeof words / sizeof *words)]);
    else if (!pending && chance(world, 0.3))
        strcpy(job->state, "PENDING");
    if (chance(world, 0.1))
        strcpy(job->reason, reasons[simulation_draw(world->simulation, sizeof reasons / sizeof *reasons)]);
    if (pending && chance(world, 0.1)) {
        job->started = world->simulation->now;
        snprintf(job->nodes, sizeof job->nodes, "n%d", (int)simulation_draw(world->simulation, 8) + 1);
        strcpy(job->state, "RUNNING");
        strcpy(job->reason, "None");
        launch(world, job, player);
    } else if (!world->calm && chance(world, 0.001)) {
        job->cancel_asked = true;
        job->cancelled_by = 4242;
    } else if (!world->calm && chance(world, 0.0005)) {
        end_job(world, job, refusals[simulation_draw(world->simulation, 3)], 0, 0, "None");
        player_tell(world, player, "job %lld never starts: %s", (long long)job->id, job->state);
        if (is_current(player, job))
            // An element that is forgotten before anybody has seen its end is as one that was cancelled before it began.
            settle(world, player, BIT(RUN_FAILED), BIT(RUN_LOST) | (job->element >= 0 ? BIT(RUN_CANCELLED) : 0));
    }
}

// The controller forgets what ended a while ago, sometimes sooner than anybody has seen it; accounting keeps it longer.
static void forget(struct world *world, struct simulated_job *job)
{
    double since = world->simulation->now - job->ended;
    if (job->listed && (since > 400 || (since > 3 && !world->calm && chance(world, 0.002))))
        job->listed = false;
    if (!job->listed && since > 900)
        job->accounted = false;
    job->forgotten = !job->listed && !job->accounted;
}

// Somebody else's, under a number that was ours a moment ago.
static void add_outsider(struct world *world)
{
    struct simulated_job *job = simulation_add(world->simulation);
    if (!job)
        return;
    strcpy(job->name, OUTSIDER);
    strcpy(job->state, "RUNNING");
    job->started = world->simulation->now;
    job->accounted = false;
}

static void step_outsider(struct world *world, struct simulated_job *job)
{
    bool hit = job->cancel_asked || job->signalled;
    if (hit)
        printf("job %lld of somebody else was %s\n", (long long)job->id, job->cancel_asked ? "cancelled" : "signalled");
    world->outsiders_hit += hit;
    if (hit || world->simulation->now - job->started > 300) {
        job->listed = false;
        job->forgotten = true;
    }
}

static void step_job(struct world *world, struct simulated_job *job)
{
    if (strcmp(job->name, OUTSIDER) == 0) {
        if (job->listed)
            step_outsider(world, job);
        return;
    }
    struct player *player = player_of(world, job);
    if (!player || job->appears > world->simulation->now || !job->listed || simulated_job_over(job)) {
        if (!player)
            job->listed = job->accounted = false;
        if (job->ended > 0 || !player)
            forget(world, job);
        return;
    }
    if (job->cancel_asked) {
        if (chance(world, 0.4))
            cancel_now(world, job, player);
    } else if (job->started > 0) {
        befall_running(world, job, player);
    } else {
        befall_pending(world, job, player);
    }
}

// ---- what befalls the cluster ----

// What was submitted in the last seconds is not in the state that a killed controller finds again, and its numbers come once more, for other
// jobs. What it has still to do has none yet.
static void lose_memory(struct world *world)
{
    struct simulation *simulation = world->simulation;
    int64_t least = simulation->next_id;
    for (size_t i = 0; i < simulation->job_count; i++) {
        struct simulated_job *job = &simulation->jobs[i];
        if (!job->listed || simulation->now - job->submitted > 6 || job->appears > simulation->now)
            continue;
        struct execution *execution = execution_of(world, job);
        struct player *player = player_of(world, job);
        if (execution)
            execution->alone = true;
        job->listed = false;
        job->ended = job->ended > 0 ? job->ended : simulation->now;
        if (job->id < least)
            least = job->id;
        if (player)
            player_tell(world, player, "job %lld is forgotten by the controller", (long long)job->id);
    }
    for (size_t i = 0; i < simulation->job_count; i++)
        if (simulation->jobs[i].listed && simulation->jobs[i].id >= least)
            simulation->jobs[i].id = 1000000 + (int64_t)simulation->jobs[i].serial - (simulation->jobs[i].element > 0 ? simulation->jobs[i].element : 0);
    if (least < simulation->next_id && chance(world, 0.5)) {
        simulation->next_id = least;
        add_outsider(world);
    } else {
        simulation->next_id = least;
    }
}

static void befall_cluster(struct world *world)
{
    struct simulation *simulation = world->simulation;
    if (world->controller_back == 0 && !world->calm && chance(world, 0.003)) {
        world->controller_back = simulation->now + draw(world, 5, 150);
        simulation->down = true;
        world->events++;
        if (chance(world, 0.5))
            lose_memory(world);
    } else if (world->controller_back > 0 && simulation->now >= world->controller_back) {
        world->controller_back = 0;
        simulation->down = false;
    }
    if (world->accounting_back == 0 && !world->calm && chance(world, 0.003)) {
        world->accounting_back = simulation->now + draw(world, 5, 300);
        simulation->accounting_down = true;
        world->events++;
    } else if (world->accounting_back > 0 && simulation->now >= world->accounting_back) {
        world->accounting_back = 0;
        simulation->accounting_down = false;
    }
}

void world_step(struct world *world, double seconds)
{
    world->simulation->now += seconds;
    befall_cluster(world);
    for (size_t i = 0; i < world->execution_count; i++)
        if (world->executions[i].alive)
            step_execution(world, &world->executions[i]);
    // A controller that is down starts and ends nothing; what runs goes on.
    size_t count = world->simulation->down ? 0 : world->simulation->job_count;
    for (size_t i = 0; i < count; i++)
        step_job(world, &world->simulation->jobs[i]);
}
