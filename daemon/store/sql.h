// The door to SQLite: connections, cached statements, and errors as sentences. The stores of this folder are written above it.
//
// Statements are given with their arguments in one call. `types` has a letter an argument: i int64_t, r double, t const char * (NULL is
// NULL), j const struct json * (compact text; NULL is NULL), b const void * and size_t (a blob). Integers must be passed as int64_t.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct sql;       // one connection
struct sql_query; // a statement under way

enum sql_fault { SQL_FINE, SQL_BUSY, SQL_DAMAGED, SQL_FULL, SQL_UNWRITABLE, SQL_CONSTRAINT, SQL_OTHER };

struct sql_options {
    bool create;    // make the file if it is absent
    bool read_only; // a database we may not write, in a directory we may not write
    bool full_sync; // fsync every commit; otherwise a power cut (not a crash) may take the last commits back
    bool checkpoint_later; // commits never fold the log into the file: sql_checkpoint does
    int busy_ms;    // how long to wait for another connection's lock, the first time
};

// WAL always. A file that is not a database is found here.
int sql_open(struct sql **sql, const char *path, const struct sql_options *options, struct error *err);
void sql_close(struct sql *sql); // NULL is fine
// False: its log, or the index of that, was removed or replaced. What is committed then is found by nobody else, nor after a crash.
bool sql_sidecars_in_place(const struct sql *sql);

int sql_script(struct sql *sql, const char *script, struct error *err);
int sql_do(struct sql *sql, struct error *err, const char *text, const char *types, ...); // runs to its end; rows are ignored

// `while ((got = sql_step(q, err)) > 0)`; sql_done gives the statement back and takes NULL. NULL: error.
struct sql_query *sql_ask(struct sql *sql, struct error *err, const char *text, const char *types, ...);
int sql_step(struct sql_query *query, struct error *err); // 1 a row, 0 the end, -1
void sql_done(struct sql_query *query);
bool sql_is_null(struct sql_query *query, int column);
int64_t sql_integer(struct sql_query *query, int column);
double sql_real(struct sql_query *query, int column);
const char *sql_text(struct sql_query *query, int column);   // NULL for NULL; lent until the next step
struct json *sql_json(struct sql_query *query, int column);  // parsed; NULL for NULL or what is not JSON

// The first column of the first row, or fallback.
int sql_number(struct sql *sql, int64_t *number, int64_t fallback, struct error *err, const char *text, const char *types, ...);

// One transaction. sql_begin takes the write lock at once; a nested pair is a savepoint. sql_end(sql, status, err): commits when status is
// 0, else rolls back; returns 0 only if all is stored.
int sql_begin(struct sql *sql, struct error *err);
int sql_end(struct sql *sql, int status, struct error *err);

// Folds a log of more than 4 MiB into the file; nobody waits for it, and it waits for nobody.
void sql_checkpoint(struct sql *sql);

int64_t sql_last_id(struct sql *sql);
int64_t sql_changes(struct sql *sql); // rows of the last statement
enum sql_fault sql_fault(struct sql *sql); // of the last failed call

// What has kept changes from being stored since a moment of the wall clock (a full disk, another program's lock); NULL: the last one was.
const char *sql_stuck(const struct sql *sql, double *since);
void sql_try(struct sql *sql); // writes what changes nothing, to find out whether that is over
const char *sql_version(void);
