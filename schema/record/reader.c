// Reading records.jsonl while it grows: whole lines only, each once, malformed ones too.
#include "schema/record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

struct window { // bytes of the file from reader->offset on
    int fd;
    char *at;
    size_t have, capacity;
    size_t used;    // of these, bytes already delivered
    size_t scanned; // of the rest, bytes known to hold no newline
};

// Reads on behind what the window has. Returns bytes read, 0 at the end of the file, -1 with errno.
static ssize_t window_fill(struct window *window, int64_t offset)
{
    if (window->used) {
        memmove(window->at, window->at + window->used, window->have - window->used);
        window->have -= window->used;
        window->used = 0;
    }
    if (window->have == window->capacity) {
        window->capacity = window->capacity ? window->capacity * 2 : BLOCK_BYTES;
        window->at = reallocate(window->at, window->capacity, 1);
    }
    ssize_t got;
    do
        got = pread(window->fd, window->at + window->have, window->capacity - window->have, (off_t)(offset + (int64_t)window->have));
    while (got < 0 && errno == EINTR);
    if (got > 0)
        window->have += (size_t)got;
    return got;
}

// Length of the next line without its newline, or SIZE_MAX if its end is not in the window. *taken: bytes it occupies in the file.
static size_t next_line(struct window *window, size_t *taken)
{
    const char *start = window->at + window->used;
    size_t rest = window->have - window->used;
    size_t reach = rest < RECORD_LINE_MAX ? rest : RECORD_LINE_MAX;
    const char *end = reach > window->scanned ? memchr(start + window->scanned, '\n', reach - window->scanned) : NULL;
    window->scanned = 0;
    if (end) {
        *taken = (size_t)(end - start) + 1;
        return *taken - 1;
    }
    if (reach == RECORD_LINE_MAX) {
        *taken = RECORD_LINE_MAX;
        return RECORD_LINE_MAX;
    }
    window->scanned = reach;
    return SIZE_MAX;
}

static struct json *parse_object(const char *bytes, size_t count)
{
    struct json *value = js_parse(bytes, count, NULL);
    if (value && js_kind(value) != JSON_KIND_OBJECT) {
        js_free(value);
        return NULL;
    }
    return value;
}

static int open_at(const char *path, int64_t offset, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_errno(err, "%s", path);
    struct stat info;
    int status = 0;
    if (fstat(fd, &info) != 0)
        status = error_errno(err, "%s", path);
    else if (!S_ISREG(info.st_mode))
        status = error_set(err, "%s: not a regular file", path);
    else if (info.st_size < offset)
        status = error_set(err, "%s: has %lld bytes, but %lld were read before: it was cut or replaced", path, (long long)info.st_size,
            (long long)offset);
    if (status == 0)
        return fd;
    close(fd);
    return -1;
}

int64_t record_read(struct record_reader *reader, const char *path, int64_t max_lines,
    void (*take)(void *context, const struct json *line, const char *raw, size_t raw_bytes, int64_t offset), void *context,
    struct error *err)
{
    if (reader->offset == 0 && access(path, F_OK) != 0 && errno == ENOENT)
        return 0;
    struct window window = {.fd = open_at(path, reader->offset, err)};
    if (window.fd < 0)
        return -1;
    int64_t lines = 0;
    while (lines < max_lines) {
        size_t taken = 0;
        size_t length = next_line(&window, &taken);
        if (length == SIZE_MAX) {
            ssize_t got = window_fill(&window, reader->offset);
            if (got < 0)
                lines = error_errno(err, "%s", path);
            if (got <= 0)
                break;
            continue;
        }
        const char *raw = window.at + window.used;
        struct json *line = taken > length ? parse_object(raw, length) : NULL;
        take(context, line, raw, length, reader->offset);
        js_free(line);
        window.used += taken;
        reader->offset += (int64_t)taken;
        reader->sequence++;
        lines++;
    }
    free(window.at);
    close(window.fd);
    return lines;
}
