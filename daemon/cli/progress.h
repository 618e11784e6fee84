// The lines of `run`: one a run, redrawn on a terminal, printed when something is new elsewhere.
#pragma once
#include "schema/base/json.h"

struct progress {
    bool terminal;      // stderr is one
    bool wide;          // and it knows UTF-8
    size_t drawn;       // lines of ours on the screen
    double last_print;  // steady seconds
    char **last_state;  // by run, what was printed last
    int64_t *last_step;
    size_t count;
};

void progress_init(struct progress *progress);
void progress_show(struct progress *progress, const struct json *runs); // the list's members, always in the same order
void progress_release(struct progress *progress);
