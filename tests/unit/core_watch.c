// What one look at a run makes of what lies in its directory and of what its executor says, on a real store: the rows and files are real, the
// executor is one that only notes what is asked of it.
#include "daemon/core/core.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"
#include "tests/unit/store_support.h"

struct asked {
    int stops, kills;
};

static int note_stop(void *context, struct job *job, struct error *err)
{
    (void)job, (void)err;
    ((struct asked *)context)->stops++;
    return 0;
}

static int note_kill(void *context, struct job *job, struct error *err)
{
    (void)job, (void)err;
    ((struct asked *)context)->kills++;
    return 1;
}

static const struct executor noting = {.name = "local", .stop = note_stop, .kill = note_kill};

struct stage { // a daemon with one run, whose last attempt has been handed to a scheduler
    struct daemon *daemon;
    char *home;
    struct asked asked;
    struct executor_use executor;
    struct run_row run;
    struct attempt_row attempt;
    struct views views;
};

#define RUN_ID "00000000000000000000000000000007"

static void write_file(const struct stage *stage, int64_t attempt, const char *name, const char *text)
{
    struct error err;
    char *directory = run_attempt_directory(stage->run.directory, attempt), *path = path_join(directory, name);
    assert_fine(directory_make(directory, &err), err);
    assert_fine(file_write_atomic(path, text, strlen(text), 0600, &err), err);
    free(path);
    free(directory);
}

static void write_end(const struct stage *stage, int64_t attempt)
{
    char when[CLOCK_TEXT], text[256];
    clock_text(when, clock_wall());
    snprintf(text, sizeof text, "{\"attempt\":%lld,\"code\":0,\"signal\":0,\"started\":\"%s\",\"ended\":\"%s\"}", (long long)attempt, when, when);
    write_file(stage, attempt, EXIT_FILE, text);
}

static void write_beat(const struct stage *stage, int64_t attempt, double ago)
{
    char text[64];
    snprintf(text, sizeof text, "{\"time\":%.3f,\"step\":3}", clock_wall() - ago);
    write_file(stage, attempt, HEARTBEAT_FILE, text);
}

static void open_stage(void **context, struct stage *stage, int64_t attempt)
{
    struct error err;
    char *home = in_folder(context, "home"), *trackio = path_join(home, "trackio");
    struct daemon_options options = {.home = home, .trackio = trackio, .worker = "/nowhere/worker", .gpus = -1};
    *stage = (struct stage){.home = home, .run = {.iterations = 7}};
    stage->executor = (struct executor_use){.calls = &noting, .context = &stage->asked, .queues = true};
    assert_fine(daemon_open(&stage->daemon, &options, &err), err);
    strcpy(stage->run.project, "p");
    strcpy(stage->run.name, "r");
    strcpy(stage->run.run_id, RUN_ID);
    strcpy(stage->run.kind, "train");
    stage->run.directory = in_folder(context, "run");
    stage->run.executor = string_copy("local");
    stage->run.spec = js_object();
    assert_fine(directory_make(stage->run.directory, &err), err);
    struct state *state = stage->daemon->state;
    assert_fine(state_add_run(state, &stage->run, &err), err);
    stage->attempt = (struct attempt_row){.run = stage->run.id, .number = attempt, .job = string_copy("41"), .state = string_copy("running"),
        .started = clock_wall(), .code = -1};
    assert_fine(state_put_attempt(state, &stage->attempt, &err), err);
    assert_fine(state_change(state, stage->run.id, RUN_QUEUED, NULL, "user", &err), err);
    assert_fine(state_change(state, stage->run.id, RUN_SUBMITTED, NULL, "daemon", &err), err);
    assert_fine(state_change(state, stage->run.id, RUN_RUNNING, NULL, "heartbeat", &err), err);
    free(trackio);
}

static void close_stage(struct stage *stage)
{
    daemon_close(stage->daemon);
    directory_remove(stage->home, NULL);
    directory_remove(stage->run.directory, NULL);
    free(stage->home);
    attempt_row_release(&stage->attempt);
    run_row_release(&stage->run);
}

