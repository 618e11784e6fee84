// `switchyard ls`: the runs: those at work, those that wait, those that are over.
#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/listed.h"
#include "daemon/cli/silence.h"
#include "daemon/cli/swept.h"
#include "daemon/cli/view.h"

#include <stdlib.h>
#include <string.h>

// One row for each value of a swept key. false, with a sentence, where no run's sweep has it.
static bool show_groups(const struct json *runs, const char *key, bool as_json)
{
    struct json *groups = swept_groups(runs, key);
    if (!groups) {
        usage_error("no run here was swept over '%s': `ls` shows what they were, in the columns behind their names", key);
        return false;
    }
    if (as_json) {
        struct json *answer = js_object();
        js_set(answer, "groups", js_keep(groups));
        print_json(answer);
        js_free(answer);
    } else {
        swept_show_groups(stdout, groups);
    }
    js_free(groups);
    return true;
}

// A scheduler that is silent makes what is listed old news, as does a database that takes nothing in; a configuration that is broken is not the
// one that counts.
static void say_health(struct client *client)
{
    struct json *health = client_get(client, "/api/v1/health");
    const struct json *config = js_get(health, "config");
    const char *fault = js_string_of(js_get(config, "fault"), NULL);
    silence_say(health, NULL);
    const struct json *database = js_get(health, "database");
    const char *stuck = js_string_of(js_get(database, "fault"), NULL);
    char when[FORMAT_MAX];
    if (stuck)
        fprintf(stderr, "Nothing could be recorded since %s; what runs write meanwhile is taken in once it can be:\n%s\n",
            format_time(when, js_real_of(js_get(database, "since"), 0)), stuck);
    if (fault)
        fprintf(stderr, "%s is broken; what it said before counts until it is mended:\n%s\n", js_string_of(js_get(config, "file"), "config.yaml"), fault);
    js_free(health);
}

enum { TALLIED = 24 }; // runs: as many as a terminal shows at once

// A list that is longer than a terminal ends with what is in it: what is at work has been scrolled away.
static void say_tally(const struct json *runs)
{
    if (js_count(runs) <= TALLIED)
        return;
    struct json *states = js_object();
    for (size_t i = 0; i < js_count(runs); i++) {
        const char *state = js_string_of(js_get(js_at(runs, i), "state"), "?");
        js_set(states, state, js_integer(js_integer_of(js_get(states, state), 0) + 1));
    }
    fprintf(stderr, "%zu runs:", js_count(runs));
    for (void *i = js_first(states); i; i = js_next(states, i))
        fprintf(stderr, "%s %lld %s", i == js_first(states) ? "" : ",", (long long)js_integer_of(js_value(i), 0), js_key(i));
    fprintf(stderr, " (--state STATE lists fewer of them, --group KEY sums a sweep up)\n");
    js_free(states);
}

static int show(const struct arguments *arguments, const struct listed_choice *choice, struct json *runs)
{
    const char *group = argument_value(arguments, "group", NULL), *project = choice->project;
    if (group)
        return show_groups(runs, group, argument_flag(arguments, "json")) ? CLI_DONE : CLI_USAGE;
    if (argument_flag(arguments, "json")) {
        struct json *answer = js_object();
        js_set(answer, "runs", js_keep(runs));
        print_json(answer);
        js_free(answer);
    } else if (js_count(runs) == 0 && choice->states_count) {
        fprintf(stderr, "no run%s%s is in %s\n", project ? " of project " : "", project ? project : "", choice->states_count == 1 ? "that state" : "one of these states");
    } else if (js_count(runs) == 0) {
        fprintf(stderr, "no runs%s%s yet: `switchyard submit SPEC` makes some\n", project ? " of project " : "", project ? project : "");
    } else {
        struct json *ordered = listed_by_phase(runs);
        view_runs(stdout, ordered);
        fflush(stdout);
        say_tally(ordered);
        js_free(ordered);
    }
    return CLI_DONE;
}

static int run_ls(const struct arguments *arguments)
{
    struct listed_choice choice = {.project = argument_value(arguments, "project", NULL), .submission = argument_value(arguments, "submission", NULL)};
    const char **states = argument_values(arguments, "state", &choice.states_count);
    choice.states = states;
    int code = listed_check(&choice);
    struct client *client = code == CLI_DONE ? client_for(arguments) : NULL;
    struct json *runs = client ? listed_runs(client, &choice) : NULL;
    if (code == CLI_DONE)
        code = runs ? show(arguments, &choice, runs) : CLI_NO_DAEMON;
    if (runs && !argument_flag(arguments, "json"))
        say_health(client);
    if (client)
        client_close(client);
    js_free(runs);
    free(states);
    return code;
}

static const struct command_option ls_options[] = {
    {"project", 'p', "NAME", false, "only the runs of this project"},
    {"state", 's', "STATE", true, "only the runs in this state: running, pending, failed, … (repeatable)"},
    {"submission", 0, "RUN", false, "only the runs that were submitted together with this one, such as the trials of a sweep"},
    {"group", 'g', "KEY", false, "one row for each value of a swept key (its path, or its last word): mean and range"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_ls = {
    .name = "ls",
    .summary = "List the runs: those at work, those that wait, those that are over; newest first",
    .usage = "",
    .options = ls_options,
    .description = "A terminal that is too narrow shows the losses rather than what the names say too; why runs wait then stands below the last of them.\n"
                   "Through a pipe every column is there.",
    .run = run_ls,
};
