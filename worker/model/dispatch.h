// How the rows of one MoE layer travel between the ranks of the expert-parallel group: one description, made once a micro batch from
// the all-gathered counts, and used by the sender, the receiver and the way back.
//
// A rank sends its rows ordered by expert, then token: rows for rank r are those of experts r·local … r·local + local − 1. They
// arrive as chunks (source rank, local expert), last fastest; the experts work on (local expert, source rank), order inside a chunk kept.
// In a group of one nothing is exchanged: the sender's order is already the experts' order.
#pragma once
#include "worker/parallel/exchange.h"

struct dispatch {
    struct comm *comm;          // the expert-parallel group; lent
    struct exchange exchange;   // rows to and from each rank
    size_t experts, local;
    int64_t *counts;            // (ranks, E): rows of each source rank for each expert
    int64_t *expert_rows;       // (local): rows each of this rank's experts works on
    size_t rows;                // their sum
    size_t sent;                // rows that this rank sends
    int32_t *order, *arrival;   // device memory (R), lent by the arena: ordered[i] = arrived[order[i]], arrived[j] = ordered[arrival[j]]
    int32_t *host_index;        // (2·R) where both are made
    size_t capacity;            // R
};

// order and arrival (capacity each; NULL in a group of one) are lent device memory.
void dispatch_init(struct dispatch *dispatch, struct comm *comm, size_t experts, size_t capacity, int32_t *order, int32_t *arrival);
void dispatch_release(struct dispatch *dispatch);

// counts(E): rows this rank sends to each expert. Collective over the group.
void dispatch_plan(struct dispatch *dispatch, const struct device *device, const int64_t *counts);
// Where the sender packs its rows: send, or, in a group of one, where the experts will read them.
void *dispatch_send_buffer(const struct dispatch *dispatch, void *out, void *send);
// out(rows, reals): this rank's experts' rows, from in(sent, reals) of every rank. scratch(rows, reals).
void dispatch_forth(const struct dispatch *dispatch, const struct device *device, void *out, const void *in, void *scratch, size_t reals);
// The way back, the adjoint of the way forth: (sent, reals) from in(rows, reals). Returns where they lie: out, or in itself in a group of one.
const void *dispatch_back(const struct dispatch *dispatch, const struct device *device, void *out, const void *in, void *scratch,
    size_t reals);
// The same for rows whose values are numbers of the device's weight format, as products and round_rows leave them: they travel in it, and
// arrive with the same bits. The way back spends in.
void dispatch_rows_forth(const struct dispatch *dispatch, const struct device *device, void *out, const void *in, void *scratch, size_t reals);
// The way forth in two parts, with the same operands: between them, work that touches none of them and exchanges nothing in this group.
void dispatch_rows_depart(struct exchange_flight *flight, const struct dispatch *dispatch, const struct device *device, void *out, const void *in,
    void *scratch, size_t reals);
void dispatch_rows_arrive(const struct exchange_flight *flight, const struct dispatch *dispatch, const struct device *device, void *out, void *scratch,
    size_t reals);
const void *dispatch_rows_back(const struct dispatch *dispatch, const struct device *device, void *out, void *in, void *scratch, size_t reals);
