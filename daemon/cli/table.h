// A table for people: columns as wide as their widest cell, numbers to the right. On a terminal that is too narrow for all of them, some are
// left out, and words that no column can hold go on a line of their own, once for rows in sequence that have them in common.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 16 };

struct table {
    size_t columns;
    const char *align; // one letter a column: 'l' or 'r'; 'w' for the last one: words, which may go below their row
    char **cells;      // row after row, the heading first
    size_t count;
    bool hidden[TABLE_COLUMNS_MAX];
    size_t below;      // columns of the terminal where the words go below; 0: they are a column
};

void table_init(struct table *table, const char *align);
void table_cell(struct table *table, const char *text);          // next cell, cleaned for a terminal
void table_row(struct table *table, const char *const *cells);   // as many as there are columns
size_t table_terminal(FILE *out); // columns of the terminal that it writes to; SIZE_MAX: it is none, and nothing is too wide for it
size_t table_width(const struct table *table);
bool table_is_empty(const struct table *table, size_t column); // nothing but "-" under its heading
// Puts the words below, and then leaves out the columns of this order, one after the other, until the rest is no wider than this: first those that
// hold nothing.
void table_fit(struct table *table, size_t width, const size_t *order, size_t count);
void table_print(const struct table *table, FILE *out, int indent);
void table_print_markdown(const struct table *table, FILE *out);
void table_release(struct table *table);
