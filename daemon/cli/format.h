// Values as a person reads them, and text of unknown origin made harmless for a terminal.
#pragma once
#include "schema/base/json.h"

enum { FORMAT_MAX = 48 };

const char *format_value(char out[FORMAT_MAX], double value);      // 6 significant digits, thousands apart where whole: 1,380,352
const char *format_short(char out[FORMAT_MAX], double value);      // 4 significant digits
const char *format_rate(char out[FORMAT_MAX], double value);       // 12.3k
const char *format_bytes(char out[FORMAT_MAX], double bytes);      // 96.0 MiB
const char *format_seconds(char out[FORMAT_MAX], double seconds);  // 1m 20s
const char *format_time(char out[FORMAT_MAX], double wall);        // 2026-11-30 00:07:57 UTC
const char *format_json(char out[FORMAT_MAX], const struct json *number); // format_value, or "-" where it is null

// Takes terminal escapes out of a stream of bytes: control sequences, window titles, other control characters, and characters that turn
// the direction of writing. A carriage return ends a line (progress bars). Pieces may be cut anywhere.
struct cleaner {
    int state;
    unsigned char held[3]; // start of a multi-byte character
    int held_count;
    bool carriage;
};
void clean_bytes(struct cleaner *cleaner, struct text *out, const char *bytes, size_t count);
char *clean_line(const char *string); // one whole string, line ends become blanks; free()
