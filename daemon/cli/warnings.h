// Warnings about runs, each sentence once, with the runs that it is true of: trials have it in common.
#pragma once
#include "schema/base/json.h"

struct warnings {
    struct json *runs; // {sentence: [names of runs]}
};
void warnings_init(struct warnings *warnings);
void warnings_add(struct warnings *warnings, const char *run, const char *sentence);
void warnings_say(const struct warnings *warnings); // "warning: RUN, RUN: …" on stderr, a line each
void warnings_release(struct warnings *warnings);
