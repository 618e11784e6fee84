// `switchyard show RUN`: what a run is made of, how it stands, and what happened to it.
#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/plan.h"
#include "daemon/cli/show_events.h"
#include "daemon/cli/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_moment(const char *label)
{
    return strcmp(label, "expected_start") == 0 || strcmp(label, "created") == 0 || strcmp(label, "started") == 0 || strcmp(label, "ended") == 0;
}

static void print_member(const char *label, const struct json *value)
{
    char moment[FORMAT_MAX];
    char *text = is_moment(label) ? string_copy(format_time(moment, js_real_of(value, 0))) : view_value(value), *clean = clean_line(text);
    if (js_kind(value) != JSON_KIND_NULL)
        printf("  %-14s %s\n", label, clean);
    free(clean);
    free(text);
}

enum { SHOWN_MAX = 200, TREE_DEPTH = 4, MEMBERS_MAX = 16 }; // bytes of a value, members of a list

// Where to cut a text that is too long to be shown: not in the middle of a character.
static int shown_length(const char *text)
{
    size_t length = strlen(text);
    if (length > SHOWN_MAX)
        for (length = SHOWN_MAX; ((unsigned char)text[length] & 0xC0) == 0x80;)
            length--;
    return (int)length;
}

static void print_leaf(const char *key, const struct json *value)
{
    char digits[FORMAT_MAX];
    bool number = js_kind(value) == JSON_KIND_INTEGER || js_kind(value) == JSON_KIND_REAL;
    char *text = number ? string_copy(format_value(digits, js_real_of(value, 0))) : view_value(value);
    char *clean = clean_line(text), *clean_key = clean_line(key);
    int length = shown_length(clean);
    printf("  %-32s %.*s%s\n", clean_key, length, clean, clean[length] ? "…" : "");
    free(clean_key);
    free(clean);
    free(text);
}

static void print_tree(const char *prefix, const struct json *tree, int depth);

static void print_branch(const char *prefix, const char *name, const struct json *value, int depth)
{
    char *key = *prefix ? string_format("%s.%s", prefix, name) : string_copy(name);
    bool objects = js_kind(value) == JSON_KIND_ARRAY && js_kind(js_at(value, 0)) == JSON_KIND_OBJECT;
    if ((objects || js_kind(value) == JSON_KIND_OBJECT) && depth < TREE_DEPTH)
        print_tree(key, value, depth + 1);
    else if (js_kind(value) != JSON_KIND_NULL && !(js_kind(value) == JSON_KIND_ARRAY && js_count(value) == 0))
        print_leaf(key, value);
    free(key);
}

// Nested objects, and lists of them, as dotted keys, one a line; members of a list are counted from 0.
static void print_tree(const char *prefix, const struct json *tree, int depth)
{
    if (js_kind(tree) == JSON_KIND_OBJECT)
        for (void *i = js_first(tree); i; i = js_next(tree, i))
            print_branch(prefix, js_key(i), js_value(i), depth);
    size_t count = js_kind(tree) == JSON_KIND_ARRAY ? js_count(tree) : 0;
    for (size_t i = 0; i < count && i < MEMBERS_MAX; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        print_branch(prefix, number, js_at(tree, i), depth);
    }
    if (count > MEMBERS_MAX)
        printf("  %-32s and %zu more\n", prefix, count - MEMBERS_MAX);
}

static void print_section(const char *title, const struct json *tree)
{
    if (js_count(tree) == 0)
        return;
    printf("\n%s\n", title);
    print_tree("", tree, 0);
}

static const char *with_unit(char out[FORMAT_MAX], const struct json *value, const char *unit)
{
    if (strcmp(unit, "bytes") == 0)
        return format_bytes(out, js_real_of(value, 0));
    char digits[FORMAT_MAX];
    snprintf(out, FORMAT_MAX, "%.30s%s%.10s", format_value(digits, js_real_of(value, 0)), *unit ? " " : "", unit);
    return out;
}

