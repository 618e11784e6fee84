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

static void add_group(struct table *table, const struct json *groups, size_t index, const struct json *keys)
{
    const struct json *group = js_at(groups, index);
    char *label = label_of(groups, index, keys);
    char validation[2 * FORMAT_MAX], rate[2 * FORMAT_MAX], balance[2 * FORMAT_MAX], busiest[2 * FORMAT_MAX], dropped[2 * FORMAT_MAX];
    const struct json *parameters = js_get(group, "parameters");
    char *total = view_value(js_get(parameters, "total")), *active = view_value(js_get(parameters, "active"));
    char *runs = string_format("%zu", js_count(js_get(group, "runs")));
    const char *cells[] = {runs, total, active, spread(validation, group, "validation_loss", 4),
        spread(rate, group, "tokens_per_second", 0), spread(balance, group, "load_balancing_loss", 3),
        spread(busiest, group, "busiest_expert", 2), spread(dropped, group, "tokens_dropped", 4)};
    table_cell(table, label);
    free(label);
    add_swept(table, keys, group);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        table_cell(table, cells[i]);
    free(total);
    free(active);
    free(runs);
}

static void say_left_out(const struct json *run)
{
    int64_t diverged = js_integer_of(js_get(run, "diverged_step"), 0);
    fprintf(stderr, "left out: %s, which is %s", js_string_of(js_get(run, "name"), "?"), js_string_of(js_get(run, "state"), "?"));
    if (diverged > 0)
        fprintf(stderr, ", and diverged at step %lld", (long long)diverged);
    fputs("\n", stderr);
}

static void print_report(const struct json *report, bool markdown)
{
    static const char *const heading[] = {
        "runs", "parameters", "active", "validation loss", "tokens/s", "balance loss", "busiest expert", "tokens dropped"};
    const struct json *groups = js_get(report, "groups"), *left_out = js_get(report, "left_out");
    struct table table;
    struct json *keys = swept_keys(groups);
    char *align = string_format("l%.*s%s", (int)js_count(keys), "rrrrrrrr", "rrrrrrrr");
    table_init(&table, align);
    table_cell(&table, "");
    add_swept(&table, keys, NULL);
    for (size_t i = 0; i < sizeof heading / sizeof *heading; i++)
        table_cell(&table, heading[i]);
    for (size_t i = 0; i < js_count(groups); i++)
        add_group(&table, groups, i, keys);
    if (markdown)
        table_print_markdown(&table, stdout);
    else
        table_print(&table, stdout, 0);
    table_release(&table);
    free(align);
    js_free(keys);
    for (size_t i = 0; i < js_count(left_out); i++)
        say_left_out(js_at(left_out, i));
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
    .run = run_report,
};
