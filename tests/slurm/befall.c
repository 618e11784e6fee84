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
            write_exit(world, execution, 75, false);
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
    for (size_t i = 0; i < simulation->job_count && simulated_job_shares(job); i++) {
        const struct simulated_job *other = &simulation->jobs[i];
        if (other != job && other->id == job->id && other->listed && simulated_job_shares(other) && !simulated_job_over(other))
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
            write_exit(world, execution, chance(world, 0.5) ? 75 : 143, true);
    }
    bool gone = leaves_no_trace(world, job);
    finish_job(world, job, "CANCELLED", -1);
    if (strcmp(job->nodes, "") == 0)
        job->signal = 0;
    if (gone)
        job->listed = job->accounted = false;
    player_tell(world, player, "job %lld of submission %lld is cancelled by %lld%s", (long long)job->id, (long long)job->submission, job->cancelled_by,
        current ? "" : ", which was given up");
    job->by_outsider &= current; // what nobody waits for any more can be ended by anybody
    bool outside = job->by_outsider;
    player->cancelled |= current && outside;
    if (current && !outside && !player->cancel_requested) { // say by a scancel that was meant for another element of its array
        world->ours_hit++;
        printf("job %lld_%lld, which nobody wanted to end, was ended by this daemon\n%s", (long long)job->id, (long long)job->element, player->story);
    }
    if (current && (outside || player->cancel_requested))
        settle_end(world, player, "CANCELLED", -1);
}

// Somebody's scancel.
static void ask_cancel(struct simulated_job *job, long long by)
{
    job->cancel_asked = job->by_outsider = true;
    job->cancelled_by = by;
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
        ask_cancel(job, 4242);
    }
}

// ---- starts ----

// A script that its controller has forgotten, of a job with this number; NULL: none.
static struct execution *forgotten_one(struct world *world, const struct simulated_job *job)
{
    char number[32];
    job_number(number, job);
    for (size_t i = 0; i < world->execution_count; i++) {
        struct execution *execution = &world->executions[i];
        if (execution->alive && execution->serial != job->serial && strcmp(execution->job, number) == 0)
            return execution;
    }
    return NULL;
}

// It does not start what it still runs under that number. What it runs is ended: Slurm cancels by the number alone, and so does a node that hears that
// its controller knows no such job.
static void refuse(struct world *world, struct simulated_job *job, struct player *player, struct execution *forgotten)
{
    struct simulation *simulation = world->simulation;
    size_t node = (size_t)(job->nodes[1] - '1');
    bool current = is_current(player, job), revoked = chance(world, 0.4);
    static const int64_t codes[] = {-1, -1, 143, 75};
    finish_execution(world, forgotten, codes[simulation_draw(simulation, 4)]);
    job->refused = true;
    world->refusals++;
    if (revoked) { // the node has just been told to end it
        finish_job(world, job, "FAILED", 1);
    } else {
        strcpy(simulation->nodes[node].reason, "Duplicate jobid");
        simulation->nodes[node].since = simulation->now;
    }
    if (!revoked && job->may_requeue) {
        put_back(world, job, "BeginTime");
        strcpy(job->reason, "launch failed requeued held");
    } else if (!revoked) {
        end_job(world, job, "CANCELLED", 0, chance(world, 0.5) ? 9 : 0, "None");
        job->cancelled_by = 0;
    }
    player_tell(world, player, "n%zu refuses job %lld of submission %lld: %s", node + 1, (long long)job->id, (long long)job->submission, job->state);
    if (current)
        settle(world, player, 0, 0);
}

