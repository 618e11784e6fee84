// The daemon's heart, whole, over a simulated cluster whose commands fail in every way: thousands of events, and at none of them may a run
// be shown in an end that it did not have, run twice at once, or be forgotten. Everything is the real thing (daemon_tick, the Slurm executor,
// its child processes) but for the commands (standin.c), the nodes (world.c) and the time, which is the world's: a second passes in each
// round, so that minutes of patience take milliseconds.
//
//   slurm_events STANDIN [EVENTS [SEED]]     STANDIN: the program; 10,000 events; a seed of the clock's
//
// The last line tells what happened; the exit code is 0 when nothing was wrong. An interrupt (Ctrl-C) is the last event: what has begun comes to
// its end. The same seed makes the same world; which answer meets which moment is still the machine's business.
#include "daemon/core/core.h"
#include "daemon/core/daemon.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"
#include "tests/slurm/world.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RUNS_AT_ONCE = 150, WRONG_SHOWN_MAX = 20, STUCK_SECONDS = 4000, WEATHER_SECONDS = 90 };

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

// ---- time: the linker sends every call of the two clocks here ----

static double world_seconds = 1.8e9;

double __wrap_clock_steady(void);
double __wrap_clock_steady(void)
{
    return world_seconds - 1.79e9;
}
double __wrap_clock_wall(void);
double __wrap_clock_wall(void)
{
    return world_seconds;
}

static double real_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// ---- the stage ----

struct stage {
    char root[64];
    struct daemon *daemon;
    struct world *world;
    int64_t limit, made, ended[RUN_LOST + 1], wrong, stuck, crashes;
    double weather_until;
};

