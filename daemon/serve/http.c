// One request's life: the target comes first (target_seen), then headers and perhaps pieces of a body (take), then the answer. A request
// that the gate refuses still has its body read and thrown away up to the limit: closing on unread bytes would reset the connection
// before the client sees why.
#include "daemon/serve/http.h"
#include "daemon/serve/deadline.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONNECTIONS_MAX = 128, SILENCE_SECONDS = 30, REQUEST_SECONDS = 60, HEADER_BYTES_MAX = 32768, STREAM_BLOCK = 16384 };

struct http {
    struct MHD_Daemon *daemon;
    struct api *api;
    const struct gate *gate;
    struct deadlines *deadlines;
};

struct exchange {
    struct http *http;
    struct target target;
    struct error fault;        // of the target
    bool headers_seen;
    enum gate_verdict verdict;
    struct text body;
    size_t body_bytes;         // received, thrown away or not
    const char *if_none_match;
};

struct headers {
    const char *host, *origin, *authorization, *if_none_match, *content_length;
    bool repeated;             // one of those that decide came twice: two readers might see two requests
};

static void connection_changed(void *context, struct MHD_Connection *connection, void **own, enum MHD_ConnectionNotificationCode code)
{
    struct http *http = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *own = deadline_open(http->deadlines, MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    } else if (*own) {
        deadline_close(http->deadlines, *own);
        *own = NULL;
    }
}

static struct deadline *deadline_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void *target_seen(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct http *http = context;
    deadline_restart(http->deadlines, deadline_of(connection));
    struct exchange *exchange = allocate(1, sizeof *exchange);
    exchange->http = context;
    text_init(&exchange->body, API_BODY_MAX);
    target_parse(&exchange->target, uri, &exchange->fault);
    return exchange;
}

static void exchange_ended(void *context, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    (void)context, (void)code;
    struct exchange *exchange = *state;
    if (!exchange)
        return;
    deadline_restart(exchange->http->deadlines, deadline_of(connection)); // the next request of this connection
    target_release(&exchange->target);
    text_release(&exchange->body);
    free(exchange);
    *state = NULL;
}

static enum MHD_Result header_seen(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    (void)kind;
    struct headers *headers = context;
    const struct { const char *name; const char **value; } wanted[] = {
        {"Host", &headers->host}, {"Origin", &headers->origin}, {"Authorization", &headers->authorization},
        {"If-None-Match", &headers->if_none_match}, {"Content-Length", &headers->content_length},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (strcasecmp(name, wanted[i].name) != 0)
            continue;
        headers->repeated |= *wanted[i].value != NULL;
        *wanted[i].value = value ? value : "";
    }
    return MHD_YES;
}

static int64_t stream_read(void *context, uint64_t position, char *out, size_t max)
{
    (void)position;
    int64_t count = events_read(context, out, max);
    return count < 0 ? MHD_CONTENT_READER_END_OF_STREAM : count;
}

static void stream_free(void *context)
{
    events_close(context);
}

// The body becomes microhttpd's: freed, kept or streamed by it.
static struct MHD_Response *body_of(struct response *response)
{
    if (response->stream) {
        struct event_stream *stream = response->stream;
        response->stream = NULL;
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, stream_read, stream, stream_free);
    }
    if (response->fixed)
        return MHD_create_response_from_buffer(response->fixed_bytes, (void *)(uintptr_t)response->fixed, MHD_RESPMEM_PERSISTENT);
    size_t bytes = response->body.length;
    return MHD_create_response_from_buffer(bytes, text_take(&response->body), MHD_RESPMEM_MUST_FREE);
}

