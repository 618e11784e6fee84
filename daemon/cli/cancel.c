// `switchyard cancel RUN…`, `switchyard cancel --project NAME`, `switchyard cancel --submission RUN`
#include "daemon/cli/request.h"
#include "daemon/serve/target.h"

#include <stdio.h>
#include <stdlib.h>

static void say_counts(long long cancelled, long long stopping)
{
    if (cancelled)
        printf("cancelled %lld run%s that had not begun%s", cancelled, cancelled == 1 ? "" : "s", stopping ? ", " : "");
    if (stopping)
        printf("stopping %lld%s", stopping, cancelled ? "" : stopping == 1 ? " run" : " runs");
    printf("\n");
}

static int cancel_many(const struct arguments *arguments, const char *member, const char *value)
{
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct json *body = js_object();
    js_set(body, member, js_string(value));
    struct json *answer = client_post(client, "/api/v1/cancel", body);
    if (answer && argument_flag(arguments, "json"))
        print_json(answer);
    long long cancelled = js_integer_of(js_get(answer, "cancelled"), 0), stopping = js_integer_of(js_get(answer, "stopping"), 0);
    if (answer && !argument_flag(arguments, "json") && cancelled + stopping == 0)
        printf("nothing to cancel: every run of it is over\n");
    else if (answer && !argument_flag(arguments, "json"))
        say_counts(cancelled, stopping);
    int code = answer ? CLI_DONE : CLI_NO_DAEMON;
    js_free(answer);
    js_free(body);
    client_close(client);
    return code;
}

static int run_cancel(const struct arguments *arguments)
{
    const char *project = argument_value(arguments, "project", NULL), *submission = argument_value(arguments, "submission", NULL);
    if ((project != NULL) + (submission != NULL) + (arguments->count > 0) != 1)
        return usage_error("cancel needs one of: runs, --submission RUN, --project NAME");
    if (project && !target_is_name(project))
        return usage_error("'%s' is no name of a project", project);
    if (submission && !client_is_run_name(submission))
        return usage_error("'%s' is no name of a run", submission);
    if (project || submission)
        return cancel_many(arguments, project ? "project" : "submission_of", project ? project : submission);
    return request_each(arguments, "cancel", "cancelling");
}

static const struct command_option cancel_options[] = {
    {"submission", 0, "RUN", false, "every run that was submitted together with this one, such as the trials of a sweep"},
    {"project", 'p', "NAME", false, "every run of this project"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_cancel = {
    .name = "cancel",
    .summary = "End runs: they finish their step, save and stop",
    .usage = "RUN... | --submission RUN | --project NAME",
    .most = REQUEST_RUNS_MAX,
    .options = cancel_options,
    .run = run_cancel,
};
