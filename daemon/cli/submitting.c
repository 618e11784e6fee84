#include "daemon/cli/submitting.h"
#include "daemon/cli/format.h"
#include "schema/base/clock.h"
#include "schema/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUIET_SECONDS 1.0  // what takes no longer needs no word
#define PRINT_SECONDS 5.0  // where the line cannot be drawn anew

// The daemon's own words for it: {"id", "runs", "done", "phase"}; NULL while there is none. js_free()
static struct json *ask(struct submitting *submitting)
{
    struct error err = {0};
    struct reply reply = {0};
    struct json *found = NULL;
    if (client_ask(submitting->other, "GET", "/api/v1/submissions", NULL, &reply, &err) == 0 && reply.status == 200) {
        const struct json *list = js_get(reply.json, "submissions");
        for (size_t i = 0; i < js_count(list); i++)
            if (strcmp(js_string_of(js_get(js_at(list, i), "id"), ""), submitting->id) == 0)
                found = js_keep(js_at(list, i));
    }
    reply_release(&reply);
    return found;
}

static void tell(struct submitting *submitting)
{
    struct json *now = ask(submitting);
    char done[FORMAT_MAX], runs[FORMAT_MAX];
    if (now) {
        format_value(done, (double)js_integer_of(js_get(now, "done"), 0));
        format_value(runs, (double)js_integer_of(js_get(now, "runs"), 0));
        fprintf(stderr, "%ssubmitting: %s, %s of %s runs%s", submitting->terminal ? "\r\x1b[2K" : "", js_string_of(js_get(now, "phase"), "?"), done, runs,
            submitting->terminal ? "" : "\n");
        submitting->drawn = submitting->terminal;
    }
    js_free(now);
}

static void give_up(struct submitting *submitting)
{
    struct error err = {0};
    struct reply reply = {0};
    char *path = string_format("/api/v1/submissions/%s/cancel", submitting->id);
    fprintf(stderr, "\nGiving the submission up; Ctrl-C again leaves it to the daemon.\n");
    submitting->cancelled = client_ask(submitting->other, "POST", path, NULL, &reply, &err) == 0 && reply.status == 202;
    submitting->heard++;
    reply_release(&reply);
    free(path);
}

static void waiting(void *context)
{
    struct submitting *submitting = context;
    double now = clock_steady(), pause = submitting->terminal ? QUIET_SECONDS / 2 : PRINT_SECONDS;
    if (client_interrupts > submitting->heard && client_interrupts <= client_interrupts_heard && !submitting->cancelled)
        give_up(submitting);
    if (now - submitting->began < QUIET_SECONDS || now - submitting->told < pause)
        return;
    submitting->told = now;
    tell(submitting);
}

void submitting_begin(struct submitting *submitting, struct client *client, const struct arguments *arguments)
{
    *submitting = (struct submitting){.arguments = arguments, .heard = client_interrupts, .terminal = isatty(STDERR_FILENO), .began = clock_steady()};
    random_hex(submitting->id, 32);
    submitting->told = submitting->began - PRINT_SECONDS + 2 * QUIET_SECONDS;
    if (client_open(&submitting->other, arguments, NULL) == 0)
        client_while_waiting(client, waiting, submitting);
}

void submitting_end(struct submitting *submitting, struct client *client)
{
    client_while_waiting(client, NULL, NULL);
    if (submitting->drawn)
        fprintf(stderr, "\r\x1b[2K");
    if (submitting->other)
        client_close(submitting->other);
}
