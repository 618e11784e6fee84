#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double read_clock(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double clock_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

double clock_steady(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_cpu(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &steady);
    pthread_condattr_destroy(&steady);
}

struct timespec clock_steady_in(double seconds)
{
    double until = clock_steady() + seconds;
    return (struct timespec){.tv_sec = (time_t)until, .tv_nsec = (long)((until - floor(until)) * 1e9)};
}

void clock_text(char out[CLOCK_TEXT], double wall)
{
    // To the nearest microsecond: a double near now is finer than that, so a text read and written again stays the same.
    time_t seconds = (time_t)floor(wall);
    int micros = (int)lround((wall - floor(wall)) * 1e6);
    if (micros == 1000000) {
        seconds++;
        micros = 0;
    }
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t used = strftime(out, CLOCK_TEXT, "%Y-%m-%dT%H:%M:%S", &utc);
    char fraction[16];
    snprintf(fraction, sizeof fraction, ".%06d", micros);
    strcpy(out + used, fraction);
    strcat(out, "+00:00");
}

double clock_parse(const char *text)
{
    struct tm utc = {0};
    double seconds;
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%lf+00:00%n", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour, &utc.tm_min, &seconds,
            &used) != 6 || used == 0)
        return NAN;
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    return (double)timegm(&utc) + seconds;
}
