// Shared by the files of the state store, and by them only.
#pragma once
#include "daemon/store/sql.h"
#include "daemon/store/state.h"
#include <sys/types.h>

struct state {
    struct sql *sql;
    bool in_batch;
    int64_t changes; // of states and retries, so far
    char *path;
    dev_t device; // of the file that is open
    ino_t inode;
};

int state_connect(struct state *state, struct error *err); // opens the file at path as it is
int state_make_private(const char *path, struct error *err); // an empty file for its owner only, if there is none

// "moe-" becomes "moe-<n>", n one more than the highest number that this project's runs of that name ever had.
int state_drop_outcome(struct state *state, int64_t run, struct error *err);
int state_number_name(struct state *state, struct run_row *row, struct error *err);
int state_insert_run(struct state *state, struct run_row *row, struct error *err); // the row alone, in state created, by its name
int state_insert_event(struct state *state, int64_t run, double when, const char *kind, const char *from, const char *to, const char *reason,
    const char *witness, struct error *err);
