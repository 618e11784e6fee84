#include "daemon/store/sql.h"
#include "schema/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STATEMENTS_MAX = 64, JSON_TEXT_MAX = 256 << 20, LOG_PAGES = 1000, SIDECARS = 2 };
enum { STUCK_BUSY_MS = 100 }; // how long a lock is waited for that was waited for in vain: whoever waits keeps others waiting
static const char *const sidecar_names[SIDECARS] = {"-wal", "-shm"};

struct sql_query {
    struct sql *sql;
    sqlite3_stmt *statement;
    char *text;
    bool in_use;
};

struct sql {
    sqlite3 *connection;
    char *path;
    struct sql_query *statements[STATEMENTS_MAX];
    size_t count, next_victim;
    int depth;             // transactions that are open, the inner ones as savepoints
    enum sql_fault fault;
    char stuck[ERROR_TEXT_MAX]; // what kept the last change from being stored
    double stuck_since;         // 0: it was
    int busy_ms;
    int64_t written_before;     // rows written by this connection when the outer transaction began
    int log_pages;         // in the log after the last commit, where checkpoints are ours to make
    struct stat sidecars[SIDECARS]; // as they were when it was opened; st_ino 0: there was none
};

const char *sql_version(void)
{
    return sqlite3_libversion();
}

enum sql_fault sql_fault(struct sql *sql)
{
    return sql->fault;
}

int64_t sql_last_id(struct sql *sql)
{
    return sqlite3_last_insert_rowid(sql->connection);
}

int64_t sql_changes(struct sql *sql)
{
    return sqlite3_changes(sql->connection);
}

static int fail_unwritable(struct sql *sql, struct error *err)
{
    sql->fault = SQL_UNWRITABLE;
    return error_set(err, "%s: cannot be written: the file, its directory or the file system is read-only", sql->path);
}