// One tick's look at it, given what its scheduler says. Returns the state that it is in then.
static enum run_state look_once(struct stage *stage, struct job job)
{
    struct error err;
    struct run_row row;
    assert_fine(views_load_one(stage->daemon, &stage->views, stage->run.id, &err), err);
    assert_int_equal(stage->views.count, 1);
    struct view *view = &stage->views.at[0];
    view->executor = &stage->executor;
    snprintf(job.tag, sizeof job.tag, "%s", view->run_id);
    job.asked = clock_steady();
    watch_run(stage->daemon, view, &stage->attempt, &job);
    reasons_write(stage->daemon);
    views_release(&stage->views);
    assert_fine(state_get_run(stage->daemon->state, stage->run.id, &row, &err), err);
    enum run_state state = row.state;
    run_row_release(&row);
    return state;
}

static struct watch *watched(struct stage *stage)
{
    struct watch *watch = watch_find(stage->daemon, stage->run.id);
    assert_non_null(watch);
    return watch;
}

// What an executor presumes of a job that has not begun is no end of one whose attempt is there, and beat less than a minute ago.
static void test_presumed_end(void **context)
{
    for (int presumed = 0; presumed < 2; presumed++) {
        struct stage stage;
        open_stage(context, &stage, 1);
        write_beat(&stage, 1, 30);
        assert_int_equal(look_once(&stage, (struct job){.phase = JOB_RUNNING}), RUN_RUNNING);
        watched(&stage)->gone_since = watched(&stage)->seen = clock_steady() - 30;
        struct job ended = {.phase = JOB_ENDED, .end = END_CANCELLED, .code = -1, .if_unbegun = presumed};
        assert_int_equal(look_once(&stage, ended), presumed ? RUN_RUNNING : RUN_CANCELLED);
        close_stage(&stage);
    }
}

// Its second attempt was begun although the first had come to a good end: a worker's own word for that end is read only after the second was
// first seen, and counts all the same. What ends after the second had begun proves nothing.
static void test_done_before(void **context)
{
    for (int late = 0; late < 2; late++) {
        struct stage stage;
        open_stage(context, &stage, 2);
        char when[CLOCK_TEXT], line[256];
        clock_text(when, clock_wall());
        snprintf(line, sizeof line, "{\"kind\":\"end\",\"run_id\":\"" RUN_ID "\",\"timestamp\":\"%s\",\"attempt\":1,\"code\":0}\n", when);
        write_file(&stage, 1, RECORDS_FILE, "");
        if (!late)
            write_end(&stage, 1);
        write_beat(&stage, 2, 0);
        assert_int_equal(look_once(&stage, (struct job){.phase = JOB_RUNNING}), RUN_RUNNING);
        watched(&stage)->ingest_attempt = 1;
        write_file(&stage, 1, RECORDS_FILE, line);
        if (late)
            write_end(&stage, 1);
        look_once(&stage, (struct job){.phase = JOB_RUNNING});
        assert_true(watched(&stage)->end_attempt == 1 && watched(&stage)->end_code == 0);
        assert_int_equal(look_once(&stage, (struct job){.phase = JOB_RUNNING}), late ? RUN_RUNNING : RUN_FINISHING);
        assert_int_equal(stage.asked.kills, late ? 0 : 1);
        if (!late)
            assert_int_equal(look_once(&stage, (struct job){.phase = JOB_ENDED, .end = END_CANCELLED, .code = -1}), RUN_SUCCEEDED);
        close_stage(&stage);
    }
}

// A job that was gone for long before its attempt began, or its next one did, is not gone for as long after it: what is over for its scheduler, its
// node having failed, may live on, and has beaten by then.
static void test_gone_before_it_began(void **context)
{
    for (int anew = 0; anew < 2; anew++) {
        struct stage stage;
        struct job lost = {.phase = JOB_ENDED, .end = END_NODE_FAILED, .code = -1};
        open_stage(context, &stage, 1);
        look_once(&stage, (struct job){.phase = JOB_GONE});
        watched(&stage)->gone_since = watched(&stage)->seen = clock_steady() - 100;
        watched(&stage)->killed = true;
        if (anew)
            watch_new_job(watched(&stage));
        assert_true((watched(&stage)->gone_since > 0) != anew && watched(&stage)->killed != anew);
        write_file(&stage, 1, JOB_FILE, "{}");
        assert_int_equal(look_once(&stage, lost), RUN_RUNNING); // said before the attempt was seen
        assert_int_equal(look_once(&stage, lost), RUN_FINISHING);
        close_stage(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_presumed_end, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_done_before, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_gone_before_it_began, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
