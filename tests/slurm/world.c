#include "tests/slurm/world.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BEAT_SECONDS = 5, SAVE_SECONDS = 2 };

#define BIT(state) (1u << (state))

static bool chance(struct world *world, double probability)
{
    return simulation_chance(world->simulation, probability);
}
static double draw(struct world *world, double least, double most)
{
    return least + (most - least) * (double)simulation_draw(world->simulation, 1000000) / 1e6;
}

void player_tell(struct world *world, struct player *player, const char *format, ...)
{
    va_list args;
    char line[256];
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    length = length < (int)sizeof line - 2 ? length : (int)sizeof line - 2;
    if (player->told + (size_t)length + 20 > sizeof player->story) { // the beginning matters least
        size_t half = strcspn(player->story + sizeof player->story / 2, "\n") + sizeof player->story / 2 + 1;
        player->told -= half;
        memmove(player->story, player->story + half, player->told + 1);
    }
    player->told += (size_t)sprintf(player->story + player->told, "%9.0f %s\n", world->simulation->now - 1.8e9, line);
    world->events++;
}

static struct player *player_of(struct world *world, const struct simulated_job *job)
{
    for (size_t i = 0; i < PLAYERS_MAX; i++)
        if (world->players[i].used && strcmp(world->players[i].directory, job->run_directory) == 0)
            return &world->players[i];
    return NULL;
}

// ---- what is true ----

static void settle(struct world *world, struct player *player, unsigned allowed, unsigned doubtful)
{
    if (player->cancel_requested || player->cancelled) // once nothing of it is left
        allowed |= BIT(RUN_CANCELLED);
    player->allowed = player->succeeded ? BIT(RUN_SUCCEEDED) : allowed;
    player->doubtful = player->succeeded ? 0 : doubtful;
    player->settled = world->simulation->now;
}

// A script ended, or a job without one. state: Slurm's last word; code < 0: no exit record.
static void settle_end(struct world *world, struct player *player, const char *state, int64_t code)
{
    unsigned ended = BIT(RUN_FAILED), doubtful = BIT(RUN_LOST) | BIT(RUN_FAILED);
    if (code == EXIT_DONE)
        player->succeeded = true;
    if (strcmp(state, "CANCELLED") == 0)
        ended = BIT(RUN_CANCELLED);
    else if (strcmp(state, "OUT_OF_MEMORY") == 0)
        ended = BIT(RUN_OUT_OF_MEMORY);
    else if (strcmp(state, "TIMEOUT") == 0)
        ended = BIT(RUN_TIMED_OUT);
    else if (strcmp(state, "NODE_FAIL") == 0 || strcmp(state, "PREEMPTED") == 0)
        ended = BIT(RUN_LOST);
    if (code == EXIT_STOPPED && strcmp(state, "CANCELLED") != 0 && strcmp(state, "OUT_OF_MEMORY") != 0)
        ended = 0; // saved: it goes on
    settle(world, player, ended, doubtful);
}

static int64_t read_submission(const struct player *player)
{
    char *path = path_join(player->directory, "submission");
    struct text bytes;
    text_init(&bytes, 64);
    int64_t number = file_read(path, &bytes, NULL) == 0 ? strtoll(bytes.at, NULL, 10) : -1;
    text_release(&bytes);
    free(path);
    return number;
}

const char *world_contradicts(struct world *world, const struct player *player, enum run_state state)
{
    static char why[300];
    struct simulation *simulation = world->simulation;
    bool doubt = (player->doubtful & BIT(state)) != 0;
    for (size_t i = 0; i < world->execution_count; i++) {
        const struct execution *execution = &world->executions[i];
        // What a person has cancelled is cancelled, also where it lives on for a while on a node that nobody reaches.
        bool unreached = execution->alone && player->cancelled && state == RUN_CANCELLED;
        if (execution->alive && &world->players[execution->player] == player && !player->succeeded && !unreached) {
            snprintf(why, sizeof why, "attempt %lld is alive", (long long)execution->attempt);
            return why;
        }
    }
    for (size_t i = 0; i < simulation->job_count; i++) {
        const struct simulated_job *job = &simulation->jobs[i];
        if (job->listed && !simulated_job_over(job) && !job->cancel_asked && strcmp(job->run_directory, player->directory) == 0 &&
            strcmp(job->state, "PENDING") == 0 && !player->succeeded && job->submission == read_submission(player)) {
            snprintf(why, sizeof why, "job %lld will yet start", (long long)job->id);
            return why;
        }
    }
    if ((player->allowed & BIT(state)) || doubt)
        return NULL;
    snprintf(why, sizeof why, "allowed 0x%x, or in doubt 0x%x", player->allowed, player->doubtful);
    return why;
}

