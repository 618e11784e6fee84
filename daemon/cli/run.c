// `switchyard run SPEC`: submit, watch, compare. Where no daemon runs on this home it brings one along, for as long as it watches.
#include "daemon/cli/own_daemon.h"
#include "daemon/cli/progress.h"
#include "daemon/cli/submission.h"
#include "daemon/cli/view.h"
#include "schema/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 500, SILENCE_SECONDS = 60, CANCEL_SECONDS = 45 };

struct watch {
    const struct arguments *arguments;
    struct client *client;
    pid_t own;               // our daemon, 0: somebody else's
    struct json *submitted;  // [{project, name, …}]
    struct json *runs;       // the list's members of these, as last seen
    struct json *left;       // {run_id: true}: what Ctrl-C has left to a cluster; NULL before it
    struct progress progress;
    double silent_since;     // steady seconds, 0: the daemon answers
    bool silence_told;       // and why it does not has been said
    double cancelled;        // when Ctrl-C cancelled the runs, 0: not
};

// A client of a daemon that answers; one of our own is started where none does.
static int connect_or_start(struct watch *watch)
{
    struct error err = {0};
    struct reply reply;
    if (client_open(&watch->client, watch->arguments, &err) == 0) {
        int answered = client_ask(watch->client, "GET", "/api/v1/health", NULL, &reply, &err);
        reply_release(&reply);
        if (answered == 0)
            return 0;
        client_close(watch->client);
        watch->client = NULL;
    }
    if (!client_elsewhere(watch->arguments) && !client_interrupts) {
        err.text[0] = '\0';
        pid_t own = own_daemon_start(&err);
        if (own > 0) {
            watch->own = own;
            return client_open(&watch->client, watch->arguments, &err);
        }
    }
    if (!watch->silence_told)
        fprintf(stderr, "switchyard: %s\n", err.text);
    watch->silence_told = watch->submitted != NULL;
    return -1;
}

// Somebody ended the daemon and us at once, such as a Ctrl-C that both got: the runs have nobody who would stop them.
static int say_uncancelled(const struct watch *watch)
{
    fprintf(stderr, "switchyard: the daemon is gone, so the runs go on. To end them: `switchyard serve`, and in another terminal `switchyard cancel");
    for (size_t i = 0; i < js_count(watch->submitted); i++) {
        const struct json *seen = js_at(watch->runs, i);
        char *name = view_run_name(js_at(watch->submitted, i));
        if (!seen || !view_ended(seen))
            fprintf(stderr, " %s", name);
        free(name);
    }
    fprintf(stderr, "`\n");
    return -1;
}

// The submitted runs out of the project's list, in the order of submission.
static void pick(struct watch *watch, const struct json *listed)
{
    struct json *picked = js_array(), *known = js_object(); // {run_id: run}
    for (size_t k = 0; k < js_count(listed); k++)
        js_set(known, js_string_of(js_get(js_at(listed, k), "run_id"), ""), js_keep(js_at(listed, k)));
    for (size_t i = 0; i < js_count(watch->submitted); i++) {
        const struct json *run = js_get(known, js_string_of(js_get(js_at(watch->submitted, i), "run_id"), "-"));
        if (run)
            js_append(picked, js_keep(run));
    }
    js_free(known);
    js_free(watch->runs);
    watch->runs = picked;
}

// One look. -1 when the daemon has been silent for too long.
static int look(struct watch *watch)
{
    struct error err = {0};
    struct reply reply;
    char *path = string_format("/api/v1/runs?project=%s", js_string_of(js_get(js_at(watch->submitted, 0), "project"), ""));
    int answered = watch->client ? client_ask(watch->client, "GET", path, NULL, &reply, &err) : -1;
    free(path);
    if (answered == 0 && reply.status == 200) {
        watch->silent_since = 0;
        watch->silence_told = false;
        pick(watch, js_get(reply.json, "runs"));
    } else if (client_interrupts == client_interrupts_heard) {
        watch->silent_since = watch->silent_since > 0 ? watch->silent_since : clock_steady();
    }
    if (watch->client)
        reply_release(&reply);
    if (watch->silent_since == 0)
        return 0;
    if (clock_steady() - watch->silent_since > SILENCE_SECONDS) {
        fprintf(stderr, "switchyard: %s\n", err.text[0] ? err.text : "the daemon does not answer as it should");
        return -1;
    }
    if (watch->cancelled > 0 && clock_steady() - watch->silent_since > 1)
        return say_uncancelled(watch);
    if (clock_steady() - watch->silent_since > 2) { // it was stopped, or started again elsewhere
        if (watch->client)
            client_close(watch->client);
        watch->client = NULL;
        connect_or_start(watch);
    }
    return 0;
}

// Nothing that would have to be waited for.
static bool all_ended(const struct watch *watch)
{
    for (size_t i = 0; i < js_count(watch->runs); i++) {
        const struct json *run = js_at(watch->runs, i);
        if (!view_ended(run) && !js_get(watch->left, js_string_of(js_get(run, "run_id"), "")))
            return false;
    }
    return js_count(watch->runs) > 0;
}

static bool is_local(struct watch *watch, const char *path)
{
    struct json *shown = client_get(watch->client, path);
    bool local = strcmp(js_string_of(js_get(shown, "executor"), "local"), "local") == 0;
    js_free(shown);
    return local;
}

