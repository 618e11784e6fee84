// `switchyard ls`: the runs, newest first.
#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/swept.h"
#include "daemon/cli/view.h"
#include "daemon/serve/target.h"

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

// A scheduler that is silent makes what is listed old news; a configuration that is broken is not the one that counts.
static void say_health(struct client *client)
{
    struct json *health = client_get(client, "/api/v1/health");
    const struct json *config = js_get(health, "config");
    const char *fault = js_string_of(js_get(config, "fault"), NULL), *name = js_string_of(js_get(js_get(health, "scheduler"), "name"), "the scheduler");
    const struct json *scheduler = js_get(health, "scheduler"), *since = js_get(scheduler, "silent_since"), *faults = js_get(scheduler, "faults");
    char when[FORMAT_MAX];
    if (scheduler && !js_boolean_of(js_get(scheduler, "answers"), true) && js_real_of(since, 0) > 0)
        fprintf(stderr, "%s has not answered since %s%s%s\n", strcmp(name, "slurm") == 0 ? "Slurm" : name,
            format_time(when, js_real_of(since, 0)), js_count(faults) ? ": " : "", js_string_of(js_at(faults, 0), ""));
    if (fault)
        fprintf(stderr, "%s is broken; what it said before counts until it is mended:\n%s\n", js_string_of(js_get(config, "file"), "config.yaml"), fault);
    js_free(health);
}

static int run_ls(const struct arguments *arguments)
{
    const char *project = argument_value(arguments, "project", NULL);
    if (project && !target_is_name(project))
        return usage_error("'%s' is no name of a project", project);
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    char *path = project ? string_format("/api/v1/runs?project=%s", project) : string_copy("/api/v1/runs");
    struct json *answer = client_get(client, path);
    free(path);
    const char *group = argument_value(arguments, "group", NULL);
    int code = answer ? CLI_DONE : CLI_NO_DAEMON;
    if (answer && group)
        code = show_groups(js_get(answer, "runs"), group, argument_flag(arguments, "json")) ? CLI_DONE : CLI_USAGE;
    else if (answer && argument_flag(arguments, "json"))
        print_json(answer);
    else if (answer && js_count(js_get(answer, "runs")) == 0)
        fprintf(stderr, "no runs%s%s yet: `switchyard submit SPEC` makes some\n", project ? " of project " : "", project ? project : "");
    else if (answer)
        view_runs(stdout, js_get(answer, "runs"));
    if (answer && !argument_flag(arguments, "json"))
        say_health(client);
    client_close(client);
    js_free(answer);
    return code;
}

static const struct command_option ls_options[] = {
    {"project", 'p', "NAME", false, "only the runs of this project"},
    {"group", 'g', "KEY", false, "one row for each value of a swept key (its path, or its last word): mean and range"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_ls = {
    .name = "ls",
    .summary = "List the runs, newest first",
    .usage = "",
    .options = ls_options,
    .run = run_ls,
};
