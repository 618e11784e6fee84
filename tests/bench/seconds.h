// The clock of measurements: with one thread the thread's own time, which a busy machine does not stretch; else the wall's.
#pragma once
#include "schema/base/clock.h"
#include <stdbool.h>
#include <time.h>

static bool seconds_of_cpu;

static inline double seconds(void)
{
    struct timespec now;
    if (!seconds_of_cpu)
        return clock_steady();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
