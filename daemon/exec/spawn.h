// How this room starts a program that may outlive it.
#pragma once
#include <sys/types.h>

// argv[0] (looked for on PATH) in a session of its own, with default signals, in directory (NULL: ours), /dev/null as input, its output and
// complaints going to these descriptors, and no other descriptor of ours. Both lists are NULL-terminated. 0, or an errno.
int spawn_apart(pid_t *pid, const char *const *argv, const char *const *environment, const char *directory, int output_fd, int talk_fd);
