// `switchyard report PROJECT`: what a project's runs came to, those together that differ in their seed only.
#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/swept.h"
#include "daemon/cli/table.h"
#include "daemon/cli/view.h"
#include "daemon/serve/target.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 5 }; // runs of which the same is said; a sweep has thousands

// "1.5757 (1.5713–1.5802)": mean, and the range where there are several.
static const char *spread(char text[static 2 * FORMAT_MAX], const struct json *group, const char *metric, int decimals)
{
    const struct json *values = js_get(js_get(group, "metrics"), metric);
    double mean = js_real_of(js_get(values, "mean"), NAN);
    double least = js_real_of(js_get(values, "least"), NAN), most = js_real_of(js_get(values, "most"), NAN);
    if (!isfinite(mean))
        return "-";
    if (js_count(js_get(group, "runs")) > 1)
        snprintf(text, 2 * FORMAT_MAX, "%.*f (%.*f–%.*f)", decimals, mean, decimals, least, decimals, most);
    else
        snprintf(text, 2 * FORMAT_MAX, "%.*f", decimals, mean);
    return text;
}

// The columns behind the name: what sweeps vary among these groups. group NULL: the headings.
static void add_swept(struct table *table, const struct json *keys, const struct json *group)
{
    for (size_t i = 0; i < js_count(keys); i++) {
        const char *key = js_string_of(js_at(keys, i), "");
        char *value = group ? swept_value(group, key) : string_copy(swept_word(key));
        table_cell(table, value);
        free(value);
    }
}

static bool same_row(const struct json *a, const struct json *b, const struct json *keys)
{
    bool same = js_equal(js_get(a, "name"), js_get(b, "name"));
    for (size_t i = 0; i < js_count(keys) && same; i++) {
        const char *key = js_string_of(js_at(keys, i), "");
        same = js_equal(js_get(js_get(a, "sweep"), key), js_get(js_get(b, "sweep"), key));
    }
    return same;
}

// "dense", or "dense: long" where another line has the same name and swept values: the first of its runs tells them apart. free()
static char *label_of(const struct json *groups, size_t index, const struct json *keys)
{
    const struct json *group = js_at(groups, index);
    const char *name = js_string_of(js_get(group, "name"), "?"), *first = js_string_of(js_at(js_get(group, "runs"), 0), NULL);
    for (size_t i = 0; i < js_count(groups); i++)
        if (i != index && first && same_row(group, js_at(groups, i), keys))
            return string_format("%s: %s", name, first);
    return string_copy(name);
}

// A column for each, in this order; of the validation only where a run has one.
static const struct column {
    const char *heading, *metric;
    int decimals;
} columns[] = {
    {"validation loss", "validation_loss", 4},
    {"training loss", "loss", 4},
    {"tokens/s", "tokens_per_second", 0},
    {"balance loss", "load_balancing_loss", 3},
    {"busiest expert", "busiest_expert", 2},
    {"tokens dropped", "tokens_dropped", 4},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static bool is_validated(const struct json *group)
{
    return js_get(js_get(js_get(group, "metrics"), "validation_loss"), "mean") != NULL;
}

static size_t count_validated(const struct json *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < js_count(groups); i++)
        count += is_validated(js_at(groups, i));
    return count;
}

static void add_group(struct table *table, const struct json *groups, size_t index, const struct json *keys, bool validated)
{
    const struct json *group = js_at(groups, index), *parameters = js_get(group, "parameters");
    char *label = label_of(groups, index, keys);
    char *total = view_value(js_get(parameters, "total")), *active = view_value(js_get(parameters, "active"));
    char *runs = string_format("%zu", js_count(js_get(group, "runs"))), text[2 * FORMAT_MAX];
    table_cell(table, label);
    add_swept(table, keys, group);
    table_cell(table, runs);
    table_cell(table, total);
    table_cell(table, active);
    for (size_t i = validated ? 0 : 1; i < COLUMNS; i++)
        table_cell(table, spread(text, group, columns[i].metric, columns[i].decimals));
    free(label);
    free(total);
    free(active);
    free(runs);
}

// Where some have no validation, which: what their losses are of, lest one kind is compared with the other.
static void say_unvalidated(const struct json *groups, const struct json *keys)
{
    size_t without = js_count(groups) - count_validated(groups), named = 0;
    if (without == 0)
        return;
    if (without == js_count(groups)) {
        fprintf(stderr, "no validation in these runs: the training loss is that of the last step, of its own batch (`training.validation` measures runs on data held out)\n");
        return;
    }
    fprintf(stderr, "no validation: ");
    for (size_t i = 0; i < js_count(groups) && named < NAMED; i++) {
        if (is_validated(js_at(groups, i)))
            continue;
        char *label = label_of(groups, i, keys);
        fprintf(stderr, "%s%s", named++ ? ", " : "", label);
        free(label);
    }
    if (without > NAMED)
        fprintf(stderr, " and %zu more", without - NAMED);
    fprintf(stderr, "; a training loss is that of the last step, of its own batch, and compares with training losses only\n");
}

static void say_diverged(const struct json *run, long long step)
{
    fprintf(stderr, "left out: %s, which is %s, and diverged at step %lld\n", js_string_of(js_get(run, "name"), "?"),
        js_string_of(js_get(run, "state"), "?"), step);
}

