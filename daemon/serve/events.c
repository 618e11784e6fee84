// The live stream: one JSON event a message, a comment when nothing happens, until the client goes or the daemon stops. Each stream has
// its connection's thread to itself, so waiting here holds nobody up.
#include "daemon/serve/api.h"
#include "schema/base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 500, SILENCE_SECONDS = 10 };

struct event_stream {
    struct api *api;
    int64_t after;
    double last_sent;      // steady seconds
    struct text pending;   // bytes not yet taken
    size_t taken;
};

// The newest event's id: where "only those still to come" begins.
static int64_t newest(struct daemon *daemon)
{
    struct answer answer = {0};
    daemon_events(daemon, -1, 0, &answer);
    int64_t last = js_integer_of(js_get(answer.body, "last"), 0);
    answer_release(&answer);
    return last;
}

struct event_stream *events_open(struct api *api, int64_t after)
{
    if (atomic_fetch_add(&api->streams, 1) >= API_STREAMS_MAX) {
        atomic_fetch_sub(&api->streams, 1);
        return NULL;
    }
    struct event_stream *stream = allocate(1, sizeof *stream);
    *stream = (struct event_stream){.api = api, .after = after >= 0 ? after : newest(api->daemon), .last_sent = clock_steady()};
    text_init(&stream->pending, SIZE_MAX / 2);
    text_add(&stream->pending, ": switchyard\n\n"); // so that the headers go out at once
    return stream;
}

static void add_event(struct event_stream *stream, const struct json *event)
{
    text_addf(&stream->pending, "id: %lld\nevent: change\ndata: ", (long long)js_integer_of(js_get(event, "id"), stream->after));
    js_write(&stream->pending, event);
    text_add(&stream->pending, "\n\n");
}

// Waits until there is something to send; false when the daemon stops or cannot answer.
static bool fill(struct event_stream *stream)
{
    text_clear(&stream->pending);
    stream->taken = 0;
    while (stream->pending.length == 0) {
        struct answer answer = {0};
        daemon_events(stream->api->daemon, stream->after, WAIT_MS, &answer);
        const struct json *events = js_get(answer.body, "events");
        for (size_t i = 0; i < js_count(events); i++)
            add_event(stream, js_at(events, i));
        stream->after = js_integer_of(js_get(answer.body, "last"), stream->after);
        bool failed = !answer.body;
        answer_release(&answer);
        if (failed || atomic_load(&stream->api->stopping))
            return false;
        if (stream->pending.length == 0 && clock_steady() - stream->last_sent >= SILENCE_SECONDS)
            text_add(&stream->pending, ": still here\n\n");
    }
    return true;
}

int64_t events_read(struct event_stream *stream, char *out, size_t max)
{
    if (stream->taken == stream->pending.length && !fill(stream))
        return -1;
    size_t count = stream->pending.length - stream->taken;
    count = count < max ? count : max;
    memcpy(out, stream->pending.at + stream->taken, count);
    stream->taken += count;
    stream->last_sent = clock_steady();
    return (int64_t)count;
}

void events_close(struct event_stream *stream)
{
    atomic_fetch_sub(&stream->api->streams, 1);
    text_release(&stream->pending);
    free(stream);
}