// SQLite's code as one sentence about the file, and as a kind that the stores can act on.
static int tell_fault(struct sql *sql, struct error *err)
{
    int code = sqlite3_errcode(sql->connection);
    int system = sqlite3_system_errno(sql->connection);
    const char *message = sqlite3_errmsg(sql->connection);
    if (code == SQLITE_FULL || (code == SQLITE_IOERR && (system == ENOSPC || system == EDQUOT))) {
        sql->fault = SQL_FULL;
        return error_set(err, "%s: the disk is full: nothing of this change was stored", sql->path);
    }
    switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        sql->fault = SQL_BUSY;
        return error_set(err, "%s: locked by another program", sql->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        sql->fault = SQL_DAMAGED;
        return error_set(err, "%s: not an SQLite database, or a damaged one (%s): move it away or restore it", sql->path, message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return fail_unwritable(sql, err);
    case SQLITE_CANTOPEN:
        sql->fault = SQL_UNWRITABLE;
        return error_set(err, "%s: cannot be opened: %s", sql->path, system ? strerror(system) : message);
    case SQLITE_CONSTRAINT:
        sql->fault = SQL_CONSTRAINT;
        return error_set(err, "%s: %s", sql->path, message);
    default:
        sql->fault = SQL_OTHER;
        return error_set(err, "%s: %s%s%s", sql->path, message, system ? ": " : "", system ? strerror(system) : "");
    }
}

// Remembers what keeps changes from being stored. A broken constraint, or a mistake in a statement, is none of that.
static int fail(struct sql *sql, struct error *err)
{
    struct error fault = {0};
    tell_fault(sql, &fault);
    if (sql->fault != SQL_CONSTRAINT && (sql->fault != SQL_OTHER || sqlite3_errcode(sql->connection) == SQLITE_IOERR)) {
        sql->stuck_since = sql->stuck_since > 0 ? sql->stuck_since : clock_wall();
        snprintf(sql->stuck, sizeof sql->stuck, "%s", fault.text);
        sqlite3_busy_timeout(sql->connection, sql->busy_ms < STUCK_BUSY_MS ? sql->busy_ms : STUCK_BUSY_MS);
    }
    return error_set(err, "%s", fault.text);
}

static void be_free(struct sql *sql)
{
    if (sql->stuck_since > 0)
        sqlite3_busy_timeout(sql->connection, sql->busy_ms);
    sql->stuck_since = 0;
}

const char *sql_stuck(const struct sql *sql, double *since)
{
    *since = sql->stuck_since;
    return sql->stuck_since > 0 ? sql->stuck : NULL;
}

// ---- connections ----

int sql_script(struct sql *sql, const char *script, struct error *err)
{
    return sqlite3_exec(sql->connection, script, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(sql, err);
}

static int note_log(void *context, sqlite3 *connection, const char *database, int pages)
{
    (void)connection;
    (void)database;
    ((struct sql *)context)->log_pages = pages;
    return SQLITE_OK;
}

void sql_checkpoint(struct sql *sql)
{
    if (sql->log_pages <= LOG_PAGES)
        return;
    sqlite3_wal_checkpoint_v2(sql->connection, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    sql->log_pages = 0;
}

static int set_up(struct sql *sql, const struct sql_options *options, struct error *err)
{
    sqlite3_extended_result_codes(sql->connection, 0);
    sql->busy_ms = options->busy_ms;
    sqlite3_busy_timeout(sql->connection, sql->busy_ms);
    if (sql_script(sql, "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-20000; PRAGMA mmap_size=0", err) != 0)
        return -1;
    if (options->read_only)
        return sql_script(sql, "SELECT count(*) FROM sqlite_master", err);
    if (sql_script(sql, "PRAGMA journal_mode=WAL; SELECT count(*) FROM sqlite_master", err) != 0)
        return -1;
    if (options->checkpoint_later)
        sqlite3_wal_hook(sql->connection, note_log, sql);
    return sql_script(sql, options->full_sync ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
}

// ---- the files beside it ----

static struct stat look_at_sidecar(const struct sql *sql, size_t i)
{
    struct stat info = {0};
    char *path = string_format("%s%s", sql->path, sidecar_names[i]);
    if (stat(path, &info) != 0)
        info = (struct stat){0};
    free(path);
    return info;
}

bool sql_sidecars_in_place(const struct sql *sql)
{
    for (size_t i = 0; i < SIDECARS; i++) {
        struct stat now = look_at_sidecar(sql, i);
        const struct stat *then = &sql->sidecars[i];
        if (then->st_ino && (now.st_ino != then->st_ino || now.st_dev != then->st_dev))
            return false;
    }
    return true;
}

int sql_open(struct sql **out, const char *path, const struct sql_options *options, struct error *err)
{
    struct sql *sql = allocate(1, sizeof *sql);
    sql->path = string_copy(path);
    int flags = SQLITE_OPEN_NOMUTEX | (options->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
    if (options->create)
        flags |= SQLITE_OPEN_CREATE;
    int status = sqlite3_open_v2(path, &sql->connection, flags, NULL) == SQLITE_OK ? 0 : fail(sql, err);
    if (status == 0 && !options->read_only && sqlite3_db_readonly(sql->connection, "main") == 1)
        status = fail_unwritable(sql, err); // SQLite falls back to reading by itself
    if (status == 0)
        status = set_up(sql, options, err);
    if (status != 0) {
        sql_close(sql);
        return -1;
    }
    for (size_t i = 0; i < SIDECARS; i++)
        sql->sidecars[i] = look_at_sidecar(sql, i);
    *out = sql;
    return 0;
}

static void forget_statement(struct sql_query *query)
{
    sqlite3_finalize(query->statement);
    free(query->text);
    free(query);
}

void sql_close(struct sql *sql)
{
    if (!sql)
        return;
    for (size_t i = 0; i < sql->count; i++)
        forget_statement(sql->statements[i]);
    sqlite3_close(sql->connection);
    free(sql->path);
    free(sql);
}

// ---- statements ----

// A place in the cache: a free slot, or that of a statement nobody uses. More than STATEMENTS_MAX at once is our mistake.
static struct sql_query **find_slot(struct sql *sql)
{
    if (sql->count < STATEMENTS_MAX)
        return &sql->statements[sql->count++];
    for (size_t tries = 0; tries < STATEMENTS_MAX; tries++) {
        struct sql_query **slot = &sql->statements[sql->next_victim++ % STATEMENTS_MAX];
        if ((*slot)->in_use)
            continue;
        forget_statement(*slot);
        return slot;
    }
    abort();
}

static struct sql_query *prepare(struct sql *sql, const char *text, struct error *err)
{
    for (size_t i = 0; i < sql->count; i++)
        if (!sql->statements[i]->in_use && strcmp(sql->statements[i]->text, text) == 0) {
            sql->statements[i]->in_use = true;
            return sql->statements[i];
        }
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v3(sql->connection, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) != SQLITE_OK) {
        fail(sql, err);
        return NULL;
    }
    struct sql_query *query = allocate(1, sizeof *query);
    *query = (struct sql_query){.sql = sql, .statement = statement, .text = string_copy(text), .in_use = true};
    *find_slot(sql) = query;
    return query;
}

static void bind_json(sqlite3_stmt *statement, int place, const struct json *value)
{
    if (!value) {
        sqlite3_bind_null(statement, place);
        return;
    }
    struct text text;
    text_init(&text, JSON_TEXT_MAX);
    js_write(&text, value);
    assert(!text.overflowed);
    size_t length = text.length;
    sqlite3_bind_text64(statement, place, text_take(&text), length, free, SQLITE_UTF8);
}

static void bind_all(struct sql_query *query, const char *types, va_list arguments)
{
    sqlite3_stmt *statement = query->statement;
    assert((size_t)sqlite3_bind_parameter_count(statement) == strlen(types));
    for (int place = 1; *types; types++, place++) {
        switch (*types) {
        case 'i':
            sqlite3_bind_int64(statement, place, va_arg(arguments, int64_t));
            break;
        case 'r':
            sqlite3_bind_double(statement, place, va_arg(arguments, double));
            break;
        case 't':
            sqlite3_bind_text(statement, place, va_arg(arguments, const char *), -1, SQLITE_TRANSIENT);
            break;
        case 'j':
            bind_json(statement, place, va_arg(arguments, const struct json *));
            break;
        case 'b': {
            const void *bytes = va_arg(arguments, const void *);
            sqlite3_bind_blob64(statement, place, bytes ? bytes : "", va_arg(arguments, size_t), SQLITE_TRANSIENT);
            break;
        }
        default:
            abort();
        }
    }
}

static struct sql_query *ask(struct sql *sql, struct error *err, const char *text, const char *types, va_list arguments)
{
    struct sql_query *query = prepare(sql, text, err);
    if (query)
        bind_all(query, types, arguments);
    return query;
}

struct sql_query *sql_ask(struct sql *sql, struct error *err, const char *text, const char *types, ...)
{
    va_list arguments;
    va_start(arguments, types);
    struct sql_query *query = ask(sql, err, text, types, arguments);
    va_end(arguments);
    return query;
}

int sql_step(struct sql_query *query, struct error *err)
{
    int code = sqlite3_step(query->statement);
    return code == SQLITE_ROW ? 1 : code == SQLITE_DONE ? 0 : fail(query->sql, err);
}

void sql_done(struct sql_query *query)
{
    if (!query)
        return;
    sqlite3_reset(query->statement);
    sqlite3_clear_bindings(query->statement);
    query->in_use = false;
}

int sql_do(struct sql *sql, struct error *err, const char *text, const char *types, ...)
{
    va_list arguments;
    va_start(arguments, types);
    struct sql_query *query = ask(sql, err, text, types, arguments);
    va_end(arguments);
    if (!query)
        return -1;
    int got;
    while ((got = sql_step(query, err)) > 0)
        continue;
    sql_done(query);
    return got;
}

int sql_number(struct sql *sql, int64_t *number, int64_t fallback, struct error *err, const char *text, const char *types, ...)
{
    va_list arguments;
    va_start(arguments, types);
    struct sql_query *query = ask(sql, err, text, types, arguments);
    va_end(arguments);
    if (!query)
        return -1;
    int got = sql_step(query, err);
    *number = got > 0 && !sql_is_null(query, 0) ? sql_integer(query, 0) : fallback;
    sql_done(query);
    return got < 0 ? -1 : 0;
}

bool sql_is_null(struct sql_query *query, int column)
{
    return sqlite3_column_type(query->statement, column) == SQLITE_NULL;
}

int64_t sql_integer(struct sql_query *query, int column)
{
    return sqlite3_column_int64(query->statement, column);
}

double sql_real(struct sql_query *query, int column)
{
    return sqlite3_column_double(query->statement, column);
}

const char *sql_text(struct sql_query *query, int column)
{
    return (const char *)sqlite3_column_text(query->statement, column);
}

struct json *sql_json(struct sql_query *query, int column)
{
    const char *text = sql_text(query, column);
    return text ? js_parse(text, (size_t)sqlite3_column_bytes(query->statement, column), NULL) : NULL;
}

// ---- transactions ----

int sql_begin(struct sql *sql, struct error *err)
{
    if (sql->depth && sqlite3_get_autocommit(sql->connection))
        return error_set(err, "%s: the transaction was undone after an earlier error", sql->path);
    if (sql_do(sql, err, sql->depth ? "SAVEPOINT inner_change" : "BEGIN IMMEDIATE", "") != 0)
        return -1;
    if (sql->depth++ == 0)
        sql->written_before = sqlite3_total_changes64(sql->connection);
    return 0;
}

// A full disk or an input/output error may have ended the whole transaction already: then an inner end has nothing left to undo, and the
// outer one must not report success.
int sql_end(struct sql *sql, int status, struct error *err)
{
    assert(sql->depth > 0);
    bool outer = --sql->depth == 0;
    bool gone = sqlite3_get_autocommit(sql->connection);
    if (gone)
        return status != 0 ? -1 : error_set(err, "%s: the transaction was undone after an earlier error", sql->path);
    if (status == 0) {
        status = sql_do(sql, err, outer ? "COMMIT" : "RELEASE inner_change", "");
        if (status == 0 && outer && sqlite3_total_changes64(sql->connection) > sql->written_before)
            be_free(sql);
        if (status == 0)
            return 0;
    }
    if (!sqlite3_get_autocommit(sql->connection))
        sql_script(sql, outer ? "ROLLBACK" : "ROLLBACK TO inner_change; RELEASE inner_change", NULL);
    return -1;
}

void sql_try(struct sql *sql)
{
    int64_t version;
    char text[64];
    if (sql_number(sql, &version, 0, NULL, "PRAGMA user_version", "") != 0 || sql_begin(sql, NULL) != 0)
        return;
    snprintf(text, sizeof text, "PRAGMA user_version = %lld", (long long)version);
    if (sql_end(sql, sql_script(sql, text, NULL), NULL) == 0)
        be_free(sql);
}
