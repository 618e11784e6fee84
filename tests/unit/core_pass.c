// A pass over the runs that have a job: how much of it a tick takes, where the next one goes on, and who needs no look. The store is real, the
// executor is one that says what the test wants and takes its time.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"
#include "tests/unit/store_support.h"

enum { RUNS = 150 };

struct scheduler {
    enum job_phase phase;
    const char *reason;
    double stop_costs; // CPU seconds
    int stops;
};

static int say(void *context, struct job *jobs, size_t count, struct error *err)
{
    const struct scheduler *scheduler = context;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        jobs[i].phase = scheduler->phase;
        jobs[i].asked = clock_steady();
        snprintf(jobs[i].reason, sizeof jobs[i].reason, "%s", scheduler->reason);
    }
    return 0;
}

static int take_time(void *context, struct job *job, struct error *err)
{
    struct scheduler *scheduler = context;
    (void)job, (void)err;
    scheduler->stops++;
    for (double until = clock_cpu() + scheduler->stop_costs; clock_cpu() < until;)
        continue;
    return 0;
}

static int go_on(void *context, struct job *job, struct error *err)
{
    (void)context, (void)job, (void)err;
    return 1;
}

static const struct executor calls = {.name = "local", .poll = say, .stop = take_time, .kill = go_on};

struct stage {
    struct daemon *daemon;
    struct scheduler scheduler;
    int64_t runs[RUNS];
};

static void add_run(void **context, struct stage *stage, int number)
{
    struct error err;
    char name[32];
    struct run_row run = {.iterations = 7, .executor = string_copy("local"), .spec = js_object()};
    struct state *state = stage->daemon->state;
    snprintf(name, sizeof name, "r%d", number);
    strcpy(run.project, "p");
    strcpy(run.name, name);
    snprintf(run.run_id, sizeof run.run_id, "%032d", number);
    strcpy(run.kind, "train");
    run.directory = in_folder(context, name);
    char *attempt_directory = path_join(run.directory, "attempt-1");
    assert_fine(directory_make(attempt_directory, &err), err);
    assert_fine(state_add_run(state, &run, &err), err);
    struct attempt_row attempt = {.run = run.id, .number = 1, .job = string_copy("41"), .state = string_copy("running"), .started = clock_wall(), .code = -1};
    assert_fine(state_put_attempt(state, &attempt, &err), err);
    static const enum run_state way[] = {RUN_QUEUED, RUN_SUBMITTED, RUN_RUNNING};
    for (size_t i = 0; i < sizeof way / sizeof *way; i++)
        assert_fine(state_change(state, run.id, way[i], "runs", "daemon", &err), err);
    stage->runs[number] = run.id;
    attempt_row_release(&attempt);
    run_row_release(&run);
    free(attempt_directory);
}

static void open_stage(void **context, struct stage *stage)
{
    struct error err;
    char *home = in_folder(context, "home"), *trackio = path_join(home, "trackio");
    struct daemon_options options = {.home = home, .trackio = trackio, .worker = "/nowhere/worker", .gpus = -1};
    *stage = (struct stage){.scheduler = {.phase = JOB_RUNNING, .reason = "runs"}};
    assert_fine(daemon_open(&stage->daemon, &options, &err), err);
    stage->daemon->executors[0] = (struct executor_use){.calls = &calls, .context = &stage->scheduler, .queues = true};
    assert_fine(state_begin(stage->daemon->state, &err), err);
    for (int i = 0; i < RUNS; i++)
        add_run(context, stage, i);
    assert_fine(state_end(stage->daemon->state, 0, &err), err);
    free(home);
    free(trackio);
}

// The part of a tick that is a pass.
static void go(struct stage *stage)
{
    struct views views;
    struct error err;
    assert_fine(views_load(stage->daemon, &views, &err), err);
    stage->daemon->behind = false;
    stage->daemon->tick_began = clock_cpu();
    pass_go_on(stage->daemon, &views);
    views_release(&views);
}

static void set_looked(const struct stage *stage, double when)
{
    for (int i = 0; i < RUNS; i++)
        watch_find(stage->daemon, stage->runs[i])->looked = when;
}

// Since set_looked.
static size_t looked_at(const struct stage *stage, double when)
{
    size_t count = 0;
    for (int i = 0; i < RUNS; i++)
        count += watch_find(stage->daemon, stage->runs[i])->looked != when;
    return count;
}

