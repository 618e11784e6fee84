// Outcomes: what lists say of runs that have ended.
#include "daemon/store/state_inside.h"

int state_put_outcome(struct state *state, int64_t run, const struct outcome_row *outcome, struct error *err)
{
    return sql_do(state->sql, err, "INSERT OR REPLACE INTO outcomes(run, step, diverged_step, last) VALUES (?, ?, ?, ?)", "iiij", run, outcome->step,
        outcome->diverged_step, outcome->last);
}

int state_get_outcome(struct state *state, int64_t run, struct outcome_row *outcome, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT step, diverged_step, last FROM outcomes WHERE run = ?", "i", run);
    if (!query)
        return -1;
    int got = sql_step(query, err);
    if (got > 0)
        *outcome = (struct outcome_row){.step = sql_integer(query, 0), .diverged_step = sql_integer(query, 1), .last = sql_json(query, 2)};
    sql_done(query);
    return got < 0 ? -1 : got > 0 ? 0 : 1;
}

int state_drop_outcome(struct state *state, int64_t run, struct error *err)
{
    return sql_do(state->sql, err, "DELETE FROM outcomes WHERE run = ?", "i", run);
}
