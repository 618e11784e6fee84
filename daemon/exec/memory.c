#include "daemon/exec/memory.h"
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAEMON_GROUP GROUP_PREFIX "daemon"
enum { GROUP_FILE_MAX = 64 << 10, MEMORY_FILE_MAX = 64 << 10 };

// ---- files of a group ----

// Its content, or NULL. Files of the kernel have no size: read until they end.
static char *read_group(const char *group, const char *name)
{
    char *path = path_join(group, name);
    struct text text;
    text_init(&text, GROUP_FILE_MAX);
    int status = file_read(path, &text, NULL);
    free(path);
    if (status == 0)
        return text_take(&text);
    text_release(&text);
    return NULL;
}

// Only into files that are there: the kernel makes them. 0, or -1 with errno.
static int write_group(const char *group, const char *name, const char *value)
{
    char *path = path_join(group, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    free(path);
    if (fd < 0)
        return -1;
    ssize_t put = write(fd, value, strlen(value));
    int fault = errno;
    close(fd);
    errno = fault;
    return put == (ssize_t)strlen(value) ? 0 : -1;
}

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\n' || at[length] == '\0'))
            return true;
    return false;
}

// "name value" lines, as in memory.events. -1: no such line.
static int64_t event_count(const char *group, const char *file, const char *name)
{
    char *lines = read_group(group, file), *rest = NULL;
    int64_t found = -1;
    for (char *line = lines ? strtok_r(lines, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        char key[32];
        long long count;
        if (sscanf(line, "%31s %lld", key, &count) == 2 && strcmp(key, name) == 0)
            found = count;
    }
    free(lines);
    return found;
}

// ---- where groups can be made ----

static char *whole_file(const char *path)
{
    struct text text;
    text_init(&text, 1 << 20);
    if (file_read(path, &text, NULL) == 0)
        return text_take(&text);
    text_release(&text);
    return NULL;
}

// The kernel writes blanks and the like as \ooo.
static void undo_escapes(char *text)
{
    char *out = text;
    for (const char *at = text; *at; out++) {
        unsigned byte = 0;
        if (at[0] == '\\' && strspn(at + 1, "01234567") >= 3 && sscanf(at + 1, "%3o", &byte) == 1) {
            *out = (char)byte;
            at += 4;
        } else {
            *out = *at++;
        }
    }
    *out = '\0';
}

// Where version 2 is mounted, and which part of it: lines are "id parent device root point options … - type source options".
static bool find_mount(const char *mounts, char *root, char *point, size_t size)
{
    char *lines = whole_file(mounts), *rest = NULL;
    bool found = false;
    for (char *line = lines ? strtok_r(lines, "\n", &rest) : NULL; line && !found; line = strtok_r(NULL, "\n", &rest)) {
        const char *type = strstr(line, " - ");
        char format[64];
        snprintf(format, sizeof format, "%%*s %%*s %%*s %%%zus %%%zus", size - 1, size - 1);
        found = type && strncmp(type + 3, "cgroup2 ", 8) == 0 && sscanf(line, format, root, point) == 2;
    }
    free(lines);
    undo_escapes(root);
    undo_escapes(point);
    return found;
}

// Our own group within the hierarchy of version 2: the line "0::/path".
static bool find_own(const char *own, char *path, size_t size)
{
    char *lines = whole_file(own), *rest = NULL;
    bool found = false;
    for (char *line = lines ? strtok_r(lines, "\n", &rest) : NULL; line && !found; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "0::/", 4) == 0 && strlen(line + 3) < size)
            found = strcpy(path, line + 3) != NULL;
    free(lines);
    return found;
}

static char *own_directory(const char *mounts, const char *own, struct error *err)
{
    enum { PATH_BYTES = 4096 };
    char root[PATH_BYTES] = "", point[PATH_BYTES] = "", path[PATH_BYTES] = "";
    if (!find_mount(mounts, root, point, PATH_BYTES) || !find_own(own, path, PATH_BYTES)) {
        error_set(err, "this machine has no control groups of version 2");
        return NULL;
    }
    const char *inside = path;
    size_t length = strlen(root);
    if (strcmp(root, "/") != 0 && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == '\0'))
        inside = path + length;
    else if (strcmp(root, "/") != 0 || strstr(path, "/..")) {
        error_set(err, "the daemon's own control group is outside what is mounted here");
        return NULL;
    }
    // A daemon that was started by another one's leaf has its groups beside that leaf.
    size_t end = strlen(inside), leaf = strlen("/" DAEMON_GROUP);
    if (end >= leaf && strcmp(inside + end - leaf, "/" DAEMON_GROUP) == 0)
        end -= leaf;
    while (end > 0 && inside[end - 1] == '/')
        end--;
    return string_format("%s%.*s", point, (int)end, inside);
}

