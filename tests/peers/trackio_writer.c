// Drives our Trackio store from a script, as the daemon does:
//   trackio_writer DIRECTORY announce PROJECT RUN RUN_ID CONFIG.json
//   trackio_writer DIRECTORY write PROJECT RECORDS.jsonl BATCH PAUSE_MS     all lines, BATCH at a time; waits while others hold the lock
//   trackio_writer DIRECTORY records PROJECT RUN RUN_ID ROWS                DIRECTORY is a run's: makes attempt-1/records.jsonl
#include "daemon/store/trackio.h"
#include "schema/base/file.h"
#include "schema/record/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES_MAX = 200000, CONFIG_MAX = 1 << 20 };

static int fail(const struct error *err)
{
    fprintf(stderr, "%s\n", err->text);
    return 1;
}

static int announce(struct trackio *trackio, char **words, struct error *err)
{
    struct json *config = js_read_file(words[3], CONFIG_MAX, err);
    if (!config)
        return -1;
    int status;
    while ((status = trackio_announce(trackio, words[0], words[1], words[2], config, err)) == 1)
        continue;
    js_free(config);
    return status;
}

struct lines {
    const struct json **at;
    size_t count;
};

static void take(void *context, const struct json *line, const char *raw, size_t raw_bytes, int64_t offset)
{
    struct lines *lines = context;
    (void)raw;
    (void)raw_bytes;
    (void)offset;
    if (line && trackio_check_line(line, NULL) == 0 && lines->count < LINES_MAX)
        lines->at[lines->count++] = js_keep(line);
}

static int write_lines(struct trackio *trackio, char **words, struct error *err)
{
    struct lines lines = {.at = allocate(LINES_MAX, sizeof *lines.at)};
    struct record_reader reader = {0};
    size_t batch = (size_t)atoll(words[2]), waits = 0;
    int status = record_read(&reader, words[1], LINES_MAX, take, &lines, err) < 0 ? -1 : 0;
    for (size_t i = 0; i < lines.count && status == 0; i += batch) {
        size_t count = lines.count - i < batch ? lines.count - i : batch;
        while ((status = trackio_write(trackio, words[0], lines.at + i, count, err)) == 1)
            waits++;
        usleep((useconds_t)atoi(words[3]) * 1000);
    }
    for (size_t i = 0; i < lines.count; i++)
        js_free((struct json *)(uintptr_t)lines.at[i]);
    free(lines.at);
    printf("%zu lines, %zu times others held the lock\n", lines.count, waits);
    return status;
}

static int make_records(const char *directory, char **words, struct error *err)
{
    char *attempt = path_join(directory, "attempt-1");
    struct record_writer *writer = directory_make(attempt, err) == 0 ? record_writer_open(directory, 1, words[0], words[1], words[2], err) : NULL;
    free(attempt);
    if (!writer)
        return -1;
    int status = record_event(writer, 0, "resumed", "from nothing", err);
    for (int64_t step = 1; step <= atoll(words[3]) && status == 0; step++) {
        struct json *metrics = js_object(), *load = js_object();
        js_set(metrics, "loss", step == 3 ? js_real(1.0 / 0.0) : js_real(10.0 / (double)step));
        js_set(metrics, "tokens", js_integer(step * 2048));
        status = record_metrics(writer, step, metrics, err);
        js_set(load, "step", js_integer(step));
        if (status == 0)
            status = record_other(writer, "expert_load", load, err);
        else
            js_free(load);
    }
    if (status == 0)
        status = record_alert(writer, 3, "error", "non-finite loss", "loss is Infinity", err);
    record_writer_close(writer);
    return status;
}

int main(int count, char **words)
{
    struct error err = {0};
    if (count == 7 && strcmp(words[2], "records") == 0)
        return make_records(words[1], words + 3, &err) == 0 ? 0 : fail(&err);
    struct trackio *trackio = NULL;
    if (count != 7 || trackio_open(&trackio, words[1], &err) != 0)
        return count != 7 ? 2 : fail(&err);
    int status = strcmp(words[2], "announce") == 0 ? announce(trackio, words + 3, &err) : write_lines(trackio, words + 3, &err);
    trackio_close(trackio);
    return status == 0 ? 0 : fail(&err);
}
