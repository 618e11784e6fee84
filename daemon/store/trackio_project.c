// One project's database as a file: Trackio's lock, making it elsewhere and renaming it in, noticing that it was replaced.
#include "daemon/store/trackio_inside.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

extern const char trackio_sql[]; // schema/trackio.sql

enum { TRACKIO_VERSION = 2, BUSY_MS = 200, LOCK_WAIT_MS = 500, LOCK_STEP_MS = 5, REPLACED_TRIES = 3 };

// ---- the lock ----

static void sleep_seconds(double seconds)
{
    if (seconds > 0)
        usleep((useconds_t)(seconds * 1e6));
}

// Trackio never deletes its lock files; should somebody do so, a lock on the lost file would keep nobody out.
static bool is_file_at(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 && open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

int project_lock(struct project *project, struct error *err)
{
    assert(project->lock_fd < 0);
    sleep_seconds(project->free_until - clock_steady());
    double deadline = clock_steady() + LOCK_WAIT_MS / 1000.0;
    for (;;) {
        // Reading is all that flock needs, so that another user's lock file does too.
        int fd = open(project->lock, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return error_errno(err, "%s", project->lock);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_file_at(fd, project->lock)) {
            project->lock_fd = fd;
            project->locked_at = clock_steady();
            return 0;
        }
        int fault = errno;
        close(fd);
        if (fault != EWOULDBLOCK && fault != EINTR) {
            errno = fault;
            return error_errno(err, "%s", project->lock);
        }
        if (clock_steady() > deadline) {
            error_set(err, "%s: held by another program", project->lock);
            return 1;
        }
        sleep_seconds(LOCK_STEP_MS / 1000.0);
    }
}

// Closing gives the lock up. It is then left alone for as long as it was held: a client that asks ten times a second must find it free.
void project_unlock(struct project *project)
{
    double now = clock_steady();
    project->free_until = now + (now - project->locked_at);
    close(project->lock_fd);
    project->lock_fd = -1;
}

// ---- the file ----

void project_close(struct project *project)
{
    sql_close(project->sql);
    project->sql = NULL;
}

void project_free(struct project *project)
{
    project_close(project);
    free(project->canonical);
    free(project->database);
    free(project->lock);
    free(project);
}

bool project_is_in_place(const struct project *project)
{
    struct stat info;
    return stat(project->database, &info) == 0 && info.st_dev == project->device && info.st_ino == project->inode && sql_sidecars_in_place(project->sql);
}

static void remove_leftovers(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char *name = string_format("%s%s", path, suffixes[i]);
        unlink(name);
        free(name);
    }
}

// To the disk, whatever a file system may say to it: what cannot be synced is as safe as it gets.
static void flush(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

// Trackio's databases are committed without fsync, so that nobody waits for a disk under the lock. Our cursor, which is stored with one, must
// not get ahead of the rows: so the log is synced before the rows count as stored. (Closing the log gives up no lock: SQLite's are elsewhere.)
void project_flush(const struct project *project)
{
    char *log = string_format("%s-wal", project->database);
    flush(log);
    free(log);
}

// The file is made before SQLite sees it, so that the umask alone says who may read and write it: SQLite would take the group's right to write.
static int build_database(const char *path, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, "%s", path);
    close(fd);
    struct sql *sql = NULL;
    if (sql_open(&sql, path, &(struct sql_options){.full_sync = true}, err) != 0)
        return -1;
    int status = sql_begin(sql, err);
    if (status == 0)
        status = sql_end(sql, sql_script(sql, trackio_sql, err), err);
    sql_close(sql); // folds the log into the file: one file is all that there is to rename
    return status;
}

