#include "worker/infer/placed.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
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

// ---- what a killed one has left ----
// A directory ".export-HOST-XXXXXXXX.tmp" is locked by whoever fills it, for as long as he lives. One of ours, on this machine, that nobody holds,
// and that is not so young that its maker may be about to lock it, is left over.

enum { HOST_MAX = 64, PREFIX_MAX = HOST_MAX + 16, YOUNG = 60 }; // bytes; seconds

static void prefix_of_this_host(char prefix[PREFIX_MAX])
{
    char host[HOST_MAX + 1] = "";
    gethostname(host, HOST_MAX);
    for (char *at = host; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.' && *at != '_')
            *at = '_';
    snprintf(prefix, PREFIX_MAX, ".export-%s-", host);
}

static bool is_left_over(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    bool left = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() && llabs((long long)time(NULL) - info.st_mtime) > YOUNG &&
                flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return left;
}

static void remove_left_over(const char *directory, const char *prefix)
{
    DIR *listing = opendir(directory);
    struct dirent *entry;
    size_t length = strlen(prefix);
    while (listing && (entry = readdir(listing))) {
        const char *name = entry->d_name, *random = name + length;
        if (strncmp(name, prefix, length) != 0 || strspn(random, "0123456789abcdef") != 8 || strcmp(random + 8, ".tmp") != 0 ||
            !is_left_over(dirfd(listing), name))
            continue;
        char *path = path_join(directory, name);
        if (directory_remove(path, NULL) == 0)
            fprintf(stderr, "switchyard-worker: removed %s, which an export that was killed had left\n", path);
        free(path);
    }
    if (listing)
        closedir(listing);
}

int placed_make(struct placed *placed, struct error *err)
{
    if (directory_make(placed->temporary, err) != 0)
        return -1;
    placed->lock = open(placed->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (placed->lock >= 0)
        flock(placed->lock, LOCK_EX | LOCK_NB); // a file system without locks: none is taken for left over there either
    return 0;
}

bool placed_is_interrupted(void)
{
    return interrupted != 0;
}

int placed_begin(struct placed *placed, const char *path, struct error *err)
{
    char random[9], prefix[PREFIX_MAX];
    random_hex(random, 8);
    prefix_of_this_host(prefix);
    placed->lock = -1;
    placed->target = path_absolute(path, NULL);
    // Not made from the target's name, which may be as long as a name can be.
    char *parent = path_join(placed->target, ".."), *directory = path_absolute(parent, NULL);
    placed->temporary = string_format("%s/%s%s.tmp", strcmp(directory, "/") == 0 ? "" : directory, prefix, random);
    remove_left_over(directory, prefix);
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
    if (placed->lock >= 0)
        close(placed->lock);
    free(placed->temporary);
    free(placed->target);
    *placed = (struct placed){0};
    return status;
}