static void add_headers(struct MHD_Response *out, const struct response *response)
{
    static const char *const always[][2] = {
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"},
    };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        MHD_add_response_header(out, always[i][0], always[i][1]);
    MHD_add_response_header(out, "Content-Type", response->type);
    MHD_add_response_header(out, "Cache-Control", response->etag ? "no-cache" : "no-store");
    if (response->etag)
        MHD_add_response_header(out, "ETag", response->etag);
    if (response->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(out, "WWW-Authenticate", "Bearer");
    if (response->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(out, "Allow", "GET, HEAD, POST");
    if (response->next_offset >= 0) {
        char *offset = string_format("%lld", (long long)response->next_offset);
        MHD_add_response_header(out, "X-Next-Offset", offset);
        free(offset);
    }
}

static enum MHD_Result send_response(struct MHD_Connection *connection, struct response *response)
{
    struct MHD_Response *out = body_of(response);
    enum MHD_Result result = MHD_NO;
    if (out) {
        add_headers(out, response);
        result = MHD_queue_response(connection, (unsigned)response->status, out);
        MHD_destroy_response(out);
    }
    response_release(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, int status, const char *sentence)
{
    struct response response;
    response_init(&response);
    response_error(&response, status, sentence);
    return send_response(connection, &response);
}

struct judging {
    const struct gate *gate;
    const struct gate_request *request;
    enum gate_verdict verdict;
};

static void judge_with(void *context, const char *const *hosts, size_t count)
{
    struct judging *judging = context;
    struct gate gate = *judging->gate;
    gate.configured = hosts;
    gate.configured_count = count;
    judging->verdict = gate_judge(&gate, judging->request);
}

// First call: all headers are here, no byte of the body is.
static enum MHD_Result judge(struct exchange *exchange, struct MHD_Connection *connection, const char *method)
{
    struct headers headers = {0};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, header_seen, &headers);
    exchange->headers_seen = true;
    exchange->if_none_match = headers.if_none_match;
    struct gate_request request = {
        .method = method,
        .host = headers.repeated ? NULL : headers.host,
        .origin = headers.origin,
        .authorization = headers.authorization,
        .public_file = !exchange->fault.text[0] && api_public(&exchange->target),
    };
    struct judging judging = {.gate = exchange->http->gate, .request = &request};
    daemon_allowed_hosts(exchange->http->api->daemon, judge_with, &judging);
    exchange->verdict = judging.verdict;
    if (headers.content_length && strtoull(headers.content_length, NULL, 10) > API_BODY_MAX)
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the body is larger than 16 MiB");
    return MHD_YES;
}

// A piece of the body. Past twice the limit the connection is cut.
static enum MHD_Result take(struct exchange *exchange, const char *bytes, size_t count)
{
    exchange->body_bytes += count;
    if (exchange->verdict == GATE_PASS)
        text_add_bytes(&exchange->body, bytes, count);
    return exchange->body_bytes <= 2 * (size_t)API_BODY_MAX ? MHD_YES : MHD_NO;
}

static enum MHD_Result answer(struct exchange *exchange, struct MHD_Connection *connection, const char *method)
{
    if (exchange->verdict != GATE_PASS)
        return refuse(connection, gate_status(exchange->verdict), gate_sentence(exchange->verdict));
    if (exchange->fault.text[0])
        return refuse(connection, MHD_HTTP_BAD_REQUEST, exchange->fault.text);
    if (exchange->body.overflowed)
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the body is larger than 16 MiB");
    struct request request = {
        .post = strcmp(method, "POST") == 0,
        .target = &exchange->target,
        .body = exchange->body.at,
        .body_bytes = exchange->body.length,
        .if_none_match = exchange->if_none_match,
    };
    struct response response;
    response_init(&response);
    api_answer(exchange->http->api, &request, &response);
    return send_response(connection, &response);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
    const char *upload, size_t *upload_bytes, void **state)
{
    (void)context, (void)url, (void)version;
    struct exchange *exchange = *state;
    if (!exchange->headers_seen)
        return judge(exchange, connection, method);
    if (*upload_bytes == 0) {
        deadline_pause(exchange->http->deadlines, deadline_of(connection));
        return answer(exchange, connection, method);
    }
    enum MHD_Result result = take(exchange, upload, *upload_bytes);
    *upload_bytes = 0;
    return result;
}

int http_open(struct http **http, struct api *api, const struct gate *gate, int listening, struct error *err)
{
    struct http *opened = allocate(1, sizeof *opened);
    *opened = (struct http){.api = api, .gate = gate, .deadlines = deadlines_new(REQUEST_SECONDS)};
    if (!opened->deadlines)
        goto fail;
    opened->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC, 0, NULL,
        NULL, handle, opened, MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_URI_LOG_CALLBACK, target_seen, opened,
        MHD_OPTION_NOTIFY_COMPLETED, exchange_ended, NULL, MHD_OPTION_NOTIFY_CONNECTION, connection_changed, opened,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES_MAX,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (opened->daemon) {
        *http = opened;
        return 0;
    }
    deadlines_free(opened->deadlines);
fail:
    free(opened);
    return error_set(err, "the HTTP server does not start (too many threads or open files?)");
}

void http_close(struct http *http)
{
    MHD_stop_daemon(http->daemon);
    deadlines_free(http->deadlines);
    free(http);
}
