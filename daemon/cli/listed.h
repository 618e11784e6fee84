// The list of runs, and of it those that a person means.
#pragma once
#include "daemon/cli/client.h"

struct listed_choice { // NULL, 0: whatever it is
    const char *project;
    const char *submission; // a run: those that were submitted together with it
    const char *const *states;
    size_t states_count;
};

// Newest first; NULL after a sentence on stderr. js_free
struct json *listed_runs(struct client *client, const struct listed_choice *choice);
bool listed_is_in(const struct json *run, const char *const *states, size_t count);
// The same runs by what is done with them: those at work, those that wait, those that are over; the order within each is kept. js_free
struct json *listed_by_phase(const struct json *runs);
// 0, or usage_error's exit code after its sentence.
int listed_check(const struct listed_choice *choice);
