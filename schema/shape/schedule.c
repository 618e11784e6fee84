// 1F1B, plain and interleaved: forwards in one order, backwards in another, the second `warmup` items behind the first.
#include "schema/shape/schedule.h"
#include "schema/base/text.h"

#include <assert.h>
#include <stdlib.h>

// The order in which a rank runs its (micro batch, chunk) pairs: groups of micro batches through one chunk after the other.
static void fill_order(struct schedule_item *order, int64_t micro_batches, int64_t chunks, int64_t group, bool backward)
{
    for (int64_t first = 0; first < micro_batches; first += group) {
        int64_t end = first + group < micro_batches ? first + group : micro_batches;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            for (int64_t micro_batch = first; micro_batch < end; micro_batch++)
                *order++ = (struct schedule_item){backward, (int32_t)micro_batch, (int32_t)(backward ? chunks - 1 - chunk : chunk)};
    }
}

int64_t schedule_warmup(int64_t micro_batches, int64_t stages, int64_t stage, int64_t chunks, int64_t group)
{
    assert(micro_batches > 0 && stages > 0 && stage >= 0 && stage < stages && chunks > 0);
    int64_t after = stages - stage - 1;
    int64_t warmup = chunks == 1 ? after : 2 * after + (chunks - 1) * (group > 0 ? group : stages);
    return warmup < micro_batches * chunks ? warmup : micro_batches * chunks;
}

void schedule_init(struct schedule *schedule, int64_t micro_batches, int64_t stages, int64_t stage, int64_t chunks, int64_t group)
{
    int64_t warmup = schedule_warmup(micro_batches, stages, stage, chunks, group);
    int64_t each = micro_batches * chunks;
    int64_t run = chunks == 1 ? micro_batches : group > 0 ? group : stages;
    struct schedule_item *forward = allocate((size_t)each, sizeof *forward);
    struct schedule_item *backward = allocate((size_t)each, sizeof *backward);
    fill_order(forward, micro_batches, chunks, run, false);
    fill_order(backward, micro_batches, chunks, run, true);

    *schedule = (struct schedule){.items = allocate((size_t)(2 * each), sizeof *schedule->items), .count = (size_t)(2 * each)};
    struct schedule_item *at = schedule->items;
    for (int64_t i = 0; i < warmup; i++)
        *at++ = forward[i];
    for (int64_t i = warmup; i < each; i++) {
        *at++ = forward[i];
        *at++ = backward[i - warmup];
    }
    for (int64_t i = each - warmup; i < each; i++)
        *at++ = backward[i];
    free(forward);
    free(backward);
}

void schedule_release(struct schedule *schedule)
{
    free(schedule->items);
    *schedule = (struct schedule){0};
}

double schedule_bubble(int64_t micro_batches, int64_t stages, int64_t chunks)
{
    return (double)(stages - 1) / ((double)chunks * (double)micro_batches);
}
