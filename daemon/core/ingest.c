// Reading what the worker wrote: records.jsonl of each attempt, in order, by offset. A batch goes to Trackio first (twice changes nothing
// there: each line has its identifier), then to our database together with the cursor, in one transaction; a crash in between repeats the
// batch. A run that writes faster than it is read gets its share of each tick and no more.
#include "daemon/core/chunk.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_LINES = 16 };

// To Trackio, without the lock: this may wait for another client's. 0, 1 later, -1.
static int write_trackio(struct daemon *daemon, const struct view *view, const struct item *items, size_t count, struct error *err)
{
    const struct json *lines[CHUNK_LINES];
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (item_is_trackio(&items[i]))
            lines[used++] = items[i].line;
    return used ? trackio_write(daemon->writer, view->project, lines, used, err) : 0;
}

static int keep_aside(
    struct daemon *daemon, const struct view *view, struct watch *watch, int64_t attempt, const struct item *item, struct error *err)
{
    if (watch->malformed_attempt != attempt) {
        char text[256];
        snprintf(text, sizeof text, "attempt %lld: the line at byte %lld of %s is malformed (%s): kept aside, with any that follow",
            (long long)attempt, (long long)item->offset, RECORDS_FILE, item->why);
        core_event(daemon, view->id, "malformed", text, "daemon", clock_wall());
        watch->malformed_attempt = attempt;
    }
    return state_keep_aside(daemon->state, view->id, attempt, item->offset, item->raw, item->bytes, item->why, err);
}

// Our part of a batch and the cursor behind it.
static int store_items(struct daemon *daemon, const struct view *view, struct watch *watch, const struct item *items, size_t count,
    struct attempt_row *attempt, struct error *err)
{
    int status = change_begin(daemon, err);
    if (status != 0)
        return -1;
    for (size_t i = 0; i < count && status == 0; i++)
        status = items[i].line ? store_line(daemon, view, watch, attempt->number, items[i].line, err)
                               : keep_aside(daemon, view, watch, attempt->number, &items[i], err);
    if (status == 0)
        status = state_put_attempt(daemon->state, attempt, err);
    return change_end(daemon, status, err);
}

// The start of a resumed attempt sets the older rows aside first. attempt's cursor says where the batch ends.
static int store_batch(struct daemon *daemon, const struct view *view, struct watch *watch, const struct item *items, size_t count,
    struct attempt_row *attempt, struct error *err)
{
    int status = 0;
    if (attempt->number > 1 && item_is(&items[0], "start"))
        status = supersede(daemon, view, attempt->number, js_integer_of(js_get(items[0].line, "resumed_from"), 0) + 1, err);
    if (status == 0)
        status = write_trackio(daemon, view, items, count, err);
    return status == 0 ? store_items(daemon, view, watch, items, count, attempt, err) : status;
}

// A start line is a batch by itself: what it sets aside is stored before its rows come, and the cursor is behind it before the first of them
// is in Trackio. A daemon killed in between would else set the attempt's own rows aside when it does the batch again. 0, 1 later, -1.
static int store_chunk(struct daemon *daemon, const struct view *view, struct watch *watch, const struct chunk *chunk,
    const struct record_reader *reader, struct attempt_row *attempt, struct error *err)
{
    for (size_t first = 0, last; first < chunk->count; first = last) {
        last = first + 1;
        bool alone = item_is(&chunk->items[first], "start");
        while (!alone && last < chunk->count && !item_is(&chunk->items[last], "start"))
            last++;
        struct attempt_row moved = *attempt;
        moved.ingest_offset = last < chunk->count ? chunk->items[last].offset : reader->offset;
        moved.ingest_sequence += (int64_t)(last - first);
        int status = store_batch(daemon, view, watch, &chunk->items[first], last - first, &moved, err);
        if (status != 0)
            return status;
        attempt->ingest_offset = moved.ingest_offset;
        attempt->ingest_sequence = moved.ingest_sequence;
    }
    return 0;
}

// What is left of a line whose writer is gone: nothing of it is dropped either.
static int store_torn(
    struct daemon *daemon, const struct view *view, struct watch *watch, const char *path, struct attempt_row *attempt, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); // a FIFO in its place is not waited for
    if (fd < 0)
        return error_errno(err, "%s", path);
    struct item item = {.raw = allocate(RECORD_LINE_MAX, 1), .why = "torn: its writer ended", .offset = attempt->ingest_offset};
    ssize_t got = pread(fd, item.raw, RECORD_LINE_MAX - 1, item.offset);
    close(fd);
    int status = 0;
    if (got > 0) {
        item.bytes = (size_t)got;
        struct attempt_row moved = *attempt;
        moved.ingest_offset += got;
        moved.ingest_sequence++;
        status = store_items(daemon, view, watch, &item, 1, &moved, err);
        if (status == 0)
            *attempt = moved;
    }
    free(item.raw);
    return status;
}

static void complain(struct daemon *daemon, const struct view *view, struct watch *watch, const char *text)
{
    if (watch->trackio_waits)
        return;
    watch->trackio_waits = true;
    core_log("%s/%s: %s", view->project, view->name, text);
    change_event(daemon, view, "warning", text, "daemon");
}

