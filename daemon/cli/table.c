#include "daemon/cli/table.h"
#include "daemon/cli/format.h"
#include "schema/base/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

size_t table_terminal(FILE *out)
{
    struct winsize size;
    return isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : SIZE_MAX;
}

static bool is_shown(const struct table *table, size_t column)
{
    return !table->hidden[column] && !(table->below && table->align[column] == 'w');
}

static void widths_of(const struct table *table, size_t widest[TABLE_COLUMNS_MAX])
{
    memset(widest, 0, TABLE_COLUMNS_MAX * sizeof *widest);
    for (size_t i = 0; i < table->count; i++) {
        size_t width = width_of(table->cells[i]), column = i % table->columns;
        widest[column] = width > widest[column] ? width : widest[column];
    }
}

size_t table_width(const struct table *table)
{
    size_t widest[TABLE_COLUMNS_MAX], width = 0;
    widths_of(table, widest);
    for (size_t column = 0; column < table->columns; column++)
        if (is_shown(table, column))
            width += (width ? 2 : 0) + widest[column];
    return width;
}

bool table_is_empty(const struct table *table, size_t column)
{
    for (size_t i = table->columns + column; i < table->count; i += table->columns)
        if (strcmp(table->cells[i], "-") != 0)
            return false;
    return true;
}

void table_fit(struct table *table, size_t width, const size_t *order, size_t count)
{
    if (table_width(table) > width)
        table->below = width;
    for (size_t i = 0; i < count && table_width(table) > width; i++)
        table->hidden[order[i]] = table_is_empty(table, order[i]);
    for (size_t i = 0; i < count && table_width(table) > width; i++)
        table->hidden[order[i]] = true;
}

// How many rows in sequence, this the last of them, have these words; 0: the next row has them too.
static size_t rows_with(const struct table *table, size_t row)
{
    size_t rows = table->count / table->columns, last = table->columns - 1, count = 1;
    const char *words = table->cells[row * table->columns + last];
    if (row + 1 < rows && strcmp(table->cells[(row + 1) * table->columns + last], words) == 0)
        return 0;
    while (row > count && strcmp(table->cells[(row - count) * table->columns + last], words) == 0)
        count++;
    return count;
}

// Words below their row, or the last of those that have them, cut where the terminal ends: not in the middle of a character.
static void print_below(const struct table *table, FILE *out, size_t row)
{
    size_t length = 0, room = table->below > 8 ? table->below - 4 : 4, rows = rows_with(table, row);
    char *words = table->cells[(row + 1) * table->columns - 1];
    if (rows == 0 || strcmp(words, "-") == 0)
        return;
    words = rows > 1 ? string_format("the %zu above: %s", rows, words) : string_copy(words);
    bool fits = width_of(words) <= room;
    for (size_t width = 0; words[length]; length++) {
        width += ((unsigned char)words[length] & 0xC0) != 0x80;
        if (!fits && width >= room)
            break;
    }
    fprintf(out, "    %.*s%s\n", (int)length, words, fits ? "" : "…");
    free(words);
}

void table_print(const struct table *table, FILE *out, int indent)
{
    size_t widest[TABLE_COLUMNS_MAX];
    widths_of(table, widest);
    for (size_t row = 0; row < table->count / table->columns; row++) {
        char *const *cells = table->cells + row * table->columns;
        int before = indent, owed = 0; // blanks before the next cell; those of the last one, which are not printed at a line's end
        for (size_t column = 0; column < table->columns; column++) {
            if (!is_shown(table, column))
                continue;
            int padding = (int)(widest[column] - width_of(cells[column]));
            bool right = table->align[column] == 'r';
            fprintf(out, "%*s%s", before + owed + (right ? padding : 0), "", cells[column]);
            owed = right ? 0 : padding;
            before = 2;
        }
        fputc('\n', out);
        if (table->below && row > 0 && table->align[table->columns - 1] == 'w')
            print_below(table, out, row);
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
