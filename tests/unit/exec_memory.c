// The memory of a run: where control groups can be made, over recorded files of the kernel; what a group's counters mean; and, where this
// machine lets us, a real group whose limit is exceeded for real. mkdir and rmdir are the linker's (--wrap): a recorded group is filled with
// the kernel's files as it is made, and cannot be removed while it has processes.
#include "daemon/exec/memory.h"
#include "schema/base/file.h"
#include "schema/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/switchyard-memory-XXXXXX";
#include "tests/unit/folder.h"

#define TAG "0123456789abcdef0123456789abcdef"

int __real_mkdir(const char *path, mode_t mode);
int __real_rmdir(const char *path);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rmdir(const char *path);

static void put(const char *directory, const char *name, const char *text)
{
    char *path = path_join(directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    free(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static char *get(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    struct text text;
    text_init(&text, 1 << 16);
    file_read(path, &text, NULL);
    free(path);
    return text_take(&text);
}

static const char *const group_files[] = {"memory.max", "memory.oom.group", "memory.swap.max", "memory.events", "memory.peak", "cgroup.procs",
    "cgroup.subtree_control", "cgroup.controllers", "cgroup.events", "cgroup.kill"};
enum { GROUP_FILES = sizeof group_files / sizeof group_files[0] };

static bool is_recorded(const char *path)
{
    return strncmp(path, folder, strlen(folder)) == 0 && strstr(path, "/fs/");
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    int status = __real_mkdir(path, mode);
    for (size_t i = 0; i < GROUP_FILES && status == 0 && is_recorded(path); i++)
        put(path, group_files[i], strcmp(group_files[i], "memory.events") == 0 ? "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n" : "");
    return status;
}

int __wrap_rmdir(const char *path)
{
    if (is_recorded(path)) {
        char *processes = get(path, "cgroup.procs");
        bool busy = processes[0] != '\0';
        free(processes);
        if (busy) {
            errno = EBUSY;
            return -1;
        }
        for (size_t i = 0; i < GROUP_FILES; i++) {
            char *file = path_join(path, group_files[i]);
            unlink(file);
            free(file);
        }
    }
    return __real_rmdir(path);
}

// A recorded machine: its mounts, our group, that group's files.
static void record(const char *mounts, const char *own, const char *group, const char *controllers, const char *divided)
{
    char *at = path_join(folder, group);
    assert_int_equal(directory_make(at, NULL), 0);
    put(at, "cgroup.controllers", controllers);
    put(at, "cgroup.subtree_control", divided);
    char *text = string_format(mounts, folder);
    put(folder, "mountinfo", text);
    put(folder, "own", own);
    free(text);
    free(at);
}

static void find(struct memory_place *place)
{
    char *mounts = path_join(folder, "mountinfo"), *own = path_join(folder, "own");
    memory_place_find(place, mounts, own);
    free(mounts);
    free(own);
}

#define V2 "22 1 0:21 / /proc rw - proc proc rw\n30 22 0:26 / %s/fs rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

static void expect_base(const char *inside)
{
    struct memory_place place;
    find(&place);
    char *base = string_format("%s%s", folder, inside);
    assert_non_null(place.base);
    assert_string_equal(place.base, base);
    assert_string_equal(place.why, "");
    free(base);
    memory_place_release(&place);
}

static void expect_none(const char *why)
{
    struct memory_place place;
    find(&place);
    assert_null(place.base);
    if (!strstr(place.why, why))
        fail_msg("'%s' is not in '%s'", why, place.why);
    memory_place_release(&place);
}

static void test_found(void **state)
{
    (void)state;
    record(V2, "0::/a/b\n", "fs/a/b", "cpu memory pids\n", "");
    expect_base("/fs/a/b");
    char *path = path_join(folder, "fs/a/b"), *control = get(path, "cgroup.subtree_control");
    assert_string_equal(control, "+memory");
    free(control);
    free(path);
    record(V2, "1:name=systemd:/x\n0::/\n", "fs", "memory\n", "memory\n"); // the root of a container
    expect_base("/fs");
    record(V2, "0::/a/switchyard-daemon\n", "fs/a", "memory\n", "cpu memory\n"); // a daemon that another one's leaf started
    expect_base("/fs/a");
    record("30 22 0:26 /outer %s/fs rw - cgroup2 none rw\n", "0::/outer/a\n", "fs/a", "memory\n", "memory\n");
    expect_base("/fs/a");
    record("30 22 0:26 / %s/fs\\040x rw - cgroup2 none rw\n", "0::/a\n", "fs x/a", "memory\n", "memory\n");
    expect_base("/fs x/a");
}

// What this build's own first machine says: version 1 has the memory.
static void test_not_found(void **state)
{
    (void)state;
    record("30 22 0:26 / %s/fs rw - cgroup cgroup rw,memory\n", "4:memory:/a\n0::/\n", "fs", "", "");
    expect_none("no control groups of version 2");
    record(V2, "4:memory:/a\n0::/\n", "fs", "hugetlb\n", "");
    expect_none("no memory controller");
    record(V2, "0::/a\n", "fs/a", "memory_of_another_kind cpu\n", "");
    expect_none("no memory controller");
    record(V2, "4:memory:/a\n", "fs", "memory\n", "");
    expect_none("no control groups of version 2");
    record(V2, "0::/../elsewhere\n", "fs", "memory\n", "memory\n");
    expect_none("outside what is mounted here");
    record("30 22 0:26 /other %s/fs rw - cgroup2 none rw\n", "0::/a\n", "fs", "memory\n", "memory\n");
    expect_none("outside what is mounted here");
    record(V2, "0::/gone\n", "fs", "memory\n", "memory\n");
    expect_none("no memory controller");
    put(folder, "mountinfo", "");
    expect_none("no control groups of version 2");
}

static char *make(int64_t limit, struct error *err)
{
    struct memory_place place;
    record(V2, "0::/a\n", "fs/a", "memory\n", "memory\n");
    find(&place);
    char *group = memory_group_make(&place, TAG, limit, err);
    memory_place_release(&place);
    return group;
}

static char *run_directory(void)
{
    static int number;
    char *name = string_format("run-%d/attempt-1", ++number), *path = path_join(folder, name);
    assert_int_equal(directory_make(path, NULL), 0);
    path[strlen(path) - strlen("/attempt-1")] = '\0';
    free(name);
    return path;
}

// A life: made with its limit, counted, written down, removed; a second attempt begins with fresh counters.
static void test_group(void **state)
{
    (void)state;
    struct error err = {0};
    char why[256] = "", *run = run_directory(), *group = make(1 << 30, &err);
    assert_non_null(group);
    char *most = get(group, "memory.max"), *together = get(group, "memory.oom.group"), *swap = get(group, "memory.swap.max");
    assert_string_equal(most, "1073741824");
    assert_string_equal(together, "1");
    assert_string_equal(swap, "0");
    assert_int_equal(memory_watch_begin(run, group, 1 << 30, &err), 0);
    char *again = memory_watch_group(run);
    assert_string_equal(again, group);
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_UNKNOWN);
    put(group, "memory.events", "low 0\nhigh 0\nmax 17\noom 1\noom_kill 3\noom_group_kill 1\n");
    put(group, "memory.peak", "1073737728\n");
    memory_watch_end(run, 1);
    memory_watch_end(run, 1);
    assert_false(file_exists(group));
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_ENDED);
    assert_string_equal(why, "killed by the kernel: out of memory, its limit is 1024.0 MiB (resources.memory)");
    free(group);
    group = make(0, &err);
    assert_non_null(group);
    char *fresh = get(group, "memory.max");
    assert_string_equal(fresh, "max");
    assert_int_equal(memory_watch_begin(run, group, 0, &err), 0);
    char *second = path_join(run, "attempt-2");
    assert_int_equal(directory_make(second, NULL), 0);
    memory_watch_end(run, 2);
    assert_int_equal(memory_verdict(run, 2, why, sizeof why), MEMORY_NOT);
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_ENDED);
    char *const all[] = {second, fresh, again, swap, together, most, group, run};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

// A group that still has processes is not taken for the next attempt, and its counters are not lost.
static void test_busy_group(void **state)
{
    (void)state;
    struct error err = {0};
    char *group = make(1 << 20, &err);
    assert_non_null(group);
    put(group, "cgroup.procs", "4711\n");
    assert_null(make(1 << 20, &err));
    assert_non_null(strstr(err.text, "switchyard-" TAG));
    put(group, "cgroup.procs", "");
    rmdir(group);
    free(group);
}

// Who gives its memory back has no tag to be found by, and is in the group: nothing is over yet, no counter is final.
static void test_ending_group(void **state)
{
    (void)state;
    struct error err = {0};
    char why[256] = "", *run = run_directory(), *group = make(1 << 30, &err);
    assert_non_null(group);
    assert_int_equal(memory_watch_begin(run, group, 1 << 30, &err), 0);
    put(group, "cgroup.events", "populated 1\nfrozen 0\n");
    put(group, "memory.events", "low 0\nhigh 0\nmax 17\noom 1\noom_kill 1\noom_group_kill 1\n");
    assert_false(memory_watch_end(run, 1));
    assert_true(file_exists(group));
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_UNKNOWN);
    assert_true(memory_watch_kill(run));
    char *killed = get(group, "cgroup.kill");
    assert_string_equal(killed, "1");
    put(group, "cgroup.events", "populated 0\nfrozen 0\n");
    assert_false(memory_watch_kill(run));
    assert_true(memory_watch_end(run, 1));
    assert_false(file_exists(group));
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_ENDED);
    free(killed);
    free(group);
    free(run);
}

