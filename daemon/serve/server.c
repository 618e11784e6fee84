#include "daemon/serve/server.h"
#include "daemon/serve/address.h"
#include "daemon/serve/http.h"
#include "schema/base/hash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 64, HOSTS_MAX = 33 };

struct server {
    struct api api;
    struct gate gate;
    struct http *http;
    const char *hosts[HOSTS_MAX];
    char *home, *url, *address;
    char token[TOKEN_DIGITS + 1];
};

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
}

static int port_of(int listening)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    if (getsockname(listening, (struct sockaddr *)&bound, &length) != 0)
        return 0;
    if (bound.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)(void *)&bound)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port);
}

static int bind_error(const char *address, int port, struct error *err)
{
    if (errno == EADDRINUSE)
        return error_set(err, "port %d on %s is in use by another program: choose another with --port, or any free one with --port 0", port,
            address);
    return error_errno(err, "listening on %s port %d", address, port);
}

// A listening socket, or -1.
static int listen_at(const char *address, int port, bool open_reads, struct error *err)
{
    char service[16];
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char *number = string_format("%d", port);
    strncpy(service, number, sizeof service - 1);
    service[sizeof service - 1] = '\0';
    free(number);
    if (getaddrinfo(address, service, &hints, &found) != 0)
        return error_set(err, "%s is not a numeric address: give one such as 127.0.0.1 or 0.0.0.0", address);
    int listening = -1, on = 1;
    if (open_reads && !is_loopback(found->ai_addr)) {
        error_set(err, "--open-reads is for a loopback address only: on %s everybody could read the runs", address);
        goto out;
    }
    listening = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listening < 0) {
        error_errno(err, "socket");
        goto out;
    }
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); // a restart need not wait for old connections to fade
    if (bind(listening, found->ai_addr, found->ai_addrlen) != 0 || listen(listening, BACKLOG) != 0) {
        bind_error(address, port, err);
        close(listening);
        listening = -1;
    }
out:
    freeaddrinfo(found);
    return listening;
}

// A daemon that died leaves daemon.json, and dashboards that know its token: the next one goes on with it. A clean stop removes both.
static int choose_token(char token[TOKEN_DIGITS + 1], const char *home, struct error *err)
{
    struct address old;
    int found = address_read(&old, home, err);
    if (found == 0 && old.token && strlen(old.token) == TOKEN_DIGITS && strspn(old.token, "0123456789abcdef") == TOKEN_DIGITS)
        memcpy(token, old.token, TOKEN_DIGITS + 1);
    else
        random_hex(token, TOKEN_DIGITS);
    address_release(&old);
    return found < 0 ? -1 : 0;
}

static char *url_of(const char *address, int port)
{
    if (strcmp(address, "0.0.0.0") == 0)
        address = "127.0.0.1";
    if (strcmp(address, "::") == 0)
        address = "::1";
    return string_format(strchr(address, ':') ? "http://[%s]:%d" : "http://%s:%d", address, port);
}

int server_open(struct server **server, const struct server_options *options, struct error *err)
{
    if (options->host_count >= HOSTS_MAX)
        return error_set(err, "at most %d names can be allowed", HOSTS_MAX - 1);
    struct server *opened = allocate(1, sizeof *opened);
    int listening = -1;
    if (choose_token(opened->token, options->home, err) != 0)
        goto fail;
    listening = listen_at(options->address, options->port, options->open_reads, err);
    if (listening < 0)
        goto fail;
    opened->home = string_copy(options->home);
    opened->address = string_copy(options->address);
    opened->url = url_of(options->address, port_of(listening));
    opened->api.daemon = options->daemon;
    opened->hosts[0] = opened->address; // who listens there answers to it
    for (size_t i = 0; i < options->host_count; i++)
        opened->hosts[i + 1] = options->hosts[i];
    opened->gate = (struct gate){.token = opened->token, .open_reads = options->open_reads, .hosts = opened->hosts,
        .host_count = options->host_count + 1};
    if (http_open(&opened->http, &opened->api, &opened->gate, listening, err) != 0)
        goto fail;
    listening = -1; // now the server's
    if (address_write(opened->home, opened->url, opened->token, err) != 0)
        goto fail;
    *server = opened;
    return 0;
fail:
    if (opened->http)
        http_close(opened->http);
    if (listening >= 0)
        close(listening);
    free(opened->home);
    free(opened->address);
    free(opened->url);
    free(opened);
    return -1;
}

const char *server_url(const struct server *server)
{
    return server->url;
}

const char *server_token(const struct server *server)
{
    return server->token;
}

void server_close(struct server *server)
{
    atomic_store(&server->api.stopping, true);
    daemon_end_submissions(server->api.daemon);
    daemon_wake(server->api.daemon);
    http_close(server->http);
    address_remove(server->home);
    free(server->home);
    free(server->address);
    free(server->url);
    free(server);
}