static void open_daemon(struct stage *stage)
{
    struct error err = {0};
    char *home = path_join(stage->root, "home"), *trackio = path_join(stage->root, "trackio");
    struct daemon_options options = {.home = home, .trackio = trackio, .worker = "/bin/true", .gpus = -1};
    if (daemon_open(&stage->daemon, &options, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    free(home);
    free(trackio);
    if (!executor_named(stage->daemon, "slurm")) {
        fprintf(stderr, "this build has no Slurm executor\n");
        exit(2);
    }
}

// Its memory is gone, as after kill -9: all that it knew of jobs, and the commands that it had started, whose work may be done.
static void crash_daemon(struct stage *stage)
{
    daemon_close(stage->daemon);
    stage->crashes++;
    stage->world->events++;
    open_daemon(stage);
}

static void link_commands(const char *root, const char *standin)
{
    char *bin = path_join(root, "bin"), *real = realpath(standin, NULL);
    if (!real || directory_make(bin, NULL) != 0) {
        fprintf(stderr, "no stand-in: %s\n", standin);
        exit(2);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        char *path = path_join(bin, program_names[i]);
        if (symlink(real, path) != 0)
            exit(2);
        free(path);
    }
    free(real);
    char *search = string_format("%s:%s", bin, getenv("PATH"));
    setenv("PATH", search, 1);
    free(search);
    free(bin);
}

static void set_stage(struct stage *stage, const char *standin, uint64_t seed)
{
    snprintf(stage->root, sizeof stage->root, "%s/switchyard-events-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(stage->root))
        exit(2);
    link_commands(stage->root, standin);
    char *file = path_join(stage->root, "cluster.simulated");
    setenv("SLURM_CONF", file, 1);
    stage->world = allocate(1, sizeof *stage->world);
    struct simulation *simulation = simulation_new(file, seed);
    if (!simulation)
        exit(2);
    simulation->accounting = seed % 3 != 0;
    simulation->old = seed % 5 == 4;
    simulation->array_max = seed % 4 == 3 ? 1 : seed % 4 == 1 ? 4 : 1001; // the daemon, which is told nothing, takes it for Slurm's own
    simulation->now = world_seconds;
    stage->world->simulation = simulation;
    free(file);
    open_daemon(stage);
}

// ---- runs ----

static void write_job(const char *directory, bool requeue)
{
    char *path = path_join(directory, JOB_FILE);
    char bytes[400];
    int length = snprintf(bytes, sizeof bytes,
        "{\"argv\": [\"true\"], \"environment\": [], \"options\": [\"--job-name=events.%s\", \"--chdir=%s\", \"--%s\"], \"modules\": [], "
        "\"ranks\": 1, \"threads\": 1, \"slots\": 1, \"oversubscribed\": false}\n",
        strrchr(directory, '/') + 1, directory, requeue ? "requeue" : "no-requeue");
    if (file_write_atomic(path, bytes, (size_t)length, 0600, NULL) != 0)
        exit(2);
    free(path);
}

static void add_run(struct stage *stage)
{
    struct player *player = NULL;
    for (size_t i = 0; i < PLAYERS_MAX && !player; i++)
        if (!stage->world->players[i].used)
            player = &stage->world->players[i];
    if (!player)
        return;
    free(player->directory);
    *player = (struct player){.used = true, .settled = world_seconds};
    random_hex(player->run_id, 32);
    snprintf(player->name, sizeof player->name, "run-%lld", (long long)++stage->made);
    player->directory = string_format("%s/home/runs/events/%s", stage->root, player->name);
    directory_make(player->directory, NULL);
    write_job(player->directory, simulation_chance(stage->world->simulation, 0.5));
    player->stuck = simulation_chance(stage->world->simulation, 0.02);
    struct error err = {0};
    struct run_row row = {.project = "events", .kind = "train", .directory = player->directory, .executor = (char *)(uintptr_t) "slurm", .spec = js_object(),
        .plan = js_object(), .provenance = js_object()};
    strcpy(row.run_id, player->run_id);
    strcpy(row.name, player->name);
    bool begun = change_begin(stage->daemon, &err) == 0;
    row.experiment = begun ? state_add_experiment(stage->daemon->state, "events", "events.yaml", "", &err) : -1;
    if (row.experiment < 0 || state_complete_experiment(stage->daemon->state, row.experiment, &err) != 0 ||
        state_add_run(stage->daemon->state, &row, &err) != 0 ||
        core_change(stage->daemon, row.id, RUN_QUEUED, "submitted", "user", &err) != 0 || change_end(stage->daemon, 0, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    js_free(row.spec);
    js_free(row.plan);
    js_free(row.provenance);
    player_tell(stage->world, player, "is queued");
}

static void cancel_run(struct stage *stage, struct player *player)
{
    struct answer answer = {0};
    char *name = string_format("events/%s", player->name);
    daemon_cancel(stage->daemon, name, &answer);
    if (answer.status == 202) {
        player->cancel_requested = true;
        player->allowed |= 1u << RUN_CANCELLED;
        player->settled = world_seconds;
        player_tell(stage->world, player, "a person cancels it");
    }
    answer_release(&answer);
    free(name);
}

static bool read_row(struct stage *stage, const struct player *player, struct run_row *row)
{
    struct error err = {0};
    pthread_mutex_lock(&stage->daemon->lock);
    int found = state_find_run(stage->daemon->state, "events", player->name, row, &err);
    pthread_mutex_unlock(&stage->daemon->lock);
    return found == 0;
}

static void show(struct stage *stage, const struct player *player, const struct run_row *row, const char *what)
{
    if (stage->wrong + stage->stuck > WRONG_SHOWN_MAX)
        return;
    printf("%s: %s is %s at %.0f (%s): %s\n%s\n", what, player->name, run_state_name(row->state), world_seconds - 1.8e9, row->reason ? row->reason : "",
        player->directory, player->story);
}

// Its place is another's now: what is left of it is no concern of that one.
static void release_player(struct stage *stage, struct player *player)
{
    for (size_t i = 0; i < stage->world->execution_count; i++)
        if (stage->world->executions[i].player == (size_t)(player - stage->world->players))
            stage->world->executions[i].alive = false;
    player->used = false;
}

// What the daemon has brought to its end since the last round, held against the truth; and what it does not bring to one.
static void look_at_run(struct stage *stage, struct player *player)
{
    struct run_row row;
    if (!read_row(stage, player, &row))
        exit(2);
    if (row.state != player->shown || strncmp(row.reason ? row.reason : "", player->reason, sizeof player->reason - 1) != 0) {
        player->shown = row.state;
        snprintf(player->reason, sizeof player->reason, "%s", row.reason ? row.reason : "");
        player_tell(stage->world, player, "    the daemon: %s, %s", run_state_name(row.state), player->reason);
        stage->world->events--; // of its own it is none
    }
    if (run_state_ended(row.state)) {
        const char *why = world_contradicts(stage->world, player, row.state);
        stage->ended[row.state]++;
        if (why) {
            stage->wrong++;
            show(stage, player, &row, why);
        }
        release_player(stage, player);
    } else if (player->allowed && world_seconds - player->settled > STUCK_SECONDS) {
        stage->stuck++;
        show(stage, player, &row, "does not end");
        release_player(stage, player);
    }
    run_row_release(&row);
}

// ---- the loop ----

// Calm, rain and storm: how often the commands fail.
static void change_weather(struct stage *stage)
{
    struct simulation *simulation = stage->world->simulation;
    if (world_seconds < stage->weather_until && !stage->world->calm)
        return;
    stage->weather_until = world_seconds + WEATHER_SECONDS;
    static const double strengths[] = {0, 0.02, 0.2, 0.6};
    double strength = stage->world->calm ? 0 : strengths[simulation_draw(simulation, 4)];
    for (int program = 0; program < PROGRAMS; program++)
        for (int fault = FAULT_NONE + 1; fault < FAULTS; fault++)
            simulation->rates[program][fault] = strength / (FAULTS - 1);
}

static size_t players_alive(const struct stage *stage)
{
    size_t count = 0;
    for (size_t i = 0; i < PLAYERS_MAX; i++)
        count += stage->world->players[i].used;
    return count;
}

static void play_round(struct stage *stage)
{
    struct world *world = stage->world;
    struct simulation *simulation = world->simulation;
    world->calm = interrupted || world->events >= stage->limit;
    simulation_lock(simulation);
    world_step(world, 1);
    world_seconds = simulation->now;
    change_weather(stage);
    bool more = !world->calm && players_alive(stage) < RUNS_AT_ONCE && simulation_chance(simulation, 0.9);
    bool crash = !world->calm && simulation_chance(simulation, 0.005);
    size_t victim = simulation_chance(simulation, 0.03) ? (size_t)simulation_draw(simulation, PLAYERS_MAX) : PLAYERS_MAX;
    for (size_t many = more && simulation_chance(simulation, 0.1) ? 2 + simulation_draw(simulation, 10) : more; many > 0; many--)
        add_run(stage);
    if (!world->calm && victim < PLAYERS_MAX && world->players[victim].used)
        cancel_run(stage, &world->players[victim]);
    simulation_unlock(simulation);
    if (crash)
        crash_daemon(stage);
    daemon_tick(stage->daemon);
    nanosleep(&(struct timespec){0, 2000000}, NULL); // for the commands: they live in the machine's time
    simulation_lock(simulation);
    for (size_t i = 0; i < PLAYERS_MAX; i++)
        if (world->players[i].used)
            look_at_run(stage, &world->players[i]);
    simulation_unlock(simulation);
}

static void report(const struct stage *stage, double began)
{
    const struct world *world = stage->world;
    const struct simulation *simulation = world->simulation;
    printf("%-9s %8s", "command", "calls");
    for (int fault = FAULT_NONE + 1; fault < FAULTS; fault++)
        printf(" %9s", fault_names[fault]);
    printf("\n");
    for (int program = 0; program < PROGRAM_SCONTROL; program++) {
        printf("%-9s %8llu", program_names[program], (unsigned long long)simulation->calls[program]);
        for (int fault = FAULT_NONE + 1; fault < FAULTS; fault++)
            printf(" %9llu", (unsigned long long)simulation->injected[program][fault]);
        printf("\n");
    }
    for (int state = RUN_SUCCEEDED; state <= RUN_LOST; state++)
        printf("%s %lld  ", run_state_name((enum run_state)state), (long long)stage->ended[state]);
    printf("\n%lld events, %lld runs, %lld daemons killed, %lld jobs that ended at once, %lld fenced attempts, %lld refused by their node; %.0f s of the world, %.0f s\n",
        (long long)world->events, (long long)stage->made, (long long)stage->crashes, (long long)world->ghosts, (long long)world->fenced, (long long)world->refusals,
        world_seconds - 1.8e9, real_seconds() - began);
    printf("wrong ends %lld, double runs %lld, runs that do not end %lld, jobs of others hit %lld, jobs that nobody wanted to end hit %lld, "
           "cancels undone %lld\n",
        (long long)stage->wrong, (long long)world->double_runs, (long long)stage->stuck, (long long)world->outsiders_hit, (long long)world->ours_hit, (long long)world->undone);
}

int main(int count, char **words)
{
    if (count < 2) {
        fprintf(stderr, "usage: slurm_events STANDIN [EVENTS [SEED]]\n");
        return 2;
    }
    struct stage stage = {.limit = count > 2 ? strtoll(words[2], NULL, 10) : 10000};
    uint64_t seed = count > 3 ? strtoull(words[3], NULL, 10) : (uint64_t)time(NULL);
    double began = real_seconds();
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGINT, interrupt);
    printf("seed %llu\n", (unsigned long long)seed);
    set_stage(&stage, words[1], seed);
    do
        play_round(&stage);
    while (!stage.world->calm || players_alive(&stage) > 0);
    report(&stage, began);
    bool right = stage.wrong == 0 && stage.stuck == 0 && stage.world->double_runs == 0 && stage.world->outsiders_hit == 0 &&
                 stage.world->ours_hit == 0 && stage.world->undone == 0;
    daemon_close(stage.daemon);
    if (right)
        directory_remove(stage.root, NULL);
    else
        printf("kept for a look: %s\n", stage.root);
    return right ? 0 : 1;
}
