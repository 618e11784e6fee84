// Wishes to stop: SIGUSR1 or SIGTERM to any rank, or a file `stop` in the run directory. A step that has begun is finished.
#pragma once
#include <stdbool.h>

void stop_catch_signals(void);
bool stop_wished(const char *run_directory); // run_directory NULL: signals only
