// A worker for hundreds of runs at once on two cores: it writes what the real one writes, by the same code (records.jsonl, heartbeat.json, the
// stop file obeyed), one step a second, and computes nothing. Whatever is not `train RUN_DIR` it hands to the program `real-worker` beside it.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BEAT_STEPS = 5, RUN_FILE_MAX = 16 << 20 }; // a heartbeat every five seconds, as the real one's

static int fail(const struct error *err)
{
    fprintf(stderr, "slow worker: %s\n", err->text);
    return EXIT_FAILURE;
}

// The members of a step's line, as the real worker names them.
static struct json *metrics_of(int64_t step)
{
    struct json *metrics = js_object();
    js_set(metrics, "loss", js_real(5.0 / (1.0 + 0.01 * (double)step)));
    js_set(metrics, "grad_norm", js_real(1.0 + 1.0 / (double)step));
    js_set(metrics, "grad_zeros", js_integer(0));
    js_set(metrics, "learning_rate", js_real(1e-3));
    js_set(metrics, "step_time_ms", js_real(1000.0));
    js_set(metrics, "tokens_per_second", js_real(256.0));
    js_set(metrics, "tflops", js_real(0.001));
    js_set(metrics, "memory_mb", js_real(12.5));
    js_set(metrics, "tokens", js_integer(256 * step));
    return metrics;
}

static int finish(struct record_writer *writer, int code)
{
    struct json *end = js_object();
    js_set(end, "code", js_integer(code));
    record_other(writer, "end", end, NULL);
    record_writer_close(writer);
    return code;
}

static int train(const char *directory)
{
    struct error err = {0};
    char *path = path_join(directory, RUN_FILE), *stop = path_join(directory, STOP_FILE);
    struct json *run = js_read_file(path, RUN_FILE_MAX, &err);
    int64_t attempt = strtoll(getenv("SWITCHYARD_ATTEMPT") ? getenv("SWITCHYARD_ATTEMPT") : "1", NULL, 10);
    char *beat = run_attempt_file(directory, attempt, HEARTBEAT_FILE);
    struct record_writer *writer = run ? record_writer_open(directory, attempt, js_string_of(js_get(run, "project"), ""),
        js_string_of(js_get(run, "name"), ""), js_string_of(js_get(run, "run_id"), ""), &err) : NULL;
    if (!writer)
        return fail(&err);
    struct json *start = js_object();
    js_set(start, "resumed_from", js_null());
    record_other(writer, "start", start, NULL);
    int64_t iterations = js_integer_of(js_get(js_get(js_get(run, "spec"), "training"), "iterations"), 0);
    for (int64_t step = 1; step <= iterations; step++) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        if ((step - 1) % BEAT_STEPS == 0 && heartbeat_write(beat, step, getpid(), &err) != 0)
            return fail(&err);
        struct json *data = js_object();
        js_set(data, "step", js_integer(step));
        js_set(data, "samples_sha256", js_string("0000000000000000000000000000000000000000000000000000000000000000"));
        if (record_other(writer, "data", data, &err) != 0 || record_metrics(writer, step, metrics_of(step), &err) != 0)
            return fail(&err);
        if (file_exists(stop))
            return finish(writer, 75);
    }
    return finish(writer, 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "train") == 0)
        return train(argv[2]);
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 32);
    char *slash = length > 0 ? (self[length] = 0, strrchr(self, '/')) : NULL;
    if (!slash)
        return EXIT_FAILURE;
    strcpy(slash + 1, "real-worker");
    execv(self, argv);
    perror(self);
    return EXIT_FAILURE;
}
