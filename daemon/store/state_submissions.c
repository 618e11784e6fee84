// Taking in a submission in many small transactions, so that ten thousand runs hold nobody up: rows come first, in state created, which no
// list and no tick shows; then what is long about them; then the experiment is marked complete, and from that moment on all of it is
// stored. What a daemon that was killed left behind is undone before that moment, and finished after it.
#include "daemon/store/state_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- documents ----

static int put_words(struct state *state, const struct run_row *row, struct error *err)
{
    const struct json *code = js_get(row->provenance, "code"), *dirty = js_get(code, "dirty");
    const struct json *moe = js_get(js_get(row->spec, "model"), "moe"), *resources = js_get(row->spec, "resources");
    return sql_do(state->sql, err, "UPDATE runs SET code_commit = ?, code_dirty = nullif(?, -1), experts = ?, gpus = ? WHERE id = ?", "tiiii",
        js_string_of(js_get(code, "commit"), NULL), js_kind(dirty) == JSON_KIND_BOOLEAN ? (int64_t)js_boolean_of(dirty, false) : (int64_t)-1,
        js_integer_of(js_get(moe, "experts"), 0), js_integer_of(js_get(resources, "gpus_per_node"), 0), row->id);
}

int state_put_documents(struct state *state, const struct run_row *row, struct error *err)
{
    if (sql_do(state->sql, err, "INSERT OR REPLACE INTO documents(run, spec, plan, provenance) VALUES (?, ?, ?, ?)", "ijjj", row->id, row->spec,
            row->plan, row->provenance) != 0)
        return -1;
    return put_words(state, row, err);
}

int state_set_spec(struct state *state, int64_t run, const struct json *spec, struct error *err)
{
    return sql_do(state->sql, err, "UPDATE documents SET spec = ? WHERE run = ?", "ji", spec, run);
}

int state_set_provenance(struct state *state, int64_t run, const struct json *provenance, struct error *err)
{
    return sql_do(state->sql, err, "UPDATE documents SET provenance = ? WHERE run = ?", "ji", provenance, run);
}

// ---- steps ----

int state_reserve_run(struct state *state, struct run_row *row, const char *root, struct error *err)
{
    if (state_number_name(state, row, err) != 0)
        return -1;
    free(row->directory);
    row->directory = string_format("%s/%s/%s", root, row->project, row->name);
    return state_insert_run(state, row, err);
}

bool state_dataset_created(struct state *state, const char *dataset_key)
{
    int64_t count = 0;
    return sql_number(state->sql, &count, 0, NULL, "SELECT count(*) FROM runs WHERE dataset_key = ? AND state = 'created'", "t", dataset_key) == 0 &&
           count > 0;
}

int state_complete_experiment(struct state *state, int64_t experiment, struct error *err)
{
    return sql_do(state->sql, err, "UPDATE experiments SET complete = 1 WHERE id = ?", "i", experiment);
}

#define NEXT_CREATED "SELECT id FROM runs WHERE experiment = ?1 AND state = 'created' ORDER BY id LIMIT ?2"

static int64_t queue_some(struct state *state, int64_t experiment, int64_t limit, double now, struct error *err)
{
    if (sql_do(state->sql, err, "INSERT INTO events(run, time, kind, to_state, witness) SELECT id, created, 'state', 'created', 'user' FROM runs "
            "WHERE id IN (" NEXT_CREATED ") ORDER BY id", "ii", experiment, limit) != 0 ||
        sql_do(state->sql, err, "INSERT INTO events(run, time, kind, from_state, to_state, reason, witness) SELECT id, ?3, 'state', 'created', "
            "'queued', 'submitted', 'user' FROM runs WHERE id IN (" NEXT_CREATED ") ORDER BY id", "iir", experiment, limit, now) != 0 ||
        sql_do(state->sql, err, "UPDATE runs SET state = 'queued', reason = 'submitted' WHERE id IN (" NEXT_CREATED ")", "ii", experiment, limit) != 0)
        return -1;
    state->changes++;
    return sql_changes(state->sql);
}

int64_t state_queue_created(struct state *state, int64_t experiment, int64_t limit, double now, struct error *err)
{
    if (sql_begin(state->sql, err) != 0)
        return -1;
    int64_t queued = queue_some(state, experiment, limit, now, err);
    return sql_end(state->sql, queued < 0 ? -1 : 0, err) == 0 ? queued : -1;
}

// ---- leftovers ----

static int64_t drop_some(struct state *state, int64_t experiment, int64_t limit, struct error *err)
{
    static const char *const statements[] = {
        "DELETE FROM trials WHERE run IN (" NEXT_CREATED ")",
        "DELETE FROM needs WHERE run IN (" NEXT_CREATED ")",
        "DELETE FROM needs WHERE needed IN (" NEXT_CREATED ")",
        "DELETE FROM documents WHERE run IN (" NEXT_CREATED ")",
        "DELETE FROM runs WHERE id IN (" NEXT_CREATED ")",
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (sql_do(state->sql, err, statements[i], "ii", experiment, limit) != 0)
            return -1;
    int64_t dropped = sql_changes(state->sql);
    if (dropped == 0 && sql_do(state->sql, err, "DELETE FROM experiments WHERE id = ?1 AND complete = 0 AND NOT EXISTS "
            "(SELECT 1 FROM runs WHERE experiment = ?1)", "i", experiment) != 0)
        return -1;
    return dropped;
}

int64_t state_drop_created(struct state *state, int64_t experiment, int64_t limit, struct error *err)
{
    if (sql_begin(state->sql, err) != 0)
        return -1;
    int64_t dropped = drop_some(state, experiment, limit, err);
    return sql_end(state->sql, dropped < 0 ? -1 : 0, err) == 0 ? dropped : -1;
}

struct json *state_leftovers(struct state *state, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT DISTINCT e.id, e.complete FROM experiments e LEFT JOIN runs r ON r.experiment = e.id "
        "AND r.state = 'created' WHERE e.complete = 0 OR r.id IS NOT NULL ORDER BY e.id", "");
    struct json *left = query ? js_array() : NULL;
    while (query && sql_step(query, err) > 0) {
        struct json *one = js_object();
        js_set(one, "experiment", js_integer(sql_integer(query, 0)));
        js_set(one, "complete", js_boolean(sql_integer(query, 1) != 0));
        js_append(left, one);
    }
    sql_done(query);
    return left;
}

struct json *state_created_directories(struct state *state, int64_t experiment, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT run_id, directory FROM runs WHERE experiment = ? AND state = 'created' ORDER BY id", "i",
        experiment);
    struct json *directories = query ? js_object() : NULL;
    while (query && sql_step(query, err) > 0)
        if (sql_text(query, 1))
            js_set(directories, sql_text(query, 0), js_string(sql_text(query, 1)));
    sql_done(query);
    return directories;
}
