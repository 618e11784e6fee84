// What a `sweep:` says: axes or points, and which settings each of its trials has. Everything lives in the pool of the load.
#pragma once
#include "schema/spec/check.h"

enum {
    SWEEP_TRIALS_USUAL = 1000,  // of a sweep without `limit`
    SWEEP_TRIALS_MAX = SUBMISSION_RUNS_MAX,
    SWEEP_SETTINGS_MAX = 64     // of a trial
};

struct setting {
    const struct field *field; // NULL: the path is no key of a run
    const char *path;          // model.moe.top_k
    const struct node *key, *value;
};

struct settings {
    struct setting *at;
    size_t count;
};

struct sweep {
    const struct node *node;
    struct settings axes;    // grid and zip: the value of each is a list
    struct settings *points; // list: one a trial
    bool grid;
    size_t trials;
    int64_t canary;      // the first trials, which the others need; 0: none
    int64_t concurrency; // most trials at once; 0: no limit
    const struct node *concurrency_node;
};

// false, with every fault recorded at its place. whole: of a run, with what overlays and options add; the common part alone may lack an axis.
bool sweep_read(struct sweep *sweep, struct problems *problems, struct pool *pool, const struct node *node, bool whole);
// The settings of a trial, from 0: of a grid, the last key's values go round fastest. Returns how many.
size_t sweep_settings(const struct sweep *sweep, size_t trial, struct setting settings[SWEEP_SETTINGS_MAX]);
