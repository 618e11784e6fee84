// How this room starts a program that may outlive it.
#include "daemon/exec/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>

int spawn_apart(pid_t *pid, const char *const *argv, const char *const *environment, const char *directory, int output_fd, int talk_fd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, talk_fd, 2);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (directory)
        posix_spawn_file_actions_addchdir_np(&actions, directory);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int fault = posix_spawnp(pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return fault;
}