// ---- job.sh and the worker ----

static char *attempt_file(struct world *world, const struct execution *execution, const char *name)
{
    return run_attempt_file(world->players[execution->player].directory, execution->attempt, name);
}

static void write_file(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void write_file(const char *path, const char *format, ...)
{
    char bytes[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(bytes, sizeof bytes, format, args);
    va_end(args);
    file_write_atomic(path, bytes, (size_t)length, 0644, NULL);
}

// The stop file of a predecessor, "attempt-N", was about that attempt alone.
static void drop_old_stop(const struct player *player)
{
    char *path = path_join(player->directory, STOP_FILE);
    if (file_size(path) > 0)
        unlink(path);
    free(path);
}

static struct execution *free_execution(struct world *world)
{
    for (size_t i = 0; i < world->execution_count; i++)
        if (!world->executions[i].alive)
            return &world->executions[i];
    if (world->execution_count == EXECUTIONS_MAX)
        abort();
    return &world->executions[world->execution_count++];
}

static void draw_fate(struct world *world, struct execution *execution)
{
    double roll = draw(world, 0, 1);
    execution->ends = execution->started + draw(world, 3, 120);
    execution->code = roll < 0.6 ? 0 : roll < 0.75 ? 1 : roll < 0.78 ? 2 : roll < 0.83 ? 75 : 137;
    if (roll >= 0.83 && roll < 0.88)
        strcpy(execution->final, "OUT_OF_MEMORY");
    else if (roll >= 0.88 && roll < 0.94)
        strcpy(execution->final, "TIMEOUT");
    execution->silent_end = roll >= 0.83 && chance(world, 0.5);
    if (!execution->final[0])
        execution->silent_end = false; // a script that ends by itself says how
    if (execution->code == 75 && chance(world, 0.5))
        strcpy(execution->final, "TIMEOUT"); // saved within the time that Slurm gave it, and was cut off all the same
}

// False: the script ended at once, claiming nothing.
static bool launch(struct world *world, struct simulated_job *job, struct player *player)
{
    if (read_submission(player) != job->submission) {
        world->ghosts++;
        player_tell(world, player, "job %lld of submission %lld ends at once", (long long)job->id, (long long)job->submission);
        return false;
    }
    size_t number = (size_t)(player - world->players);
    for (size_t i = 0; i < world->execution_count; i++) {
        const struct execution *other = &world->executions[i];
        if (!other->alive || other->player != number)
            continue;
        if (other->submission != job->submission) {
            world->double_runs++;
            printf("DOUBLE RUN of %s: submission %lld beside %lld\n%s", player->name, (long long)job->submission, (long long)other->submission, player->story);
        } else {
            world->fenced++; // Slurm's own: a node that it gave up lives on; the attempt's number keeps them apart
        }
    }
    struct execution *execution = free_execution(world);
    *execution = (struct execution){.alive = true,
        .player = number,
        .serial = job->serial,
        .submission = job->submission,
        .attempt = run_last_attempt(player->directory) + 1,
        .started = world->simulation->now,
        .next_beat = world->simulation->now + draw(world, 0, BEAT_SECONDS)};
    char *directory = run_attempt_directory(player->directory, execution->attempt);
    mkdir(directory, 0755);
    struct timespec now = {.tv_sec = (time_t)world->simulation->now}; // the world's: the file system has another
    utimensat(AT_FDCWD, directory, (struct timespec[]){now, now}, 0);
    free(directory);
    drop_old_stop(player);
    draw_fate(world, execution);
    settle(world, player, 0, 0);
    player_tell(world, player, "attempt %lld begins in job %lld of submission %lld (%s)", (long long)execution->attempt, (long long)job->id,
        (long long)job->submission, job->nodes);
    return true;
}

static void write_exit(struct world *world, const struct execution *execution, int64_t code)
{
    char *path = attempt_file(world, execution, EXIT_FILE);
    if (code > 128)
        write_file(path, "{\"v\":1,\"attempt\":%lld,\"code\":%lld,\"signal\":%lld,\"started\":%.3f,\"ended\":%.3f,\"nodes\":[\"n1\"]}\n",
            (long long)execution->attempt, (long long)code, (long long)code - 128, execution->started, world->simulation->now);
    else
        write_file(path, "{\"v\":1,\"attempt\":%lld,\"code\":%lld,\"signal\":null,\"started\":%.3f,\"ended\":%.3f,\"nodes\":[\"n1\"]}\n",
            (long long)execution->attempt, (long long)code, execution->started, world->simulation->now);
    free(path);
}

// The worker's own last line.
static void write_end(struct world *world, const struct execution *execution)
{
    const struct player *player = &world->players[execution->player];
    struct record_writer *writer = record_writer_open(player->directory, execution->attempt, "events", player->name, player->run_id, NULL);
    struct json *members = js_object();
    js_set(members, "code", js_integer(EXIT_DONE));
    if (writer)
        record_other(writer, "end", members, NULL);
    else
        js_free(members);
    if (writer)
        record_writer_close(writer);
}

static void end_job(struct world *world, struct simulated_job *job, const char *state, int64_t code, int signal, const char *reason)
{
    snprintf(job->state, sizeof job->state, "%s", state);
    snprintf(job->reason, sizeof job->reason, "%s", reason);
    job->code = code;
    job->signal = signal;
    job->ended = world->simulation->now;
}

static void finish_job(struct world *world, struct simulated_job *job, const char *state, int64_t code)
{
    if (strcmp(state, "CANCELLED") == 0)
        end_job(world, job, state, 0, 15, "None");
    else if (strcmp(state, "OUT_OF_MEMORY") == 0)
        end_job(world, job, state, 0, 125, "OutOfMemory");
    else if (strcmp(state, "TIMEOUT") == 0)
        end_job(world, job, state, 0, 15, "TimeLimit");
    else if (strcmp(state, "NODE_FAIL") == 0)
        end_job(world, job, state, 0, 0, "NodeDown");
    else if (strcmp(state, "PREEMPTED") == 0)
        end_job(world, job, state, 0, 15, "None");
    else
        end_job(world, job, state, code < 0 ? 1 : code, 0, code == 0 ? "None" : "NonZeroExitCode");
}

// The script's end, by itself or not; its job's last word comes a moment later.
static void finish(struct world *world, struct execution *execution, int64_t code)
{
    struct player *player = &world->players[execution->player];
    struct simulated_job *job = execution->alone ? NULL : simulation_serial(world->simulation, execution->serial);
    bool newest = run_last_attempt(player->directory) == execution->attempt;
    execution->alive = false;
    if (code == EXIT_DONE)
        write_end(world, execution);
    if (code >= 0)
        write_exit(world, execution, code);
    const char *state = execution->final[0] ? execution->final : code == 0 ? "COMPLETED" : "FAILED";
    player_tell(world, player, "attempt %lld ends with %lld%s", (long long)execution->attempt, (long long)code, newest ? "" : ", fenced");
    if (newest)
        settle_end(world, player, execution->alone ? "FAILED" : state, code);
    if (newest && execution->alone)
        player->doubtful |= BIT(RUN_LOST) | BIT(RUN_FAILED) | BIT(RUN_TIMED_OUT) | BIT(RUN_OUT_OF_MEMORY);
    if (newest && execution->alone && code < 0)
        player->allowed |= player->succeeded ? 0 : BIT(RUN_LOST);
    if (job && !simulated_job_over(job) && strcmp(job->state, "PENDING") != 0) {
        finish_job(world, job, state, code);
        player_tell(world, player, "job %lld is %s", (long long)job->id, job->state);
    }
}

// Of several, the newest attempt is the run; an older one that still lives cannot write any more, and gives up.
static void step_execution(struct world *world, struct execution *execution)
{
    struct player *player = &world->players[execution->player];
    double now = world->simulation->now;
    if (run_last_attempt(player->directory) > execution->attempt) {
        finish(world, execution, 1);
        return;
    }
    char *stop = path_join(player->directory, STOP_FILE);
    bool stopping = file_exists(stop);
    free(stop);
    if (stopping && execution->code != 75 && execution->ends > now + SAVE_SECONDS) {
        execution->ends = now + SAVE_SECONDS;
        execution->code = 75;
        execution->silent_end = false;
    }
    if (now >= execution->next_beat) {
        char *path = attempt_file(world, execution, HEARTBEAT_FILE);
        heartbeat_write(path, (int64_t)(now - execution->started), 1, NULL);
        free(path);
        execution->next_beat = now + BEAT_SECONDS;
    }
    if (now >= execution->ends)
        finish(world, execution, execution->silent_end ? -1 : execution->code);
}

static struct execution *execution_of(struct world *world, const struct simulated_job *job)
{
    for (size_t i = 0; i < world->execution_count; i++)
        if (world->executions[i].alive && world->executions[i].serial == job->serial && !world->executions[i].alone)
            return &world->executions[i];
    return NULL;
}

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
        settle(world, player, 0, 0);
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
        settle(world, player, 0, 0);
    } else {
        finish_job(world, job, "PREEMPTED", -1);
        settle_end(world, player, "PREEMPTED", saves ? 75 : -1);
    }
    player_tell(world, player, "job %lld is preempted%s: %s", (long long)job->id, saves ? " after saving" : "", job->state);
}

