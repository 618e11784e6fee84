// Options of these commands: a table of names and places, so that each command's list is read in one piece.
#pragma once
#include "schema/base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_WHOLE, OPTION_REAL, OPTION_SIZE };

#define OPTION_WHOLE_MOST 0x1p53 // what a double holds exactly: no limit of its own

struct option_row {
    const char *name;   // with its dashes; NULL ends the table
    enum option_kind kind;
    void *at;           // bool, const char *, int64_t or double; OPTION_SIZE: int64_t, bytes as digits or as a size of the spec (5GB, 2GiB)
    double least, most; // of numbers
};

// Positional words go to words[0 .. count), all of them wanted. The sentence on stderr (EXIT_BAD_INPUT), or --help's usage on stdout (EXIT_DONE);
// -1: go on. The usage begins with the command's name, and its first line is all that the command takes.
int options_command(const char *usage, const struct option_row *rows, const char **words, int count, int argc, char **argv);

// The sentence on stderr, under the name that the program was called by (`switchyard generate` becomes this program); returns the code.
int complain(const struct error *err, int code);
