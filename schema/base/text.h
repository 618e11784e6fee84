// A growing, bounded byte string, always closed by a NUL. Past its limit it stops growing and remembers so: the owner checks
// `overflowed` once, at the end. Also the checked allocators: running out of memory ends the process.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *at;        // never NULL after text_init; at[length] == 0
    size_t length;   // bytes
    size_t capacity; // bytes allocated
    size_t limit;    // largest length allowed
    bool overflowed; // something did not fit; at holds what did
};

void text_init(struct text *text, size_t limit);
void text_release(struct text *text);
void text_clear(struct text *text);                                        // length 0, memory kept
void text_add(struct text *text, const char *string);                      // appends a NUL-terminated string
void text_add_bytes(struct text *text, const void *bytes, size_t count);   // appends bytes, NULs too
void text_addf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *text_take(struct text *text);                                        // gives the string to the caller (free()) and empties text

void *allocate(size_t count, size_t size);              // calloc; never returns NULL
void *reallocate(void *old, size_t count, size_t size); // realloc of count * size bytes; never returns NULL
char *string_copy(const char *string);                  // strdup; NULL stays NULL
uint64_t string_hash(const char *string);            // FNV-1a: the same on every machine
char *string_format(const char *format, ...) __attribute__((format(printf, 1, 2))); // asprintf; free()

// Bytes of the valid UTF-8 character at `bytes` (NUL-terminated), or 0 if there is none.
size_t utf8_length(const char *bytes);
