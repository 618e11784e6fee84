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

struct follow {
    struct client *client;
    char *path;            // of the run
    const char *stream;
    long long attempt;
    int64_t offset;
    struct cleaner cleaner;
    int failures;          // answers missing in a row
};

enum piece { PIECE_SOME, PIECE_NONE, PIECE_REFUSED, PIECE_SILENT }; // what the next request brought

static char *piece_path(const struct follow *follow)
{
    return string_format("%s/logs?stream=%s&attempt=%lld&offset=%lld&limit=%d", follow->path, follow->stream, follow->attempt,
        (long long)follow->offset, PIECE_BYTES);
}

static enum piece print_piece(struct follow *follow, struct reply *reply)
{
    struct error err = {0};
    char *path = piece_path(follow);
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
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    clean_bytes(&follow->cleaner, &text, reply->text.at, reply->text.length);
    fwrite(text.at, 1, text.length, stdout);
    fflush(stdout);
    text_release(&text);
    follow->offset = reply->next_offset;
    return reply->text.length ? PIECE_SOME : PIECE_NONE;
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
        enum piece piece;
        do {
            struct reply reply;
            piece = print_piece(follow, &reply);
            if (piece == PIECE_REFUSED && ended == 1)
                reply_say(&reply);
            reply_release(&reply);
        } while (piece == PIECE_SOME && !client_interrupts);
        if (ended == 1 && piece != PIECE_SILENT)
            return piece == PIECE_REFUSED ? CLI_NO_DAEMON : CLI_DONE;
        nap();
    }
    return client_interrupts ? CLI_INTERRUPTED : CLI_NO_DAEMON;
}

static int print_now(struct follow *follow)
{
    for (;;) {
        struct reply reply;
        follow->failures = 20; // one silence is enough
        enum piece piece = print_piece(follow, &reply);
        if (piece == PIECE_REFUSED)
            reply_say(&reply);
        reply_release(&reply);
        if (piece != PIECE_SOME)
            return piece == PIECE_NONE ? CLI_DONE : CLI_NO_DAEMON;
    }
}

// One JSON object of what is there now; the text is as it was written, but for bytes that are not UTF-8.
static int print_json_now(struct follow *follow)
{
    struct error err = {0};
    struct reply reply;
    struct text text;
    text_init(&text, JSON_BYTES_MAX);
    int64_t asked = follow->offset;
    int code = CLI_DONE;
    for (size_t before = 1; before != text.length && code == CLI_DONE;) {
        before = text.length;
        char *path = piece_path(follow);
        if (client_ask(follow->client, "GET", path, NULL, &reply, &err) != 0) {
            fprintf(stderr, "switchyard: %s\n", err.text);
            code = CLI_NO_DAEMON;
        } else if (reply.status != 200) {
            reply_say(&reply);
            code = CLI_NO_DAEMON;
        } else {
            text_add_bytes(&text, reply.text.at, reply.text.length);
            follow->offset = reply.next_offset;
        }
        reply_release(&reply);
        free(path);
    }
    for (size_t i = 0; i < text.length; i++)
        if (!text.at[i])
            text.at[i] = '\xFF'; // a NUL would end the string; this becomes U+FFFD
    struct json *answer = js_object();
    js_set(answer, "stream", js_string(follow->stream));
    js_set(answer, "offset", js_integer(asked < 0 ? follow->offset - (int64_t)text.length : asked));
    js_set(answer, "next_offset", js_integer(follow->offset));
    js_set(answer, "text", js_string(text.at));
    if (code == CLI_DONE)
        print_json(answer);
    js_free(answer);
    text_release(&text);
    return code;
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
    client_catch_interrupt();
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct follow follow = {.client = client, .path = client_run_path(client, arguments->words[0]), .attempt = attempt,
        .stream = argument_flag(arguments, "stderr") ? "stderr" : "stdout", .offset = -bytes};
    int code = CLI_NO_DAEMON;
    if (follow.path)
        code = on ? follow_to_end(&follow) : json ? print_json_now(&follow) : print_now(&follow);
    free(follow.path);
    client_close(client);
    return code;
}

static const struct command_option logs_options[] = {
    {"follow", 'f', NULL, false, "go on until the run has ended"},
    {"stderr", 'e', NULL, false, "the error output instead of the output"},
    {"attempt", 0, "N", false, "of this attempt (default: the last)"},
    {"bytes", 0, "N", false, "only the last N bytes"},
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
    .description = "Terminal escapes are taken out; the raw bytes are in the run directory (`switchyard show RUN`).",
    .run = run_logs,
};