// Children get the memory controller. Where the kernel refuses because the group has processes, this one steps aside; if others stay in the
// group, it comes back.
static int divide(const char *base, struct error *err)
{
    char *given = read_group(base, "cgroup.subtree_control");
    bool divided = has_word(given, "memory");
    free(given);
    if (divided || write_group(base, "cgroup.subtree_control", "+memory") == 0)
        return 0;
    if (errno != EBUSY)
        return error_errno(err, "%s is not ours to divide", base);
    char *leaf = path_join(base, DAEMON_GROUP);
    int status = -1;
    if ((mkdir(leaf, 0755) != 0 && errno != EEXIST) || write_group(leaf, "cgroup.procs", "0") != 0)
        error_errno(err, "%s", leaf);
    else if (write_group(base, "cgroup.subtree_control", "+memory") == 0)
        status = 0;
    else
        error_set(err, "%s has other processes than the daemon in it", base);
    if (status != 0) {
        write_group(base, "cgroup.procs", "0");
        rmdir(leaf);
    }
    free(leaf);
    return status;
}

void memory_place_find(struct memory_place *place, const char *mounts, const char *own)
{
    *place = (struct memory_place){0};
    struct error err = {0};
    char *base = own_directory(mounts, own, &err);
    char *controllers = base ? read_group(base, "cgroup.controllers") : NULL;
    if (base && !has_word(controllers, "memory"))
        error_set(&err, "%s has no memory controller", base);
    else if (base && access(base, W_OK) != 0)
        error_errno(&err, "%s is not ours to divide", base);
    else if (base && divide(base, &err) == 0) {
        place->base = base;
        base = NULL;
    }
    snprintf(place->why, sizeof place->why, "%.255s", place->base ? "" : err.text);
    free(controllers);
    free(base);
}

void memory_place_release(struct memory_place *place)
{
    free(place->base);
    *place = (struct memory_place){0};
}

// ---- the group of a run ----

char *memory_group_make(const struct memory_place *place, const char *tag, int64_t limit, struct error *err)
{
    if (!place->base) {
        error_set(err, "%s", place->why);
        return NULL;
    }
    char *name = string_format(GROUP_PREFIX "%s", tag), *group = path_join(place->base, name), most[32] = "max";
    if (limit > 0)
        snprintf(most, sizeof most, "%lld", (long long)limit);
    free(name);
    rmdir(group); // of an attempt before: its counters are not this one's
    bool made = mkdir(group, 0755) == 0;
    // All of the command's processes go at once: half a job only hangs. Swap, where there is any, would hide the limit.
    if (made && write_group(group, "memory.max", most) == 0 && write_group(group, "memory.oom.group", "1") == 0) {
        if (limit > 0)
            write_group(group, "memory.swap.max", "0");
        return group;
    }
    error_errno(err, "%s", group);
    if (made)
        rmdir(group);
    free(group);
    return NULL;
}

// A path out of a file in a run directory: only what can be a group of ours is touched.
static bool is_group(const char *group)
{
    const char *name = group ? strrchr(group, '/') : NULL;
    size_t prefix = strlen(GROUP_PREFIX);
    if (!name || group[0] != '/' || strncmp(name + 1, GROUP_PREFIX, prefix) != 0 || strlen(name + 1) != prefix + 32 ||
        strspn(name + 1 + prefix, "0123456789abcdef") != 32)
        return false;
    char *counters = path_join(group, "memory.events");
    bool there = file_exists(counters);
    free(counters);
    return there;
}

// ---- what is written down ----

static int write_json(const char *path, struct json *json, struct error *err)
{
    struct text text;
    text_init(&text, MEMORY_FILE_MAX);
    js_write(&text, json);
    int status = file_write_atomic(path, text.at, text.length, 0644, err);
    text_release(&text);
    js_free(json);
    return status;
}

static struct json *bytes_or_null(int64_t bytes)
{
    return bytes > 0 ? js_integer(bytes) : js_null();
}

int memory_watch_begin(const char *run_directory, const char *group, int64_t limit, struct error *err)
{
    char *path = path_join(run_directory, MEMORY_FILE);
    int status = 0;
    if (group || limit > 0) {
        struct json *json = js_object();
        js_set(json, "v", js_integer(1));
        js_set(json, "group", js_string(group));
        js_set(json, "limit", bytes_or_null(limit));
        status = write_json(path, json, err);
    } else if (unlink(path) != 0 && errno != ENOENT) {
        status = error_errno(err, "%s", path);
    }
    free(path);
    return status;
}

static struct json *read_watch(const char *run_directory)
{
    char *path = path_join(run_directory, MEMORY_FILE);
    struct json *watch = js_read_file(path, MEMORY_FILE_MAX, NULL);
    free(path);
    return watch;
}

char *memory_watch_group(const char *run_directory)
{
    struct json *watch = read_watch(run_directory);
    const char *group = js_string_of(js_get(watch, "group"), NULL);
    char *copy = is_group(group) ? string_copy(group) : NULL;
    js_free(watch);
    return copy;
}