// How many lines to read next: as many as the bytes that are left of this tick's share hold, going by the lines seen so far.
static int64_t lines_next(int64_t lines, size_t bytes)
{
    if (lines == 0)
        return FIRST_LINES;
    size_t fit = (INGEST_BYTES - bytes) / (bytes / (size_t)lines + 1) + 1;
    return fit < CHUNK_LINES ? (int64_t)fit : CHUNK_LINES;
}

// A directory, a FIFO or the like where a file should be. A file that only cannot be read now is none of these.
static bool is_something_else(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

// One attempt's file, at most a share of it. True when all of it is in the store.
static bool ingest_attempt(struct daemon *daemon, const struct view *view, struct watch *watch, struct attempt_row *attempt, bool over)
{
    char *path = run_attempt_file(view->directory, attempt->number, RECORDS_FILE);
    struct chunk *chunk = allocate(1, sizeof *chunk);
    chunk->view = view;
    struct error err = {0};
    int64_t lines = 0, got = 1;
    size_t bytes = 0;
    int status = 0;
    while (status == 0 && got > 0 && bytes < INGEST_BYTES && (lines == 0 || !budget_is_spent(daemon))) {
        struct record_reader reader = {attempt->ingest_offset, attempt->ingest_sequence};
        got = record_read(&reader, path, lines_next(lines, bytes), chunk_take, chunk, &err);
        if (got > 0)
            status = store_chunk(daemon, view, watch, chunk, &reader, attempt, &err);
        lines += got > 0 ? got : 0;
        bytes += chunk->bytes;
        chunk_clear(chunk);
    }
    watch->behind = status == 0 && got > 0;
    int64_t size = file_size(path);
    if (status == 0 && got == 0 && over && size > attempt->ingest_offset)
        status = store_torn(daemon, view, watch, path, attempt, &err);
    if (status < 0 || got < 0)
        complain(daemon, view, watch, err.text);
    else if (status > 0)
        complain(daemon, view, watch, "Trackio's lock is held by another client: rows wait here until it is free");
    else
        watch->trackio_waits = false;
    free(chunk);
    // A file that was cut, or something else in its place, holds nothing that is still to be read; that has been complained about.
    bool nothing = (size >= 0 && size < attempt->ingest_offset) || (got < 0 && size < 0 && is_something_else(path));
    free(path);
    return nothing || (status == 0 && got == 0 && size <= attempt->ingest_offset);
}

// The run appears in Trackio as soon as it has begun, with its configuration.
static void announce(struct daemon *daemon, const struct view *view, struct watch *watch)
{
    struct error err = {0};
    struct run_row row;
    pthread_mutex_lock(&daemon->lock);
    int found = state_get_run(daemon->state, view->id, &row, &err);
    if (found == 0)
        series_need(daemon, &row); // what an earlier daemon has stored comes first: later rows are added to it
    pthread_mutex_unlock(&daemon->lock);
    if (found != 0)
        return;
    char when[CLOCK_TEXT];
    clock_text(when, row.created);
    struct json *config = spec_shown(&row);
    js_set(config, "_Created", js_string(when));
    js_set(config, "_Username", js_null());
    js_set(config, "_Group", js_null());
    js_set(config, "provenance", row.provenance ? js_keep(row.provenance) : js_null());
    js_set(config, "plan", row.plan ? js_keep(row.plan) : js_null());
    int status = trackio_announce(daemon->writer, view->project, view->name, view->run_id, config, &err);
    watch->announced = status == 0;
    if (status < 0)
        complain(daemon, view, watch, err.text);
    js_free(config);
    run_row_release(&row);
}

// An attempt that nobody watches any more is over by its own end record, if it left no other.
static void settle_code(struct daemon *daemon, const struct view *view, int64_t number)
{
    struct attempt_row attempt;
    struct error err = {0};
    if (view->watch->end_attempt != number)
        return;
    if (!change_begin_of(daemon, view, &err))
        return;
    int status = state_get_attempt(daemon->state, view->id, number, &attempt, &err);
    if (status == 0) {
        bool known = attempt.ended == 0 || attempt.code >= 0;
        attempt.code = known ? attempt.code : view->watch->end_code;
        status = known ? 0 : state_put_attempt(daemon->state, &attempt, &err);
        attempt_row_release(&attempt);
    }
    change_end_of(daemon, view, status < 0 ? status : 0, &err);
}

bool ingest_run(struct daemon *daemon, const struct view *view, bool over)
{
    struct watch *watch = view->watch;
    int64_t last = run_last_attempt(view->directory);
    if (last == 0)
        return true;
    if (!watch->announced && strcmp(view->kind, "train") == 0)
        announce(daemon, view, watch);
    if (!watch->announced && strcmp(view->kind, "train") == 0)
        return false;
    for (int64_t number = watch->ingest_attempt; number <= last; number++) {
        struct attempt_row attempt;
        if (attempt_of(daemon, view, number, &attempt) != 0)
            return false;
        bool complete = ingest_attempt(daemon, view, watch, &attempt, over || number < last);
        attempt_row_release(&attempt);
        if (!complete)
            return false;
        if (number < last)
            settle_code(daemon, view, number);
        watch->ingest_attempt = number;
    }
    return true;
}
