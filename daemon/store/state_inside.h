// Shared by the files of the state store, and by them only.
#pragma once
#include "daemon/store/sql.h"
#include "daemon/store/state.h"

struct state {
    struct sql *sql;
    bool in_batch;
};

int state_insert_event(struct state *state, int64_t run, double when, const char *kind, const char *from, const char *to, const char *reason,
    const char *witness, struct error *err);
