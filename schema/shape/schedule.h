// The pipeline schedule of one rank as a list that the train loop executes: 1F1B (Megatron 5.2) and interleaved (5.3). With one stage it
// is forward, backward, forward, backward….
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct schedule_item {
    bool backward;
    int32_t micro_batch;
    int32_t chunk; // model chunk of this rank, 0 unless interleaved
};

struct schedule {
    struct schedule_item *items;
    size_t count; // 2 · micro_batches · chunks
};

// stages PP, chunks V a rank, group: micro batches a chunk runs in a row (0: PP).
void schedule_init(struct schedule *schedule, int64_t micro_batches, int64_t stages, int64_t stage, int64_t chunks, int64_t group);
void schedule_release(struct schedule *schedule);
int64_t schedule_warmup(int64_t micro_batches, int64_t stages, int64_t stage, int64_t chunks, int64_t group);
double schedule_bubble(int64_t micro_batches, int64_t stages, int64_t chunks); // bubble / ideal time = (p−1)/(v·m)
