// `switchyard retry RUN…`, `switchyard retry --failed [PROJECT]…`
#include "daemon/cli/request.h"
#include "daemon/cli/view.h"
#include "daemon/serve/target.h"

#include <stdlib.h>
#include <string.h>

// What runs may accept that differs from their checkpoint. NULL: nothing was said.
static struct json *body_of(const struct arguments *arguments)
{
    size_t count;
    const char **words = argument_values(arguments, "accept-changed", &count);
    struct json *body = count ? js_object() : NULL, *list = js_array();
    for (size_t i = 0; i < count; i++)
        js_append(list, js_string(words[i]));
    free(words);
    if (body)
        js_set(body, "accept_changed", list);
    else
        js_free(list);
    return body;
}

// Ended by itself, without success: not what a person cancelled.
static bool has_failed(const struct json *run)
{
    static const char *const states[] = {"failed", "timed_out", "out_of_memory", "lost"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(js_string_of(js_get(run, "state"), ""), states[i]) == 0)
            return true;
    return false;
}

// Oldest first. A run that another one needed and brought back already is not asked for twice.
static int retry_failed(struct client *client, const char *project, const struct json *body, bool json, size_t *count)
{
    char *path = project ? string_format("/api/v1/runs?project=%s", project) : string_copy("/api/v1/runs");
    struct json *answer = client_get(client, path);
    const struct json *runs = js_get(answer, "runs");
    int code = answer ? CLI_DONE : CLI_NO_DAEMON;
    for (size_t i = js_count(runs); i-- > 0;) {
        if (!has_failed(js_at(runs, i)))
            continue;
        char *name = view_run_name(js_at(runs, i)), *now = string_format("/api/v1/runs/%s", name);
        struct json *shown = client_get(client, now);
        if (shown && has_failed(shown)) {
            code = request_one(client, name, "retry", "retrying", body, json) == CLI_DONE ? code : CLI_NO_DAEMON;
            ++*count;
        }
        js_free(shown);
        free(now);
        free(name);
    }
    js_free(answer);
    free(path);
    return code;
}

static int retry_all_failed(struct client *client, const struct arguments *arguments, const struct json *body)
{
    size_t count = 0;
    bool json = argument_flag(arguments, "json");
    int code = arguments->count == 0 ? retry_failed(client, NULL, body, json, &count) : CLI_DONE;
    for (size_t i = 0; i < arguments->count; i++) {
        int one = retry_failed(client, arguments->words[i], body, json, &count);
        code = one != CLI_DONE ? one : code;
    }
    if (code == CLI_DONE && count == 0 && arguments->count == 1)
        fprintf(stderr, "no run of project %s has failed\n", arguments->words[0]);
    else if (code == CLI_DONE && count == 0)
        fprintf(stderr, "no run%s has failed\n", arguments->count ? " of these projects" : "");
    return code;
}

static int run_retry(const struct arguments *arguments)
{
    bool failed = argument_flag(arguments, "failed");
    if (!failed && arguments->count == 0)
        return usage_error("retry needs a run, or --failed");
    for (size_t i = 0; failed && i < arguments->count; i++)
        if (!target_is_name(arguments->words[i]))
            return usage_error("'%s' is no name of a project", arguments->words[i]);
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct json *body = body_of(arguments);
    int code = failed ? retry_all_failed(client, arguments, body) : CLI_DONE;
    for (size_t i = 0; !failed && i < arguments->count; i++)
        if (request_one(client, arguments->words[i], "retry", "retrying", body, argument_flag(arguments, "json")) != CLI_DONE)
            code = CLI_NO_DAEMON;
    js_free(body);
    client_close(client);
    return code;
}

static const struct command_option retry_options[] = {
    {"failed", 0, NULL, false, "every run that ended by itself without success; words are projects (default: all of them)"},
    {"accept-changed", 0, "WHAT", true, "go on although this differs from the checkpoint: data, schedule or model (repeatable)"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_retry = {
    .name = "retry",
    .summary = "Give ended runs another attempt, from their last complete checkpoint",
    .usage = "RUN... | --failed [PROJECT...]",
    .most = REQUEST_RUNS_MAX,
    .options = retry_options,
    .run = run_retry,
};
