// From a request to a response, without a socket: the route table, and what each route asks of the daemon. http.c carries bytes to and
// from here. schema/openapi.yaml describes the same routes; a test compares the two.
#pragma once
#include "daemon/core/daemon.h"
#include "daemon/serve/target.h"
#include "schema/base/text.h"
#include <stdatomic.h>

enum { API_BODY_MAX = 16 << 20, API_STREAMS_MAX = 32, API_LOG_MAX = 1 << 20 };

struct api {
    struct daemon *daemon;
    atomic_bool stopping;    // streams end soon after it is set
    atomic_int streams;      // open event streams
};

struct request {
    bool post;               // else GET (or HEAD)
    const struct target *target;
    const char *body;        // POST: all of it
    size_t body_bytes;
    const char *if_none_match;
};

struct event_stream;         // events.c

struct response {
    int status;
    const char *type;        // content type, static
    struct text body;
    const void *fixed;       // instead of body: bytes that live as long as the program
    size_t fixed_bytes;
    const char *etag;        // static files only
    int64_t next_offset;     // logs: where to read on; -1: not a log
    struct event_stream *stream; // instead of both: taken by http.c, which ends it with events_close
};

void response_init(struct response *response);
void response_release(struct response *response);
void response_error(struct response *response, int status, const char *sentence); // {"error": sentence}

struct route {
    const char *method;      // "GET" or "POST"
    const char *pattern;     // "/api/v1/runs/{project}/{name}"; words in braces match a name
    void (*answer)(struct api *api, const struct request *request, const char *const *names, struct response *response);
};

extern const struct route api_routes[];
extern const size_t api_route_count;

// The route of this method and path; names receives the words that stood in braces. NULL and the status (404 or 405) if there is none.
const struct route *api_match(bool post, const struct target *target, const char *names[2], int *status);
bool api_public(const struct target *target); // one of the dashboard's files
void api_answer(struct api *api, const struct request *request, struct response *response);

// ---- events.c ----
// A stream of all events after `after` (-1: only those still to come). NULL when API_STREAMS_MAX are open.
struct event_stream *events_open(struct api *api, int64_t after);
// Waits for something to send and copies at most max bytes of it; -1 at the end of the stream.
int64_t events_read(struct event_stream *stream, char *out, size_t max);
void events_close(struct event_stream *stream);

// ---- prometheus.c ----
void prometheus_write(struct text *out, const struct json *health, const struct json *runs);
