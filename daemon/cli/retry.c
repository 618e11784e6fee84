// `switchyard retry RUN…`, `switchyard retry --failed [PROJECT]…`
#include "daemon/cli/listed.h"
#include "daemon/cli/request.h"
#include "daemon/cli/view.h"

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
static const char *const failed_states[] = {"failed", "timed_out", "out_of_memory", "lost"};
enum { FAILED_STATES = sizeof failed_states / sizeof *failed_states };

// Oldest first. A run that another one needed and brought back already is not asked for twice.
static int retry_failed(struct client *client, const struct listed_choice *choice, const struct json *body, bool json, size_t *count)
{
    struct json *runs = listed_runs(client, choice);
    int code = runs ? CLI_DONE : CLI_NO_DAEMON;
    for (size_t i = js_count(runs); i-- > 0;) {
        char *name = view_run_name(js_at(runs, i)), *now = string_format("/api/v1/runs/%s", name);
        struct json *shown = client_get(client, now);
        code = shown ? code : CLI_NO_DAEMON;
        if (shown && listed_is_in(shown, failed_states, FAILED_STATES)) {
            code = request_one(client, name, "retry", "retrying", body, json) == CLI_DONE ? code : CLI_NO_DAEMON;
            ++*count;
        }
        js_free(shown);
        free(now);
        free(name);
    }
    js_free(runs);
    return code;
}

static int retry_all_failed(struct client *client, const struct arguments *arguments, const char *submission, const struct json *body)
{
    size_t count = 0;
    bool json = argument_flag(arguments, "json");
    struct listed_choice choice = {.submission = submission, .states = failed_states, .states_count = FAILED_STATES};
    int code = arguments->count == 0 ? retry_failed(client, &choice, body, json, &count) : CLI_DONE;
    for (size_t i = 0; i < arguments->count; i++) {
        choice.project = arguments->words[i];
        int one = retry_failed(client, &choice, body, json, &count);
        code = one != CLI_DONE ? one : code;
    }
    if (code == CLI_DONE && count == 0 && arguments->count == 1)
        fprintf(stderr, "no run of project %s has failed\n", arguments->words[0]);
    else if (code == CLI_DONE && count == 0)
        fprintf(stderr, "no run%s has failed\n", submission ? " of that submission" : arguments->count ? " of these projects" : "");
    return code;
}

// What is wrong with the words; 0: nothing.
static int check(const struct arguments *arguments, bool failed, const char *submission)
{
    if (!failed && !submission && arguments->count == 0)
        return usage_error("retry needs a run, or --failed");
    if (submission && !failed)
        return usage_error("--submission goes with --failed: what was cancelled is tried again by name");
    if (submission && arguments->count)
        return usage_error("retry --failed needs projects, or --submission RUN");
    int code = submission ? listed_check(&(struct listed_choice){.submission = submission}) : CLI_DONE;
    for (size_t i = 0; failed && i < arguments->count && code == CLI_DONE; i++)
        code = listed_check(&(struct listed_choice){.project = arguments->words[i]});
    return code;
}

static int run_retry(const struct arguments *arguments)
{
    bool failed = argument_flag(arguments, "failed");
    const char *submission = argument_value(arguments, "submission", NULL);
    int code = check(arguments, failed, submission);
    if (code != CLI_DONE)
        return code;
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct json *body = body_of(arguments);
    code = failed ? retry_all_failed(client, arguments, submission, body) : CLI_DONE;
    for (size_t i = 0; !failed && i < arguments->count; i++)
        if (request_one(client, arguments->words[i], "retry", "retrying", body, argument_flag(arguments, "json")) != CLI_DONE)
            code = CLI_NO_DAEMON;
    js_free(body);
    client_close(client);
    return code;
}

static const struct command_option retry_options[] = {
    {"failed", 0, NULL, false, "every run that ended by itself without success; words are projects (default: all of them)"},
    {"submission", 0, "RUN", false, "with --failed: only of the runs that were submitted together with this one"},
    {"accept-changed", 0, "WHAT", true, "go on although this differs from the checkpoint: data, schedule or model (repeatable)"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_retry = {
    .name = "retry",
    .summary = "Give ended runs another attempt, from their last complete checkpoint",
    .usage = "RUN... | --failed [PROJECT... | --submission RUN]",
    .most = REQUEST_RUNS_MAX,
    .options = retry_options,
    .run = run_retry,
};
