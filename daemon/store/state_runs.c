// Experiments and runs: adding, finding, and the one way a state changes.
#include "daemon/store/state_inside.h"
#include "schema/base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"created", "queued", "submitted", "pending", "running", "finishing", "succeeded", "failed",
    "cancelled", "timed_out", "out_of_memory", "lost"};

const char *run_state_name(enum run_state state)
{
    assert(state <= RUN_LOST);
    return state_names[state];
}

bool run_state_parse(enum run_state *state, const char *name)
{
    for (int i = 0; i <= RUN_LOST; i++)
        if (name && strcmp(name, state_names[i]) == 0) {
            *state = (enum run_state)i;
            return true;
        }
    return false;
}

void run_row_release(struct run_row *row)
{
    free(row->reason);
    free(row->directory);
    free(row->executor);
    free(row->dataset_key);
    free(row->excluded);
    free(row->commit);
    js_free(row->spec);
    js_free(row->plan);
    js_free(row->provenance);
    *row = (struct run_row){0};
}

// ---- adding ----

int64_t state_add_experiment(struct state *state, const char *project, const char *spec_path, const char *spec_text, struct error *err)
{
    if (sql_do(state->sql, err, "INSERT INTO experiments(project, spec_path, spec_text, created, complete) VALUES (?, ?, ?, ?, 0)", "tttr", project,
            spec_path, spec_text, clock_wall()) != 0)
        return -1;
    return sql_last_id(state->sql);
}

// Names become directories and parts of addresses, so nothing else gets in, whoever asks.
static int check_name(const char *what, const char *name, struct error *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    if (!*name || name[strspn(name, allowed)])
        return error_set(err, "'%s' is no name for a %s: 1 to 64 letters, digits, '-' and '_'", name, what);
    return 0;
}

int state_number_name(struct state *state, struct run_row *row, struct error *err)
{
    if (check_name("project", row->project, err) != 0 || check_name("run", row->name, err) != 0)
        return -1;
    if (row->name[strlen(row->name) - 1] != '-')
        return 0;
    int64_t last;
    if (sql_number(state->sql, &last, 0, err,
            "SELECT max(CAST(substr(name, length(?1) + 1) AS INTEGER)) FROM runs WHERE project = ?2 AND name >= ?1 || '0' AND name < ?1 || ':' "
            "AND substr(name, length(?1) + 1) NOT GLOB '*[^0-9]*'", "tt", row->name, row->project) != 0)
        return -1;
    char *name = string_format("%s%lld", row->name, (long long)last + 1);
    int status = 0;
    if (strlen(name) >= sizeof row->name)
        status = error_set(err, "%s/%s: a run's name has at most %zu characters", row->project, name, sizeof row->name - 1);
    else
        strcpy(row->name, name);
    free(name);
    return status;
}

int state_insert_run(struct state *state, struct run_row *row, struct error *err)
{
    int64_t taken;
    if (sql_number(state->sql, &taken, 0, err, "SELECT count(*) FROM runs WHERE project = ? AND name = ?",
            "tt", row->project, row->name) != 0)
        return -1;
    if (taken)
        return error_set(err, "%s/%s: there is a run of that name already", row->project, row->name);
    if (sql_do(state->sql, err, "INSERT INTO runs(experiment, project, name, run_id, kind, state, reason, directory, executor, dataset_key, "
            "created, iterations) VALUES (nullif(?, 0), ?, ?, ?, ?, 'created', ?, ?, ?, ?, ?, ?)", "ittttttttri", row->experiment, row->project, row->name,
            row->run_id, row->kind, row->reason, row->directory, row->executor, row->dataset_key, row->created, row->iterations) != 0)
        return -1;
    row->id = sql_last_id(state->sql);
    row->state = RUN_CREATED;
    return 0;
}

static int insert_whole(struct state *state, struct run_row *row, struct error *err)
{
    if (state_number_name(state, row, err) != 0 || state_insert_run(state, row, err) != 0 || state_put_documents(state, row, err) != 0)
        return -1;
    return state_insert_event(state, row->id, row->created, "state", NULL, "created", row->reason, "user", err);
}

int state_add_run(struct state *state, struct run_row *row, struct error *err)
{
    char asked[sizeof row->name];
    strcpy(asked, row->name);
    if (row->created == 0)
        row->created = clock_wall();
    if (sql_begin(state->sql, err) != 0)
        return -1;
    if (sql_end(state->sql, insert_whole(state, row, err), err) != 0) {
        strcpy(row->name, asked);
        row->id = 0;
        return -1;
    }
    return 0;
}