// Whatever a file in a run directory says: nothing but a group of ours is removed.
static void test_strangers(void **state)
{
    (void)state;
    char *run = run_directory(), *victim = path_join(folder, "switchyard-victim"), *named = path_join(folder, "switchyard-" TAG);
    assert_int_equal(directory_make(victim, NULL), 0);
    assert_int_equal(directory_make(named, NULL), 0); // the name, but no group
    const char *const groups[] = {victim, named, "switchyard-" TAG, "/", "/sys/fs/cgroup"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        assert_int_equal(memory_watch_begin(run, groups[i], 0, NULL), 0);
        assert_null(memory_watch_group(run));
        memory_watch_end(run, 1);
    }
    assert_true(file_exists(victim) && file_exists(named));
    free(named);
    free(victim);
    free(run);
}

static void test_looked_at(void **state)
{
    (void)state;
    char why[256], *run = run_directory();
    assert_int_equal(memory_watch_begin(run, NULL, 64 << 20, NULL), 0);
    assert_null(memory_watch_group(run));
    memory_watch_end(run, 1);
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_UNKNOWN);
    assert_int_equal(memory_watch_exceeded(run, 1, 80 << 20, 64 << 20, NULL), 0);
    assert_int_equal(memory_verdict(run, 1, why, sizeof why), MEMORY_ENDED);
    assert_string_equal(why, "used 80.0 MiB of memory, its limit is 64.0 MiB (resources.memory)");
    free(run);
}

