// The exchange of device memory: rows of equal width go straight from and to the device where the communicator can reach them, and
// through a staging copy on the host where it cannot.
#pragma once
#include "worker/device/device.h"
#include "worker/parallel/comm.h"

// How many units go to and come from each rank of a group, and where they lie, in units of the buffer's own width.
struct exchange {
    int64_t ranks;
    int64_t *send, *send_at, *receive, *receive_at; // one per rank
    int64_t sent, received;                         // sums
    int64_t *bytes;                                 // the four in bytes, for one run
};

enum { EXCHANGE_NUMBERS = 8 }; // a rank

void exchange_init(struct exchange *exchange, int64_t ranks);
void exchange_within(struct exchange *exchange, int64_t ranks, int64_t *numbers); // in lent memory of EXCHANGE_NUMBERS · ranks; no release
void exchange_release(struct exchange *exchange);
void exchange_sum(struct exchange *exchange);                               // offsets and sums from send and receive
// out and in are device memory; a unit is unit_bytes. backward: the same exchange in the other direction (receive counts are sent).
void exchange_run(const struct exchange *exchange, const struct device *device, struct comm *comm, void *out, const void *in,
    size_t unit_bytes, bool backward);
// The same in two parts: between them, work that touches neither buffer and asks nothing else of the communicator.
struct exchange_flight {
    const struct device *device;
    struct comm *comm;
    void *out, *to, *from; // to, from: staging copies on the host, or NULL
    size_t out_bytes;
};
void exchange_begin(struct exchange_flight *flight, const struct exchange *exchange, const struct device *device, struct comm *comm, void *out,
    const void *in, size_t unit_bytes, bool backward);
void exchange_end(const struct exchange_flight *flight);
