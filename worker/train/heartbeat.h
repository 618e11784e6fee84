// A thread of rank 0 that replaces heartbeat.json every 5 seconds, so that a daemon can tell a slow step from a dead worker.
#pragma once
#include "schema/base/error.h"
#include <stdint.h>

struct heartbeat;
int heartbeat_start(struct heartbeat **heartbeat, const char *run_directory, int64_t attempt, struct error *err);
void heartbeat_step_is(struct heartbeat *heartbeat, int64_t step);
void heartbeat_end(struct heartbeat *heartbeat); // NULL is fine
