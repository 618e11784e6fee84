// The daemon that `run` brings along when none runs on this home: a child `switchyard serve --port 0`, ended with us.
#pragma once
#include "schema/base/error.h"
#include <stdbool.h>
#include <sys/types.h>

// Starts it and waits until it answers. Its pid, or -1.
pid_t own_daemon_start(struct error *err);
void own_daemon_stop(pid_t daemon); // TERM, and waits
