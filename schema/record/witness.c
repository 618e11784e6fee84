// The two small files by which a job says how it is: exit.json, written last by the job script, and the worker's heartbeat.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/record.h"

#include <math.h>
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
        .started = time_of(js_get(object, "started")),
        .ended = time_of(js_get(object, "ended")),
        .ran = js_real_of(js_at(js_get(object, "uptime"), 1), NAN) - js_real_of(js_at(js_get(object, "uptime"), 0), NAN),
    };
    js_free(object);
    return record->attempt < 0 || record->code < 0 ? error_set(err, "%s: not an exit record: attempt or code is missing", path) : 0;
}

struct json *exit_record_nodes(const char *path)
{
    struct json *object = js_read_file(path, WITNESS_BYTES_MAX, NULL), *nodes = js_array();
    const struct json *told = js_get(object, "nodes");
    for (size_t i = 0; i < js_count(told); i++)
        if (js_string_of(js_at(told, i), NULL))
            js_append(nodes, js_keep(js_at(told, i)));
    js_free(object);
    return nodes;
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
