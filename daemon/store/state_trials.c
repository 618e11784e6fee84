// Trials: runs that a sweep made, by which values they differ, and how many of one submission may go at once.
#include "daemon/store/state_inside.h"

#include <stdio.h>

int state_set_concurrency(struct state *state, int64_t experiment, int64_t concurrency, struct error *err)
{
    return sql_do(state->sql, err, "UPDATE experiments SET concurrency = ? WHERE id = ?", "ii", concurrency, experiment);
}

int state_add_trial(struct state *state, int64_t run, int64_t experiment, const char *entry, const struct json *sweep, struct error *err)
{
    return sql_do(state->sql, err, "INSERT INTO trials(run, experiment, entry, sweep) VALUES (?, ?, ?, ?)", "iitj", run, experiment, entry, sweep);
}

int state_get_trial(struct state *state, int64_t run, struct trial_row *trial, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT t.experiment, e.concurrency, t.entry, t.sweep FROM trials t "
        "JOIN experiments e ON e.id = t.experiment WHERE t.run = ?", "i", run);
    if (!query)
        return -1;
    int got = sql_step(query, err);
    if (got > 0) {
        *trial = (struct trial_row){.experiment = sql_integer(query, 0), .concurrency = sql_integer(query, 1), .sweep = sql_json(query, 3)};
        snprintf(trial->entry, sizeof trial->entry, "%s", sql_text(query, 2) ? sql_text(query, 2) : "");
    }
    sql_done(query);
    return got < 0 ? -1 : got > 0 ? 0 : 1;
}

int64_t state_trials_started(struct state *state, int64_t experiment)
{
    int64_t count = 0;
    int status = sql_number(state->sql, &count, 0, NULL, "SELECT count(*) FROM runs r WHERE r.experiment = ? "
        "AND r.state IN ('submitted', 'pending', 'running', 'finishing') AND EXISTS (SELECT 1 FROM trials t WHERE t.run = r.id)", "i", experiment);
    return status == 0 ? count : 0;
}
