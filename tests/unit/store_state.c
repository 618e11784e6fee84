// switchyard.db: rows come back as they were stored, names are numbered, a state changes with its event or not at all, and nothing is half
// written when the process is killed, the disk is full or the place is read-only.
#include "daemon/store/sql.h"
#include "tests/unit/state_support.h"

#include <math.h>

static void test_names(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    add_run(state, "p", "moe-", 1, "moe-1");
    add_run(state, "p", "moe-", 2, "moe-2");
    add_run(state, "q", "moe-", 3, "moe-1");
    add_run(state, "p", "moe-9", 4, "moe-9");
    add_run(state, "p", "moe-x", 5, "moe-x");
    add_run(state, "p", "moe-12b", 6, "moe-12b");
    add_run(state, "p", "moe-", 7, "moe-10");
    add_run(state, "p", "mo_-", 8, "mo_-1"); // an underscore is no wildcard
    struct run_row row = make_row("p", "moe-2", 9);
    assert_int_equal(state_add_run(state, &row, &err), -1);
    assert_non_null(strstr(err.text, "p/moe-2"));
    row = make_row("p", "fresh-", 1); // a run_id that is taken: nothing is stored, the name stays as asked
    assert_int_equal(state_add_run(state, &row, &err), -1);
    assert_string_equal(row.name, "fresh-");
    row = make_row("p", "1234567890123456789012345678901234567890123456789012345678901234", 10);
    row.name[63] = '-';
    assert_int_equal(state_add_run(state, &row, &err), -1);
    assert_non_null(strstr(err.text, "64"));
    static const char *const bad[][2] = {{"p", ".."}, {"../p", "a"}, {"p", ""}, {"", "a"}, {"p", "a/b"}, {"p", "a b"}, {"p", "caf\xC3\xA9"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        row = make_row(bad[i][0], bad[i][1], 11);
        assert_int_equal(state_add_run(state, &row, &err), -1);
        assert_non_null(strstr(err.text, "is no name for a"));
    }
    assert_int_equal(state_resolve_run(state, "moe-1", &row, &err), 2);
    assert_string_equal(err.text, "moe-1 names several runs: p/moe-1, q/moe-1");
    assert_int_equal(state_resolve_run(state, "q/moe-1", &row, &err), 0);
    assert_string_equal(row.project, "q");
    run_row_release(&row);
    assert_int_equal(state_resolve_run(state, "moe-10", &row, &err), 0);
    run_row_release(&row);
    assert_int_equal(state_resolve_run(state, "nothing", &row, &err), 1);
    state_close(state);
}

static void test_row(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    struct run_row row = make_row("p", "tokenize-", 1), back;
    row.experiment = state_add_experiment(state, "p", "/specs/a.yaml", "project: p\n", &err);
    assert_true(row.experiment > 0);
    strcpy(row.kind, "tokenize");
    row.reason = string_copy("because \xE2\x80\x98so\xE2\x80\x99");
    row.directory = string_copy("/runs/p/tokenize-1");
    row.dataset_key = string_copy("abc");
    row.spec = js_parse("{\"a\":[1,2.5,\"x\"]}", 17, &err);
    row.provenance = js_object();
    assert_fine(state_add_run(state, &row, &err), err);
    assert_int_equal(state_dataset_run(state, "abc", &back, &err), 1); // not before it is somebody's
    assert_true(state_dataset_created(state, "abc") && !state_dataset_created(state, "abd"));
    assert_fine(state_change(state, row.id, RUN_QUEUED, row.reason, "user", &err), err);
    state_close(state);
    state = open_state(context);
    assert_int_equal(state_dataset_run(state, "abc", &back, &err), 0);
    assert_string_equal(back.reason, row.reason);
    assert_string_equal(back.directory, row.directory);
    assert_null(back.executor);
    assert_null(back.plan);
    assert_true(js_equal(back.spec, row.spec));
    assert_true(back.created == row.created && back.created > 1e9);
    assert_int_equal(back.iterations, 7);
    assert_int_equal(back.experiment, row.experiment);
    run_row_release(&back);
    assert_int_equal(state_dataset_run(state, "other", &back, &err), 1);
    int64_t first = row.id, second = add_run(state, "p", "moe-", 2, "moe-1"), needed[4];
    size_t count;
    assert_fine(state_add_need(state, second, first, &err), err);
    assert_fine(state_add_need(state, second, first, &err), err);
    assert_fine(state_needs(state, second, needed, 4, &count, &err), err);
    assert_true(count == 1 && needed[0] == first);
    assert_int_equal(state_add_need(state, second, 999, &err), -1);
    run_row_release(&row);
    state_close(state);
}

static void test_changes(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t run = add_run(state, "p", "moe-", 1, "moe-1");
    assert_fine(state_change(state, run, RUN_QUEUED, NULL, "daemon", &err), err);
    assert_fine(state_change(state, run, RUN_RUNNING, "pid 12", "scheduler", &err), err);
    assert_fine(state_change(state, run, RUN_RUNNING, "pid 12", "scheduler", &err), err); // no news, no event
    assert_fine(state_request_cancel(state, run, &err), err);
    assert_fine(state_request_cancel(state, run, &err), err);
    assert_fine(state_change(state, run, RUN_CANCELLED, "asked", "exit record", &err), err);
    struct json *events = state_events(state, run, &err);
    assert_int_equal(js_count(events), 5); // created, queued, running, cancel, cancelled
    struct json *last = js_at(events, 4);
    assert_string_equal(js_string_of(js_get(last, "from"), ""), "running");
    assert_string_equal(js_string_of(js_get(last, "to"), ""), "cancelled");
    assert_string_equal(js_string_of(js_get(last, "witness"), ""), "exit record");
    int64_t third = js_integer_of(js_get(js_at(events, 2), "id"), 0);
    js_free(events);
    events = state_events_after(state, third, &err);
    assert_int_equal(js_count(events), 2);
    assert_string_equal(js_string_of(js_get(js_at(events, 0), "run"), ""), "p/moe-1");
    js_free(events);
    struct run_row row;
    assert_int_equal(state_get_run(state, run, &row, &err), 0);
    assert_true(row.started > 0 && row.ended >= row.started && row.cancel_requested);
    run_row_release(&row);
    size_t count;
    assert_fine(state_runs_after(state, "p", 0, 1, &row, &count, &err), err);
    assert_true(count == 1 && row.id == run && state_count_alive(state) == 0);
    run_row_release(&row);
    assert_fine(state_runs_after(state, NULL, run, 1, &row, &count, &err), err);
    assert_int_equal(count, 0);
    assert_fine(state_change(state, run, RUN_QUEUED, "retry", "user", &err), err);
    assert_int_equal(state_get_run(state, run, &row, &err), 0);
    assert_true(row.ended == 0 && !row.cancel_requested);
    run_row_release(&row);
    assert_int_equal(state_change(state, 77, RUN_LOST, NULL, "daemon", &err), -1);
    state_close(state);
}

struct heads {
    int64_t ids[8];
    size_t count;
    struct run_head last;
    char excluded[32];
};

static void take_head(void *context, const struct run_head *head)
{
    struct heads *heads = context;
    heads->ids[heads->count++] = head->id;
    heads->last = *head;
    snprintf(heads->excluded, sizeof heads->excluded, "%s", head->excluded ? head->excluded : "none");
}

static int64_t need_of(struct state *state, int64_t run)
{
    struct queued *queue;
    size_t count;
    struct error err;
    assert_fine(state_queue(state, &queue, &count, &err), err);
    int64_t need = -1;
    for (size_t i = 0; i < count; i++)
        if (queue[i].run == run)
            need = queue[i].need;
    free(queue);
    return need;
}

static void test_alive(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t first = add_run(state, "p", "moe-", 1, "moe-1"), second = add_run(state, "p", "moe-", 2, "moe-2");
    int64_t third = add_run(state, "p", "moe-", 3, "moe-3");
    struct needed_run needed;
    struct queued *queue;
    size_t count;
    int64_t before = state_changes(state);
    assert_fine(state_change(state, third, RUN_QUEUED, "a reason", "daemon", &err), err);
    assert_true(state_changes(state) > before);
    assert_fine(state_queue(state, &queue, &count, &err), err);
    assert_true(count == 1 && queue->run == third && queue->need == 0 && queue->reason == string_hash("a reason") && !queue->experiment);
    free(queue);
    assert_fine(state_add_need(state, third, first, &err), err);
    assert_fine(state_add_need(state, third, second, &err), err);
    assert_int_equal(need_of(state, third), first);
    assert_fine(state_needed(state, first, &needed, &err), err);
    assert_true(strcmp(needed.name, "moe-1") == 0 && needed.state == RUN_CREATED && !needed.reason[0]);
    assert_fine(state_change(state, first, RUN_SUCCEEDED, NULL, "daemon", &err), err);
    assert_int_equal(need_of(state, third), second);
    assert_fine(state_change(state, first, RUN_QUEUED, NULL, "daemon", &err), err);
    assert_fine(state_change(state, second, RUN_LOST, "power", "daemon", &err), err); // what has failed comes before what is waited for
    assert_int_equal(need_of(state, third), second);
    assert_fine(state_needed(state, second, &needed, &err), err);
    assert_true(strcmp(needed.name, "moe-2") == 0 && needed.state == RUN_LOST && strcmp(needed.reason, "power") == 0);
    assert_int_equal(state_needed(state, 99, &needed, &err), 1);
    assert_fine(state_change(state, first, RUN_RUNNING, NULL, "daemon", &err), err);
    assert_fine(state_set_retry(state, third, 2, 12.5, "n1,n2", &err), err);
    assert_fine(state_set_reason(state, third, "because", &err), err);
    struct heads heads = {0};
    assert_fine(state_each_active(state, take_head, &heads, &err), err);
    assert_true(heads.count == 1 && heads.ids[0] == first && state_count_alive(state) == 2);
    assert_fine(state_head(state, third, take_head, &heads, &err), err);
    assert_true(heads.count == 2 && heads.ids[1] == third && heads.last.state == RUN_QUEUED);
    assert_true(heads.last.retries == 2 && heads.last.retry_at == 12.5 && strcmp(heads.excluded, "n1,n2") == 0);
    struct run_row row;
    assert_int_equal(state_get_run(state, third, &row, &err), 0);
    assert_true(row.retries == 2 && strcmp(row.excluded, "n1,n2") == 0 && strcmp(row.reason, "because") == 0);
    run_row_release(&row);
    struct json *events = state_events(state, third, &err);
    assert_int_equal(js_count(events), 2); // created, queued; a reason alone is no event
    js_free(events);
    state_close(state);
}

static void test_done_before(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t run = add_run(state, "p", "moe-", 1, "moe-1");
    struct attempt_row first = {.run = run, .number = 1, .code = 0};
    assert_fine(state_put_attempt(state, &first, &err), err);
    assert_int_equal(state_done_before(state, run, 2, &err), 0); // it is still open
    first.ended = 5;
    assert_fine(state_put_attempt(state, &first, &err), err);
    assert_int_equal(state_done_before(state, run, 1, &err), 0);
    assert_int_equal(state_done_before(state, run, 2, &err), 1);
    first.code = 75;
    assert_fine(state_put_attempt(state, &first, &err), err);
    assert_int_equal(state_done_before(state, run, 2, &err), 0);
    state_close(state);
}

// What came of a run is known until it goes on.
static void test_outcome(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t run = add_run(state, "p", "moe-", 1, "moe-1");
    struct outcome_row outcome = {.step = 7, .diverged_step = 6, .last = js_object()}, back = {0};
    js_set(outcome.last, "loss", js_real(NAN));
    assert_int_equal(state_get_outcome(state, run, &back, &err), 1);
    assert_fine(state_change(state, run, RUN_FAILED, "it broke", "exit record", &err), err);
    assert_fine(state_put_outcome(state, run, &outcome, &err), err);
    assert_fine(state_change(state, run, RUN_LOST, "it is lost", "heartbeat", &err), err);
    assert_int_equal(state_get_outcome(state, run, &back, &err), 0);
    assert_true(back.step == 7 && back.diverged_step == 6 && isnan(js_real_of(js_get(back.last, "loss"), 0)));
    js_free(back.last);
    assert_fine(state_change(state, run, RUN_QUEUED, "once more", "user", &err), err);
    assert_int_equal(state_get_outcome(state, run, &back, &err), 1);
    js_free(outcome.last);
    state_close(state);
}

extern const char switchyard_sql[];

// A file of version 1 is taken over, and attempts that newer ones took over from are closed.
static void test_from_version_1(void **context)
{
    struct error err;
    struct sql *sql;
    char *path = in_folder(context, "old.db");
    assert_fine(sql_open(&sql, path, &(struct sql_options){.create = true}, &err), err);
    assert_fine(sql_script(sql, switchyard_sql, &err), err);
    assert_fine(sql_script(sql,
        "INSERT INTO runs(project, name, run_id, kind, state, created, attempt) VALUES ('p', 'moe-1', 'x', 'train', 'running', 1, 2);"
        "INSERT INTO attempts VALUES (1, 1, '7', 1, 'running', 10, 0, -1, 0, 5, 6), (1, 2, '8', 1, 'running', 20, 0, -1, 0, 7, 8);"
        "PRAGMA user_version=1", &err), err);
    sql_close(sql);
    struct state *state = NULL;
    assert_fine(state_open(&state, path, &err), err);
    struct attempt_row first, second;
    assert_int_equal(state_get_attempt(state, 1, 1, &first, &err), 0);
    assert_int_equal(state_get_attempt(state, 1, 2, &second, &err), 0);
    assert_true(strcmp(first.state, "superseded") == 0 && first.ended == 10 && first.ingest_offset == 5);
    assert_true(strcmp(second.state, "running") == 0 && second.ended == 0);
    attempt_row_release(&first);
    attempt_row_release(&second);
    struct run_row row;
    assert_int_equal(state_get_run(state, 1, &row, &err), 0);
    assert_true(row.retries == 0 && row.retry_at == 0 && !row.excluded);
    run_row_release(&row);
    state_close(state);
    free(path);
}

static void test_history(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t run = add_run(state, "p", "moe-", 1, "moe-1");
    struct attempt_row attempt = {.run = run, .number = 2, .job = "123", .job_started = 5.25, .state = "running", .code = -1, .ingest_offset = 99}, back;
    assert_fine(state_put_attempt(state, &attempt, &err), err);
    attempt.ingest_offset = 1000;
    assert_fine(state_put_attempt(state, &attempt, &err), err);
    assert_int_equal(state_get_attempt(state, run, 2, &back, &err), 0);
    assert_true(back.ingest_offset == 1000 && back.code == -1 && back.job_started == 5.25 && strcmp(back.job, "123") == 0);
    attempt_row_release(&back);
    assert_int_equal(state_get_attempt(state, run, 3, &back, &err), 1);
    struct run_row row;
    assert_int_equal(state_get_run(state, run, &row, &err), 0);
    assert_int_equal(row.attempt, 2);
    run_row_release(&row);
    struct json *attempts = state_attempts(state, run, &err);
    assert_int_equal(js_kind(js_get(js_at(attempts, 0), "code")), JSON_KIND_NULL);
    js_free(attempts);
    struct json *body = js_object();
    js_set(body, "counts", js_integer(3));
    for (int i = 0; i < 2; i++) { // the second time changes nothing
        assert_fine(state_add_note(state, run, 2, 10, "expert_load", body, &err), err);
        assert_fine(state_add_note(state, run, 2, 11, "data", body, &err), err);
        assert_fine(state_keep_aside(state, run, 2, 40, "{broken\0x", 9, "torn", &err), err);
    }
    struct json *notes = state_notes(state, run, NULL, -1, 100, &err);
    assert_int_equal(js_count(notes), 2);
    assert_true(js_equal(js_get(js_at(notes, 1), "body"), body));
    js_free(notes);
    notes = state_notes(state, run, "data", 10, 100, &err);
    assert_int_equal(js_count(notes), 1);
    js_free(notes);
    struct json *aside = state_kept_aside(state, run, &err);
    assert_int_equal(js_count(aside), 1);
    assert_string_equal(js_string_of(js_get(js_at(aside, 0), "raw"), ""), "{broken");
    js_free(aside);
    js_free(body);
    state_close(state);
}

static void test_batches(void **context)
{
    struct state *state = open_state(context);
    struct error err;
    int64_t run = add_run(state, "p", "moe-", 1, "moe-1");
    assert_fine(state_begin(state, &err), err);
    assert_fine(state_change(state, run, RUN_RUNNING, NULL, "daemon", &err), err);
    struct run_row taken = make_row("p", "moe-1", 2);
    assert_int_equal(state_add_run(state, &taken, &err), -1); // the inner failure is undone, the batch goes on
    assert_fine(state_add_event(state, run, "resumed", "at 3", "worker", 1.5, &err), err);
    assert_fine(state_end(state, 0, &err), err);
    assert_fine(state_begin(state, &err), err);
    assert_fine(state_change(state, run, RUN_FAILED, NULL, "daemon", &err), err);
    state_end(state, -1, NULL);
    struct run_row row;
    assert_int_equal(state_get_run(state, run, &row, &err), 0);
    assert_int_equal(row.state, RUN_RUNNING);
    run_row_release(&row);
    struct json *events = state_events(state, run, &err);
    assert_int_equal(js_count(events), 3);
    js_free(events);
    state_close(state);
}

static void test_refusals(void **context)
{
    struct error err;
    struct state *state = NULL;
    struct sql *sql;
    char *newer = in_folder(context, "newer.db"), *foreign = in_folder(context, "foreign.db"), *text = in_folder(context, "text.db");
    assert_fine(sql_open(&sql, newer, &(struct sql_options){.create = true}, &err), err);
    assert_fine(sql_script(sql, "PRAGMA user_version=9", &err), err);
    sql_close(sql);
    assert_int_equal(state_open(&state, newer, &err), -1);
    assert_non_null(strstr(err.text, "newer switchyard (version 9"));
    assert_fine(sql_open(&sql, foreign, &(struct sql_options){.create = true}, &err), err);
    assert_fine(sql_script(sql, "CREATE TABLE cats(name)", &err), err);
    sql_close(sql);
    assert_int_equal(state_open(&state, foreign, &err), -1);
    assert_non_null(strstr(err.text, "not Switchyard's"));
    char *prose = allocate(5000, 1);
    memset(prose, 'x', 4999);
    assert_fine(file_write_atomic(text, prose, 4999, 0644, &err), err);
    assert_int_equal(state_open(&state, text, &err), -1);
    assert_non_null(strstr(err.text, "not an SQLite database"));
    assert_int_equal(file_size(text), 4999);
    assert_int_equal(state_open(&state, "/proc/nowhere/switchyard.db", &err), -1);
    free(prose);
    free(newer);
    free(foreign);
    free(text);
}

// ---- faults ----

// State and event change together, over and over, until killed.
static void change_for_ever(void *context)
{
    struct state *state = NULL;
    if (state_open(&state, context, NULL) != 0)
        return;
    struct run_row row = {0};
    if (state_resolve_run(state, "moe-1", &row, NULL) != 0)
        return;
    for (int64_t i = row.attempt + 1;; i++) {
        struct attempt_row attempt = {.run = row.id, .number = i, .code = -1};
        if (state_begin(state, NULL) != 0 || state_put_attempt(state, &attempt, NULL) != 0 ||
            state_change(state, row.id, i % 2 ? RUN_RUNNING : RUN_PENDING, NULL, "daemon", NULL) != 0 || state_end(state, 0, NULL) != 0)
            return;
    }
}

static void test_killed(void **context)
{
    struct error err;
    char *path = in_folder(context, "home/switchyard.db");
    struct state *state = open_state(context);
    int64_t run = add_run(state, "p", "moe-", 1, "moe-1"), last = 0;
    state_close(state);
    for (int round = 0; round < 8 || (last == 0 && round < 60); round++) { // a busy machine may take long to begin
        run_and_kill(change_for_ever, path, (40 + 7 * round) * 1000);
        state = open_state(context);
        struct run_row row;
        assert_int_equal(state_get_run(state, run, &row, &err), 0);
        struct json *events = state_events(state, run, &err), *attempts = state_attempts(state, run, &err);
        assert_int_equal(js_count(events), row.attempt + 1);
        assert_int_equal(js_count(attempts), row.attempt);
        assert_int_equal(row.state, row.attempt == 0 ? RUN_CREATED : row.attempt % 2 ? RUN_RUNNING : RUN_PENDING);
        assert_true(row.attempt >= last);
        last = row.attempt;
        js_free(events);
        js_free(attempts);
        run_row_release(&row);
        state_close(state);
    }
    assert_true(last > 0);
    free(path);
}

// One state_change at a time, without a batch: the run and its last event say the same.
static void change_one_by_one(void *context)
{
    struct state *state = NULL;
    if (state_open(&state, context, NULL) != 0)
        return;
    for (int i = 0;; i++) {
        char reason[32];
        snprintf(reason, sizeof reason, "change %d", i);
        if (state_change(state, 1, i % 2 ? RUN_RUNNING : RUN_PENDING, reason, "daemon", NULL) != 0)
            return;
    }
}

static void test_killed_in_change(void **context)
{
    struct error err;
    char *path = in_folder(context, "home/switchyard.db");
    struct state *state = open_state(context);
    assert_int_equal(add_run(state, "p", "moe-", 1, "moe-1"), 1);
    state_close(state);
    size_t changes = 1;
    for (int round = 0; round < 25 || (changes == 1 && round < 60); round++) {
        run_and_kill(change_one_by_one, path, 20000 + 1300 * round);
        state = open_state(context);
        struct run_row row;
        assert_int_equal(state_get_run(state, 1, &row, &err), 0);
        struct json *events = state_events(state, 1, &err);
        changes = js_count(events);
        struct json *last = js_at(events, changes - 1);
        assert_string_equal(js_string_of(js_get(last, "reason"), ""), row.reason ? row.reason : "");
        assert_string_equal(js_string_of(js_get(last, "to"), ""), run_state_name(row.state));
        js_free(events);
        run_row_release(&row);
        state_close(state);
    }
    assert_true(changes > 1);
    free(path);
}

// What a full disk may do in the middle of a batch: SQLite ends the whole transaction. Then nothing of the batch is stored, and it says so.
static void test_undone(void **context)
{
    struct error err;
    struct sql *sql;
    char *path = in_folder(context, "x.db");
    int64_t rows;
    assert_fine(sql_open(&sql, path, &(struct sql_options){.create = true}, &err), err);
    assert_fine(sql_script(sql, "CREATE TABLE t(x)", &err), err);
    assert_fine(sql_begin(sql, &err), err);
    assert_fine(sql_do(sql, &err, "INSERT INTO t VALUES (?)", "i", (int64_t)1), err);
    assert_fine(sql_script(sql, "ROLLBACK", &err), err);
    assert_int_equal(sql_begin(sql, &err), -1);
    assert_int_equal(sql_end(sql, 0, &err), -1);
    assert_non_null(strstr(err.text, "undone"));
    assert_fine(sql_begin(sql, &err), err);
    assert_fine(sql_do(sql, &err, "INSERT INTO t VALUES (?)", "i", (int64_t)2), err);
    assert_fine(sql_end(sql, 0, &err), err);
    assert_fine(sql_number(sql, &rows, -1, &err, "SELECT sum(x) FROM t", ""), err);
    assert_int_equal(rows, 2);
    sql_close(sql);
    free(path);
}

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return __LINE__; \
    } while (0)

