// A communicator: a const struct of operations over memory that the host can reach, and who we are in it. `self` is a group of one;
// `mpi` is the only file that knows MPI. A failed call prints rank, call, file:line and ends the whole job: a half-dead job only hangs.
// Sums are not here: libraries choose their own order. parallel/reduce.h adds in rank order, above any communicator.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct comm;

struct comm_ops {
    // Rank i receives from rank j what j sent to i. Counts and offsets in bytes, one per rank.
    void (*alltoallv)(struct comm *comm, void *receive, const int64_t *receive_bytes, const int64_t *receive_at, const void *send,
        const int64_t *send_bytes, const int64_t *send_at);
    // The same in two parts, so that work can be done while bytes travel: neither buffer may be touched before the end, and nothing else be
    // asked of this communicator.
    void (*alltoallv_begin)(struct comm *comm, void *receive, const int64_t *receive_bytes, const int64_t *receive_at, const void *send,
        const int64_t *send_bytes, const int64_t *send_at);
    void (*alltoallv_end)(struct comm *comm);
    void (*allgather)(struct comm *comm, void *receive, const void *send, int64_t bytes_each);
    void (*broadcast)(struct comm *comm, void *buffer, int64_t bytes, int64_t root);
    void (*barrier)(struct comm *comm);
    struct comm *(*split)(struct comm *comm, int64_t color, int64_t key); // collective; comm_free
    void (*free)(struct comm *comm);
};

struct comm {
    const struct comm_ops *ops;
    int64_t rank, size;
    void *scratch;          // of comm_scratch
    size_t scratch_bytes;
    int64_t alltoall_bytes; // bytes handed to alltoallv so far: whole send buffers, own rows included; the sums of reduce.h do not count
};

// Host memory for what is gathered, good until the next call with this communicator; grows rarely, so that a step allocates nothing.
void *comm_scratch(struct comm *comm, size_t bytes);

struct comm *comm_self(void);
// The communicator of all ranks: MPI if this process was started by mpirun or srun (their environment says so), else comm_self.
struct comm *comm_world(void);
void comm_finish(struct comm *world);                     // orderly end (MPI_Finalize)
_Noreturn void comm_abort(struct comm *world, int code);  // ends all ranks at once
const char *comm_library(void);                           // name and version of the MPI library, one line
