// Everything that is wrong with a spec, collected, then shown once in the order of the files: place, sentence, source line, caret.
#pragma once
#include "schema/spec/node.h"

#include <stdint.h>

enum {
    PROBLEMS_MAX = 100, // more are counted, not kept
    PROBLEM_NAMED = 3   // runs that a message names
};

struct problem {
    const struct source *source;
    size_t line, column;
    bool warning;
    char *message;
    size_t affected;             // runs that it was found in; 0: in what all share
    size_t named[PROBLEM_NAMED]; // the first of them
    size_t last;                 // and the last
    bool trial;                  // found in a trial of a sweep
};

struct problems {
    size_t run; // what is found now is of run `run` - 1; 0: of what all share
    bool trial; // which is a trial of a sweep
    struct problem *items;
    size_t count;
    size_t errors;                    // of them, warnings left out
    size_t dropped, dropped_warnings; // not kept
};

void problems_release(struct problems *problems);
// The same sentence at the same place is kept once: runs share their common part. Of trials, sentences that differ in their numbers only
// are the same: the first one speaks for all.
void problem_add(struct problems *problems, const struct source *source, size_t line, size_t column, bool warning, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
void problem_at(struct problems *problems, const struct node *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
size_t problems_errors(const struct problems *problems); // warnings left out

void problems_sort(struct problems *problems);
void problem_show(struct text *out, const struct problem *problem);      // for people: two or three lines
struct json *problem_json(const struct problem *problem);                // {file, line, column, message}
