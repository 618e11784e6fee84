// Taking in a submission: nobody sees a run of it before it is complete, a killed daemon's are finished or forgotten, and the queue knows what
// each waits for.
#include "daemon/store/sql.h"
#include "tests/unit/state_support.h"

static int64_t reserve(struct state *state, int64_t experiment, const char *name, int number, const char *expected_directory)
{
    struct error err;
    struct run_row row = make_row("p", name, number);
    row.experiment = experiment;
    static const char spec[] = "{\"model\":{\"moe\":{\"experts\":8}},\"resources\":{\"gpus_per_node\":2}}";
    static const char provenance[] = "{\"code\":{\"commit\":\"abc\",\"dirty\":true}}";
    row.spec = js_parse(spec, strlen(spec), &err);
    row.provenance = js_parse(provenance, strlen(provenance), &err);
    assert_non_null(row.spec);
    assert_non_null(row.provenance);
    assert_fine(state_reserve_run(state, &row, "/runs", &err), err);
    assert_string_equal(row.directory, expected_directory);
    assert_fine(state_put_documents(state, &row, &err), err);
    struct json *sweep = js_object();
    assert_fine(state_add_trial(state, row.id, experiment, "moe", sweep, &err), err);
    js_free(sweep);
    int64_t id = row.id;
    run_row_release(&row);
    return id;
}

static size_t listed(struct state *state)
{
    struct run_row rows[8];
    struct error err;
    size_t count;
    assert_fine(state_runs_after(state, NULL, 0, 8, rows, &count, &err), err);
    for (size_t i = 0; i < count; i++)
        run_row_release(&rows[i]);
    return count;
}

// Nobody sees a run of a submission before all of it is there; then it is in the queue with its events; and one that is given up leaves nothing.
static void test_submissions(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t good = state_add_experiment(state, "p", NULL, NULL, &err), bad = state_add_experiment(state, "p", NULL, NULL, &err);
    int64_t runs[3], lost[2];
    for (int i = 0; i < 3; i++) {
        char directory[32];
        snprintf(directory, sizeof directory, "/runs/p/moe-%d", i + 1);
        runs[i] = reserve(state, good, "moe-", i + 1, directory);
    }
    lost[0] = reserve(state, bad, "moe-", 8, "/runs/p/moe-4");
    lost[1] = reserve(state, bad, "moe-", 9, "/runs/p/moe-5");
    assert_fine(state_add_need(state, lost[1], lost[0], &err), err);
    assert_fine(state_add_need(state, runs[1], runs[0], &err), err);
    assert_true(listed(state) == 0 && state_count_alive(state) == 0);
    struct json *events = state_events_after(state, 0, &err), *left;
    assert_int_equal(js_count(events), 0);
    js_free(events);
    assert_fine(state_complete_experiment(state, good, &err), err);
    assert_int_equal(state_queue_created(state, good, 2, 5, &err), 2);
    state_close(state); // the daemon is killed here: the next one finds what is to be finished, and what undone
    state = open_state(context);
    left = state_leftovers(state, &err);
    assert_true(js_count(left) == 2 && js_boolean_of(js_get(js_at(left, 0), "complete"), false) && !js_boolean_of(js_get(js_at(left, 1), "complete"), true));
    js_free(left);
    left = state_created_directories(state, bad, &err);
    assert_int_equal(js_count(left), 2);
    assert_string_equal(js_string_of(js_get(left, "00000000000000000000000000000009"), ""), "/runs/p/moe-5");
    js_free(left);
    assert_int_equal(state_queue_created(state, good, 2, 6, &err), 1);
    assert_int_equal(state_queue_created(state, good, 2, 6, &err), 0);
    assert_int_equal(state_drop_created(state, bad, 1, &err), 1);
    assert_int_equal(state_drop_created(state, bad, 1, &err), 1);
    assert_int_equal(state_drop_created(state, bad, 1, &err), 0);
    left = state_leftovers(state, &err);
    assert_int_equal(js_count(left), 0);
    js_free(left);
    assert_true(listed(state) == 3 && state_count_alive(state) == 3);
    events = state_events(state, runs[2], &err);
    assert_true(js_count(events) == 2 && strcmp(js_string_of(js_get(js_at(events, 1), "to"), ""), "queued") == 0);
    js_free(events);
    struct run_row row;
    assert_int_equal(state_get_run(state, lost[1], &row, &err), 1);
    assert_int_equal(state_get_run(state, runs[1], &row, &err), 0);
    assert_true(row.state == RUN_QUEUED && strcmp(row.commit, "abc") == 0 && row.dirty == 1 && row.experts == 8 && row.spec && !row.plan);
    run_row_release(&row);
    struct queued *queue;
    size_t count;
    assert_fine(state_queue(state, &queue, &count, &err), err);
    assert_true(count == 3 && queue[1].need == runs[0] && queue[1].experiment == good && queue[1].gpus == 2 && queue[1].here);
    free(queue);
    add_run(state, "p", "moe-", 20, "moe-4"); // their numbers are free again
    state_close(state);
}

// A word that names no run is answered with what it may have meant.
static void test_what_was_meant(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    struct run_row row;
    add_run(state, "p", "moe-", 1, "moe-1");
    add_run(state, "q", "moe-", 2, "moe-1");
    add_run(state, "p", "moe-9", 3, "moe-9");
    add_run(state, "p", "moe-", 4, "moe-10");
    add_run(state, "p", "moe-seed2-", 5, "moe-seed2-1");
    static const char *const unknown[][2] = {
        {"nothing", "there is no run nothing"},
        {"moe", "there is no run moe; did you mean p/moe-10?"}, // the newest, a trial of a sweep after it
        {"q/moe", "there is no run q/moe; did you mean q/moe-1?"},
        {"p/moe-12", "there is no run p/moe-12; did you mean p/moe-10?"}, // a letter
        {"p", "there is no run p; p is a project: `switchyard ls --project p` has its runs"},
        {"r/moe-1", "there is no run r/moe-1"},
        {"4711_3", "there is no run 4711_3; it is the number of a job of p/moe-9"},
    };
    assert_int_equal(state_find_run(state, "p", "moe-9", &row, &err), 0);
    struct attempt_row attempt = {.run = row.id, .number = 1, .job = (char *)(uintptr_t)"4711_3"};
    assert_int_equal(state_put_attempt(state, &attempt, &err), 0);
    run_row_release(&row);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(state_resolve_run(state, unknown[i][0], &row, &err), 1);
        assert_string_equal(err.text, unknown[i][1]);
    }
    assert_true(state_has_project(state, "q"));
    assert_false(state_has_project(state, "moe"));
    state_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_meant, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_submissions, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