static void test_of_process(void **state)
{
    (void)state;
    int64_t before = memory_of_process(getpid());
    size_t bytes = 32 << 20;
    char *memory = malloc(bytes);
    assert_non_null(memory);
    memset(memory, 1, bytes);
    int64_t after = memory_of_process(getpid());
    assert_true(after - before > 30 << 20 && after - before < 40 << 20);
    free(memory);
    assert_int_equal(memory_of_process(0x7ffffff0), 0);
}

// The real thing: a process that takes more than its group may have is ended by the kernel, and the group says so; one that is killed by a
// person is not.
static void test_real_group(void **state)
{
    (void)state;
    struct memory_place place;
    memory_place_find(&place, "/proc/self/mountinfo", "/proc/self/cgroup");
    if (!place.base) {
        print_message("SKIPPED: the kernel's own limit: %s\n", place.why);
        memory_place_release(&place);
        skip();
        return;
    }
    for (int greedy = 0; greedy < 2; greedy++) {
        struct error err = {0};
        char why[256] = "", *run = run_directory(), *group = memory_group_make(&place, TAG, 32 << 20, &err);
        if (!group)
            fail_msg("%s", err.text);
        assert_int_equal(memory_watch_begin(run, group, 32 << 20, NULL), 0);
        pid_t child = fork();
        if (child == 0) {
            put(group, "cgroup.procs", "0");
            char *memory = greedy ? malloc(256 << 20) : NULL;
            if (memory)
                memset(memory, 1, 256 << 20);
            raise(SIGKILL);
        }
        waitpid(child, NULL, 0);
        memory_watch_end(run, 1);
        assert_int_equal(memory_verdict(run, 1, why, sizeof why), greedy ? MEMORY_ENDED : MEMORY_NOT);
        assert_false(file_exists(group));
        free(group);
        free(run);
    }
    memory_place_release(&place);
}

// What the kernel kills in somebody else's group is no evidence of ours: a run that a person killed meanwhile was not out of memory.
static void test_kills_of_others(void **state)
{
    (void)state;
    char group[128];
    snprintf(group, sizeof group, "/sys/fs/cgroup/memory/switchyard-test-%d", (int)getpid());
    if (__real_mkdir(group, 0755) != 0) {
        print_message("SKIPPED: no memory group of version 1 can be made here\n");
        skip();
        return;
    }
    int64_t before = memory_kills();
    put(group, "memory.limit_in_bytes", "33554432");
    pid_t child = fork();
    if (child == 0) {
        put(group, "cgroup.procs", "0");
        volatile char *memory = malloc(256 << 20);
        for (size_t i = 0; memory && i < 256 << 20; i += 4096)
            memory[i] = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    int64_t after = memory_kills();
    assert_int_equal(__real_rmdir(group), 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(before >= 0);
    assert_int_equal(after, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_busy_group),
        cmocka_unit_test(test_ending_group),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_looked_at),
        cmocka_unit_test(test_of_process),
        cmocka_unit_test(test_real_group),
        cmocka_unit_test(test_kills_of_others),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
