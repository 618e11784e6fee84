// The all-to-all of parallel/comm.h beside MPI_Alltoallv in a loop, on the same buffers and sizes: mpirun -n N bench_alltoall. Prints a table.
#include "schema/base/text.h"
#include "tests/bench/seconds.h"
#include "worker/device/device.h"
#include "worker/parallel/comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 15, LARGEST = 64 << 20, BYTES_A_ROUND = 256 << 20, CALLS_MAX = 200 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

struct sizes {
    int64_t *bytes, *at;        // as our communicator takes them
    int *bytes_int, *at_int;    // as MPI does
};

static double ours(struct comm *world, char *to, const char *from, const struct sizes *s, int calls)
{
    world->ops->barrier(world);
    double began = seconds();
    for (int i = 0; i < calls; i++)
        world->ops->alltoallv(world, to, s->bytes, s->at, from, s->bytes, s->at);
    return (seconds() - began) / calls;
}

static double theirs(struct comm *world, char *to, const char *from, const struct sizes *s, int calls)
{
    world->ops->barrier(world);
    double began = seconds();
    for (int i = 0; i < calls; i++)
        if (MPI_Alltoallv(from, s->bytes_int, s->at_int, MPI_BYTE, to, s->bytes_int, s->at_int, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
            comm_abort(world, 1);
    return (seconds() - began) / calls;
}

static void measure(struct comm *world, char *to, char *from, struct sizes *s, int64_t bytes)
{
    double own[ROUNDS], library[ROUNDS];
    int calls = (int)(BYTES_A_ROUND / bytes) < CALLS_MAX ? (int)(BYTES_A_ROUND / bytes) : CALLS_MAX;
    for (int64_t r = 0; r < world->size; r++) {
        s->bytes[r] = s->bytes_int[r] = (int)(bytes / world->size);
        s->at[r] = s->at_int[r] = (int)(r * (bytes / world->size));
    }
    for (int round = 0; round < ROUNDS; round++) {
        own[round] = ours(world, to, from, s, calls);
        library[round] = theirs(world, to, from, s, calls);
    }
    double mine = median(own), its = median(library);
    if (world->rank == 0)
        printf("| %lld | %.1f | %.1f | %.2f |\n", (long long)(bytes >> 10), (double)bytes / mine / 1e9, (double)bytes / its / 1e9, its / mine);
}

int main(void)
{
    struct comm *world = comm_world();
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (!initialised) {
        fprintf(stderr, "usage: mpirun -n N bench_alltoall\n");
        return 2;
    }
    const struct device *device = device_cpu(1); // buffers as the worker has them: huge pages
    char *from = device->memory->alloc(LARGEST), *to = device->memory->alloc(LARGEST);
    size_t ranks = (size_t)world->size;
    struct sizes sizes = {.bytes = allocate(2 * ranks, sizeof(int64_t)), .bytes_int = allocate(2 * ranks, sizeof(int))};
    sizes.at = sizes.bytes + ranks;
    sizes.at_int = sizes.bytes_int + ranks;
    if (world->rank == 0)
        printf("| KiB a rank sends | ours, GB/s a rank | MPI_Alltoallv | ratio |\n|---|---|---|---|\n");
    for (int64_t bytes = 64 << 10; bytes <= LARGEST; bytes *= 4)
        measure(world, to, from, &sizes, bytes);
    free(sizes.bytes);
    free(sizes.bytes_int);
    device->memory->free(from, LARGEST);
    device->memory->free(to, LARGEST);
    comm_finish(world);
    return 0;
}
