// Writing records.jsonl: one line, one write(2), fenced by the next attempt's directory.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct record_writer {
    int fd;
    char *path;
    char *next_attempt; // the directory whose existence means that we are no longer the run's writer
    char *project, *name, *run_id;
    int64_t attempt;
    int64_t metrics, alerts; // lines of these kinds so far in this attempt
    bool torn;               // the file ends within a line
    bool fenced;
    struct text line;
};

void record_identifier(char out[RECORD_IDENTIFIER], const char *run_id, int64_t attempt, int64_t sequence)
{
    char *recipe = string_format("%s/%lld/%lld", run_id, (long long)attempt, (long long)sequence);
    char digest[HASH_HEX];
    hash_bytes(digest, recipe, strlen(recipe));
    memcpy(out, digest, RECORD_IDENTIFIER - 1);
    out[RECORD_IDENTIFIER - 1] = 0;
    free(recipe);
}

static void count_line(void *context, const struct json *line, const char *raw, size_t raw_bytes, int64_t offset)
{
    struct record_writer *writer = context;
    (void)raw;
    (void)raw_bytes;
    (void)offset;
    const char *kind = js_string_of(js_get(line, "kind"), "");
    writer->metrics += strcmp(kind, "metric") == 0;
    writer->alerts += strcmp(kind, "alert") == 0;
}

// Finds out what an earlier writer of this attempt left in the file.
static int count_existing(struct record_writer *writer, struct error *err)
{
    struct record_reader reader = {0};
    int64_t taken;
    while ((taken = record_read(&reader, writer->path, 1 << 16, count_line, writer, err)) > 0)
        continue;
    writer->torn = reader.offset < file_size(writer->path);
    return taken < 0 ? -1 : 0;
}

struct record_writer *record_writer_open(const char *run_directory, int64_t attempt, const char *project, const char *name,
    const char *run_id, struct error *err)
{
    struct record_writer *writer = allocate(1, sizeof *writer);
    writer->path = run_attempt_file(run_directory, attempt, RECORDS_FILE);
    writer->next_attempt = run_attempt_directory(run_directory, attempt + 1);
    writer->project = string_copy(project);
    writer->name = string_copy(name);
    writer->run_id = string_copy(run_id);
    writer->attempt = attempt;
    text_init(&writer->line, RECORD_LINE_MAX);
    writer->fd = open(writer->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (writer->fd < 0)
        error_errno(err, "%s", writer->path);
    else if (count_existing(writer, err) == 0)
        return writer;
    record_writer_close(writer);
    return NULL;
}

void record_writer_close(struct record_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    text_release(&writer->line);
    free(writer->path);
    free(writer->next_attempt);
    free(writer->project);
    free(writer->name);
    free(writer->run_id);
    free(writer);
}

bool record_fenced(const struct record_writer *writer)
{
    return writer->fenced;
}

// Cuts off what a failed write left behind; if even that fails, the next line begins with a newline.
static int take_back(struct record_writer *writer, off_t before, struct error *err)
{
    error_errno(err, "%s", writer->path);
    if (before < 0 || ftruncate(writer->fd, before) != 0)
        writer->torn = true;
    return -1;
}

static int put_line(struct record_writer *writer, struct error *err)
{
    if (writer->fenced || file_exists(writer->next_attempt)) {
        writer->fenced = true;
        return error_set(err, "attempt %lld is fenced: %s exists, so a newer attempt is the run's only writer", (long long)writer->attempt,
            writer->next_attempt);
    }
    off_t before = lseek(writer->fd, 0, SEEK_END);
    ssize_t put;
    do
        put = write(writer->fd, writer->line.at, writer->line.length);
    while (put < 0 && errno == EINTR);
    if (put < 0)
        return take_back(writer, before, err);
    if ((size_t)put < writer->line.length) {
        errno = ENOSPC;
        return take_back(writer, before, err);
    }
    writer->torn = false;
    return 0;
}

// Writes the object as one line and ends its life.
static int put(struct record_writer *writer, struct json *object, struct error *err)
{
    text_clear(&writer->line);
    if (writer->torn)
        text_add(&writer->line, "\n");
    js_write(&writer->line, object);
    text_add(&writer->line, "\n");
    js_free(object);
    if (writer->line.overflowed)
        return error_set(err, "a record of more than %d bytes is refused", RECORD_LINE_MAX);
    return put_line(writer, err);
}

static struct json *now(void)
{
    char text[CLOCK_TEXT];
    clock_text(text, clock_wall());
    return js_string(text);
}

static struct json *begin_line(const struct record_writer *writer, const char *kind, bool named)
{
    struct json *object = js_object();
    js_set(object, "kind", js_string(kind));
    js_set(object, "v", js_integer(1));
    if (named) {
        js_set(object, "project", js_string(writer->project));
        js_set(object, "run", js_string(writer->name));
    }
    js_set(object, "run_id", js_string(writer->run_id));
    if (!named)
        js_set(object, "attempt", js_integer(writer->attempt));
    return object;
}

static struct json *identifier(const struct record_writer *writer, int64_t sequence)
{
    char text[RECORD_IDENTIFIER];
    record_identifier(text, writer->run_id, writer->attempt, sequence);
    return js_string(text);
}

int record_metrics(struct record_writer *writer, int64_t step, struct json *metrics, struct error *err)
{
    struct json *object = begin_line(writer, "metric", true);
    js_set(object, "metrics", metrics);
    js_set(object, "step", js_integer(step));
    js_set(object, "timestamp", now());
    js_set(object, "config", js_null());
    js_set(object, "log_id", identifier(writer, writer->metrics));
    if (put(writer, object, err) != 0)
        return -1;
    writer->metrics++;
    return 0;
}

int record_alert(struct record_writer *writer, int64_t step, const char *level, const char *title, const char *text, struct error *err)
{
    struct json *object = begin_line(writer, "alert", true);
    js_set(object, "title", js_string(title));
    js_set(object, "text", js_string(text));
    js_set(object, "level", js_string(level));
    js_set(object, "step", js_integer(step));
    js_set(object, "timestamp", now());
    js_set(object, "alert_id", identifier(writer, writer->alerts));
    if (put(writer, object, err) != 0)
        return -1;
    writer->alerts++;
    return 0;
}

int record_event(struct record_writer *writer, int64_t step, const char *event, const char *text, struct error *err)
{
    struct json *object = begin_line(writer, "event", false);
    js_set(object, "event", js_string(event));
    js_set(object, "text", js_string(text));
    js_set(object, "step", js_integer(step));
    js_set(object, "timestamp", now());
    return put(writer, object, err);
}

int record_other(struct record_writer *writer, const char *kind, struct json *members, struct error *err)
{
    struct json *object = begin_line(writer, kind, false);
    for (void *item = js_first(members); item; item = js_next(members, item))
        js_set(object, js_key(item), js_keep(js_value(item)));
    js_set(object, "timestamp", now());
    js_free(members);
    return put(writer, object, err);
}
