// What happened to runs: events, attempts, kept aside lines, notes.
#include "daemon/store/state_inside.h"
#include "schema/base/clock.h"
#include "schema/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_AT_ONCE = 500, RAW_SHOWN = 4096 };

static struct json *text_or_null(struct sql_query *query, int column)
{
    return js_string(sql_text(query, column));
}

// Runs a query to its end and makes an array of what `make` makes of each row. NULL on error.
static struct json *gather(struct sql_query *query, struct json *(*make)(struct sql_query *query), struct error *err)
{
    if (!query)
        return NULL;
    struct json *array = js_array();
    int got;
    while ((got = sql_step(query, err)) > 0)
        js_append(array, make(query));
    sql_done(query);
    if (got == 0)
        return array;
    js_free(array);
    return NULL;
}

// ---- events ----

int state_insert_event(struct state *state, int64_t run, double when, const char *kind, const char *from, const char *to, const char *reason,
    const char *witness, struct error *err)
{
    return sql_do(state->sql, err, "INSERT INTO events(run, time, kind, from_state, to_state, reason, witness) VALUES (?, ?, ?, ?, ?, ?, ?)",
        "irttttt", run, when, kind, from, to, reason, witness);
}

int state_add_event(struct state *state, int64_t run, const char *kind, const char *text, const char *witness, double when, struct error *err)
{
    return state_insert_event(state, run, when, kind, NULL, NULL, text, witness, err);
}

static struct json *make_event(struct sql_query *query)
{
    struct json *event = js_object();
    js_set(event, "id", js_integer(sql_integer(query, 0)));
    js_set(event, "time", js_real(sql_real(query, 1)));
    js_set(event, "kind", text_or_null(query, 2));
    js_set(event, "from", text_or_null(query, 3));
    js_set(event, "to", text_or_null(query, 4));
    js_set(event, "reason", text_or_null(query, 5));
    js_set(event, "witness", text_or_null(query, 6));
    return event;
}

static struct json *make_event_of_run(struct sql_query *query)
{
    struct json *event = make_event(query);
    js_set(event, "run", text_or_null(query, 7));
    return event;
}

struct json *state_events(struct state *state, int64_t run, struct error *err)
{
    return gather(sql_ask(state->sql, err, "SELECT id, time, kind, from_state, to_state, reason, witness FROM events WHERE run = ? ORDER BY id", "i",
        run), make_event, err);
}

int64_t state_last_event(struct state *state)
{
    int64_t last = 0;
    return sql_number(state->sql, &last, 0, NULL, "SELECT max(id) FROM events", "") == 0 ? last : 0;
}

struct json *state_events_after(struct state *state, int64_t after, struct error *err)
{
    return gather(sql_ask(state->sql, err, "SELECT e.id, e.time, e.kind, e.from_state, e.to_state, e.reason, e.witness, r.project || '/' || r.name "
        "FROM events e JOIN runs r ON r.id = e.run WHERE e.id > ? ORDER BY e.id LIMIT ?", "ii", after, (int64_t)EVENTS_AT_ONCE),
        make_event_of_run, err);
}

// ---- attempts ----

#define ATTEMPT_COLUMNS "number, job, job_started, state, started, ended, code, ended_by_signal, ingest_offset, ingest_sequence"

void attempt_row_release(struct attempt_row *attempt)
{
    free(attempt->job);
    free(attempt->state);
    *attempt = (struct attempt_row){0};
}

static int put_attempt(struct state *state, const struct attempt_row *attempt, struct error *err)
{
    if (sql_do(state->sql, err, "INSERT OR REPLACE INTO attempts(run, " ATTEMPT_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", "iitrtrriiii",
            attempt->run, attempt->number, attempt->job, attempt->job_started, attempt->state, attempt->started, attempt->ended, attempt->code,
            attempt->ended_by_signal, attempt->ingest_offset, attempt->ingest_sequence) != 0)
        return -1;
    return sql_do(state->sql, err, "UPDATE runs SET attempt = ?1 WHERE id = ?2 AND attempt < ?1", "ii", attempt->number, attempt->run);
}

int state_put_attempt(struct state *state, const struct attempt_row *attempt, struct error *err)
{
    if (sql_begin(state->sql, err) != 0)
        return -1;
    return sql_end(state->sql, put_attempt(state, attempt, err), err);
}

int state_get_attempt(struct state *state, int64_t run, int64_t number, struct attempt_row *attempt, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT " ATTEMPT_COLUMNS " FROM attempts WHERE run = ? AND number = ?", "ii", run, number);
    if (!query)
        return -1;
    int got = sql_step(query, err);
    if (got > 0)
        *attempt = (struct attempt_row){.run = run, .number = sql_integer(query, 0), .job = string_copy(sql_text(query, 1)),
            .job_started = sql_real(query, 2), .state = string_copy(sql_text(query, 3)), .started = sql_real(query, 4),
            .ended = sql_real(query, 5), .code = sql_integer(query, 6), .ended_by_signal = sql_integer(query, 7),
            .ingest_offset = sql_integer(query, 8), .ingest_sequence = sql_integer(query, 9)};
    sql_done(query);
    return got < 0 ? -1 : got > 0 ? 0 : 1;
}

