// A folder of its own for each test of a store, and ways to make it fail: a child that is killed, a full disk, a read-only mount.
#pragma once
#include "schema/base/error.h"
#include "schema/base/file.h"
#include "schema/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int make_folder(void **context)
{
    char *folder = string_copy("/tmp/switchyard-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
    *context = folder;
    return 0;
}

static inline int remove_folder(void **context)
{
    directory_remove(*context, NULL);
    free(*context);
    return 0;
}

static inline char *in_folder(void **context, const char *name)
{
    return path_join(*context, name);
}

#define assert_fine(call, err) \
    do { \
        if ((call) < 0) \
            fail_msg("%s: %s", #call, (err).text); \
    } while (0)

// Runs work in a child and kills it after so many microseconds, in whatever it is doing then. The child must still be at work.
static inline void run_and_kill(void (*work)(void *context), void *context, int after_us)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work(context);
        _exit(0);
    }
    usleep((useconds_t)after_us);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

// Runs work in a child that sees a tmpfs of so many KiB (0: its own read-only mount of it) at folder; false where mounting is not allowed.
// work returns 0 when all is as it should be, else a line number.
static inline bool run_on_mount(int (*work)(const char *folder), const char *folder, int kilobytes)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char options[64];
        snprintf(options, sizeof options, "size=%dk", kilobytes);
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
            _exit(77);
        if (kilobytes ? mount("none", folder, "tmpfs", 0, options) != 0
                      : mount(folder, folder, NULL, MS_BIND, NULL) != 0 || mount(NULL, folder, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
            _exit(77);
        int line = work(folder);
        if (line)
            fprintf(stderr, "line %d is not as it should be\n", line);
        _exit(line ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        return false;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}
