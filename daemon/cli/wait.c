// `switchyard wait RUN…`: until all have ended.
#include "daemon/cli/client.h"
#include "daemon/cli/view.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS_MAX = 256, SILENCE_MAX = 60 }; // answers missing in a row before we give up: a daemon may be restarted meanwhile

// "90", "90s", "30m", "2h"; NAN if it is none.
static double parse_seconds(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    double unit = *end == '\0' || strcmp(end, "s") == 0 ? 1 : strcmp(end, "m") == 0 ? 60 : strcmp(end, "h") == 0 ? 3600 : NAN;
    return end == text || !(value >= 0) ? NAN : value * unit;
}

// The run's answer when it has ended, NULL before. *silent counts answers that did not come.
static struct json *ended_run(struct client *client, const char *path, int *silent, struct error *err)
{
    struct reply reply;
    struct json *ended = NULL;
    if (client_ask(client, "GET", path, NULL, &reply, err) != 0) {
        (*silent)++;
    } else if (reply.status != 200 || !reply.json) {
        error_set(err, "%s", reply_sentence(&reply));
        *silent = SILENCE_MAX + 1;
    } else {
        *silent = 0;
        ended = view_ended(reply.json) ? js_keep(reply.json) : NULL;
    }
    reply_release(&reply);
    return ended;
}

static int wait_for(struct client *client, const char *path, double deadline, struct json *results)
{
    int silent = 0;
    struct error err = {0};
    for (;;) {
        struct json *run = ended_run(client, path, &silent, &err);
        if (run) {
            bool good = strcmp(js_string_of(js_get(run, "state"), ""), "succeeded") == 0;
            js_append(results, run);
            return good ? CLI_DONE : CLI_RUN_FAILED;
        }
        if (client_interrupts)
            return CLI_INTERRUPTED;
        if (silent > SILENCE_MAX) {
            fprintf(stderr, "switchyard: %s\n", err.text);
            return CLI_NO_DAEMON;
        }
        if (clock_steady() >= deadline) {
            fprintf(stderr, "switchyard: %s has not ended in the time given\n", path + strlen("/api/v1/runs/"));
            return CLI_RUN_FAILED;
        }
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    }
}

static void print_results(const struct arguments *arguments, struct json *results)
{
    struct json *answer = js_object();
    js_set(answer, "runs", js_keep(results));
    if (argument_flag(arguments, "json"))
        print_json(answer);
    else if (js_count(results))
        view_runs(stdout, results);
    js_free(answer);
}

// Of all of them, before any is waited for: a name that is none would else be told after hours. false: one is none, each has been told.
static bool find_all(struct client *client, const struct arguments *arguments, char **paths)
{
    bool all = true;
    for (size_t i = 0; i < arguments->count; i++) {
        paths[i] = client_run_path(client, arguments->words[i]);
        struct json *run = paths[i] ? client_get(client, paths[i]) : NULL;
        all &= run != NULL;
        js_free(run);
    }
    return all;
}

static int run_wait(const struct arguments *arguments)
{
    const char *timeout = argument_value(arguments, "timeout", NULL);
    double seconds = timeout ? parse_seconds(timeout) : INFINITY;
    if (isnan(seconds))
        return usage_error("--timeout wants seconds, or 30m, 2h; not '%s'", timeout);
    client_catch_interrupt();
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct json *results = js_array();
    double deadline = clock_steady() + seconds;
    char *paths[RUNS_MAX] = {NULL};
    bool all = find_all(client, arguments, paths);
    int worst = all ? CLI_DONE : CLI_NO_DAEMON;
    for (size_t i = 0; i < arguments->count && all && !client_interrupts; i++) {
        int code = wait_for(client, paths[i], deadline, results);
        worst = code > worst ? code : worst;
    }
    if (all)
        print_results(arguments, results);
    for (size_t i = 0; i < arguments->count; i++)
        free(paths[i]);
    js_free(results);
    client_close(client);
    return worst;
}

static const struct command_option wait_options[] = {
    {"timeout", 0, "TIME", false, "give up after this long (seconds, or 30m, 2h)"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_wait = {
    .name = "wait",
    .summary = "Wait until runs have ended",
    .usage = "RUN...",
    .least = 1,
    .most = RUNS_MAX,
    .options = wait_options,
    .description = "Exit code 0 when all succeeded, 1 when one did not or the time is over.",
    .run = run_wait,
};