static int write_outcome(
    const char *run_directory, int64_t attempt, const char *witness, int64_t limit, int64_t peak, int64_t kills, struct error *err)
{
    struct json *json = js_object();
    js_set(json, "v", js_integer(1));
    js_set(json, "witness", js_string(witness));
    js_set(json, "limit", bytes_or_null(limit));
    js_set(json, "peak", bytes_or_null(peak));
    js_set(json, "kills", js_integer(kills));
    char *path = run_attempt_file(run_directory, attempt, MEMORY_FILE);
    int status = write_json(path, json, err);
    free(path);
    return status;
}

static bool is_populated(const char *group)
{
    return event_count(group, "cgroup.events", "populated") == 1;
}

bool memory_watch_end(const char *run_directory, int64_t attempt)
{
    char *group = memory_watch_group(run_directory);
    if (!group || is_populated(group)) {
        bool ended = !group;
        free(group);
        return ended;
    }
    struct json *watch = read_watch(run_directory);
    int64_t kills = event_count(group, "memory.events", "oom_kill");
    char *most = read_group(group, "memory.peak"); // from Linux 5.19 on
    if (attempt > 0 && kills >= 0)
        write_outcome(run_directory, attempt, "control group", js_integer_of(js_get(watch, "limit"), 0), most ? atoll(most) : 0, kills, NULL);
    rmdir(group);
    free(most);
    js_free(watch);
    free(group);
    return true;
}

bool memory_watch_kill(const char *run_directory)
{
    char *group = memory_watch_group(run_directory);
    bool populated = group && is_populated(group);
    if (populated)
        write_group(group, "cgroup.kill", "1");
    free(group);
    return populated;
}

int memory_watch_exceeded(const char *run_directory, int64_t attempt, int64_t used, int64_t limit, struct error *err)
{
    return write_outcome(run_directory, attempt, "looked at", limit, used, 1, err);
}

enum memory_verdict memory_verdict(const char *run_directory, int64_t attempt, char *why, size_t size)
{
    char *path = run_attempt_file(run_directory, attempt, MEMORY_FILE);
    struct json *outcome = js_read_file(path, MEMORY_FILE_MAX, NULL);
    free(path);
    int64_t kills = js_integer_of(js_get(outcome, "kills"), -1), limit = js_integer_of(js_get(outcome, "limit"), 0);
    int64_t peak = js_integer_of(js_get(outcome, "peak"), 0);
    bool looked = strcmp(js_string_of(js_get(outcome, "witness"), ""), "looked at") == 0;
    js_free(outcome);
    if (kills <= 0)
        return kills < 0 ? MEMORY_UNKNOWN : MEMORY_NOT;
    if (looked)
        snprintf(why, size, "used %.1f MiB of memory, its limit is %.1f MiB (resources.memory)", (double)peak / 1048576, (double)limit / 1048576);
    else if (limit > 0)
        snprintf(why, size, "killed by the kernel: out of memory, its limit is %.1f MiB (resources.memory)", (double)limit / 1048576);
    else
        snprintf(why, size, "killed by the kernel: out of memory");
    return MEMORY_ENDED;
}

int64_t memory_of_process(pid_t pid)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, line, sizeof line - 1);
    close(fd);
    long long resident = 0, shared = 0;
    line[got > 0 ? got : 0] = '\0';
    if (sscanf(line, "%*d %lld %lld", &resident, &shared) != 2 || resident < shared)
        return 0;
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}

// The first line "oom_kill N" of the file; -1: there is none.
static int64_t kills_in(const char *path)
{
    char line[512];
    long long kills = -1;
    FILE *counters = fopen(path, "re");
    while (counters && kills < 0 && fgets(line, sizeof line, counters))
        if (sscanf(line, "oom_kill %lld", &kills) != 1)
            kills = -1;
    if (counters)
        fclose(counters);
    return kills;
}

// What counts is this process's own control group, of either version: who is killed in another one (a container beside this, a scheduler's
// job with a limit) is no business of ours. Only where there is no such counter, the machine's.
int64_t memory_kills(void)
{
    char paths[4][600] = {"/sys/fs/cgroup/memory.events", "", "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"}, line[512];
    FILE *own = fopen("/proc/self/cgroup", "re");
    while (own && fgets(line, sizeof line, own)) {
        const char *first = strstr(line, ":memory:");
        int length = (int)strcspn(line, "\n");
        if (strncmp(line, "0::", 3) == 0)
            snprintf(paths[0], sizeof paths[0], "/sys/fs/cgroup%.*s/memory.events", length - 3, line + 3);
        else if (first)
            snprintf(paths[1], sizeof paths[1], "/sys/fs/cgroup/memory%.*s/memory.oom_control", length - (int)(first + 8 - line), first + 8);
    }
    if (own)
        fclose(own);
    int64_t kills = -1;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && kills < 0; i++)
        kills = paths[i][0] ? kills_in(paths[i]) : -1;
    return kills;
}
