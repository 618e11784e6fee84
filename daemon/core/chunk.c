#include "daemon/core/chunk.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MAX (INT64_C(1) << 53) // what a browser can count to

// A line for Trackio must be this run's own and of the form that its importer needs: one wrong line would stop a whole inbox.
static const char *fault_of(const struct json *line, const struct view *view)
{
    const char *kind = js_string_of(js_get(line, "kind"), "");
    const char *run_id = js_string_of(js_get(line, "run_id"), "");
    if (!kind[0])
        return "no kind";
    if (strcmp(run_id, view->run_id) != 0)
        return "of another run";
    bool metric = strcmp(kind, "metric") == 0, system = strcmp(kind, "system_metric") == 0, alert = strcmp(kind, "alert") == 0;
    if (!metric && !system && !alert)
        return NULL;
    if (strcmp(js_string_of(js_get(line, "project"), ""), view->project) != 0 ||
        strcmp(js_string_of(js_get(line, "run"), ""), view->name) != 0)
        return "of another run";
    if (isnan(clock_parse(js_string_of(js_get(line, "timestamp"), ""))))
        return "no timestamp";
    if (!js_string_of(js_get(line, alert ? "alert_id" : "log_id"), NULL))
        return "no identifier";
    if (!alert && js_kind(js_get(line, "metrics")) != JSON_KIND_OBJECT)
        return "metrics is not an object";
    if (metric && js_kind(js_get(line, "step")) != JSON_KIND_INTEGER)
        return "step is not an integer";
    if (metric && (js_integer_of(js_get(line, "step"), 0) < 0 || js_integer_of(js_get(line, "step"), 0) > STEP_MAX))
        return "step is not one that a run can have";
    return NULL;
}

void chunk_take(void *context, const struct json *line, const char *raw, size_t bytes, int64_t offset)
{
    struct chunk *chunk = context;
    struct item *item = &chunk->items[chunk->count++];
    *item = (struct item){.bytes = bytes, .offset = offset, .why = line ? fault_of(line, chunk->view) : "not a JSON object"};
    chunk->bytes += bytes;
    if (!item->why) {
        item->line = js_keep(line);
        return;
    }
    item->raw = allocate(bytes + 1, 1);
    memcpy(item->raw, raw, bytes);
}

void chunk_clear(struct chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++) {
        js_free(chunk->items[i].line);
        free(chunk->items[i].raw);
    }
    chunk->count = 0;
    chunk->bytes = 0;
}

bool item_is(const struct item *item, const char *kind)
{
    return item->line && strcmp(js_string_of(js_get(item->line, "kind"), ""), kind) == 0;
}

bool item_is_trackio(const struct item *item)
{
    return item_is(item, "metric") || item_is(item, "system_metric") || item_is(item, "alert");
}
