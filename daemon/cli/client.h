// The door to libcurl: asks a daemon over HTTP. It is found by --url, SWITCHYARD_URL, or the home's daemon.json, in this order.
#pragma once
#include "daemon/cli/command.h"
#include <signal.h>
#include <stdint.h>

// Rows for the option table of a command that asks a daemon.
#define CLIENT_OPTION_ROWS \
    {"json", 0, NULL, false, "the API's answer as JSON"}, \
    {"url", 0, "URL", false, "a daemon elsewhere: the address that `serve` prints (default: SWITCHYARD_URL, else this home's)"}

struct client;

struct reply {
    long status;         // HTTP status
    struct text text;    // the body as it came
    struct json *json;   // the body, where it is JSON
    int64_t next_offset; // X-Next-Offset, -1 if absent
};

// The address of a daemon elsewhere, by --url or SWITCHYARD_URL; NULL: it is this home's. What this machine has, and this home's configuration, is not its.
const char *client_elsewhere(const struct arguments *arguments);

// 0, or -1 with a sentence that says how to start a daemon.
int client_open(struct client **client, const struct arguments *arguments, struct error *err);
void client_close(struct client *client);
const char *client_url(const struct client *client);
char *client_link(const struct client *client, const char *route); // the dashboard's address with its token; free()

// method "GET" or "POST"; body may be NULL. -1 only if no answer came. The reply must be released in both cases.
int client_ask(struct client *client, const char *method, const char *path, const struct json *body, struct reply *reply, struct error *err);
// Called about once a second while an answer is awaited. NULL: nobody is.
void client_while_waiting(struct client *client, void (*call)(void *context), void *context);
void reply_release(struct reply *reply);
// The sentence of a refusal ({"error": …}), or what can be said instead.
const char *reply_sentence(const struct reply *reply);
void reply_say(const struct reply *reply); // that sentence on stderr, made harmless for a terminal

// For commands that ask once: prints any fault on stderr and returns NULL, else the JSON (js_free).
struct json *client_get(struct client *client, const char *path);
struct json *client_post(struct client *client, const char *path, const struct json *body);
bool client_is_run_name(const char *run); // PROJECT/NAME or NAME, by its letters
// "/api/v1/runs/PROJECT/NAME" of what a person typed ("NAME" where only one run has it); NULL after a sentence on stderr. free()
char *client_run_path(struct client *client, const char *run);
// client_open for a command: NULL after the sentence on stderr.
struct client *client_for(const struct arguments *arguments);

// Ctrl-C: after client_catch_interrupt this counts, and requests end early while more were counted than heard.
extern volatile sig_atomic_t client_interrupts;
extern int client_interrupts_heard; // raised by a command that goes on after one, to clear up
void client_catch_interrupt(void);
