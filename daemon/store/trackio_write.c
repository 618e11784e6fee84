// Writing rows: batches cut so that the lock is held for a moment only, announcing a run, and taking back what a later attempt repeats.
#include "daemon/store/trackio_inside.h"
#include "schema/base/clock.h"
#include "schema/base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INSERT_MS = 20, LINES_AT_ONCE = 2000, ROWS_AT_ONCE = 500, RUN_NAME_MAX = 256 };

// ---- a line ----

static bool has_text(const struct json *line, const char *key)
{
    const char *text = js_string_of(js_get(line, key), NULL);
    return text && *text;
}

int trackio_check_line(const struct json *line, struct error *err)
{
    const char *kind = js_string_of(js_get(line, "kind"), "");
    bool metric = strcmp(kind, "metric") == 0, alert = strcmp(kind, "alert") == 0;
    if (!metric && !alert && strcmp(kind, "system_metric") != 0)
        return error_set(err, "not a line for Trackio: kind '%s'", kind);
    const char *const needed[] = {"project", "run", "run_id", alert ? "alert_id" : "log_id"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!has_text(line, needed[i]))
            return error_set(err, "%s line without %s", kind, needed[i]);
    if (alert && !has_text(line, "title"))
        return error_set(err, "alert line without title");
    if (!alert && js_kind(js_get(line, "metrics")) != JSON_KIND_OBJECT)
        return error_set(err, "%s line whose metrics are not an object", kind);
    enum json_kind step = js_kind(js_get(line, "step"));
    if (step != JSON_KIND_INTEGER && step != JSON_KIND_NULL)
        return error_set(err, "%s line whose step is not an integer", kind);
    return 0;
}

// Trackio compares timestamps as text, so all have one form.
static const char *timestamp_of(const struct json *line, char buffer[CLOCK_TEXT])
{
    const char *text = js_string_of(js_get(line, "timestamp"), "");
    double wall = clock_parse(text);
    if (!isnan(wall) && strlen(text) == CLOCK_TEXT - 1)
        return text;
    clock_text(buffer, isnan(wall) ? clock_wall() : wall);
    return buffer;
}

// The name that the run has now: somebody may have renamed it in Trackio, and two names for one id would list it twice.
static int run_name_now(struct project *project, const char *run_id, const char *given, char name[RUN_NAME_MAX], struct error *err)
{
    struct sql_query *query = sql_ask(project->sql, err, "SELECT run_name FROM configs WHERE run_id = ?", "t", run_id);
    int got = query ? sql_step(query, err) : -1;
    snprintf(name, RUN_NAME_MAX, "%s", got > 0 && sql_text(query, 0) ? sql_text(query, 0) : given);
    sql_done(query);
    return got < 0 ? -1 : 0;
}

static int insert_metric(struct project *project, const struct json *line, const char *run_id, const char *name, const char *timestamp,
    struct error *err)
{
    int64_t step = js_integer_of(js_get(line, "step"), -1);
    if (js_kind(js_get(line, "step")) == JSON_KIND_NULL &&
        sql_number(project->sql, &step, 0, err, "SELECT max(step) + 1 FROM metrics WHERE run_id = ?", "t", run_id) != 0)
        return -1;
    return sql_do(project->sql, err, "INSERT INTO metrics(run_id, timestamp, run_name, step, metrics, log_id) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(log_id) WHERE log_id IS NOT NULL DO NOTHING", "tttijt", run_id, timestamp, name, step, js_get(line, "metrics"),
        js_string_of(js_get(line, "log_id"), NULL));
}

static int insert_system_metric(struct project *project, const struct json *line, const char *run_id, const char *name, const char *timestamp,
    struct error *err)
{
    return sql_do(project->sql, err, "INSERT INTO system_metrics(run_id, timestamp, run_name, metrics, log_id) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT(log_id) WHERE log_id IS NOT NULL DO NOTHING", "tttjt", run_id, timestamp, name, js_get(line, "metrics"),
        js_string_of(js_get(line, "log_id"), NULL));
}

