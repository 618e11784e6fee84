#include "tests/slurm/players.h"
#include "daemon/core/judge.h"
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

enum { BEAT_SECONDS = 5, SCRIPT_PATIENCE = 30 };


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

struct player *player_of(struct world *world, const struct simulated_job *job)
{
    for (size_t i = 0; i < PLAYERS_MAX; i++)
        if (world->players[i].used && strcmp(world->players[i].directory, job->run_directory) == 0)
            return &world->players[i];
    return NULL;
}

// ---- what is true ----

void settle(struct world *world, struct player *player, unsigned allowed, unsigned doubtful)
{
    if (player->cancel_requested || player->cancelled) // once nothing of it is left
        allowed |= BIT(RUN_CANCELLED);
    player->allowed = player->succeeded ? BIT(RUN_SUCCEEDED) : allowed;
    player->doubtful = player->succeeded ? 0 : doubtful;
    player->settled = world->simulation->now;
}

bool is_given_up(const struct player *player)
{
    return player->stuck && run_last_attempt(player->directory) >= IDLE_MAX;
}

void settle_end(struct world *world, struct player *player, const char *state, int64_t code)
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
        ended = is_given_up(player) ? BIT(RUN_FAILED) : 0; // saved: it goes on, if it gets anywhere
    settle(world, player, ended, doubtful);
}

// unsent: the file says that this number has not been given to sbatch. May be NULL.
static int64_t read_submission(const struct player *player, bool *unsent)
{
    char *path = path_join(player->directory, "submission"), *end = NULL;
    struct text bytes;
    text_init(&bytes, 64);
    int64_t number = file_read(path, &bytes, NULL) == 0 ? strtoll(bytes.at, &end, 10) : -1;
    if (unsent)
        *unsent = end && strcmp(end, " unsent\n") == 0;
    text_release(&bytes);
    free(path);
    return number;
}

// Who has begun of the jobs of this one's number: 0 nobody yet, 1 this one, -1 another one.
static int claim_of(const struct player *player, const struct simulated_job *job)
{
    char *path = string_format("%s/submission.%lld", player->directory, (long long)job->submission), number[32];
    struct text claim;
    text_init(&claim, 64);
    job_number(number, job);
    int whose = 0;
    if (file_exists(path) && file_read(path, &claim, NULL) == 0)
        whose = strncmp(claim.at, number, strlen(number)) == 0 && claim.at[strlen(number)] == '\n' ? 1 : -1;
    text_release(&claim);
    free(path);
    return whose;
}

bool has_claim(const struct player *player, const struct simulated_job *job)
{
    return claim_of(player, job) > 0;
}

bool is_current(const struct player *player, const struct simulated_job *job)
{
    bool unsent;
    int64_t number = read_submission(player, &unsent);
    return (job->submission == number || (unsent && job->submission == number - 1)) && claim_of(player, job) >= 0;
}

