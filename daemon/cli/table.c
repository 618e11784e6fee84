#include "daemon/cli/table.h"
#include "daemon/cli/format.h"

#include <stdlib.h>
#include <string.h>

void table_init(struct table *table, const char *align)
{
    *table = (struct table){.columns = strlen(align), .align = align};
}

void table_cell(struct table *table, const char *text)
{
    table->cells = reallocate(table->cells, table->count + 1, sizeof *table->cells);
    table->cells[table->count++] = clean_line(text ? text : "-");
}

void table_row(struct table *table, const char *const *cells)
{
    for (size_t i = 0; i < table->columns; i++)
        table_cell(table, cells[i]);
}

// Characters, not bytes: continuation bytes of UTF-8 take no place.
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

void table_print(const struct table *table, FILE *out, int indent)
{
    size_t widest[TABLE_COLUMNS_MAX] = {0};
    for (size_t i = 0; i < table->count; i++) {
        size_t width = width_of(table->cells[i]), column = i % table->columns;
        widest[column] = width > widest[column] ? width : widest[column];
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        int padding = (int)(widest[column] - width_of(table->cells[i]));
        bool right = table->align[column] == 'r', last = column + 1 == table->columns;
        fprintf(out, "%*s%*s%s%*s", column ? 2 : indent, "", right ? padding : 0, "", table->cells[i], right || last ? 0 : padding, "");
        if (last)
            fputc('\n', out);
    }
}

void table_print_markdown(const struct table *table, FILE *out)
{
    for (size_t i = 0; i < table->count; i++) {
        bool last = (i + 1) % table->columns == 0;
        fprintf(out, "%s %s%s", i % table->columns ? " |" : "|", table->cells[i], last ? " |\n" : "");
        for (size_t column = 0; i + 1 == table->columns && column < table->columns; column++)
            fprintf(out, "|%s%s", table->align[column] == 'r' ? "---:" : "---", column + 1 == table->columns ? "|\n" : "");
    }
}

void table_release(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
}
