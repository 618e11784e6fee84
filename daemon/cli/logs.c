// `switchyard logs RUN`: what the run's processes printed, made harmless for a terminal. Without -f it ends at once, whatever the run does.
#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20, BYTES_MAX = 1 << 20, JSON_BYTES_MAX = 64 << 20 };

struct tail {
    const char *stream; // NULL: no such one was asked for
    int64_t offset;
    struct cleaner cleaner;
};

struct follow {
    struct client *client;
    char *path;           // of the run
    long long attempt;
    struct tail tails[2]; // the output, the error output
    const struct tail *last; // whose bytes were printed last
    bool line_open;          // and they did not end a line
    int failures;            // answers missing in a row
};

enum piece { PIECE_SOME, PIECE_NONE, PIECE_REFUSED, PIECE_SILENT }; // what the next request brought

static char *piece_path(const struct follow *follow, const struct tail *tail)
{
    return string_format("%s/logs?stream=%s&attempt=%lld&offset=%lld&limit=%d", follow->path, tail->stream, follow->attempt,
        (long long)tail->offset, PIECE_BYTES);
}

// A line of one stream does not go on in the middle of the other's.
static void print_bytes(struct follow *follow, struct tail *tail, const struct text *bytes)
{
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    clean_bytes(&tail->cleaner, &text, bytes->at, bytes->length);
    if (text.length) {
        if (follow->line_open && follow->last != tail)
            putchar('\n');
        fwrite(text.at, 1, text.length, stdout);
        fflush(stdout);
        follow->last = tail;
        follow->line_open = text.at[text.length - 1] != '\n';
    }
    text_release(&text);
}

static enum piece print_piece(struct follow *follow, struct tail *tail, struct reply *reply)
{
    struct error err = {0};
    char *path = piece_path(follow, tail);
    int status = client_ask(follow->client, "GET", path, NULL, reply, &err);
    free(path);
    if (status != 0) {
        if (!client_interrupts && ++follow->failures > 20)
            fprintf(stderr, "switchyard: %s\n", err.text);
        return PIECE_SILENT;
    }
    follow->failures = 0;
    if (reply->status != 200)
        return PIECE_REFUSED;
    print_bytes(follow, tail, &reply->text);
    tail->offset = reply->next_offset;
    return reply->text.length ? PIECE_SOME : PIECE_NONE;
}

// Why there is no such log. Where the run never came to that attempt, this says so; the rest the daemon has said.
static void say_refusal(struct follow *follow, const struct reply *refusal)
{
    struct error err = {0};
    struct reply reply;
    bool known = client_ask(follow->client, "GET", follow->path, NULL, &reply, &err) == 0 && reply.status == 200 && reply.json;
    int64_t attempts = known ? js_integer_of(js_get(reply.json, "attempt"), 0) : 0;
    const char *name = follow->path + strlen("/api/v1/runs/");
    if (known && attempts == 0) {
        char *reason = clean_line(js_string_of(js_get(reply.json, "reason"), ""));
        fprintf(stderr, "switchyard: %s has no logs, for it %s: %s\n", name, view_ended(reply.json) ? "never began" : "has not begun", reason);
        free(reason);
    } else if (known && follow->attempt > attempts) {
        fprintf(stderr, "switchyard: %s has no attempt %lld: its last is attempt %lld\n", name, follow->attempt, (long long)attempts);
    } else {
        reply_say(refusal);
    }
    reply_release(&reply);
}

// All that one stream has by now. Says why it is refused only where it is asked to.
static enum piece print_tail(struct follow *follow, struct tail *tail, bool say)
{
    for (;;) {
        struct reply reply;
        enum piece piece = print_piece(follow, tail, &reply);
        if (piece == PIECE_REFUSED && say)
            say_refusal(follow, &reply);
        reply_release(&reply);
        if (piece != PIECE_SOME || client_interrupts)
            return piece;
    }
}

// All streams that were asked for; what is refused for one is refused for the other, and said once.
static enum piece print_tails(struct follow *follow, bool say)
{
    enum piece piece = PIECE_NONE;
    for (int i = 0; i < 2 && piece == PIECE_NONE; i++)
        if (follow->tails[i].stream)
            piece = print_tail(follow, &follow->tails[i], say);
    return piece;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
}

// Whether the run has ended: then what is not there by now will not come. -1: cannot be known now.
static int has_ended(struct follow *follow)
{
    struct error err = {0};
    struct reply reply;
    int ended = client_ask(follow->client, "GET", follow->path, NULL, &reply, &err) != 0 || !reply.json ? -1 : view_ended(reply.json);
    reply_release(&reply);
    return ended;
}

// The end of a run is asked before its last bytes are: so nothing written before it is missed.
static int follow_to_end(struct follow *follow)
{
    while (!client_interrupts && follow->failures <= 20 && !ferror(stdout)) {
        int ended = has_ended(follow);
        enum piece piece = print_tails(follow, ended == 1);
        if (ended == 1 && piece != PIECE_SILENT && !client_interrupts)
            return piece == PIECE_REFUSED ? CLI_NO_DAEMON : CLI_DONE;
        nap();
    }
    return client_interrupts ? CLI_INTERRUPTED : CLI_NO_DAEMON;
}

