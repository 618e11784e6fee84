// Sums over ranks in rank order, once, above the communicator: an all-to-all of slices, a sum in the order of ranks, an all-gather. The
// result has the same bits on every rank and does not depend on the library's algorithms.
#pragma once
#include "worker/device/device.h"
#include "worker/parallel/comm.h"

// buffer(count) becomes the sum over ranks · factor. scratch holds reduce_scratch_reals(comm, count) reals of device memory.
void all_reduce(const struct device *device, struct comm *comm, void *buffer, size_t count, double factor, void *scratch);
size_t reduce_scratch_reals(const struct comm *comm, size_t count);

void all_reduce_doubles(struct comm *comm, double *values, size_t count); // host, sums in rank order
void all_reduce_integers(struct comm *comm, int64_t *values, size_t count);
