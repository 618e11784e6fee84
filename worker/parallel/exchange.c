#include "worker/parallel/exchange.h"

#include "schema/base/text.h"

#include <stdlib.h>

void exchange_within(struct exchange *exchange, int64_t ranks, int64_t *numbers)
{
    *exchange = (struct exchange){.ranks = ranks,
        .send = numbers,
        .send_at = numbers + ranks,
        .receive = numbers + 2 * ranks,
        .receive_at = numbers + 3 * ranks,
        .bytes = numbers + 4 * ranks};
}

void exchange_init(struct exchange *exchange, int64_t ranks)
{
    exchange_within(exchange, ranks, allocate(EXCHANGE_NUMBERS * (size_t)ranks, sizeof(int64_t)));
}

void exchange_release(struct exchange *exchange)
{
    free(exchange->send);
    *exchange = (struct exchange){0};
}

void exchange_sum(struct exchange *exchange)
{
    exchange->sent = exchange->received = 0;
    for (int64_t r = 0; r < exchange->ranks; r++) {
        exchange->send_at[r] = exchange->sent;
        exchange->receive_at[r] = exchange->received;
        exchange->sent += exchange->send[r];
        exchange->received += exchange->receive[r];
    }
}

// A buffer as the communicator needs it: the device's memory itself, or a staging copy on the host.
struct side {
    void *host;
    bool staged;
};

static struct side side_of(const struct device *device, void *at, size_t bytes)
{
    if (!bytes)
        return (struct side){0};
    void *view = device->memory->host_view(at);
    return view ? (struct side){view, false} : (struct side){allocate(bytes, 1), true};
}

void exchange_begin(struct exchange_flight *flight, const struct exchange *exchange, const struct device *device, struct comm *comm, void *out,
    const void *in, size_t unit_bytes, bool backward)
{
    int64_t unit = (int64_t)unit_bytes, ranks = exchange->ranks, *bytes = exchange->bytes;
    for (int64_t r = 0; r < ranks; r++) {
        bytes[r] = unit * exchange->send[r];
        bytes[ranks + r] = unit * exchange->send_at[r];
        bytes[2 * ranks + r] = unit * exchange->receive[r];
        bytes[3 * ranks + r] = unit * exchange->receive_at[r];
    }
    const int64_t *send = bytes + (backward ? 2 * ranks : 0), *receive = bytes + (backward ? 0 : 2 * ranks);
    size_t in_bytes = (size_t)(unit * (backward ? exchange->received : exchange->sent));
    size_t out_bytes = (size_t)(unit * (backward ? exchange->sent : exchange->received));

    struct side from = side_of(device, (void *)(uintptr_t)in, in_bytes), to = side_of(device, out, out_bytes);
    if (from.staged)
        device->memory->read_back(from.host, in, in_bytes);
    comm->ops->alltoallv_begin(comm, to.host, receive, receive + ranks, from.host, send, send + ranks);
    *flight = (struct exchange_flight){device, comm, out, to.staged ? to.host : NULL, from.staged ? from.host : NULL, out_bytes};
}

void exchange_end(const struct exchange_flight *flight)
{
    flight->comm->ops->alltoallv_end(flight->comm);
    if (flight->to)
        flight->device->memory->upload(flight->out, flight->to, flight->out_bytes);
    free(flight->to);
    free(flight->from);
}

void exchange_run(const struct exchange *exchange, const struct device *device, struct comm *comm, void *out, const void *in,
    size_t unit_bytes, bool backward)
{
    struct exchange_flight flight;
    exchange_begin(&flight, exchange, device, comm, out, in, unit_bytes, backward);
    exchange_end(&flight);
}
