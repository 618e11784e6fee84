// What stays alive between loading a file and releasing it.
#pragma once
#include "schema/spec/check.h"

struct spec_book {
    struct pool *pool;
    struct source **sources;            // the file, what it inherits, then the options
    size_t sources_count;
    char *files[SPEC_BASE_MAX];         // absolute paths of the files among them
    char *stem;                         // name of the file's only run
    const struct node *overlays;        // `runs:`, NULL without one
    struct problems problems;
    struct check checks[SPEC_RUNS_MAX]; // one a run
};

// ---- read.c: trees, or NULL with a problem recorded ----
// asked: the `base:` that names this file; NULL for the first.
struct node *read_file(struct spec_book *book, const char *path, const struct node *asked);
struct node *read_option(struct spec_book *book, const char *argument);  // path.to.key=value
// The comment that opens a file, as one line: the question that it asks. free(); NULL if there is none.
char *opening_comment(const struct source *source);

// ---- inputs.c: lists of {key, file, line, column, message, text} ----
struct json *list_unsupported(const struct check *check); // what this build cannot run yet
struct json *list_missing(struct check *check);           // inputs that are not there; also recorded as warnings
