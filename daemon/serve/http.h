// The door to libmicrohttpd: carries bytes between sockets and api_answer, behind the gate. Connections, bodies, headers and silence are
// bounded here.
#pragma once
#include "daemon/serve/api.h"
#include "daemon/serve/gate.h"

struct http;

// Takes over the listening socket. api and gate must outlive it.
int http_open(struct http **http, struct api *api, const struct gate *gate, int listening, struct error *err);
void http_close(struct http *http); // set api->stopping first, so that streams end; waits for all connections
