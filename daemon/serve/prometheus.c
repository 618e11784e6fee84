// GET /metrics in Prometheus' text form: the daemon, its runs by state, and the last values of runs that are alive (ended runs keep
// their curves in the store; here they would only grow the number of series).
#include "daemon/serve/api.h"
#include "daemon/store/state.h"

#include <math.h>
#include <stdio.h>

static void write_value(struct text *out, double value)
{
    if (isnan(value))
        text_add(out, "NaN\n");
    else if (isinf(value))
        text_add(out, value > 0 ? "+Inf\n" : "-Inf\n");
    else
        text_addf(out, "%.17g\n", value);
}

static void write_states(struct text *out, const struct json *runs)
{
    text_add(out, "# HELP switchyard_runs Runs by state.\n# TYPE switchyard_runs gauge\n");
    for (int state = RUN_CREATED; state <= RUN_LOST; state++) {
        size_t count = 0;
        enum run_state found;
        for (size_t i = 0; i < js_count(runs); i++)
            count += run_state_parse(&found, js_string_of(js_get(js_at(runs, i), "state"), "")) && (int)found == state;
        text_addf(out, "switchyard_runs{state=\"%s\"} %zu\n", run_state_name((enum run_state)state), count);
    }
}

// One gauge over all runs that are alive and have the member. Names are [A-Za-z0-9_-], so that labels need no escapes.
static void write_gauge(struct text *out, const struct json *runs, const char *member, const char *help)
{
    text_addf(out, "# HELP switchyard_run_%s %s\n# TYPE switchyard_run_%s gauge\n", member, help, member);
    for (size_t i = 0; i < js_count(runs); i++) {
        const struct json *run = js_at(runs, i), *value = js_get(run, member);
        enum run_state state;
        if (!run_state_parse(&state, js_string_of(js_get(run, "state"), "")) || run_state_ended(state) || js_kind(value) == JSON_KIND_NULL)
            continue;
        text_addf(out, "switchyard_run_%s{project=\"%s\",run=\"%s\"} ", member, js_string_of(js_get(run, "project"), ""),
            js_string_of(js_get(run, "name"), ""));
        write_value(out, js_real_of(value, 0));
    }
}

void prometheus_write(struct text *out, const struct json *health, const struct json *runs)
{
    text_addf(out, "# HELP switchyard_info The daemon's version.\n# TYPE switchyard_info gauge\nswitchyard_info{version=\"%s\"} 1\n",
        js_string_of(js_get(health, "version"), SWITCHYARD_VERSION));
    text_addf(out, "# HELP switchyard_cores Processor cores that runs may use.\n# TYPE switchyard_cores gauge\nswitchyard_cores %lld\n",
        (long long)js_integer_of(js_get(health, "cores"), 0));
    write_states(out, runs);
    write_gauge(out, runs, "step", "Last finished step.");
    write_gauge(out, runs, "iterations", "Planned steps.");
    write_gauge(out, runs, "loss", "Training loss of the last step.");
    write_gauge(out, runs, "validation_loss", "Last validation loss.");
    write_gauge(out, runs, "tokens_per_second", "Tokens a second in the last step.");
    write_gauge(out, runs, "eta_seconds", "Estimated seconds to the end.");
}
