// Options of these commands: a table of names and places, so that each command's list is read in one piece.
#pragma once
#include "schema/base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_WHOLE, OPTION_REAL };

struct option_row {
    const char *name;   // with its dashes; NULL ends the table
    enum option_kind kind;
    void *at;           // bool, const char *, int64_t or double
    double least, most; // OPTION_WHOLE, OPTION_REAL
};

// Positional words go to words[0 .. count), all of them wanted. -1 with the sentence.
int options_read(const struct option_row *rows, const char **words, int count, int argc, char **argv, struct error *err);

// For a command: the sentence and the usage on stderr (EXIT_BAD_INPUT), or --help's usage on stdout (EXIT_DONE); -1: go on.
int options_command(const char *usage, const struct option_row *rows, const char **words, int count, int argc, char **argv);

int complain(const struct error *err, int code); // the sentence on stderr; returns the code
