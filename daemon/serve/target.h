// The target of a request ("/api/v1/runs/p/n?after=3"), taken apart once. Nothing that we serve needs an escape in its path: run and
// project names are [A-Za-z0-9_-], files are found in a fixed table. So a path is a plain list of plain words, and everything else
// (%2e, .., //, NUL, a backslash) is refused here, before any routing.
#pragma once
#include "schema/base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TARGET_BYTES_MAX = 8192, TARGET_SEGMENTS_MAX = 8, TARGET_ARGUMENTS_MAX = 16 };

struct target_argument {
    const char *name, *value; // decoded once; value is "" where there is no '='
};

struct target {
    char *path;               // as it came, without the query; "/" or "/a/b"
    char *words;              // storage of segments and arguments
    const char *segments[TARGET_SEGMENTS_MAX];
    size_t segment_count;     // 0 for "/"
    struct target_argument arguments[TARGET_ARGUMENTS_MAX];
    size_t argument_count;
};

// 0, or -1 with the reason. Call target_release in both cases.
int target_parse(struct target *target, const char *raw, struct error *err);
void target_release(struct target *target);

const char *target_argument(const struct target *target, const char *name); // NULL if absent; the first if given several times
// The argument as an integer in [low, high]: fallback if absent, -1 and a sentence if it is none.
int target_integer(int64_t *value, const struct target *target, const char *name, int64_t fallback, int64_t low, int64_t high,
    struct error *err);

bool target_is_name(const char *word); // [A-Za-z0-9_-]{1,64}: a project or a run
