// The clock of measurements, and how quiet the machine was: a thread that waits for a core makes any time meaningless.
#pragma once
#include <stdbool.h>

extern bool seconds_of_cpu; // with one thread: its own time, which a busy machine does not stretch; else the wall's

double seconds(void);
double seconds_waited(void); // that this process's threads were ready but had no core, added over threads
