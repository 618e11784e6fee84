#include "worker/model/dispatch.h"

#include "schema/base/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void dispatch_init(struct dispatch *dispatch, struct comm *comm, size_t experts, size_t capacity, int32_t *order, int32_t *arrival)
{
    size_t ranks = (size_t)comm->size;
    dispatch->comm = comm;
    exchange_init(&dispatch->exchange, comm->size);
    dispatch->experts = experts;
    dispatch->local = experts / ranks;
    dispatch->counts = allocate(ranks * experts, sizeof *dispatch->counts);
    dispatch->expert_rows = allocate(dispatch->local, sizeof *dispatch->expert_rows);
    dispatch->host_index = ranks > 1 ? allocate(2 * capacity, sizeof *dispatch->host_index) : NULL;
    dispatch->order = order;
    dispatch->arrival = arrival;
    dispatch->capacity = capacity;
}

void dispatch_release(struct dispatch *dispatch)
{
    exchange_release(&dispatch->exchange);
    free(dispatch->counts);
    free(dispatch->expert_rows);
    free(dispatch->host_index);
    *dispatch = (struct dispatch){0};
}

static int64_t sum(const int64_t *values, size_t count)
{
    int64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static bool reordered(const struct dispatch *dispatch)
{
    return dispatch->comm->size > 1 && dispatch->local > 1;
}

// Fills order and arrival: walks the chunks as the experts want them and notes where each row arrived.
static void plan_order(struct dispatch *dispatch, const struct device *device)
{
    size_t ranks = (size_t)dispatch->comm->size, first = (size_t)dispatch->comm->rank * dispatch->local, next = 0;
    int32_t *order = dispatch->host_index, *arrival = order + dispatch->rows;
    for (size_t expert = 0; expert < dispatch->local; expert++)
        for (size_t source = 0; source < ranks; source++) {
            const int64_t *counts = dispatch->counts + source * dispatch->experts + first;
            int64_t at = dispatch->exchange.receive_at[source] + sum(counts, expert);
            for (int64_t i = 0; i < counts[expert]; i++, next++) {
                order[next] = (int32_t)(at + i);
                arrival[at + i] = (int32_t)next;
            }
        }
    size_t bytes = dispatch->rows * sizeof *order;
    if (!bytes)
        return;
    device->memory->upload(dispatch->order, order, bytes);
    device->memory->upload(dispatch->arrival, arrival, bytes);
}

void dispatch_plan(struct dispatch *dispatch, const struct device *device, const int64_t *counts)
{
    struct comm *comm = dispatch->comm;
    size_t ranks = (size_t)comm->size, local = dispatch->local, first = (size_t)comm->rank * local;
    comm->ops->allgather(comm, dispatch->counts, counts, (int64_t)(dispatch->experts * sizeof *counts));
    memset(dispatch->expert_rows, 0, local * sizeof *dispatch->expert_rows);
    for (size_t r = 0; r < ranks; r++) {
        const int64_t *from = dispatch->counts + r * dispatch->experts + first;
        dispatch->exchange.send[r] = sum(counts + r * local, local);
        dispatch->exchange.receive[r] = sum(from, local);
        for (size_t expert = 0; expert < local; expert++)
            dispatch->expert_rows[expert] += from[expert];
    }
    exchange_sum(&dispatch->exchange);
    dispatch->rows = (size_t)dispatch->exchange.received;
    dispatch->sent = (size_t)sum(counts, dispatch->experts);
    assert(dispatch->rows <= dispatch->capacity && dispatch->capacity < INT32_MAX);
    if (reordered(dispatch))
        plan_order(dispatch, device);
}

void *dispatch_send_buffer(const struct dispatch *dispatch, void *out, void *send)
{
    return dispatch->comm->size == 1 ? out : send;
}

void dispatch_forth(const struct dispatch *dispatch, const struct device *device, void *out, const void *in, void *scratch, size_t reals)
{
    if (dispatch->comm->size == 1) {
        assert(in == out); // packed in place
        return;
    }
    bool reorder = reordered(dispatch);
    exchange_run(&dispatch->exchange, device, dispatch->comm, reorder ? scratch : out, in, reals * device->real_bytes, false);
    if (reorder)
        device->ops->gather_rows(out, scratch, dispatch->order, dispatch->rows, reals);
}

const void *dispatch_back(const struct dispatch *dispatch, const struct device *device, void *out, const void *in, void *scratch,
    size_t reals)
{
    if (dispatch->comm->size == 1)
        return in;
    bool reorder = reordered(dispatch);
    if (reorder)
        device->ops->gather_rows(scratch, in, dispatch->arrival, dispatch->rows, reals);
    exchange_run(&dispatch->exchange, device, dispatch->comm, out, reorder ? scratch : in, reals * device->real_bytes, true);
    return out;
}

void dispatch_rows_depart(struct exchange_flight *flight, const struct dispatch *dispatch, const struct device *device, void *out, const void *in,
    void *scratch, size_t reals)
{
    if (dispatch->comm->size == 1)
        return; // packed in place
    bool narrow = device->format != FORMAT_FP32;
    if (narrow)
        device->ops->narrow_rows(out, in, NULL, (size_t)dispatch->exchange.sent, reals); // out is free until rows have arrived
    void *to = narrow || reordered(dispatch) ? scratch : out;
    exchange_begin(flight, &dispatch->exchange, device, dispatch->comm, to, narrow ? out : in,
        reals * (narrow ? device->weight_bytes : device->real_bytes), false);
}

void dispatch_rows_arrive(const struct exchange_flight *flight, const struct dispatch *dispatch, const struct device *device, void *out, void *scratch,
    size_t reals)
{
    if (dispatch->comm->size == 1)
        return;
    exchange_end(flight);
    bool reorder = reordered(dispatch);
    if (device->format != FORMAT_FP32)
        device->ops->widen_rows(out, scratch, reorder ? dispatch->order : NULL, dispatch->rows, reals);
    else if (reorder)
        device->ops->gather_rows(out, scratch, dispatch->order, dispatch->rows, reals);
}

void dispatch_rows_forth(const struct dispatch *dispatch, const struct device *device, void *out, const void *in, void *scratch, size_t reals)
{
    struct exchange_flight flight;
    dispatch_rows_depart(&flight, dispatch, device, out, in, scratch, reals);
    dispatch_rows_arrive(&flight, dispatch, device, out, scratch, reals);
}

const void *dispatch_rows_back(const struct dispatch *dispatch, const struct device *device, void *out, void *in, void *scratch, size_t reals)
{
    if (dispatch->comm->size == 1 || device->format == FORMAT_FP32)
        return dispatch_back(dispatch, device, out, in, scratch, reals);
    device->ops->narrow_rows(scratch, in, reordered(dispatch) ? dispatch->arrival : NULL, dispatch->rows, reals);
    exchange_run(&dispatch->exchange, device, dispatch->comm, in, scratch, reals * device->weight_bytes, true);
    device->ops->widen_rows(out, in, NULL, (size_t)dispatch->exchange.sent, reals);
    return out;
}
