// The group of one: every exchange is a copy.
#include "schema/base/text.h"
#include "worker/parallel/comm.h"

#include <stdlib.h>
#include <string.h>

static void self_alltoallv(struct comm *comm, void *receive, const int64_t *receive_bytes, const int64_t *receive_at, const void *send,
    const int64_t *send_bytes, const int64_t *send_at)
{
    if (receive_bytes[0] != send_bytes[0])
        abort(); // a group of one receives what it sends
    if (send_bytes[0] > 0)
        memmove((char *)receive + receive_at[0], (const char *)send + send_at[0], (size_t)send_bytes[0]);
    comm->alltoall_bytes += send_bytes[0];
}

static void self_alltoallv_end(struct comm *comm)
{
    (void)comm;
}

static void self_allgather(struct comm *comm, void *receive, const void *send, int64_t bytes_each)
{
    (void)comm;
    if (bytes_each > 0)
        memmove(receive, send, (size_t)bytes_each);
}

static void self_broadcast(struct comm *comm, void *buffer, int64_t bytes, int64_t root)
{
    (void)comm, (void)buffer, (void)bytes, (void)root;
}

static void self_barrier(struct comm *comm)
{
    (void)comm;
}

static struct comm *self_split(struct comm *comm, int64_t color, int64_t key)
{
    (void)comm, (void)color, (void)key;
    return comm_self();
}

static void self_free(struct comm *comm)
{
    free(comm->scratch);
    free(comm);
}

static const struct comm_ops self_ops = {
    .alltoallv = self_alltoallv,
    .alltoallv_begin = self_alltoallv,
    .alltoallv_end = self_alltoallv_end,
    .allgather = self_allgather,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
    .split = self_split,
    .free = self_free,
};

void *comm_scratch(struct comm *comm, size_t bytes)
{
    if (bytes > comm->scratch_bytes) {
        free(comm->scratch);
        comm->scratch = allocate(bytes, 1);
        comm->scratch_bytes = bytes;
    }
    return comm->scratch;
}

struct comm *comm_self(void)
{
    struct comm *comm = allocate(1, sizeof *comm);
    *comm = (struct comm){.ops = &self_ops, .rank = 0, .size = 1};
    return comm;
}
