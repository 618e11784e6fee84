// `switchyard serve`: the daemon. One thread ticks, microhttpd's threads answer; they meet only in daemon/core. On TERM it ends within
// seconds and leaves jobs running: the next daemon of this home finds them again.
#include "daemon/cli/command.h"
#include "daemon/cli/home.h"
#include "daemon/core/daemon.h"
#include "daemon/exec/gpus.h"
#include "daemon/serve/server.h"
#include "daemon/store/trackio.h"
#include "schema/base/file.h"
#include "schema/base/text.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { PORT_DEFAULT = 8642, TICK_MS_MAX = 1000 };

static volatile sig_atomic_t stopping;

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

// A script's background job is started with Ctrl-C ignored: it is meant for what the script runs in front, which still needs us.
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = stop}, ignored = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
    sigaction(SIGPIPE, &ignored, NULL);
}

static void print_address(const struct arguments *arguments, const struct server *server, const char *home)
{
    if (argument_flag(arguments, "json")) {
        struct json *address = js_object();
        js_set(address, "url", js_string(server_url(server)));
        js_set(address, "token", js_string(server_token(server)));
        js_set(address, "home", js_string(home));
        print_json(address);
        js_free(address);
    } else {
        printf("Dashboard: %s/#token=%s\n", server_url(server), server_token(server));
    }
    fflush(stdout);
}

static int tick_until_stopped(struct daemon *daemon)
{
    while (!stopping) {
        int pause = daemon_tick(daemon);
        if (pause < 0)
            return CLI_NO_DAEMON;
        if (!stopping)
            daemon_wait(daemon, pause < TICK_MS_MAX ? pause : TICK_MS_MAX);
    }
    return CLI_DONE;
}

static int serve(const struct arguments *arguments, const struct daemon_options *options, struct server_options *listening)
{
    struct error err = {0};
    struct daemon *daemon = NULL;
    struct server *server = NULL;
    int code = CLI_NO_DAEMON;
    if (daemon_open(&daemon, options, &err) != 0)
        goto out;
    listening->daemon = daemon;
    if (server_open(&server, listening, &err) != 0)
        goto out;
    print_address(arguments, server, options->home);
    code = tick_until_stopped(daemon);
out:
    if (err.text[0])
        fprintf(stderr, "switchyard: %s\n", err.text);
    if (server)
        server_close(server);
    if (daemon)
        daemon_close(daemon);
    return code;
}

static int run_serve(const struct arguments *arguments)
{
    long long port, gpus;
    if (argument_integer(arguments, "port", PORT_DEFAULT, 0, 65535, &port) != 0 || argument_integer(arguments, "gpus", -1, 0, GPUS_MAX, &gpus) != 0)
        return CLI_USAGE;
    struct error err = {0};
    char *home = home_directory(), *trackio = trackio_directory(), *worker = worker_path(&err), *script = path_join(home, "job.sh");
    size_t host_count;
    const char **hosts = argument_values(arguments, "allow-host", &host_count);
    struct daemon_options options = {.home = home, .trackio = trackio, .worker = worker, .job_script = script, .gpus = gpus};
    struct server_options listening = {.home = home, .address = argument_value(arguments, "bind", "127.0.0.1"), .port = (int)port,
        .open_reads = argument_flag(arguments, "open-reads"), .hosts = hosts, .host_count = host_count};
    int code = CLI_NO_DAEMON;
    catch_signals();
    if (worker)
        code = serve(arguments, &options, &listening);
    else
        fprintf(stderr, "switchyard: %s\n", err.text);
    free(hosts);
    free(script);
    free(worker);
    free(trackio);
    free(home);
    return code;
}

static const struct command_option serve_options[] = {
    {"port", 'p', "N", false, "port to listen on (default 8642; 0: any free one)"},
    {"bind", 0, "ADDRESS", false, "address to listen on (default 127.0.0.1)"},
    {"allow-host", 0, "NAME", true, "one more name that browsers may call this daemon by (repeatable; config.yaml has allowed_hosts)"},
    {"gpus", 0, "N", false, "GPUs of this machine that runs may have, by their numbers 0 … N - 1 (default: `gpus` of config.yaml, else those found)"},
    {"open-reads", 0, NULL, false, "reading needs no token: for a machine of one's own"},
    {"json", 0, NULL, false, "print address and token as JSON"},
    {0},
};

const struct command command_serve = {
    .name = "serve",
    .summary = "Run the daemon and its dashboard",
    .usage = "",
    .options = serve_options,
    .description = "Keeps its state in SWITCHYARD_HOME and the metrics in TRACKIO_DIR. Ctrl-C or TERM ends it and leaves jobs running;\n"
                   "started again, it finds them. From elsewhere: ssh -L 8642:127.0.0.1:8642 HOST, then open the printed address.",
    .run = run_serve,
};
