// Time in the forms that our records use.
#pragma once

enum { CLOCK_TEXT = 33 }; // "2026-11-29T23:25:21.123456+00:00" and a NUL

double clock_wall(void);                            // seconds since 1970, UTC
double clock_steady(void);                          // seconds, never set back, for durations
void clock_text(char out[CLOCK_TEXT], double wall); // Trackio's form: six digits of a second, +00:00
double clock_parse(const char *text);               // seconds since 1970 of that form; NAN if it is not one