// The names are the daemon's.
static void print_measured(const struct json *predicted)
{
    bool begun = false;
    for (size_t i = 0; i < js_count(predicted); i++) {
        const struct json *line = js_at(predicted, i), *measured = js_get(line, "measured"), *planned = js_get(line, "predicted");
        const char *unit = js_string_of(js_get(line, "unit"), "");
        char value[FORMAT_MAX], expected[FORMAT_MAX];
        if (js_kind(measured) == JSON_KIND_NULL)
            continue;
        char *name = clean_line(js_string_of(js_get(line, "name"), "?"));
        if (!begun)
            printf("\nMeasured\n");
        begun = true;
        printf("  %-38s %s", name, with_unit(value, measured, unit));
        if (js_kind(planned) != JSON_KIND_NULL)
            printf(" (predicted: %s)", with_unit(expected, planned, unit));
        printf("\n");
        free(name);
    }
}

enum { NODES_SHOWN = 8 };

// ", on n1, n2": nothing where they are not known. free()
static char *nodes_of(const struct json *attempt)
{
    const struct json *nodes = js_get(attempt, "nodes");
    size_t count = js_count(nodes);
    struct text text;
    text_init(&text, 1 << 20);
    for (size_t i = 0; i < count && i < NODES_SHOWN; i++)
        text_addf(&text, "%s%s", i ? ", " : ", on ", js_string_of(js_at(nodes, i), "?"));
    if (count > NODES_SHOWN)
        text_addf(&text, " and %zu more", count - NODES_SHOWN);
    return text_take(&text);
}

static void print_attempts(const struct json *attempts)
{
    for (size_t i = 0; i < js_count(attempts); i++) {
        const struct json *attempt = js_at(attempts, i);
        bool job_known = js_kind(js_get(attempt, "job_id")) != JSON_KIND_NULL, ended = js_kind(js_get(attempt, "code")) != JSON_KIND_NULL;
        char *job = view_value(js_get(attempt, "job_id")), *code = view_value(js_get(attempt, "code"));
        char *nodes = nodes_of(attempt);
        char *line = string_format("attempt %lld: %s%s%s%s%s%s", (long long)js_integer_of(js_get(attempt, "number"), 0),
            js_string_of(js_get(attempt, "state"), "?"), job_known ? ", job " : "", job_known ? job : "", nodes,
            ended ? ", exit code " : "", ended ? code : "");
        char *clean = clean_line(line);
        printf("  %s\n", clean);
        free(clean);
        free(line);
        free(nodes);
        free(job);
        free(code);
    }
}

static void print_run(const struct json *run)
{
    char *name = view_run_name(run);
    char *state = view_state(run);
    printf("%s  %s\n", name, state);
    free(state);
    free(name);
    static const char *const members[] = {"reason", "expected_start", "executor", "kind", "run_id", "directory", "created", "started", "ended", "step", "iterations"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        print_member(members[i], js_get(run, members[i]));
    print_attempts(js_get(run, "attempts"));
    print_section("Last values", js_get(run, "last"));
    plan_show_one(js_get(run, "plan"));
    print_measured(js_get(run, "predicted"));
    print_section("Provenance", js_get(run, "provenance"));
    if (js_count(js_get(run, "events"))) {
        printf("\nEvents\n");
        show_events(js_get(run, "events"), js_get(run, "events_left_out"));
    }
}

static int run_show(const struct arguments *arguments)
{
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    char *path = client_run_path(client, arguments->words[0]);
    struct json *run = path ? client_get(client, path) : NULL;
    if (run && argument_flag(arguments, "json"))
        print_json(run);
    else if (run)
        print_run(run);
    int code = run ? CLI_DONE : CLI_NO_DAEMON;
    js_free(run);
    free(path);
    client_close(client);
    return code;
}

static const struct command_option show_options[] = {
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_show = {
    .name = "show",
    .summary = "Show one run: state, last values, plan, provenance, events",
    .usage = "RUN",
    .least = 1,
    .most = 1,
    .options = show_options,
    .run = run_show,
};