// Ctrl-C: local runs are this machine's and end; what a scheduler has taken goes on.
static void cancel_local(struct watch *watch)
{
    bool said = false;
    client_interrupts_heard = client_interrupts;
    watch->cancelled = clock_steady();
    watch->left = js_object();
    watch->progress.drawn = 0;
    fprintf(stderr, "\n");
    for (size_t i = 0; watch->client && i < js_count(watch->submitted); i++) {
        char *name = view_run_name(js_at(watch->submitted, i)), *path = string_format("/api/v1/runs/%s", name);
        const struct json *seen = js_at(watch->runs, i);
        if (seen && view_ended(seen)) {
            // nothing is left to cancel
        } else if (is_local(watch, path)) {
            if (!said)
                fprintf(stderr, "Cancelling (each run finishes its step and saves); Ctrl-C again leaves at once.\n");
            said = true;
            char *cancel = string_format("%s/cancel", path);
            struct error err = {0};
            struct reply reply;
            client_ask(watch->client, "POST", cancel, NULL, &reply, &err); // ended meanwhile: 409, and just as well
            reply_release(&reply);
            free(cancel);
        } else {
            js_set(watch->left, js_string_of(js_get(js_at(watch->submitted, i), "run_id"), "-"), js_boolean(true));
            fprintf(stderr, "%s goes on: `switchyard logs -f %s` follows it, `switchyard cancel %s` ends it.\n", name, name, name);
        }
        free(path);
        free(name);
    }
}

static int watch_to_end(struct watch *watch)
{
    for (;;) {
        if (look(watch) != 0)
            return watch->cancelled > 0 ? CLI_INTERRUPTED : CLI_NO_DAEMON;
        if (js_count(watch->runs))
            progress_show(&watch->progress, watch->runs);
        if (all_ended(watch))
            return watch->cancelled > 0 ? CLI_INTERRUPTED : CLI_DONE;
        if (client_interrupts > client_interrupts_heard) {
            if (watch->cancelled > 0)
                return CLI_INTERRUPTED;
            cancel_local(watch);
        }
        if (watch->cancelled > 0 && clock_steady() - watch->cancelled > CANCEL_SECONDS) {
            fprintf(stderr, "switchyard: some runs have not ended yet: `switchyard ls` shows them\n");
            return CLI_INTERRUPTED;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
}

// The first train run against each other one that has steps. NULL if there are not two.
static struct json *comparisons_of(struct watch *watch)
{
    struct json *all = js_array();
    char *first = NULL;
    for (size_t i = 0; i < js_count(watch->runs); i++) {
        const struct json *run = js_at(watch->runs, i);
        if (strcmp(js_string_of(js_get(run, "kind"), ""), "train") != 0 || js_integer_of(js_get(run, "step"), 0) == 0)
            continue;
        char *name = view_run_name(run);
        if (!first) {
            first = name;
            continue;
        }
        char *path = string_format("/api/v1/compare?a=%s&b=%s", first, name);
        struct json *comparison = client_get(watch->client, path);
        if (comparison)
            js_append(all, comparison);
        free(path);
        free(name);
    }
    free(first);
    return all;
}

static void print_end(struct watch *watch)
{
    struct json *comparisons = watch->client ? comparisons_of(watch) : js_array();
    if (argument_flag(watch->arguments, "json")) {
        struct json *answer = js_object();
        js_set(answer, "runs", js_keep(watch->runs));
        js_set(answer, "comparisons", js_keep(comparisons));
        print_json(answer);
        js_free(answer);
    } else {
        for (size_t i = 0; i < js_count(comparisons); i++) {
            printf("\n");
            view_comparison(stdout, js_at(comparisons, i));
        }
    }
    fflush(stdout);
    if (!watch->own && watch->client && js_count(comparisons)) {
        char *a = view_run_name(js_get(js_at(comparisons, 0), "a")), *b = view_run_name(js_get(js_at(comparisons, 0), "b"));
        char *route = string_format("/compare?a=%s&b=%s", a, b), *link = client_link(watch->client, route);
        fprintf(stderr, "\nDashboard: %s\n", link);
        free(link);
        free(route);
        free(a);
        free(b);
    }
    js_free(comparisons);
}

static int failures_of(const struct json *runs)
{
    for (size_t i = 0; i < js_count(runs); i++)
        if (strcmp(js_string_of(js_get(js_at(runs, i), "state"), ""), "succeeded") != 0)
            return CLI_RUN_FAILED;
    return CLI_DONE;
}

static int run_run(const struct arguments *arguments)
{
    struct watch watch = {.arguments = arguments};
    struct spec_file file;
    struct json *answer = NULL;
    progress_init(&watch.progress);
    client_catch_interrupt();
    int code = submission_load(&file, arguments);
    if (code != CLI_DONE)
        goto out;
    code = connect_or_start(&watch) == 0 ? submission_send(watch.client, &file, arguments, &answer) : CLI_NO_DAEMON;
    if (code == CLI_NO_DAEMON && client_interrupts > 0)
        code = CLI_INTERRUPTED;
    if (code != CLI_DONE)
        goto out;
    watch.submitted = js_get(answer, "runs");
    code = watch_to_end(&watch);
    if (code == CLI_DONE)
        code = failures_of(watch.runs);
    if (code == CLI_DONE || code == CLI_RUN_FAILED)
        print_end(&watch);
out:
    progress_release(&watch.progress);
    js_free(watch.runs);
    js_free(watch.left);
    js_free(answer);
    if (watch.client)
        client_close(watch.client);
    if (watch.own > 0)
        own_daemon_stop(watch.own);
    spec_file_release(&file);
    return code;
}

static const struct command_option run_options[] = {
    SUBMISSION_OPTION_ROWS,
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_run = {
    .name = "run",
    .summary = "Submit a spec's runs, watch them, and compare them at the end",
    .usage = "SPEC",
    .least = 1,
    .most = 1,
    .options = run_options,
    .description = "Uses this home's daemon, or brings one along while it watches. Ctrl-C cancels runs of this machine\n"
                   "(they save first); those that a cluster has go on, and it says how to follow them.\n"
                   "Exit code 1 when a run did not succeed.",
    .run = run_run,
};