// Whatever is in that folder under a name ending in .db is a project to Trackio, and one bad file keeps its server from starting: so the
// database gets its name when it is whole. The lock is held, so nobody else builds.
static int make_database(struct project *project, struct error *err)
{
    char *directory = path_join(project->database, ".."), *clean = path_absolute(directory, NULL);
    char *path = string_format("%s/.switchyard-%s.new", clean, project->canonical);
    remove_leftovers(path);
    int status = build_database(path, err);
    if (status == 0 && renameat2(AT_FDCWD, path, AT_FDCWD, project->database, RENAME_NOREPLACE) != 0 && errno != EEXIST)
        status = error_errno(err, "%s", project->database);
    if (status == 0)
        flush(clean);
    remove_leftovers(path);
    free(path);
    free(clean);
    free(directory);
    return status;
}

// A database from Trackio before its runs had ids needs Trackio's own migration; one that only lacks tables is completed.
static int check_version(struct project *project, struct error *err)
{
    int64_t version, metrics, run_ids;
    if (sql_number(project->sql, &version, 0, err, "PRAGMA user_version", "") != 0)
        return -1;
    if (version >= TRACKIO_VERSION)
        return 0;
    if (sql_number(project->sql, &metrics, 0, err, "SELECT count(*) FROM sqlite_master WHERE name = 'metrics'", "") != 0 ||
        sql_number(project->sql, &run_ids, 0, err, "SELECT count(*) FROM pragma_table_info('metrics') WHERE name IN ('run_id', 'log_id')", "") != 0)
        return -1;
    if (metrics && run_ids < 2)
        return error_set(err, "%s: written by an old Trackio: start `trackio show` once with a current one, which migrates it", project->database);
    if (sql_begin(project->sql, err) != 0)
        return -1;
    return sql_end(project->sql, sql_script(project->sql, trackio_sql, err), err);
}

static int open_file(struct project *project, bool read_only, struct error *err)
{
    struct stat info;
    if (stat(project->database, &info) != 0)
        return error_errno(err, "%s", project->database);
    if (sql_open(&project->sql, project->database, &(struct sql_options){.read_only = read_only, .checkpoint_later = true, .busy_ms = BUSY_MS}, err) != 0)
        return -1;
    project->device = info.st_dev;
    project->inode = info.st_ino;
    project->read_only = read_only;
    return 0;
}

int project_open_to_write(struct project *project, struct error *err)
{
    project->used = clock_steady();
    if (project->sql && !project->read_only && project_is_in_place(project))
        return 0;
    project_close(project);
    if (!file_exists(project->database) && make_database(project, err) != 0)
        return -1;
    if (open_file(project, false, err) == 0 && check_version(project, err) == 0)
        return 0;
    project_close(project);
    return -1;
}

int project_open_to_read(struct project *project, struct error *err)
{
    project->used = clock_steady();
    if (project->sql && project_is_in_place(project))
        return 0;
    project_close(project);
    if (!file_exists(project->database))
        return 1;
    if (open_file(project, false, err) == 0)
        return 0;
    return open_file(project, true, err);
}

// ---- a transaction ----

static int work_once(struct project *project, int (*work)(struct project *project, void *context, struct error *err), void *context,
    struct error *err)
{
    if (project_open_to_write(project, err) != 0)
        return -1;
    int status = sql_begin(project->sql, err);
    if (status == 0) {
        status = work(project, context, err);
        status = sql_end(project->sql, status, err);
    }
    if (status == 0)
        return 0;
    if (sql_fault(project->sql) == SQL_BUSY)
        return 1;
    project_close(project); // the next call looks at the file anew
    return -1;
}

int project_transaction(struct project *project, int (*work)(struct project *project, void *context, struct error *err), void *context,
    struct error *err)
{
    int status = project_lock(project, err);
    if (status != 0)
        return status;
    for (int tries = 0; tries < REPLACED_TRIES; tries++) {
        status = work_once(project, work, context, err);
        if (status != 0 || project_is_in_place(project))
            break;
    }
    project_unlock(project);
    if (project->sql)
        sql_checkpoint(project->sql); // an fsync of megabytes, which no client should wait for
    return status;
}
