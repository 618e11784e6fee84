// The two small files by which a job says how it is: exit.json, written last by the job script, and the worker's heartbeat.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WITNESS_BYTES_MAX = 1 << 20 };

static double time_of(const struct json *value)
{
    const char *text = js_string_of(value, NULL);
    return text ? clock_parse(text) : js_real_of(value, NAN);
}

int exit_record_read(struct exit_record *record, const char *path, struct error *err)
{
    struct json *object = js_read_file(path, WITNESS_BYTES_MAX, err);
    if (!object)
        return -1;
    *record = (struct exit_record){
        .attempt = js_integer_of(js_get(object, "attempt"), -1),
        .code = js_integer_of(js_get(object, "code"), -1),
        .signal = (int)js_integer_of(js_get(object, "signal"), 0),
        .cancelled = js_boolean_of(js_get(object, "cancelled"), false),
        .started = time_of(js_get(object, "started")),
        .ended = time_of(js_get(object, "ended")),
        .ran = js_real_of(js_at(js_get(object, "uptime"), 1), NAN) - js_real_of(js_at(js_get(object, "uptime"), 0), NAN),
    };
    js_free(object);
    return record->attempt < 0 || record->code < 0 ? error_set(err, "%s: not an exit record: attempt or code is missing", path) : 0;
}

static void append_name(struct json *nodes, const struct json *name)
{
    const char *text = js_string_of(name, NULL);
    if (text && text[0])
        js_append(nodes, js_keep(name));
}

struct json *attempt_nodes(const char *run_directory, int64_t attempt)
{
    static const char *const files[] = {EXIT_FILE, BEGIN_FILE, HEARTBEAT_FILE};
    struct json *nodes = js_array();
    for (size_t f = 0; f < sizeof files / sizeof *files && js_count(nodes) == 0; f++) {
        char *path = run_attempt_file(run_directory, attempt, files[f]);
        struct json *object = js_read_file(path, WITNESS_BYTES_MAX, NULL);
        const struct json *told = js_get(object, "nodes");
        for (size_t i = 0; i < js_count(told); i++)
            append_name(nodes, js_at(told, i));
        if (!told)
            append_name(nodes, js_get(object, "host"));
        js_free(object);
        free(path);
    }
    return nodes;
}

// Which start of the machine this is, and in which world of process numbers: a pid says something there alone.
static void set_place(struct json *object)
{
    struct text boot;
    char space[64] = "";
    text_init(&boot, 64);
    ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (file_read("/proc/sys/kernel/random/boot_id", &boot, NULL) == 0 && length > 0) {
        boot.at[strcspn(boot.at, "\n")] = 0;
        js_set(object, "boot", js_string(boot.at));
        js_set(object, "pid_namespace", js_string(space));
    }
    text_release(&boot);
}

int heartbeat_write(const char *path, int64_t step, int64_t pid, struct error *err)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    struct json *object = js_object();
    js_set(object, "v", js_integer(1));
    js_set(object, "time", js_real(clock_wall()));
    js_set(object, "step", js_integer(step));
    js_set(object, "pid", js_integer(pid));
    js_set(object, "host", js_string(host));
    set_place(object);
    struct text bytes;
    text_init(&bytes, WITNESS_BYTES_MAX);
    js_write(&bytes, object);
    text_add(&bytes, "\n");
    js_free(object);
    int status = file_write_atomic(path, bytes.at, bytes.length, 0644, err);
    text_release(&bytes);
    return status;
}

double heartbeat_time(const char *path)
{
    struct json *object = js_read_file(path, WITNESS_BYTES_MAX, NULL);
    double time = time_of(js_get(object, "time"));
    js_free(object);
    return time;
}

int64_t heartbeat_step(const char *path)
{
    struct json *object = js_read_file(path, WITNESS_BYTES_MAX, NULL);
    int64_t step = js_integer_of(js_get(object, "step"), -1);
    js_free(object);
    return step;
}

static bool is_newer(const struct stat *one, const struct stat *other)
{
    const struct timespec *a = &one->st_mtim, *b = &other->st_mtim;
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

double attempt_last_beat(const char *run_directory, int64_t attempt)
{
    char *directory = run_attempt_directory(run_directory, attempt), *end_path = path_join(directory, EXIT_FILE);
    char *beat_path = path_join(directory, HEARTBEAT_FILE);
    struct stat end, beat, status;
    bool ended = stat(end_path, &end) == 0, beats = stat(beat_path, &beat) == 0;
    double time = NAN;
    if (!ended || (beats && is_newer(&beat, &end)))
        time = heartbeat_time(beat_path);
    if (isnan(time) && !ended && stat(directory, &status) == 0)
        time = (double)status.st_mtime;
    free(beat_path);
    free(end_path);
    free(directory);
    return time;
}