// Until the pass is over.
static void finish(struct stage *stage)
{
    int ticks = 0;
    do {
        go(stage);
        assert_true(++ticks <= RUNS);
    } while (stage->daemon->behind);
}

// However much is to be done, a tick does no more than its share, the next goes on where it ended, and nobody is forgotten or asked twice.
static void test_share(void **context)
{
    struct stage stage;
    struct error err;
    open_stage(context, &stage);
    finish(&stage);
    stage.scheduler.stop_costs = 0.02;
    for (int i = 0; i < RUNS; i++)
        assert_fine(state_request_cancel(stage.daemon->state, stage.runs[i], &err), err);
    int stops = 0;
    set_looked(&stage, 1);
    do {
        go(&stage);
        assert_in_range(stage.scheduler.stops - stops, 1, 3); // the 0.05 s of a tick are over with the third
        assert_true(stage.daemon->behind == (stage.scheduler.stops < RUNS));
        stops = stage.scheduler.stops;
    } while (stage.daemon->behind);
    assert_int_equal(stage.scheduler.stops, RUNS);
    assert_int_equal(looked_at(&stage, 1), RUNS);
    finish(&stage);
    assert_int_equal(stage.scheduler.stops, RUNS);
    daemon_close(stage.daemon);
}

// With a scheduler that says nothing new a run is not looked at in each tick; with one that does, or if something is asked of it, it is at once.
static void test_rest(void **context)
{
    struct stage stage;
    struct error err;
    open_stage(context, &stage);
    finish(&stage);
    double then = clock_steady() + 1000;
    set_looked(&stage, then);
    finish(&stage);
    assert_int_equal(looked_at(&stage, then), 0);
    assert_fine(state_request_cancel(stage.daemon->state, stage.runs[7], &err), err);
    finish(&stage);
    assert_int_equal(looked_at(&stage, then), 1);
    assert_int_equal(stage.scheduler.stops, 1);
    stage.scheduler.reason = "is suspended";
    finish(&stage);
    assert_int_equal(looked_at(&stage, then), RUNS);
    then = clock_steady() - 1.5;
    set_looked(&stage, then);
    finish(&stage);
    assert_int_equal(looked_at(&stage, then), RUNS);
    daemon_close(stage.daemon);
}

static void write_lines(const struct stage *stage, int number, int first, int count)
{
    struct views views;
    struct error err;
    assert_fine(views_load_one(stage->daemon, &views, stage->runs[number], &err), err);
    const struct view *view = &views.at[0];
    char *path = run_attempt_file(view->directory, 1, RECORDS_FILE);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    for (int i = first; i < first + count; i++)
        fprintf(file, "{\"v\":1,\"kind\":\"metric\",\"project\":\"p\",\"run\":\"%s\",\"run_id\":\"%s\",\"step\":%d,\"metrics\":{\"loss\":1.5},"
            "\"timestamp\":\"2026-11-29T23:25:21+00:00\",\"log_id\":\"%d-%d\"}\n", view->name, view->run_id, i, number, i);
    assert_int_equal(fclose(file), 0);
    free(path);
    views_release(&views);
}

static int64_t lines_read(const struct stage *stage, int number)
{
    struct attempt_row attempt;
    struct error err;
    assert_fine(state_get_attempt(stage->daemon->state, stage->runs[number], 1, &attempt, &err), err);
    int64_t lines = attempt.ingest_sequence;
    attempt_row_release(&attempt);
    return lines;
}

// Runs that write much, beside others that write little or nothing, are read to the end of what they wrote all the same, and at once.
static void test_fast_writers(void **context)
{
    enum { WRITERS = 4 };
    static const int many[3][WRITERS] = {{300, 1, 200}, {20000, 1, 2000, 40}, {20000, 1}};
    struct stage stage;
    struct error err;
    int written[WRITERS] = {0};
    open_stage(context, &stage);
    finish(&stage);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < RUNS && round == 2; i++) // from then on nobody rests
            assert_fine(state_request_cancel(stage.daemon->state, stage.runs[i], &err), err);
        for (int i = 0; i < WRITERS; i++) {
            write_lines(&stage, i, written[i], many[round][i]);
            written[i] += many[round][i];
        }
        set_looked(&stage, clock_steady() - 1.5);
        finish(&stage);
        for (int i = 0; i < WRITERS; i++)
            assert_int_equal(lines_read(&stage, i), written[i]);
    }
    daemon_close(stage.daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_share, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_rest, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_fast_writers, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