static int insert_alert(struct project *project, const struct json *line, const char *run_id, const char *name, const char *timestamp,
    struct error *err)
{
    int64_t step = js_integer_of(js_get(line, "step"), -1);
    return sql_do(project->sql, err, "INSERT INTO alerts(run_id, timestamp, run_name, title, text, level, step, alert_id) "
        "VALUES (?, ?, ?, ?, ?, ?, nullif(?, -1), ?) ON CONFLICT(alert_id) WHERE alert_id IS NOT NULL DO NOTHING", "ttttttit", run_id, timestamp,
        name, js_string_of(js_get(line, "title"), ""), js_string_of(js_get(line, "text"), NULL), js_string_of(js_get(line, "level"), "warn"), step,
        js_string_of(js_get(line, "alert_id"), NULL));
}

// ---- a batch ----

struct batch {
    const struct json *const *lines;
    size_t count;
    size_t start;               // stored before this transaction
    size_t next;                // stored when it commits
    char run_id[RUN_NAME_MAX];  // whose name is known
    char name[RUN_NAME_MAX];
};

static int insert_line(struct project *project, struct batch *batch, const struct json *line, struct error *err)
{
    const char *run_id = js_string_of(js_get(line, "run_id"), ""), *kind = js_string_of(js_get(line, "kind"), "");
    if (strcmp(batch->run_id, run_id) != 0) {
        if (run_name_now(project, run_id, js_string_of(js_get(line, "run"), ""), batch->name, err) != 0)
            return -1;
        snprintf(batch->run_id, sizeof batch->run_id, "%s", run_id);
    }
    char buffer[CLOCK_TEXT];
    const char *timestamp = timestamp_of(line, buffer);
    if (strcmp(kind, "metric") == 0)
        return insert_metric(project, line, run_id, batch->name, timestamp, err);
    if (strcmp(kind, "alert") == 0)
        return insert_alert(project, line, run_id, batch->name, timestamp, err);
    return insert_system_metric(project, line, run_id, batch->name, timestamp, err);
}

static int insert_some(struct project *project, void *context, struct error *err)
{
    struct batch *batch = context;
    batch->next = batch->start;
    batch->run_id[0] = 0;
    double until = clock_steady() + INSERT_MS / 1000.0;
    while (batch->next < batch->count && batch->next - batch->start < LINES_AT_ONCE && clock_steady() < until) {
        const struct json *line = batch->lines[batch->next];
        struct error why;
        if (trackio_check_line(line, &why) != 0)
            fprintf(stderr, "%s: left out: %s\n", project->database, why.text);
        else if (insert_line(project, batch, line, err) != 0)
            return -1;
        batch->next++;
    }
    return 0;
}

int trackio_write(struct trackio *trackio, const char *name, const struct json *const *lines, size_t count, struct error *err)
{
    struct project *project = trackio_project(trackio, name, err);
    if (!project)
        return -1;
    struct batch batch = {.lines = lines, .count = count};
    while (batch.start < count) {
        int status = project_transaction(project, insert_some, &batch, err);
        if (status != 0)
            return status;
        batch.start = batch.next;
    }
    project_flush(project);
    return 0;
}

// ---- announcing ----

struct announcement {
    const char *run, *run_id;
    const struct json *config;
};

// When the run was made: as stored already, else as its config says, else now.
static int created_at(struct project *project, const struct announcement *about, char created[CLOCK_TEXT], struct error *err)
{
    double said = clock_parse(js_string_of(js_get(about->config, "_Created"), ""));
    clock_text(created, isnan(said) ? clock_wall() : said);
    struct sql_query *query = sql_ask(project->sql, err, "SELECT created_at FROM configs WHERE run_id = ?", "t", about->run_id);
    int got = query ? sql_step(query, err) : -1;
    if (got > 0 && sql_text(query, 0))
        snprintf(created, CLOCK_TEXT, "%s", sql_text(query, 0));
    sql_done(query);
    return got < 0 ? -1 : 0;
}

