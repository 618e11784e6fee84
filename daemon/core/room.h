// What this machine has for its queue: cores and GPUs, and who comes next. First come, first served, but for one thing: who waits for a
// GPU keeps nobody behind it waiting who wants none. Pure, so that every order can be tested.
//   - A run that waits for cores is overtaken by nobody.
//   - A run that waits for GPUs is overtaken by runs without any, never by another that wants some: a small one would starve a large one.
//     Once its GPUs are free it may wait for cores, and then nobody overtakes it any more.
//   - A run that wants more cores than there are runs alone.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct room {
    int64_t cores, cores_taken;
    int64_t gpus, gpus_taken;
    bool cores_awaited, gpus_awaited; // by somebody who was asked about before
};

enum place { PLACE_NOW, PLACE_CORES, PLACE_GPUS };

// The next of the queue, in its order: PLACE_NOW takes what it wants; the others say what it waits for.
enum place room_ask(struct room *room, int64_t cores, int64_t gpus);
