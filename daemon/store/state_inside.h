// Shared by the files of the state store, and by them only.
#pragma once
#include "daemon/store/sql.h"
#include "daemon/store/state.h"
#include <sys/types.h>

struct state {
    struct sql *sql;
    bool in_batch;
    char *path;
    dev_t device; // of the file that is open
    ino_t inode;
};

int state_connect(struct state *state, struct error *err); // opens the file at path as it is
int state_make_private(const char *path, struct error *err); // an empty file for its owner only, if there is none

int state_insert_event(struct state *state, int64_t run, double when, const char *kind, const char *from, const char *to, const char *reason,
    const char *witness, struct error *err);
