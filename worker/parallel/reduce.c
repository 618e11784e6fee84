// Every rank is the one that adds a slice: it collects the slice's parts from all ranks, adds them in rank order on the device, and
// hands the sum to everybody. Buffers are walked in chunks so that scratch and messages stay small; where chunks begin does not show in
// the result, because each element is a sum of its own.
#include "worker/parallel/reduce.h"

#include "worker/parallel/exchange.h"

#include <string.h>

enum { CHUNK_REALS = 1 << 21 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t slice_length(size_t count, int64_t ranks, int64_t rank)
{
    size_t each = (count + (size_t)ranks - 1) / (size_t)ranks, first = smaller(each * (size_t)rank, count);
    return smaller(each, count - first);
}

size_t reduce_scratch_reals(const struct comm *comm, size_t count)
{
    size_t chunk = smaller(count, CHUNK_REALS), ranks = (size_t)comm->size;
    return ranks == 1 ? 0 : (chunk + ranks - 1) / ranks * ranks; // the parts of this rank's slice
}

static void reduce_chunk(const struct device *device, struct comm *comm, void *buffer, size_t count, double factor, void *scratch)
{
    struct exchange slices, sums;
    int64_t *numbers = comm_scratch(comm, 2 * EXCHANGE_NUMBERS * (size_t)comm->size * sizeof *numbers);
    exchange_within(&slices, comm->size, numbers);
    exchange_within(&sums, comm->size, numbers + EXCHANGE_NUMBERS * comm->size);
    int64_t mine = (int64_t)slice_length(count, comm->size, comm->rank);
    for (int64_t r = 0; r < comm->size; r++) {
        slices.send[r] = sums.receive[r] = (int64_t)slice_length(count, comm->size, r);
        slices.receive[r] = sums.send[r] = mine;
    }
    exchange_sum(&slices);
    exchange_sum(&sums);
    for (int64_t r = 0; r < comm->size; r++)
        sums.send_at[r] = 0; // one slice, sent to everybody
    sums.sent = mine;

    exchange_run(&slices, device, comm, scratch, buffer, device->real_bytes, false);
    void *own = real_at(device, buffer, (size_t)slices.send_at[comm->rank]);
    if (mine > 0) {
        device->ops->add_ordered(own, scratch, (size_t)comm->size, (size_t)mine);
        if (factor != 1)
            device->ops->scale(own, factor, (size_t)mine);
        device->memory->copy(scratch, own, (size_t)mine * device->real_bytes);
    }
    exchange_run(&sums, device, comm, buffer, scratch, device->real_bytes, false);
}

void all_reduce(const struct device *device, struct comm *comm, void *buffer, size_t count, double factor, void *scratch)
{
    if (comm->size == 1) {
        if (factor != 1 && count > 0)
            device->ops->scale(buffer, factor, count);
        return;
    }
    int64_t counted = comm->alltoall_bytes; // that counter is the dispatch's
    for (size_t at = 0; at < count; at += CHUNK_REALS)
        reduce_chunk(device, comm, real_at(device, buffer, at), smaller(CHUNK_REALS, count - at), factor, scratch);
    comm->alltoall_bytes = counted;
}

void all_reduce_doubles(struct comm *comm, double *values, size_t count)
{
    double *all = comm_scratch(comm, count * (size_t)comm->size * sizeof *all);
    comm->ops->allgather(comm, all, values, (int64_t)(count * sizeof *values));
    memcpy(values, all, count * sizeof *values);
    for (size_t r = 1; r < (size_t)comm->size; r++)
        for (size_t i = 0; i < count; i++)
            values[i] += all[r * count + i];
}

void all_reduce_integers(struct comm *comm, int64_t *values, size_t count)
{
    int64_t *all = comm_scratch(comm, count * (size_t)comm->size * sizeof *all);
    comm->ops->allgather(comm, all, values, (int64_t)(count * sizeof *values));
    memcpy(values, all, count * sizeof *values);
    for (size_t r = 1; r < (size_t)comm->size; r++)
        for (size_t i = 0; i < count; i++)
            values[i] += all[r * count + i];
}
