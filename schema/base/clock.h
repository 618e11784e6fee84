// Time in the forms that our records use.
#pragma once
#include <pthread.h>
#include <time.h>

enum { CLOCK_TEXT = 33 }; // "2026-11-29T23:25:21.123456+00:00" and a NUL

double clock_wall(void);                            // seconds since 1970, UTC
double clock_steady(void);                          // seconds, never set back, for durations
double clock_cpu(void);                             // seconds of CPU that this thread has used
void clock_text(char out[CLOCK_TEXT], double wall); // Trackio's form: six digits of a second, +00:00
double clock_parse(const char *text);               // seconds since 1970 of that form; NAN if it is not one
// A condition that is waited for by the steady clock, and the moment of that clock so many seconds from now.
void clock_condition_init(pthread_cond_t *condition);
struct timespec clock_steady_in(double seconds);
