#include "daemon/cli/show_events.h"
#include "daemon/cli/format.h"
#include "daemon/cli/table.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_PRINTED = 50 };

// Events that stand in one line: one, or several checkpoints between which nothing else happened.
struct stretch {
    size_t first, count;
};

static const char *kind_of(const struct json *event)
{
    return js_string_of(js_get(event, "kind"), "?");
}

// The stretch that ends before the event of this number.
static struct stretch stretch_before(const struct json *events, size_t end)
{
    size_t first = end - 1;
    if (strcmp(kind_of(js_at(events, first)), "checkpoint") == 0)
        while (first > 0 && strcmp(kind_of(js_at(events, first - 1)), "checkpoint") == 0)
            first--;
    return (struct stretch){.first = first, .count = end - first};
}

// free()
static char *words_of(const struct json *last, size_t count)
{
    const char *reason = js_string_of(js_get(last, "reason"), js_string_of(js_get(last, "text"), "")), *witness = js_string_of(js_get(last, "witness"), "?");
    long long step = (long long)js_integer_of(js_get(last, "step"), 0);
    if (count > 1)
        return step > 0 ? string_format("%zu checkpoints, the last at step %lld (%s)", count, step, witness) : string_format("%zu checkpoints (%s)", count, witness);
    return string_format("%s%s(%s)", reason, *reason ? " " : "", witness);
}

static void add_line(struct table *table, const struct json *events, struct stretch stretch)
{
    const struct json *last = js_at(events, stretch.first + stretch.count - 1);
    char when[FORMAT_MAX], *words = words_of(last, stretch.count);
    format_time(when, js_real_of(js_get(last, "time"), 0));
    const char *cells[] = {when, js_string_of(js_get(last, "to"), kind_of(last)), words};
    table_row(table, cells);
    free(words);
}

static void say_left_out(const struct json *left_out)
{
    long long checkpoints = (long long)js_integer_of(js_get(left_out, "checkpoints"), 0), others = (long long)js_integer_of(js_get(left_out, "others"), 0);
    if (checkpoints)
        printf("  (and %lld checkpoint%s before those that are counted here)\n", checkpoints, checkpoints == 1 ? "" : "s");
    if (others)
        printf("  (and %lld event%s before them that the daemon does not show)\n", others, others == 1 ? "" : "s");
}

void show_events(const struct json *events, const struct json *left_out)
{
    struct stretch newest[LINES_PRINTED];
    size_t lines = 0, end = js_count(events);
    while (end > 0 && lines < LINES_PRINTED) {
        newest[lines] = stretch_before(events, end);
        end = newest[lines++].first;
    }
    say_left_out(left_out);
    if (end > 0)
        printf("  (%zu earlier ones: `show --json` has them)\n", end);
    struct table table;
    table_init(&table, "lll"); // the words last: however long they are, nothing stands behind them
    while (lines > 0)
        add_line(&table, events, newest[--lines]);
    table_print(&table, stdout, 2);
    table_release(&table);
}