static void cancel_now(struct world *world, struct simulated_job *job, struct player *player)
{
    struct execution *execution = execution_of(world, job);
    bool saves = execution && chance(world, 0.5), current = read_submission(player) == job->submission;
    if (execution) {
        execution->alive = false;
        if (saves)
            write_exit(world, execution, chance(world, 0.5) ? 75 : 143);
    }
    finish_job(world, job, "CANCELLED", -1);
    if (strcmp(job->nodes, "") == 0)
        job->signal = 0;
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
    if (!execution)
        return;
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
    if (job->requeue_asked || chance(world, 0.002)) {
        execution->alive = false;
        put_back(world, job, "BeginTime");
        settle(world, player, 0, 0);
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
        if (!launch(world, job, player))
            finish_job(world, job, "COMPLETED", 0);
    } else if (!world->calm && chance(world, 0.001)) {
        job->cancel_asked = true;
        job->cancelled_by = 4242;
    } else if (!world->calm && chance(world, 0.0005)) {
        end_job(world, job, refusals[simulation_draw(world->simulation, 3)], 0, 0, "None");
        player_tell(world, player, "job %lld never starts: %s", (long long)job->id, job->state);
        if (read_submission(player) == job->submission)
            settle(world, player, BIT(RUN_FAILED), BIT(RUN_LOST));
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

static void step_job(struct world *world, struct simulated_job *job)
{
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

// What was submitted in the last seconds is not in the state that a killed controller finds again, and its number comes once more.
static void lose_memory(struct world *world)
{
    struct simulation *simulation = world->simulation;
    for (size_t i = 0; i < simulation->job_count; i++) {
        struct simulated_job *job = &simulation->jobs[i];
        if (!job->listed || simulated_job_over(job) || simulation->now - job->submitted > 6 || job->appears > simulation->now)
            continue;
        struct execution *execution = execution_of(world, job);
        struct player *player = player_of(world, job);
        if (execution)
            execution->alone = true;
        job->listed = false;
        job->ended = simulation->now;
        // A number that the daemon may be about to cancel comes again later: scancel takes numbers alone, in the real cluster too.
        bool wanted = player && job->submission == read_submission(player) && !player->cancel_requested;
        if (wanted && job->id < simulation->next_id)
            simulation->next_id = job->id;
        if (player)
            player_tell(world, player, "job %lld is forgotten by the controller", (long long)job->id);
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
