// `switchyard logs RUN`: what the run's processes printed, made harmless for a terminal. Without -f it ends at once, whatever the run does.
#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20, BYTES_MAX = 1 << 20 };

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

static enum piece print_piece(struct follow *follow, struct reply *reply)
{
    struct error err = {0};
    char *path = string_format("%s/logs?stream=%s&attempt=%lld&offset=%lld&limit=%d", follow->path, follow->stream, follow->attempt,
        (long long)follow->offset, PIECE_BYTES);
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

static int run_logs(const struct arguments *arguments)
{
    long long attempt, bytes;
    if (argument_integer(arguments, "attempt", 0, 1, 1000000, &attempt) != 0 ||
        argument_integer(arguments, "bytes", 0, 1, BYTES_MAX, &bytes) != 0)
        return CLI_USAGE;
    if (argument_flag(arguments, "json"))
        return usage_error("a log is text: `switchyard show --json` has the run's directory");
    client_catch_interrupt();
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    struct follow follow = {.client = client, .path = client_run_path(client, arguments->words[0]), .attempt = attempt,
        .stream = argument_flag(arguments, "stderr") ? "stderr" : "stdout", .offset = -bytes};
    int code = CLI_NO_DAEMON;
    if (follow.path)
        code = argument_flag(arguments, "follow") ? follow_to_end(&follow) : print_now(&follow);
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
