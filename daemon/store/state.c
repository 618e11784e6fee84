// Opening, migrating, batches. Rows of runs are in state_runs.c; what happened to them in state_history.c.
#include "daemon/store/state_inside.h"
#include "schema/base/file.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const char switchyard_sql[], switchyard_2_sql[], switchyard_3_sql[], switchyard_4_sql[], switchyard_5_sql[]; // schema/switchyard.sql, switchyard-2.sql, …

// Script i takes a file from version i to version i + 1.
static const char *const migrations[] = {switchyard_sql, switchyard_2_sql, switchyard_3_sql, switchyard_4_sql, switchyard_5_sql};
enum { STATE_VERSION = sizeof migrations / sizeof migrations[0], BUSY_MS = 5000 };

static int migrate_one(struct sql *sql, int64_t version, struct error *err)
{
    char *stamp = string_format("PRAGMA user_version=%d", (int)version + 1);
    int status = sql_begin(sql, err);
    if (status == 0) {
        status = sql_script(sql, migrations[version], err);
        if (status == 0)
            status = sql_script(sql, stamp, err);
        status = sql_end(sql, status, err);
    }
    free(stamp);
    return status;
}

static int migrate(struct sql *sql, const char *path, struct error *err)
{
    int64_t version, tables;
    if (sql_number(sql, &version, 0, err, "PRAGMA user_version", "") != 0 ||
        sql_number(sql, &tables, 0, err, "SELECT count(*) FROM sqlite_master", "") != 0)
        return -1;
    if (version > STATE_VERSION)
        return error_set(err, "%s: written by a newer switchyard (version %d; this one knows %d): use that one, or another SWITCHYARD_HOME", path,
            (int)version, STATE_VERSION);
    if (version < 0 || (version == 0 && tables > 0))
        return error_set(err, "%s: a database, but not Switchyard's: move it away, or use another SWITCHYARD_HOME", path);
    for (; version < STATE_VERSION; version++)
        if (migrate_one(sql, version, err) != 0)
            return -1;
    return 0;
}

// Specs, environments and diffs are nobody else's business: the file is made for its owner only, and SQLite gives its sidecars the same mode.
int state_make_private(const char *path, struct error *err)
{
    if (file_exists(path))
        return 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, "%s: cannot be made", path);
    close(fd);
    return 0;
}

int state_connect(struct state *state, struct error *err)
{
    struct stat info = {0};
    if (sql_open(&state->sql, state->path, &(struct sql_options){.full_sync = true, .busy_ms = BUSY_MS}, err) != 0)
        return -1;
    stat(state->path, &info);
    state->device = info.st_dev;
    state->inode = info.st_ino;
    return sql_script(state->sql, "PRAGMA foreign_keys=ON", err);
}

int state_open(struct state **out, const char *path, struct error *err)
{
    const char *network = file_network_system(path);
    if (network)
        return error_set(err, "%s: on a network file system (%s), where SQLite is not safe: set SWITCHYARD_HOME to a local directory "
            "(the runs' `output:` may stay on the network)", path, network);
    char *directory = path_join(path, "..");
    char *clean = path_absolute(directory, NULL);
    struct state *state = allocate(1, sizeof *state);
    state->path = string_copy(path);
    int status = directory_make(clean, err);
    free(directory);
    free(clean);
    if (status == 0)
        status = state_make_private(path, err);
    if (status == 0)
        status = state_connect(state, err);
    if (status == 0)
        status = migrate(state->sql, path, err);
    if (status != 0) {
        state_close(state);
        return -1;
    }
    *out = state;
    return 0;
}

void state_close(struct state *state)
{
    if (!state)
        return;
    sql_close(state->sql);
    free(state->path);
    free(state);
}

int state_begin(struct state *state, struct error *err)
{
    assert(!state->in_batch);
    if (sql_begin(state->sql, err) != 0)
        return -1;
    state->in_batch = true;
    return 0;
}

int state_end(struct state *state, int status, struct error *err)
{
    assert(state->in_batch);
    state->in_batch = false;
    return sql_end(state->sql, status, err);
}

const char *state_stuck(const struct state *state, double *since)
{
    return sql_stuck(state->sql, since);
}

void state_try(struct state *state)
{
    sql_try(state->sql);
}
