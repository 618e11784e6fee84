// One shape of error: a function that can fail for the world's reasons returns 0 or -1 and writes one sentence, where the fault is
// known, with the user's file:line:col if there is one. Callers add context or pass it on; it is shown once, by whoever decides what
// to do. Our own mistakes are not errors: they are asserts.
#pragma once

enum { ERROR_TEXT_MAX = 4096 };

struct error {
    char text[ERROR_TEXT_MAX]; // one or more lines without a final newline; empty = no error
};

// Writes the sentence (cut at ERROR_TEXT_MAX) and returns -1, so that `return error_set(err, …)` reads well. err may be NULL.
int error_set(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Puts "context: " in front of what err holds, and returns -1.
int error_context(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// error_set with ": " and strerror(errno) at its end.
int error_errno(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