static void start_job(struct world *world, struct simulated_job *job, struct player *player)
{
    struct simulation *simulation = world->simulation;
    struct execution *forgotten = forgotten_one(world, job);
    size_t node = (size_t)simulation_draw(simulation, SIMULATED_NODES);
    if (forgotten && chance(world, 0.7)) // seldom enough as it is
        node = (size_t)(forgotten->node[1] - '1');
    if (simulation->nodes[node].reason[0])
        return; // it waits for another node
    job->started = simulation->now;
    snprintf(job->nodes, sizeof job->nodes, "n%zu", node + 1);
    strcpy(job->state, "RUNNING");
    strcpy(job->reason, "None");
    if (forgotten && strcmp(forgotten->node, job->nodes) == 0)
        refuse(world, job, player, forgotten);
    else if (!world->calm && chance(world, 0.003))
        ask_cancel(job, 0); // by an administrator, while its node makes itself ready
    else
        launch(world, job, player);
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
        start_job(world, job, player);
    } else if (!world->calm && chance(world, 0.001)) {
        ask_cancel(job, 4242);
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

// Somebody else's, under a number that was ours a moment ago: a job that runs, or an array that waits.
static void add_outsider(struct world *world)
{
    enum { ELEMENTS = 12 };
    int64_t id = world->simulation->next_id;
    bool array = chance(world, 0.5);
    for (int64_t element = 0; element < (array ? ELEMENTS : 1) && simulation_has_room(world->simulation, 1); element++) {
        struct simulated_job *job = simulation_add(world->simulation);
        strcpy(job->name, OUTSIDER);
        job->id = id;
        job->element = array ? element : -1;
        job->accounted = false;
        if (!array) {
            strcpy(job->state, "RUNNING");
            job->started = world->simulation->now;
        }
    }
    world->simulation->next_id = id + 1;
}

static void step_outsider(struct world *world, struct simulated_job *job)
{
    bool hit = job->cancel_asked || job->signalled;
    if (hit)
        printf("job %lld%s of somebody else was %s\n", (long long)job->id, job->element < 0 ? "" : ", an array's element,", job->cancel_asked ? "cancelled" : "signalled");
    world->outsiders_hit += hit;
    if (hit || world->simulation->now - job->submitted > 300) {
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
    } else if (job->refused) {
        return; // until somebody releases it
    } else if (job->started > 0) {
        befall_running(world, job, player);
    } else {
        befall_pending(world, job, player);
    }
}

// ---- what befalls the cluster ----

// Out of the way of the numbers that come once more.
static void renumber(struct world *world, struct simulated_job *job)
{
    struct execution *execution = execution_of(world, job);
    const struct player *player = player_of(world, job);
    bool claimed = player && has_claim(player, job);
    job->id = 1000000 + (int64_t)job->serial - (job->element > 0 ? job->element : 0);
    if (execution)
        job_number(execution->job, job);
    if (claimed)
        write_claim(player, job->submission, job);
}

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
        if (player && !execution && job->restarts > 0 && is_current(player, job))
            player->doubtful |= BIT(RUN_LOST); // who has not seen that it was put back knows of a start only that is silent
        job->listed = false;
        job->ended = job->ended > 0 ? job->ended : simulation->now;
        if (job->id < least)
            least = job->id;
        if (player)
            player_tell(world, player, "job %lld is forgotten by the controller", (long long)job->id);
    }
    for (size_t i = 0; i < simulation->job_count; i++)
        if (simulation->jobs[i].listed && simulation->jobs[i].id >= least)
            renumber(world, &simulation->jobs[i]);
    if (least < simulation->next_id && chance(world, 0.5)) {
        simulation->next_id = least;
        add_outsider(world);
    } else {
        simulation->next_id = least;
    }
}

// An administrator looks after a marked node: it takes jobs again, and says no more of what it refused.
static void resume_nodes(struct world *world)
{
    struct simulation *simulation = world->simulation;
    for (size_t i = 0; i < SIMULATED_NODES; i++) {
        if (!simulation->nodes[i].reason[0] || (simulation->now - simulation->nodes[i].since < 200 && !chance(world, 0.002)))
            continue;
        simulation->nodes[i].reason[0] = 0;
        for (size_t k = 0; k < simulation->job_count; k++) {
            struct simulated_job *job = &simulation->jobs[k];
            struct player *player = job->refused ? player_of(world, job) : NULL;
            if (!player || !is_current(player, job))
                continue;
            job->refused = simulated_job_over(job);
            if (job->refused && strcmp(job->state, "CANCELLED") == 0) // nobody can tell any more
                player->doubtful |= BIT(RUN_CANCELLED);
        }
    }
}

static void befall_cluster(struct world *world)
{
    struct simulation *simulation = world->simulation;
    if (world->controller_back == 0 && !world->calm && chance(world, 0.006)) {
        bool forgets = chance(world, 0.5);
        world->controller_back = simulation->now + (forgets ? draw(world, 1, 20) : draw(world, 5, 150));
        simulation->down = true;
        world->events++;
        if (forgets)
            lose_memory(world);
    } else if (world->controller_back > 0 && simulation->now >= world->controller_back) {
        world->controller_back = 0;
        simulation->down = false;
    }
    resume_nodes(world);
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
