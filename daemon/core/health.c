// What the daemon says of itself: for `ls`, the dashboard, and whoever looks whether it is there.
#include "daemon/core/core.h"

#include <unistd.h>

static struct json *database_json(const struct state *state)
{
    double since;
    const char *fault = state_stuck(state, &since);
    struct json *json = js_object();
    js_set(json, "fault", fault ? js_string(fault) : js_null());
    js_set(json, "since", fault ? js_real(since) : js_null());
    return json;
}

void daemon_health(struct daemon *daemon, struct answer *answer)
{
    pthread_mutex_lock(&daemon->lock);
    struct json *ticks = tick_costs_json(&daemon->ticks), *database = database_json(daemon->state);
    int64_t alive = state_count_alive(daemon->state), curve_rows = daemon->curve_rows, gpus = (int64_t)daemon->machine.gpus.count;
    pthread_mutex_unlock(&daemon->lock);
    struct json *body = js_object();
    js_set(body, "version", js_string(SWITCHYARD_VERSION));
    js_set(body, "pid", js_integer(getpid()));
    js_set(body, "started", js_real(daemon->started));
    js_set(body, "home", js_string(daemon->home));
    js_set(body, "trackio", js_string(daemon->trackio_path));
    js_set(body, "cores", js_integer(daemon->machine.cores));
    js_set(body, "gpus", js_integer(gpus));
    js_set(body, "runs_alive", js_integer(alive));
    js_set(body, "curve_rows_read", js_integer(curve_rows));
    js_set(body, "ticks", ticks);
    js_set(body, "database", database);
    js_set(body, "config", settings_json(&daemon->settings));
    js_set(body, "scheduler", executors_health(daemon));
    answer->status = 200;
    answer->body = body;
}