static int fill_disk(const char *folder)
{
    struct error err = {0};
    struct state *state = NULL;
    char *path = path_join(folder, "switchyard.db");
    CHECK(state_open(&state, path, &err) == 0);
    struct run_row row = make_row("p", "moe-", 1);
    CHECK(state_add_run(state, &row, &err) == 0);
    char *raw = allocate(8192, 1);
    int stored = 0, status = 0;
    for (; status == 0 && stored < 10000; stored += status == 0) {
        CHECK(state_begin(state, &err) == 0);
        status = state_keep_aside(state, row.id, stored, 0, raw, 8192, "test", &err);
        if (status == 0)
            status = state_keep_aside(state, row.id, stored, 1, raw, 8192, "test", &err);
        status = state_end(state, status, &err);
    }
    CHECK(status == -1 && stored > 2 && stored < 10000);
    double since = 0;
    CHECK(strstr(err.text, "disk is full"));
    CHECK(strcmp(state_stuck(state, &since), err.text) == 0 && since > 0);
    state_close(state);
    CHECK(state_open(&state, path, &err) == 0);
    struct json *lines = state_kept_aside(state, row.id, &err);
    CHECK((int)js_count(lines) == 2 * stored); // both of a batch or none
    js_free(lines);
    state_close(state);
    free(raw);
    free(path);
    return 0;
}

static void test_full_disk(void **context)
{
    if (!run_on_mount(fill_disk, *context, 1024))
        skip();
}

static int open_read_only(const char *folder)
{
    struct error err = {0};
    struct state *state = NULL;
    char *path = path_join(folder, "switchyard.db"), *there = path_join(folder, "home/switchyard.db");
    CHECK(state_open(&state, path, &err) == -1);
    CHECK(strstr(err.text, "Read-only file system"));
    CHECK(state_open(&state, there, &err) == -1);
    CHECK(strstr(err.text, "read-only"));
    free(path);
    free(there);
    return 0;
}

static void test_read_only(void **context)
{
    state_close(open_state(context));
    if (!run_on_mount(open_read_only, *context, 0))
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_row, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_changes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_alive, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_done_before, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_outcome, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_from_version_1, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_history, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_batches, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refusals, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_killed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_killed_in_change, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_undone, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_full_disk, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_read_only, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
