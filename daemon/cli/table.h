// A table for people: columns as wide as their widest cell, numbers to the right.
#pragma once
#include <stddef.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 16 };

struct table {
    size_t columns;
    const char *align; // one letter a column: 'l' or 'r'
    char **cells;      // row after row, the heading first
    size_t count;
};

void table_init(struct table *table, const char *align);
void table_cell(struct table *table, const char *text);          // next cell, cleaned for a terminal
void table_row(struct table *table, const char *const *cells);   // as many as there are columns
void table_print(const struct table *table, FILE *out, int indent);
void table_print_markdown(const struct table *table, FILE *out);
void table_release(struct table *table);
