// `switchyard ls`: the runs, newest first.
#include "daemon/cli/client.h"
#include "daemon/cli/view.h"
#include "daemon/serve/target.h"

#include <stdlib.h>

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
    if (answer && argument_flag(arguments, "json"))
        print_json(answer);
    else if (answer && js_count(js_get(answer, "runs")) == 0)
        fprintf(stderr, "no runs%s%s yet: `switchyard submit SPEC` makes some\n", project ? " of project " : "", project ? project : "");
    else if (answer)
        view_runs(stdout, js_get(answer, "runs"));
    client_close(client);
    js_free(answer);
    return answer ? CLI_DONE : CLI_NO_DAEMON;
}

static const struct command_option ls_options[] = {
    {"project", 'p', "NAME", false, "only the runs of this project"},
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