static int insert_announcement(struct project *project, void *context, struct error *err)
{
    const struct announcement *about = context;
    char created[CLOCK_TEXT], log_id[HASH_HEX], name[RUN_NAME_MAX];
    if (created_at(project, about, created, err) != 0 || run_name_now(project, about->run_id, about->run, name, err) != 0)
        return -1;
    struct json *config = about->config ? js_copy(about->config) : js_object();
    js_set(config, "_Username", js_string(js_string_of(js_get(config, "_Username"), NULL)));
    js_set(config, "_Created", js_string(created));
    js_set(config, "_Group", js_string(js_string_of(js_get(config, "_Group"), NULL)));
    int status = sql_do(project->sql, err, "INSERT INTO configs(run_id, run_name, config, created_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT(run_id) DO UPDATE SET config = excluded.config", "ttjt", about->run_id, name, config, created);
    js_free(config);
    if (status != 0)
        return -1;
    char *key = string_format("%s/announced", about->run_id);
    hash_bytes(log_id, key, strlen(key));
    log_id[32] = 0;
    free(key);
    return sql_do(project->sql, err, "INSERT INTO metrics(run_id, timestamp, run_name, step, metrics, log_id) VALUES (?, ?, ?, 0, '{}', ?) "
        "ON CONFLICT(log_id) WHERE log_id IS NOT NULL DO NOTHING", "tttt", about->run_id, created, name, log_id);
}

int trackio_announce(struct trackio *trackio, const char *name, const char *run, const char *run_id, const struct json *config, struct error *err)
{
    struct project *project = trackio_project(trackio, name, err);
    struct announcement about = {.run = run, .run_id = run_id, .config = config};
    int status = project ? project_transaction(project, insert_announcement, &about, err) : -1;
    if (status == 0)
        project_flush(project);
    return status;
}

// ---- superseding ----

struct superseded {
    const char *run_id;
    int64_t first_step;
    void (*moved)(void *context, int64_t step, const char *timestamp, const char *metrics);
    void *context;
    int64_t first_id, last_id; // rows given to moved, about to be deleted
    int count;
};

// Readers need no lock, so the rows are given away before it is taken.
static int give_rows(struct project *project, struct superseded *rows, struct error *err)
{
    struct sql_query *query = sql_ask(project->sql, err, "SELECT id, step, timestamp, metrics FROM metrics WHERE run_id = ? AND step >= ? "
        "ORDER BY id LIMIT ?", "tii", rows->run_id, rows->first_step, (int64_t)ROWS_AT_ONCE);
    int got = query ? 0 : -1;
    for (rows->count = 0; query && (got = sql_step(query, err)) > 0; rows->count++) {
        rows->last_id = sql_integer(query, 0);
        if (rows->count == 0)
            rows->first_id = rows->last_id;
        if (rows->moved)
            rows->moved(rows->context, sql_integer(query, 1), sql_text(query, 2), sql_text(query, 3));
    }
    sql_done(query);
    return got;
}

static int delete_rows(struct project *project, void *context, struct error *err)
{
    const struct superseded *rows = context;
    return sql_do(project->sql, err, "DELETE FROM metrics WHERE run_id = ? AND step >= ? AND id BETWEEN ? AND ?", "tiii", rows->run_id,
        rows->first_step, rows->first_id, rows->last_id);
}

int trackio_supersede(struct trackio *trackio, const char *name, const char *run_id, int64_t first_step,
    void (*moved)(void *context, int64_t step, const char *timestamp, const char *metrics), void *context, struct error *err)
{
    struct project *project = trackio_project(trackio, name, err);
    if (!project)
        return -1;
    struct superseded rows = {.run_id = run_id, .first_step = first_step, .moved = moved, .context = context};
    for (;;) {
        int status = project_open_to_read(project, err);
        if (status != 0)
            return status < 0 ? -1 : 0;
        if (give_rows(project, &rows, err) != 0)
            return -1;
        if (rows.count == 0)
            return 0;
        status = project_transaction(project, delete_rows, &rows, err);
        if (status != 0)
            return status;
    }
}