// A line for each state, and one for each run that diverged: it has something to tell.
static void say_left_out(const struct json *runs)
{
    struct json *said = js_object();
    for (size_t i = 0; i < js_count(runs); i++) {
        const char *state = js_string_of(js_get(js_at(runs, i), "state"), "?");
        long long diverged = js_integer_of(js_get(js_at(runs, i), "diverged_step"), 0);
        if (diverged > 0)
            say_diverged(js_at(runs, i), diverged);
        if (diverged > 0 || js_get(said, state))
            continue;
        js_set(said, state, js_boolean(true));
        struct text names;
        text_init(&names, 4096);
        size_t count = 0;
        for (size_t j = i; j < js_count(runs); j++) {
            const struct json *run = js_at(runs, j);
            if (strcmp(js_string_of(js_get(run, "state"), "?"), state) != 0 || js_integer_of(js_get(run, "diverged_step"), 0) > 0)
                continue;
            if (count++ < NAMED)
                text_addf(&names, "%s%s", count > 1 ? ", " : "", js_string_of(js_get(run, "name"), "?"));
        }
        if (count > NAMED)
            text_addf(&names, " and %zu more", count - NAMED);
        fprintf(stderr, "left out: %s, which %s %s\n", names.at, count > 1 ? "are" : "is", state);
        text_release(&names);
    }
    js_free(said);
}

// What a narrow terminal does without, the least telling first; first: the column of the runs' number. Losses and what was swept stay.
static void fit_report(struct table *table, size_t first, bool validated)
{
    size_t order[COLUMNS + 3], count = 0, losses = first + 3, others = losses + (validated ? 2 : 1);
    for (size_t column = table->columns; column > others; column--)
        order[count++] = column - 1;
    order[count++] = first + 2; // active
    order[count++] = first + 1; // parameters
    order[count++] = first;
    table_fit(table, table_terminal(stdout), order, count);
}

static void say_hidden(const struct table *table)
{
    bool any = false;
    for (size_t column = 0; column < table->columns; column++) {
        if (!table->hidden[column] || table_is_empty(table, column))
            continue;
        fprintf(stderr, "%s%s", any ? ", " : "this terminal is too narrow for: ", table->cells[column]);
        any = true;
    }
    if (any)
        fprintf(stderr, " (--markdown has all)\n");
}

static void print_report(const struct json *report, bool markdown)
{
    const struct json *groups = js_get(report, "groups");
    bool validated = count_validated(groups) > 0 || js_count(groups) == 0;
    struct table table;
    struct json *keys = swept_keys(groups);
    char *align = string_format("l%.*s%s%.*s", (int)js_count(keys), "rrrrrrrr", "rrr", validated ? COLUMNS : COLUMNS - 1, "rrrrrrrr");
    table_init(&table, align);
    table_cell(&table, "");
    add_swept(&table, keys, NULL);
    table_cell(&table, "runs");
    table_cell(&table, "parameters");
    table_cell(&table, "active");
    for (size_t i = validated ? 0 : 1; i < COLUMNS; i++)
        table_cell(&table, columns[i].heading);
    for (size_t i = 0; i < js_count(groups); i++)
        add_group(&table, groups, i, keys, validated);
    if (!markdown)
        fit_report(&table, 1 + js_count(keys), validated);
    if (markdown)
        table_print_markdown(&table, stdout);
    else
        table_print(&table, stdout, 0);
    say_hidden(&table);
    table_release(&table);
    free(align);
    say_unvalidated(groups, keys);
    js_free(keys);
    say_left_out(js_get(report, "left_out"));
}

static int run_report(const struct arguments *arguments)
{
    const char *project = arguments->words[0];
    if (!target_is_name(project))
        return usage_error("'%s' is no name of a project", project);
    if (argument_flag(arguments, "json") && argument_flag(arguments, "markdown"))
        return usage_error("--json and --markdown are two answers: report gives one");
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    char *path = string_format("/api/v1/report?project=%s", project);
    struct json *answer = client_get(client, path);
    free(path);
    bool empty = answer && !js_count(js_get(answer, "groups")) && !js_count(js_get(answer, "left_out"));
    if (answer && argument_flag(arguments, "json"))
        print_json(answer);
    else if (empty)
        fprintf(stderr, "no runs of project %s yet: `switchyard submit SPEC` makes some\n", project);
    else if (answer)
        print_report(answer, argument_flag(arguments, "markdown"));
    client_close(client);
    js_free(answer);
    return answer ? CLI_DONE : CLI_NO_DAEMON;
}

static const struct command_option report_options[] = {
    {"markdown", 0, NULL, false, "a table for a document"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_report = {
    .name = "report",
    .summary = "A project in one table: runs that differ in their seed only are one line, with mean and range",
    .usage = "PROJECT",
    .least = 1,
    .most = 1,
    .options = report_options,
    .description = "Only runs that succeeded count; who was left out, and why, is said on stderr. The validation loss is that of the last validation, on\n"
                   "data held out: where runs have one, it is what they are compared by. The training loss is that of the last step, of its own batch.\n"
                   "Tokens a second are each run's median.",
    .run = run_report,
};
