// The only file that knows MPI: communicators over MPI_Comm, and the decision whether this process is one of several.
//
// The all-to-all is made of pairwise messages (own rows are a copy), cut into pieces of at most PIECE_BYTES: MPI counts are int, and
// sender and receiver cut alike because both know the pair's size. Messages between two ranks with one tag stay in order.
#include "schema/base/text.h"
#include "worker/parallel/comm.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 30, EXCHANGE_TAG = 1 };

struct mpi_comm {
    struct comm base;
    MPI_Comm handle;
    MPI_Request *requests; // of one all-to-all
    int64_t requests_most;
    int requests_used;     // on their way since alltoallv_begin
};

// Room for this many requests; grows rarely.
static MPI_Request *requests_of(struct comm *comm, int64_t wanted)
{
    struct mpi_comm *mpi = (struct mpi_comm *)(void *)comm;
    if (wanted > mpi->requests_most) {
        free(mpi->requests);
        mpi->requests = allocate((size_t)wanted, sizeof *mpi->requests);
        mpi->requests_most = wanted;
    }
    return mpi->requests;
}

static MPI_Comm handle_of(const struct comm *comm)
{
    return ((const struct mpi_comm *)(const void *)comm)->handle;
}

static _Noreturn void failed(int code, const char *call, const char *file, int line)
{
    int rank = -1, length = 0;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s:%d: %s failed: %.*s\n", rank, file, line, call, length, text);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

// A failed call names rank, call, file:line and ends the whole job.
#define CHECK(call)                                      \
    do {                                                 \
        int code_ = (call);                              \
        if (code_ != MPI_SUCCESS)                        \
            failed(code_, #call, __FILE__, __LINE__);    \
    } while (0)

static int64_t pieces(int64_t bytes)
{
    return (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

static int piece_bytes(int64_t bytes, int64_t piece)
{
    int64_t left = bytes - piece * PIECE_BYTES;
    return (int)(left < PIECE_BYTES ? left : PIECE_BYTES);
}

static void mpi_alltoallv_begin(struct comm *comm, void *receive, const int64_t *receive_bytes, const int64_t *receive_at, const void *send,
    const int64_t *send_bytes, const int64_t *send_at)
{
    MPI_Comm handle = handle_of(comm);
    int64_t wanted = 0;
    for (int64_t r = 0; r < comm->size; r++)
        wanted += r == comm->rank ? 0 : pieces(receive_bytes[r]) + pieces(send_bytes[r]);
    if (((struct mpi_comm *)(void *)comm)->requests_used > 0)
        abort(); // one is on its way
    MPI_Request *requests = requests_of(comm, wanted);
    int used = 0;
    // Start with the neighbour above, so that not everybody talks to rank 0 first.
    for (int64_t step = 1; step < comm->size; step++) {
        int64_t from = (comm->rank + comm->size - step) % comm->size, to = (comm->rank + step) % comm->size;
        for (int64_t p = 0; p < pieces(receive_bytes[from]); p++)
            CHECK(MPI_Irecv((char *)receive + receive_at[from] + p * PIECE_BYTES, piece_bytes(receive_bytes[from], p), MPI_BYTE, (int)from,
                EXCHANGE_TAG, handle, &requests[used++]));
        for (int64_t p = 0; p < pieces(send_bytes[to]); p++)
            CHECK(MPI_Isend((const char *)send + send_at[to] + p * PIECE_BYTES, piece_bytes(send_bytes[to], p), MPI_BYTE, (int)to,
                EXCHANGE_TAG, handle, &requests[used++]));
    }
    if (receive_bytes[comm->rank] != send_bytes[comm->rank])
        abort(); // what a rank sends to itself it receives
    if (send_bytes[comm->rank] > 0)
        memmove((char *)receive + receive_at[comm->rank], (const char *)send + send_at[comm->rank], (size_t)send_bytes[comm->rank]);
    ((struct mpi_comm *)(void *)comm)->requests_used = used;
    for (int64_t r = 0; r < comm->size; r++)
        comm->alltoall_bytes += send_bytes[r];
}

static void mpi_alltoallv_end(struct comm *comm)
{
    struct mpi_comm *mpi = (struct mpi_comm *)(void *)comm;
    CHECK(MPI_Waitall(mpi->requests_used, mpi->requests, MPI_STATUSES_IGNORE));
    mpi->requests_used = 0;
}

static void mpi_alltoallv(struct comm *comm, void *receive, const int64_t *receive_bytes, const int64_t *receive_at, const void *send,
    const int64_t *send_bytes, const int64_t *send_at)
{
    mpi_alltoallv_begin(comm, receive, receive_bytes, receive_at, send, send_bytes, send_at);
    mpi_alltoallv_end(comm);
}

static void mpi_allgather(struct comm *comm, void *receive, const void *send, int64_t bytes_each)
{
    if (bytes_each > PIECE_BYTES)
        abort(); // for small tables only; large buffers go through the all-to-all
    CHECK(MPI_Allgather(send, (int)bytes_each, MPI_BYTE, receive, (int)bytes_each, MPI_BYTE, handle_of(comm)));
}

static void mpi_broadcast(struct comm *comm, void *buffer, int64_t bytes, int64_t root)
{
    for (int64_t p = 0; p < pieces(bytes); p++)
        CHECK(MPI_Bcast((char *)buffer + p * PIECE_BYTES, piece_bytes(bytes, p), MPI_BYTE, (int)root, handle_of(comm)));
}

static void mpi_barrier(struct comm *comm)
{
    CHECK(MPI_Barrier(handle_of(comm)));
}

static struct comm *mpi_wrap(MPI_Comm handle);

static struct comm *mpi_split(struct comm *comm, int64_t color, int64_t key)
{
    MPI_Comm part;
    CHECK(MPI_Comm_split(handle_of(comm), (int)color, (int)key, &part));
    return mpi_wrap(part);
}

static void mpi_free(struct comm *comm)
{
    MPI_Comm handle = handle_of(comm);
    if (handle != MPI_COMM_WORLD)
        CHECK(MPI_Comm_free(&handle));
    free(((struct mpi_comm *)(void *)comm)->requests);
    free(comm->scratch);
    free(comm);
}

static const struct comm_ops mpi_ops = {
    .alltoallv = mpi_alltoallv,
    .alltoallv_begin = mpi_alltoallv_begin,
    .alltoallv_end = mpi_alltoallv_end,
    .allgather = mpi_allgather,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .split = mpi_split,
    .free = mpi_free,
};

static struct comm *mpi_wrap(MPI_Comm handle)
{
    int rank, size;
    CHECK(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN));
    CHECK(MPI_Comm_rank(handle, &rank));
    CHECK(MPI_Comm_size(handle, &size));
    struct mpi_comm *comm = allocate(1, sizeof *comm);
    *comm = (struct mpi_comm){.base = {.ops = &mpi_ops, .rank = rank, .size = size}, .handle = handle};
    return &comm->base;
}

// mpirun and srun tell each process its rank in the environment; a process without any of these was started alone.
static bool launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return true;
    return false;
}

struct comm *comm_world(void)
{
    if (!launched())
        return comm_self();
    int provided;
    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided));
    return mpi_wrap(MPI_COMM_WORLD);
}

void comm_finish(struct comm *world)
{
    bool ours = world->ops == &mpi_ops;
    world->ops->free(world);
    if (ours)
        CHECK(MPI_Finalize());
}

_Noreturn void comm_abort(struct comm *world, int code)
{
    fflush(NULL);
    if (world->ops == &mpi_ops)
        MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

const char *comm_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (!text[0])
        CHECK(MPI_Get_library_version(text, &length)); // may be asked before MPI_Init
    text[strcspn(text, "\n")] = 0;
    return text;
}
