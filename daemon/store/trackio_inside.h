// Shared by the files of the Trackio store, and by them only.
#pragma once
#include "daemon/store/sql.h"
#include "daemon/store/trackio.h"
#include <sys/types.h>

enum { PROJECTS_MAX = 32 }; // databases held open at a time

struct project {
    char *canonical;
    char *database, *lock; // paths
    struct sql *sql;       // NULL: not open
    bool read_only;        // sql can only read
    dev_t device;          // of the open file: Trackio may delete a project and make it anew under us
    ino_t inode;
    int lock_fd;           // -1: not held
    double locked_at;      // steady seconds
    double free_until;     // steady seconds: before this the lock is left to others
    double used;           // steady seconds, for closing the one that waited longest
};

struct trackio {
    char *directory;
    struct project *projects[PROJECTS_MAX];
    size_t count;
};

// The project's entry, not opened yet. NULL: not a name for a project.
struct project *trackio_project(struct trackio *trackio, const char *project, struct error *err);
void project_free(struct project *project);

// Opens the database, or makes it; the caller holds the lock.
int project_open_to_write(struct project *project, struct error *err);
// 0 open, 1 there is no such database, -1.
int project_open_to_read(struct project *project, struct error *err);
void project_close(struct project *project);
bool project_is_in_place(const struct project *project); // the open file is still the one under that name

int project_lock(struct project *project, struct error *err); // 0 held, 1 others hold it, -1
void project_unlock(struct project *project);
void project_flush(const struct project *project); // what was committed is on the disk

// One locked transaction around work, which may run again from its start when the database was replaced meanwhile. 0, 1 (locked), -1.
int project_transaction(struct project *project, int (*work)(struct project *project, void *context, struct error *err), void *context,
    struct error *err);
