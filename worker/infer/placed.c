#include "worker/infer/placed.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
enum { ENDING = sizeof ending / sizeof *ending };
static volatile sig_atomic_t interrupted;

static void keep(int number)
{
    interrupted = number;
}

// What the caller's caller ignores (nohup, a job in the background) stays ignored.
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = keep}, before;
    for (size_t i = 0; i < ENDING; i++)
        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(ending[i], &action, NULL);
}

bool placed_is_interrupted(void)
{
    return interrupted != 0;
}

int placed_begin(struct placed *placed, const char *path, struct error *err)
{
    char random[9];
    random_hex(random, 8);
    placed->target = path_absolute(path, NULL);
    // Not made from the target's name, which may be as long as a name can be.
    char *parent = path_join(placed->target, ".."), *directory = path_absolute(parent, NULL);
    placed->temporary = string_format("%s/.export-%s.tmp", strcmp(directory, "/") == 0 ? "" : directory, random);
    free(directory);
    free(parent);
    struct stat info;
    if (lstat(placed->target, &info) == 0)
        return error_set(err, "%s: is there already", placed->target);
    if (errno != ENOENT)
        return error_errno(err, "%s", placed->target);
    catch_signals();
    return 0;
}

// Never over something that is there. File systems that cannot promise that in one call (NFS, FUSE) let a name be claimed: mkdir takes it or fails,
// and a rename replaces a directory only while it is empty.
static int take_place(const struct placed *placed, struct error *err)
{
    if (renameat2(AT_FDCWD, placed->temporary, AT_FDCWD, placed->target, RENAME_NOREPLACE) == 0)
        return 0;
    bool cannot = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
    if (cannot && mkdir(placed->target, 0777) == 0) {
        if (rename(placed->temporary, placed->target) == 0)
            return 0;
        int fault = errno;
        rmdir(placed->target);
        errno = fault;
    }
    if (errno == EEXIST || errno == ENOTEMPTY)
        return error_set(err, "%s: is there already", placed->target);
    return error_errno(err, "%s", placed->target);
}

int placed_end(struct placed *placed, int status, struct error *err)
{
    if (status == 0 && !placed_is_interrupted())
        status = take_place(placed, err);
    else if (status == 0)
        status = error_set(err, "interrupted");
    if (status != 0 && placed->temporary)
        directory_remove(placed->temporary, NULL);
    if (status != 0 && placed_is_interrupted()) {
        fprintf(stderr, "switchyard-worker: stopped by signal %d: nothing of %s is left\n", (int)interrupted, placed->target);
        signal(interrupted, SIG_DFL);
        raise(interrupted);
    }
    free(placed->temporary);
    free(placed->target);
    *placed = (struct placed){0};
    return status;
}