int state_add_need(struct state *state, int64_t run, int64_t needed_run, struct error *err)
{
    return sql_do(state->sql, err, "INSERT OR IGNORE INTO needs(run, needed) VALUES (?, ?)", "ii", run, needed_run);
}

int state_needs(struct state *state, int64_t run, int64_t *needed, size_t max, size_t *count, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT needed FROM needs WHERE run = ? ORDER BY needed LIMIT ?", "ii", run, (int64_t)max);
    if (!query)
        return -1;
    int got;
    for (*count = 0; (got = sql_step(query, err)) > 0; ++*count)
        needed[*count] = sql_integer(query, 0);
    sql_done(query);
    return got;
}

#define ACTIVE "('submitted', 'pending', 'running', 'finishing')"

static void copy_short(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

int state_needed(struct state *state, int64_t run, struct needed_run *needed, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT state, project, name, reason FROM runs WHERE id = ?", "i", run);
    if (!query)
        return -1;
    int got = sql_step(query, err);
    if (got > 0) {
        if (!run_state_parse(&needed->state, sql_text(query, 0)))
            needed->state = RUN_LOST;
        copy_short(needed->project, sizeof needed->project, sql_text(query, 1));
        copy_short(needed->name, sizeof needed->name, sql_text(query, 2));
        copy_short(needed->reason, sizeof needed->reason, sql_text(query, 3));
    }
    sql_done(query);
    return got < 0 ? -1 : got > 0 ? 0 : 1;
}

struct json *state_open_needs(struct state *state, int64_t run, int64_t max)
{
    struct json *names = js_array();
    struct sql_query *query = sql_ask(state->sql, NULL, "SELECT r.project || '/' || r.name FROM needs n JOIN runs r ON r.id = n.needed "
        "WHERE n.run = ? AND r.state <> 'succeeded' ORDER BY r.id LIMIT ?", "ii", run, max);
    while (query && sql_step(query, NULL) > 0)
        js_append(names, js_string(sql_text(query, 0)));
    sql_done(query);
    return names;
}

// ---- finding ----

#define RUN_COLUMNS \
    "id, experiment, project, name, run_id, kind, state, reason, directory, executor, dataset_key, created, started, ended, attempt, " \
    "iterations, cancel_requested, retries, retry_at, excluded, code_commit, code_dirty, experts"

static void read_run(struct run_row *row, struct sql_query *query)
{
    *row = (struct run_row){.id = sql_integer(query, 0), .experiment = sql_integer(query, 1)};
    copy_short(row->project, sizeof row->project, sql_text(query, 2));
    copy_short(row->name, sizeof row->name, sql_text(query, 3));
    copy_short(row->run_id, sizeof row->run_id, sql_text(query, 4));
    copy_short(row->kind, sizeof row->kind, sql_text(query, 5));
    if (!run_state_parse(&row->state, sql_text(query, 6)))
        row->state = RUN_LOST; // a word this version does not know
    row->reason = string_copy(sql_text(query, 7));
    row->directory = string_copy(sql_text(query, 8));
    row->executor = string_copy(sql_text(query, 9));
    row->dataset_key = string_copy(sql_text(query, 10));
    row->created = sql_real(query, 11);
    row->started = sql_real(query, 12);
    row->ended = sql_real(query, 13);
    row->attempt = sql_integer(query, 14);
    row->iterations = sql_integer(query, 15);
    row->cancel_requested = sql_integer(query, 16) != 0;
    row->retries = sql_integer(query, 17);
    row->retry_at = sql_real(query, 18);
    row->excluded = string_copy(sql_text(query, 19));
    row->commit = string_copy(sql_text(query, 20));
    row->dirty = sql_is_null(query, 21) ? -1 : sql_integer(query, 21) != 0;
    row->experts = sql_integer(query, 22);
}

// The first row of a query, which it ends: 0 found, 1 none.
static int take_row(struct sql_query *query, struct run_row *row, struct error *err)
{
    if (!query)
        return -1;
    int got = sql_step(query, err);
    if (got > 0)
        read_run(row, query);
    sql_done(query);
    return got < 0 ? -1 : got > 0 ? 0 : 1;
}

int state_read_documents(struct state *state, struct run_row *row, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT spec, plan, provenance FROM documents WHERE run = ?", "i", row->id);
    if (!query)
        return -1;
    int got = sql_step(query, err);
    if (got > 0) {
        row->spec = sql_json(query, 0);
        row->plan = sql_json(query, 1);
        row->provenance = sql_json(query, 2);
    }
    sql_done(query);
    return got < 0 ? -1 : 0;
}

// The same with its documents.
static int take_one(struct state *state, struct sql_query *query, struct run_row *row, struct error *err)
{
    int found = take_row(query, row, err);
    if (found == 0 && state_read_documents(state, row, err) != 0) {
        run_row_release(row);
        return -1;
    }
    return found;
}

int state_find_run(struct state *state, const char *project, const char *name, struct run_row *row, struct error *err)
{
    return take_one(state, sql_ask(state->sql, err, "SELECT " RUN_COLUMNS " FROM runs WHERE project = ? AND name = ?", "tt", project, name), row, err);
}

int state_find_run_id(struct state *state, const char *run_id, struct run_row *row, struct error *err)
{
    return take_one(state, sql_ask(state->sql, err, "SELECT " RUN_COLUMNS " FROM runs WHERE run_id = ?", "t", run_id), row, err);
}

int state_get_run(struct state *state, int64_t id, struct run_row *row, struct error *err)
{
    return take_one(state, sql_ask(state->sql, err, "SELECT " RUN_COLUMNS " FROM runs WHERE id = ?", "i", id), row, err);
}

int state_dataset_run(struct state *state, const char *dataset_key, struct run_row *row, struct error *err)
{
    return take_one(state, sql_ask(state->sql, err, "SELECT " RUN_COLUMNS " FROM runs WHERE dataset_key = ? AND kind = 'tokenize' AND state <> 'created' ORDER BY id DESC LIMIT 1",
        "t", dataset_key), row, err);
}

// Says which runs a short name could mean; -1, 1 (none), 2 (several), or 0 with the id of the only one.
static int find_short_name(struct state *state, const char *name, int64_t *id, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT id, project FROM runs WHERE name = ? ORDER BY project", "t", name);
    if (!query)
        return -1;
    struct text projects;
    text_init(&projects, 512);
    int count = 0, got;
    for (; (got = sql_step(query, err)) > 0; count++) {
        *id = sql_integer(query, 0);
        text_addf(&projects, "%s%s/%s", count ? ", " : "", sql_text(query, 1), name);
    }
    sql_done(query);
    if (got == 0 && count > 1)
        error_set(err, "%s names several runs: %s%s", name, projects.at, projects.overflowed ? "…" : "");
    text_release(&projects);
    return got < 0 ? -1 : count == 0 ? 1 : count == 1 ? 0 : 2;
}

int state_resolve_run(struct state *state, const char *text, struct run_row *row, struct error *err)
{
    const char *slash = strchr(text, '/');
    int64_t id = 0;
    int found;
    if (slash) {
        char *project = string_format("%.*s", (int)(slash - text), text);
        found = state_find_run(state, project, slash + 1, row, err);
        free(project);
    } else {
        found = find_short_name(state, text, &id, err);
        if (found == 0)
            found = state_get_run(state, id, row, err);
    }
    if (found == 1) {
        char *meant = state_run_meant(state, text);
        error_set(err, "there is no run %s%s", text, meant);
        free(meant);
    }
    return found;
}

int state_runs_after(struct state *state, const char *project, int64_t after, size_t limit, struct run_row *rows, size_t *count, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT " RUN_COLUMNS " FROM runs WHERE (?1 IS NULL OR project = ?1) AND id > ?2 "
        "AND state <> 'created' ORDER BY id LIMIT ?3", "tii", project, after, (int64_t)limit);
    *count = 0;
    int got = -1;
    while (query && (got = sql_step(query, err)) > 0)
        read_run(&rows[(*count)++], query);
    sql_done(query);
    return got;
}

