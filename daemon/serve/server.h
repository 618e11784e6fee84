// The HTTP side of the daemon: one listening socket, one thread a connection, all bounded. `serve` opens it after the daemon and closes
// it before.
#pragma once
#include "daemon/core/daemon.h"
#include <stdbool.h>
#include <stddef.h>

struct server;

struct server_options {
    struct daemon *daemon;
    const char *home;          // where daemon.json goes
    const char *address;       // numeric address to listen on
    int port;                  // 0: any free one
    bool open_reads;           // reading needs no token; loopback only
    const char *const *hosts;  // more names allowed in Host
    size_t host_count;
};

int server_open(struct server **server, const struct server_options *options, struct error *err);
const char *server_url(const struct server *server);   // http://127.0.0.1:PORT
const char *server_token(const struct server *server);
void server_close(struct server *server);              // ends streams, waits for requests under way, removes daemon.json