int state_done_before(struct state *state, int64_t run, int64_t number, struct error *err)
{
    int64_t count;
    if (sql_number(state->sql, &count, 0, err, "SELECT count(*) FROM attempts WHERE run = ? AND number < ? AND code = 0 AND ended_by_signal = 0 AND "
            "ended > 0", "ii", run, number) != 0)
        return -1;
    return count > 0;
}

static struct json *make_attempt(struct sql_query *query)
{
    struct json *attempt = js_object();
    int64_t code = sql_integer(query, 6), ended_by_signal = sql_integer(query, 7);
    js_set(attempt, "number", js_integer(sql_integer(query, 0)));
    js_set(attempt, "job", text_or_null(query, 1));
    js_set(attempt, "job_started", js_real(sql_real(query, 2)));
    js_set(attempt, "state", text_or_null(query, 3));
    js_set(attempt, "started", js_real(sql_real(query, 4)));
    js_set(attempt, "ended", js_real(sql_real(query, 5)));
    js_set(attempt, "code", code < 0 ? js_null() : js_integer(code));
    js_set(attempt, "signal", ended_by_signal == 0 ? js_null() : js_integer(ended_by_signal));
    js_set(attempt, "ingest_offset", js_integer(sql_integer(query, 8)));
    js_set(attempt, "ingest_sequence", js_integer(sql_integer(query, 9)));
    return attempt;
}

struct json *state_attempts(struct state *state, int64_t run, struct error *err)
{
    return gather(sql_ask(state->sql, err, "SELECT " ATTEMPT_COLUMNS " FROM attempts WHERE run = ? ORDER BY number", "i", run), make_attempt, err);
}

// ---- kept aside lines, notes ----

int state_keep_aside(struct state *state, int64_t run, int64_t attempt, int64_t offset, const char *raw, size_t bytes, const char *why, struct error *err)
{
    return sql_do(state->sql, err, "INSERT OR IGNORE INTO kept_aside(run, attempt, line_offset, raw, why) VALUES (?, ?, ?, ?, ?)", "iiibt", run,
        attempt, offset, raw, bytes, why);
}

static struct json *make_kept_aside(struct sql_query *query)
{
    struct json *line = js_object();
    char raw[RAW_SHOWN + 1];
    snprintf(raw, sizeof raw, "%s", sql_text(query, 2));
    js_set(line, "attempt", js_integer(sql_integer(query, 0)));
    js_set(line, "offset", js_integer(sql_integer(query, 1)));
    js_set(line, "raw", js_string(raw));
    js_set(line, "why", text_or_null(query, 3));
    return line;
}

struct json *state_kept_aside(struct state *state, int64_t run, struct error *err)
{
    return gather(sql_ask(state->sql, err, "SELECT attempt, line_offset, raw, why FROM kept_aside WHERE run = ? ORDER BY attempt, line_offset LIMIT 1000",
        "i", run), make_kept_aside, err);
}

int state_add_note(struct state *state, int64_t run, int64_t attempt, int64_t step, const char *kind, const struct json *body, struct error *err)
{
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    js_write(&text, body);
    char digest[HASH_HEX];
    hash_bytes(digest, text.at, text.length);
    digest[32] = 0;
    int status = sql_do(state->sql, err, "INSERT OR IGNORE INTO notes(run, attempt, kind, step, digest, body) VALUES (?, ?, ?, ?, ?, ?)", "iititt",
        run, attempt, kind, step, digest, text.at);
    text_release(&text);
    return status;
}

static struct json *make_note(struct sql_query *query)
{
    struct json *note = js_object();
    struct json *body = sql_json(query, 3);
    js_set(note, "attempt", js_integer(sql_integer(query, 0)));
    js_set(note, "step", js_integer(sql_integer(query, 1)));
    js_set(note, "kind", text_or_null(query, 2));
    js_set(note, "body", body ? body : js_null());
    return note;
}

struct json *state_notes(struct state *state, int64_t run, const char *kind, int64_t after_step, int64_t limit, struct error *err)
{
    return gather(sql_ask(state->sql, err, "SELECT attempt, step, kind, body FROM notes WHERE run = ?1 AND (?2 IS NULL OR kind = ?2) AND step > ?3 "
        "ORDER BY step, id LIMIT ?4", "itii", run, kind, after_step, limit), make_note, err);
}
