#include "daemon/core/room.h"

enum place room_ask(struct room *room, int64_t cores, int64_t gpus)
{
    if (room->cores_awaited)
        return PLACE_CORES;
    if (gpus > 0 && (room->gpus_awaited || room->gpus_taken + gpus > room->gpus)) {
        // Where there are not so many at all, others are not held up for what will never be free.
        room->gpus_awaited |= gpus <= room->gpus;
        return PLACE_GPUS;
    }
    if (room->cores_taken > 0 && room->cores_taken + cores > room->cores) {
        room->cores_awaited = true;
        return PLACE_CORES;
    }
    room->cores_taken += cores;
    room->gpus_taken += gpus;
    return PLACE_NOW;
}