static int print_now(struct follow *follow)
{
    follow->failures = 20; // one silence is enough
    enum piece piece = print_tails(follow, true);
    return client_interrupts ? CLI_INTERRUPTED : piece == PIECE_NONE ? CLI_DONE : CLI_NO_DAEMON;
}

// Adds what the stream has from its offset on, which moves. A sentence is said where that fails.
static int fetch_tail(struct follow *follow, struct tail *tail, struct text *text)
{
    int code = CLI_DONE;
    for (size_t before = SIZE_MAX; before != text->length && code == CLI_DONE;) {
        struct error err = {0};
        struct reply reply;
        before = text->length;
        char *path = piece_path(follow, tail);
        if (client_ask(follow->client, "GET", path, NULL, &reply, &err) != 0) {
            fprintf(stderr, "switchyard: %s\n", err.text);
            code = CLI_NO_DAEMON;
        } else if (reply.status != 200) {
            say_refusal(follow, &reply);
            code = CLI_NO_DAEMON;
        } else {
            text_add_bytes(text, reply.text.at, reply.text.length);
            tail->offset = reply.next_offset;
        }
        reply_release(&reply);
        free(path);
    }
    return code;
}

// One stream of what is there now; the text is as it was written, but for bytes that are not UTF-8. NULL after a sentence.
static struct json *tail_json(struct follow *follow, struct tail *tail)
{
    struct json *answer = NULL;
    struct text text;
    text_init(&text, JSON_BYTES_MAX);
    int64_t asked = tail->offset;
    if (fetch_tail(follow, tail, &text) == CLI_DONE) {
        for (size_t i = 0; i < text.length; i++)
            if (!text.at[i])
                text.at[i] = '\xFF'; // a NUL would end the string; this becomes U+FFFD
        answer = js_object();
        js_set(answer, "stream", js_string(tail->stream));
        js_set(answer, "offset", js_integer(asked < 0 ? tail->offset - (int64_t)text.length : asked));
        js_set(answer, "next_offset", js_integer(tail->offset));
        js_set(answer, "text", js_string(text.at));
    }
    text_release(&text);
    return answer;
}

// The one stream that was asked for, or an object of both.
static int print_json_now(struct follow *follow)
{
    struct json *both = js_object(), *one = NULL;
    int streams = 0, failed = 0;
    for (int i = 0; i < 2 && !failed; i++) {
        if (!follow->tails[i].stream)
            continue;
        one = tail_json(follow, &follow->tails[i]);
        failed += !one;
        if (one)
            js_set(both, follow->tails[i].stream, one);
        streams++;
    }
    if (!failed)
        print_json(streams == 1 ? one : both);
    js_free(both);
    return failed ? CLI_NO_DAEMON : CLI_DONE;
}

static int run_logs(const struct arguments *arguments)
{
    long long attempt, bytes;
    if (argument_integer(arguments, "attempt", 0, 1, 1000000, &attempt) != 0 ||
        argument_integer(arguments, "bytes", 0, 1, BYTES_MAX, &bytes) != 0)
        return CLI_USAGE;
    bool json = argument_flag(arguments, "json"), on = argument_flag(arguments, "follow");
    if (json && on)
        return usage_error("--json gives what is there now: it does not go with --follow");
    bool output = argument_flag(arguments, "stdout"), errors = argument_flag(arguments, "stderr");
    client_catch_interrupt();
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct follow follow = {.client = client, .path = client_run_path(client, arguments->words[0]), .attempt = attempt,
        .tails = {{.stream = errors && !output ? NULL : "stdout", .offset = -bytes}, {.stream = output && !errors ? NULL : "stderr", .offset = -bytes}}};
    int code = CLI_NO_DAEMON;
    if (follow.path)
        code = on ? follow_to_end(&follow) : json ? print_json_now(&follow) : print_now(&follow);
    free(follow.path);
    client_close(client);
    return code;
}

static const struct command_option logs_options[] = {
    {"follow", 'f', NULL, false, "go on until the run has ended"},
    {"stdout", 'o', NULL, false, "only the output"},
    {"stderr", 'e', NULL, false, "only the error output, where the worker tells its progress"},
    {"attempt", 0, "N", false, "of this attempt (default: the last)"},
    {"bytes", 0, "N", false, "only the last N bytes (of each stream)"},
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_logs = {
    .name = "logs",
    .summary = "Print what a run's processes wrote",
    .usage = "RUN",
    .least = 1,
    .most = 1,
    .options = logs_options,
    .description = "The output and the error output, both on stdout; --json gives an object of each.\n"
                   "Terminal escapes are taken out; the raw bytes are in the run directory (`switchyard show RUN`).",
    .run = run_logs,
};
