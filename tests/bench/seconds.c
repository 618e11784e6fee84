#include "tests/bench/seconds.h"
#include "schema/base/clock.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>

bool seconds_of_cpu;

double seconds(void)
{
    struct timespec now;
    if (!seconds_of_cpu)
        return clock_steady();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double seconds_waited(void)
{
    DIR *tasks = opendir("/proc/self/task");
    double total = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300];
        unsigned long long ran, waited;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!file)
            continue;
        if (fscanf(file, "%llu %llu", &ran, &waited) == 2)
            total += 1e-9 * (double)waited;
        fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return total;
}
