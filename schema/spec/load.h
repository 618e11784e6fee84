// What stays alive between loading a file and releasing it.
#pragma once
#include "schema/spec/check.h"

struct spec_book {
    struct pool *pool;
    struct source **sources;            // the file, what it inherits, then the options
    size_t sources_count;
    char *files[SPEC_BASE_MAX];         // absolute paths of the files among them
    char *stem;                         // name of the file's only run
    struct problems problems;
    struct check checks[SPEC_RUNS_MAX]; // one a run
};

// ---- inputs.c: lists of {key, file, line, column, message, text} ----
struct json *list_unsupported(const struct check *check); // what this build cannot run yet
struct json *list_missing(struct check *check);           // inputs that are not there; also recorded as warnings
