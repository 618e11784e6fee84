// The communicator under mpirun: ragged exchanges, splits, and sums that are added in rank order, with the same bits on every rank.
//
//   mpirun -n N collectives N       checks all of it
//   mpirun -n N collectives fail    rank 1 makes a call that MPI refuses, while the others wait for it
#include "schema/base/text.h"
#include "worker/parallel/exchange.h"
#include "worker/parallel/reduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm *world;

#define REQUIRE(what)                                                                                    \
    do {                                                                                                 \
        if (!(what)) {                                                                                   \
            fprintf(stderr, "rank %" PRId64 ": %s:%d: %s does not hold\n", world->rank, __FILE__, __LINE__, #what); \
            comm_abort(world, 1);                                                                        \
        }                                                                                                \
    } while (0)

// Rank i sends (i + 2·j) % 3 numbers to rank j, each telling whence and whither.
static int64_t ragged(int64_t from, int64_t to)
{
    return (from + 2 * to) % 3;
}

static void exchanges_are_ragged(struct comm *comm)
{
    const struct device *device = device_reference();
    struct exchange exchange;
    exchange_init(&exchange, comm->size);
    for (int64_t r = 0; r < comm->size; r++) {
        exchange.send[r] = ragged(comm->rank, r);
        exchange.receive[r] = ragged(r, comm->rank);
    }
    exchange_sum(&exchange);
    size_t sent = (size_t)exchange.sent, received = (size_t)exchange.received;
    float *out = allocate(received, sizeof *out), *in = allocate(sent, sizeof *in), *again = allocate(sent, sizeof *again);
    for (int64_t r = 0; r < comm->size; r++)
        for (int64_t i = 0; i < exchange.send[r]; i++)
            in[exchange.send_at[r] + i] = (float)(100 * comm->rank + 10 * r + i);
    int64_t before = comm->alltoall_bytes;
    exchange_run(&exchange, device, comm, out, in, device->real_bytes, false);
    REQUIRE(comm->alltoall_bytes - before == exchange.sent * 4);
    for (int64_t r = 0; r < comm->size; r++)
        for (int64_t i = 0; i < exchange.receive[r]; i++)
            REQUIRE(out[exchange.receive_at[r] + i] == (float)(100 * r + 10 * comm->rank + i));
    exchange_run(&exchange, device, comm, again, out, device->real_bytes, true);
    REQUIRE(!memcmp(again, in, sent * sizeof *in));
    free(out);
    free(in);
    free(again);
    exchange_release(&exchange);
}

// Numbers of very different sizes, so that another order of additions gives other bits.
static float part(int64_t rank, size_t index)
{
    return (float)((double)((index * 2654435761u + (size_t)rank * 40503u) % 10007) * (rank % 2 ? 1e-4 : 1e3) - 17.0);
}

static void sums_are_in_rank_order(struct comm *comm)
{
    const struct device *device = device_reference();
    const size_t counts[] = {1, 3, 1000, (1 << 21) + 5};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c];
        float *buffer = allocate(count, sizeof *buffer), *scratch = allocate(reduce_scratch_reals(comm, count), sizeof *scratch);
        for (size_t i = 0; i < count; i++)
            buffer[i] = part(comm->rank, i);
        int64_t counted = comm->alltoall_bytes;
        all_reduce(device, comm, buffer, count, 0.5, scratch);
        REQUIRE(comm->alltoall_bytes == counted);
        for (size_t i = 0; i < count; i++) {
            float sum = part(0, i);
            for (int64_t r = 1; r < comm->size; r++)
                sum += part(r, i);
            REQUIRE(buffer[i] == sum * 0.5f);
        }
        free(buffer);
        free(scratch);
    }
}

static void host_sums_are_in_rank_order(struct comm *comm)
{
    double value = 1.0 / (double)(comm->rank + 3), sum = 1.0 / 3;
    int64_t integer = comm->rank + 1;
    for (int64_t r = 1; r < comm->size; r++)
        sum += 1.0 / (double)(r + 3);
    all_reduce_doubles(comm, &value, 1);
    all_reduce_integers(comm, &integer, 1);
    REQUIRE(value == sum);
    REQUIRE(integer == comm->size * (comm->size + 1) / 2);
}

static void a_broadcast_reaches_everybody(struct comm *comm)
{
    int64_t value = 10 + comm->rank;
    comm->ops->broadcast(comm, &value, sizeof value, comm->size - 1);
    REQUIRE(value == 10 + comm->size - 1);
    comm->ops->barrier(comm);
}

static void every_promise(struct comm *comm)
{
    exchanges_are_ragged(comm);
    sums_are_in_rank_order(comm);
    host_sums_are_in_rank_order(comm);
    a_broadcast_reaches_everybody(comm);
}

static void make_a_call_that_fails(void)
{
    char byte = 0;
    if (world->rank == 1)
        world->ops->broadcast(world, &byte, 1, world->size + 7);
    world->ops->barrier(world);
}

int main(int argc, char **argv)
{
    world = comm_world();
    if (argc > 1 && !strcmp(argv[1], "fail"))
        make_a_call_that_fails();
    REQUIRE(world->size == (argc > 1 ? strtol(argv[1], NULL, 10) : 1));
    every_promise(world);
    // Two halves, in reverse order of rank: neighbours by parity, keyed from the end.
    struct comm *half = world->ops->split(world, world->rank % 2, -world->rank);
    REQUIRE(half->size == (world->size + (world->rank % 2 == 0)) / 2);
    REQUIRE(half->rank == (world->size - 1 - world->rank) / 2);
    every_promise(half);
    half->ops->free(half);
    if (world->rank == 0)
        printf("%" PRId64 " ranks exchange, split and sum\n", world->size);
    comm_finish(world);
    return 0;
}