#define HEADS \
    "SELECT id, attempt, retries, retry_at, runs.state, cancel_requested, project, name, run_id, kind, reason, directory, executor, dataset_key, " \
    "excluded, job, job_started FROM runs LEFT JOIN attempts ON attempts.run = runs.id AND attempts.number = runs.attempt "

// Runs a query of HEADS to its end.
static int visit_heads(struct sql_query *query, state_head_visitor *visit, void *context, struct error *err)
{
    if (!query)
        return -1;
    int got;
    while ((got = sql_step(query, err)) > 0) {
        struct run_head head = {.id = sql_integer(query, 0), .attempt = sql_integer(query, 1), .retries = sql_integer(query, 2),
            .retry_at = sql_real(query, 3), .cancel_requested = sql_integer(query, 5) != 0, .project = sql_text(query, 6),
            .name = sql_text(query, 7), .run_id = sql_text(query, 8), .kind = sql_text(query, 9), .reason = sql_text(query, 10),
            .directory = sql_text(query, 11), .executor = sql_text(query, 12), .dataset_key = sql_text(query, 13),
            .excluded = sql_text(query, 14), .job = sql_text(query, 15), .job_started = sql_real(query, 16)};
        if (run_state_parse(&head.state, sql_text(query, 4)))
            visit(context, &head);
    }
    sql_done(query);
    return got;
}

