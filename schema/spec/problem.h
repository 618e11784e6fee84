// Everything that is wrong with a spec, collected, then shown once in the order of the files: place, sentence, source line, caret.
#pragma once
#include "schema/spec/node.h"

#include <stdint.h>

enum { PROBLEMS_MAX = 100 }; // more are counted, not kept

struct problem {
    const struct source *source;
    size_t line, column;
    bool warning;
    char *message;
    uint64_t runs; // bit I: found in run I. 0: in what all share
};

struct problems {
    size_t run; // what is found now is of run `run` - 1; 0: of what all share
    struct problem *items;
    size_t count;
    size_t dropped;
};

void problems_release(struct problems *problems);
// The same sentence at the same place is kept once: runs share their common part.
void problem_add(struct problems *problems, const struct source *source, size_t line, size_t column, bool warning, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
void problem_at(struct problems *problems, const struct node *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
size_t problems_errors(const struct problems *problems); // warnings left out

void problems_sort(struct problems *problems);
// The message, and in which runs it is so, where that is not all of them: two keys may disagree in one run only. free()
char *problem_sentence(const struct problem *problem, const char *const *names, size_t count);
void problem_show(struct text *out, const struct problem *problem);      // for people: two or three lines
struct json *problem_json(const struct problem *problem);                // {file, line, column, message}
