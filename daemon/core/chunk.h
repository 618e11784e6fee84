// Lines of a run's records as they were read, before they are stored: looked at one by one, since one wrong line would stop a whole inbox of
// Trackio's.
#pragma once
#include "daemon/core/core.h"

enum { CHUNK_LINES = 256 };

struct item {
    struct json *line; // NULL: malformed
    char *raw;         // of a malformed line
    const char *why;
    size_t bytes;
    int64_t offset;
};

struct chunk { // lines that were read at once
    const struct view *view;
    struct item items[CHUNK_LINES];
    size_t count;
    size_t bytes;
};

// A line for record_read's visitor, with a chunk as its context: kept as it is, or as malformed with the reason why.
void chunk_take(void *context, const struct json *line, const char *raw, size_t bytes, int64_t offset);
void chunk_clear(struct chunk *chunk);
bool item_is(const struct item *item, const char *kind);
bool item_is_trackio(const struct item *item); // of a kind that goes to Trackio
