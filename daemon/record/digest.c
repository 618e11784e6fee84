// SHA-256 of files, remembered: an image of 20 GB is read once, not at every submission. A line of the memory is
// "<sha256> <size> <mtime> <ctime> <inode> <device> <path>", times in nanoseconds; the path is for people, the rest is the key.
#include "daemon/record/inside.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY_MAX = 16 << 20 };
static const int64_t settled_ns = 2000000000; // a file that changed this lately could change again under the same time stamp

struct digests {
    char *path;
    struct text known; // the memory, as on disk
};

struct digests *digests_open(const char *path)
{
    struct digests *digests = allocate(1, sizeof *digests);
    digests->path = string_copy(path);
    text_init(&digests->known, MEMORY_MAX);
    if (path && file_exists(path) && file_read(path, &digests->known, NULL) != 0) {
        text_clear(&digests->known); // unreadable or overgrown: begin anew
        unlink(path);
    }
    return digests;
}

void digests_close(struct digests *digests)
{
    free(digests->path);
    text_release(&digests->known);
    free(digests);
}

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static char *key_of(const struct stat *info)
{
    return string_format(" %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 " ", (int64_t)info->st_size, nanoseconds(&info->st_mtim),
        nanoseconds(&info->st_ctim), (uint64_t)info->st_ino, (uint64_t)info->st_dev);
}

static bool recall(const struct digests *digests, const char *key, char hex[HASH_HEX])
{
    const char *at = digests->known.length ? strstr(digests->known.at, key) : NULL;
    if (!at || at - digests->known.at < HASH_HEX - 1 || strspn(at - (HASH_HEX - 1), "0123456789abcdef") != HASH_HEX - 1)
        return false;
    memcpy(hex, at - (HASH_HEX - 1), HASH_HEX - 1);
    hex[HASH_HEX - 1] = 0;
    return true;
}

// One appended line, whole: daemons of two homes may share nothing here, threads of one do. Failing to remember is no fault of the run.
static void remember(struct digests *digests, const char *key, const char *hex, const char *path)
{
    if (!digests->path || strchr(path, '\n'))
        return;
    char *line = string_format("%s%s%s\n", hex, key, path);
    text_add(&digests->known, line);
    int fd = open(digests->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        ssize_t put = write(fd, line, strlen(line));
        (void)put;
        close(fd);
    }
    free(line);
}

static bool is_settled(const struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return nanoseconds(&now) - nanoseconds(&info->st_mtim) > settled_ns && nanoseconds(&now) - nanoseconds(&info->st_ctim) > settled_ns;
}

static int digest(struct digests *digests, const char *path, const struct stat *before, char hex[HASH_HEX], struct error *err)
{
    char *key = key_of(before);
    struct stat after;
    int status = 0;
    if (!recall(digests, key, hex)) {
        status = hash_file(hex, path, err);
        if (status == 0 && stat(path, &after) != 0)
            status = error_errno(err, "%s", path);
        char *key_after = status == 0 ? key_of(&after) : NULL;
        if (key_after && strcmp(key, key_after) != 0)
            status = error_set(err, "%s: changed while it was read", path);
        else if (key_after && is_settled(before))
            remember(digests, key, hex, path);
        free(key_after);
    }
    free(key);
    return status;
}

struct json *digest_of_file(struct digests *digests, const char *path, struct error *err)
{
    struct stat info;
    char hex[HASH_HEX];
    if (stat(path, &info) != 0)
        return error_errno(err, "%s", path), NULL;
    if (!S_ISREG(info.st_mode))
        return error_set(err, "%s: not a regular file", path), NULL;
    if (digest(digests, path, &info, hex, err) != 0)
        return NULL;
    struct json *answer = js_object();
    js_set(answer, "path", js_string(path));
    js_set(answer, "size", js_integer((int64_t)info.st_size));
    js_set(answer, "sha256", js_string(hex));
    return answer;
}
