// Record lines that are ours, not Trackio's: into notes (what a page asks for) and events (what a person should see).
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double time_of(const struct json *line)
{
    double when = clock_parse(js_string_of(js_get(line, "timestamp"), ""));
    return isnan(when) ? clock_wall() : when;
}

static int add_event(
    struct daemon *daemon, const struct view *view, const struct json *line, const char *kind, const char *text, struct error *err)
{
    return state_add_event(daemon->state, view->id, kind, text, "heartbeat", time_of(line), err);
}

static int store_event(struct daemon *daemon, const struct view *view, int64_t attempt, const struct json *line, struct error *err)
{
    char text[2048];
    int64_t step = js_integer_of(js_get(line, "step"), -1);
    const char *said = js_string_of(js_get(line, "text"), "");
    if (step >= 0 && !strstr(said, "step"))
        snprintf(text, sizeof text, "step %lld: %s", (long long)step, said);
    else
        snprintf(text, sizeof text, "%s", said);
    char kind[65];
    snprintf(kind, sizeof kind, "%s", js_string_of(js_get(line, "event"), "event"));
    if (strcmp(kind, NON_FINITE_NOTE) == 0 && state_add_note(daemon->state, view->id, attempt, step, kind, line, err) != 0)
        return -1;
    return add_event(daemon, view, line, kind, text, err);
}

static int store_alert(struct daemon *daemon, const struct view *view, const struct json *line, struct error *err)
{
    char text[2048];
    snprintf(text, sizeof text, "%s: %s", js_string_of(js_get(line, "title"), ""), js_string_of(js_get(line, "text"), ""));
    return add_event(daemon, view, line, "alert", text, err);
}

static const char checkpoint_of_step[] = "checkpoint of step ";

int64_t checkpoint_step_said(const char *text)
{
    size_t length = sizeof checkpoint_of_step - 1;
    return strncmp(text, checkpoint_of_step, length) == 0 ? strtoll(text + length, NULL, 10) : 0;
}

int store_line(
    struct daemon *daemon, const struct view *view, struct watch *watch, int64_t attempt, const struct json *line, struct error *err)
{
    const char *kind = js_string_of(js_get(line, "kind"), "");
    int64_t step = js_integer_of(js_get(line, "step"), 0);
    if (strcmp(kind, "metric") == 0) {
        series_add(daemon->series, view->run_id, step, time_of(line), js_get(line, "metrics"));
        return 0;
    }
    if (strcmp(kind, "system_metric") == 0)
        return 0;
    if (strcmp(kind, "alert") == 0)
        return store_alert(daemon, view, line, err);
    if (strcmp(kind, "event") == 0)
        return store_event(daemon, view, attempt, line, err);
    if (strcmp(kind, "end") == 0) {
        watch->end_attempt = attempt;
        watch->end_code = js_integer_of(js_get(line, "code"), -1);
    }
    if (strcmp(kind, CHECKPOINT_NOTE) == 0) {
        char text[128];
        snprintf(text, sizeof text, "%s%lld is complete", checkpoint_of_step, (long long)step);
        if (add_event(daemon, view, line, CHECKPOINT_NOTE, text, err) != 0)
            return -1;
    }
    return state_add_note(daemon->state, view->id, attempt, step, kind, line, err);
}