const char *world_contradicts(struct world *world, const struct player *player, enum run_state state)
{
    static char why[300];
    struct simulation *simulation = world->simulation;
    bool doubt = (player->doubtful & BIT(state)) != 0;
    for (size_t i = 0; i < world->execution_count; i++) {
        const struct execution *execution = &world->executions[i];
        if (execution->alive && &world->players[execution->player] == player && !player->succeeded) {
            snprintf(why, sizeof why, "attempt %lld is alive", (long long)execution->attempt);
            return why;
        }
    }
    for (size_t i = 0; i < simulation->job_count; i++) {
        const struct simulated_job *job = &simulation->jobs[i];
        if (job->listed && !simulated_job_over(job) && !job->cancel_asked && strcmp(job->run_directory, player->directory) == 0 &&
            strcmp(job->state, "PENDING") == 0 && !player->succeeded && is_current(player, job)) {
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
    if (world->players[execution->player].stuck) {
        execution->ends = execution->started + draw(world, 3, 20);
        execution->code = EXIT_STOPPED;
        return;
    }
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

void end_job(struct world *world, struct simulated_job *job, const char *state, int64_t code, int signal, const char *reason)
{
    snprintf(job->state, sizeof job->state, "%s", state);
    snprintf(job->reason, sizeof job->reason, "%s", reason);
    job->code = code;
    job->signal = signal;
    job->ended = world->simulation->now;
}

void finish_job(struct world *world, struct simulated_job *job, const char *state, int64_t code)
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

void job_number(char out[32], const struct simulated_job *job)
{
    snprintf(out, 32, job->element < 0 ? "%lld" : "%lld_%lld", (long long)job->id, (long long)job->element);
}

// Which job has begun under this number, as job.sh writes it down.
void write_claim(const struct player *player, int64_t submission, const struct simulated_job *job)
{
    char *path = string_format("%s/submission.%lld", player->directory, (long long)submission), number[32];
    job_number(number, job);
    write_file(path, "%s\n", number);
    free(path);
}

// Somebody's cancel of an earlier job, which Slurm still tells to whoever asks, and has told in every answer since.
static void look_for_undone(struct world *world, const struct simulated_job *job, struct player *player)
{
    for (size_t i = 0; i < world->simulation->job_count; i++) {
        const struct simulated_job *before = &world->simulation->jobs[i];
        bool same = strcmp(before->run_directory, job->run_directory) == 0 && before->submission < job->submission;
        bool told = before->listed && world->simulation->lacking < before->ended;
        if (!same || !told || !before->by_outsider || strcmp(before->state, "CANCELLED") != 0)
            continue;
        world->undone++;
        printf("job %lld was cancelled by somebody, and is run again\n%s", (long long)before->id, player->story);
    }
}

void launch(struct world *world, struct simulated_job *job, struct player *player)
{
    bool unsent, patient = world->simulation->now - job->started < SCRIPT_PATIENCE;
    int64_t counts = read_submission(player, &unsent);
    if ((unsent || counts < job->submission) && patient)
        return;
    if (unsent || counts != job->submission) {
        world->ghosts++;
        player_tell(world, player, "job %lld of submission %lld ends at once", (long long)job->id, (long long)job->submission);
        finish_job(world, job, "COMPLETED", 0);
        return;
    }
    size_t number = (size_t)(player - world->players);
    if (claim_of(player, job) < 0) { // job.sh would end at once: but no number is ever sent twice
        world->double_runs++;
        printf("TWO JOBS of %s: submission %lld\n%s", player->name, (long long)job->submission, player->story);
    }
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
    job_number(execution->job, job);
    snprintf(execution->node, sizeof execution->node, "%s", job->nodes);
    write_claim(player, job->submission, job);
    look_for_undone(world, job, player);
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
}

// cancelled: its job was, by whomever, while the script lived.
void write_exit(struct world *world, const struct execution *execution, int64_t code, bool cancelled)
{
    char *path = attempt_file(world, execution, EXIT_FILE), signal[24] = "null";
    if (code > 128)
        snprintf(signal, sizeof signal, "%lld", (long long)code - 128);
    write_file(path, "{\"v\":1,\"attempt\":%lld,\"code\":%lld,\"signal\":%s,\"started\":%.3f,\"ended\":%.3f,\"nodes\":[\"n1\"]%s}\n", (long long)execution->attempt,
        (long long)code, signal, execution->started, world->simulation->now, cancelled ? ",\"cancelled\":true" : "");
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

// Its job's last word comes a moment later.
void finish_execution(struct world *world, struct execution *execution, int64_t code)
{
    struct player *player = &world->players[execution->player];
    struct simulated_job *job = execution->alone ? NULL : simulation_serial(world->simulation, execution->serial);
    bool newest = run_last_attempt(player->directory) == execution->attempt;
    execution->alive = false;
    if (code == EXIT_DONE)
        write_end(world, execution);
    if (code >= 0)
        write_exit(world, execution, code, false);
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
void step_execution(struct world *world, struct execution *execution)
{
    struct player *player = &world->players[execution->player];
    double now = world->simulation->now;
    if (run_last_attempt(player->directory) > execution->attempt) {
        finish_execution(world, execution, 1);
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
        player->furthest += player->stuck ? 0 : 1;
        heartbeat_write(path, player->furthest, 1, NULL);
        free(path);
        execution->next_beat = now + BEAT_SECONDS;
    }
    if (now >= execution->ends)
        finish_execution(world, execution, execution->silent_end ? -1 : execution->code);
}

struct execution *execution_of(struct world *world, const struct simulated_job *job)
{
    for (size_t i = 0; i < world->execution_count; i++)
        if (world->executions[i].alive && world->executions[i].serial == job->serial && !world->executions[i].alone)
            return &world->executions[i];
    return NULL;
}