int state_each_active(struct state *state, state_head_visitor *visit, void *context, struct error *err)
{
    return visit_heads(sql_ask(state->sql, err, HEADS "WHERE runs.state IN " ACTIVE " ORDER BY id", ""), visit, context, err);
}

int state_head(struct state *state, int64_t run, state_head_visitor *visit, void *context, struct error *err)
{
    return visit_heads(sql_ask(state->sql, err, HEADS "WHERE id = ?", "i", run), visit, context, err);
}

int64_t state_count_alive(struct state *state)
{
    int64_t count = 0;
    return sql_number(state->sql, &count, 0, NULL, "SELECT count(*) FROM runs WHERE state = 'queued' OR state IN " ACTIVE, "") == 0 ? count : 0;
}

int state_alive_before(struct state *state, const char *project, int64_t experiment, int64_t before, size_t limit, int64_t *runs,
    enum run_state *states, size_t *count, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT id, state FROM runs WHERE (state = 'queued' OR state IN " ACTIVE ") AND (?1 IS NULL "
        "OR project = ?1) AND (?2 = 0 OR experiment = ?2) AND id < ?3 ORDER BY id DESC LIMIT ?4", "tiii", project, experiment, before, (int64_t)limit);
    int got = -1;
    *count = 0;
    while (query && (got = sql_step(query, err)) > 0) {
        runs[*count] = sql_integer(query, 0);
        if (run_state_parse(&states[*count], sql_text(query, 1)))
            ++*count;
    }
    sql_done(query);
    return got;
}

// ---- changing ----

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int change(struct state *state, int64_t run, enum run_state to, const char *reason, const char *witness, struct error *err)
{
    struct run_row row;
    int found = take_row(sql_ask(state->sql, err, "SELECT " RUN_COLUMNS " FROM runs WHERE id = ?", "i", run), &row, err);
    if (found != 0)
        return found < 0 ? -1 : error_set(err, "there is no run with id %lld", (long long)run);
    enum run_state from = row.state;
    bool nothing_new = from == to && same_text(row.reason, reason);
    double now = clock_wall();
    double started = row.started == 0 && to == RUN_RUNNING ? now : row.started;
    double ended = !run_state_ended(to) ? 0 : run_state_ended(from) && row.ended != 0 ? row.ended : now;
    bool cancel = row.cancel_requested && !(run_state_ended(from) && !run_state_ended(to));
    run_row_release(&row);
    if (nothing_new)
        return 0;
    state->changes++;
    if (sql_do(state->sql, err, "UPDATE runs SET state = ?, reason = ?, started = ?, ended = ?, cancel_requested = ? WHERE id = ?", "ttrrii",
            run_state_name(to), reason, started, ended, (int64_t)cancel, run) != 0)
        return -1;
    if (run_state_ended(from) && !run_state_ended(to) && state_drop_outcome(state, run, err) != 0)
        return -1;
    return state_insert_event(state, run, now, "state", run_state_name(from), run_state_name(to), reason, witness, err);
}

int state_change(struct state *state, int64_t run, enum run_state to, const char *reason, const char *witness, struct error *err)
{
    if (sql_begin(state->sql, err) != 0)
        return -1;
    return sql_end(state->sql, change(state, run, to, reason, witness, err), err);
}

int state_set_reason(struct state *state, int64_t run, const char *reason, struct error *err)
{
    return sql_do(state->sql, err, "UPDATE runs SET reason = ? WHERE id = ?", "ti", reason, run);
}

int state_set_retry(struct state *state, int64_t run, int64_t retries, double retry_at, const char *excluded, struct error *err)
{
    state->changes++;
    return sql_do(state->sql, err, "UPDATE runs SET retries = ?, retry_at = ?, excluded = ? WHERE id = ?", "irti", retries, retry_at, excluded, run);
}

int state_request_cancel(struct state *state, int64_t run, struct error *err)
{
    if (sql_begin(state->sql, err) != 0)
        return -1;
    int status = sql_do(state->sql, err, "UPDATE runs SET cancel_requested = 1 WHERE id = ? AND cancel_requested = 0", "i", run);
    if (status == 0 && sql_changes(state->sql) > 0)
        status = state_insert_event(state, run, clock_wall(), "cancel", NULL, NULL, "cancel requested", "user", err);
    return sql_end(state->sql, status, err);
}
