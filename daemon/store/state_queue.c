// The queue as one query: what each queued run waits for, in the order in which they come. A few dozen bytes a run, read only when something
// has changed.
#include "daemon/store/state_inside.h"

#include <stdlib.h>
#include <string.h>

int64_t state_changes(const struct state *state)
{
    return state->changes;
}

// A failed need decides; one that is still to succeed is waited for.
#define OPEN_NEED \
    "(SELECT n.needed FROM needs n JOIN runs d ON d.id = n.needed WHERE n.run = r.id AND d.state <> 'succeeded' ORDER BY d.state IN " \
    "('created', 'queued', 'submitted', 'pending', 'running', 'finishing'), d.id LIMIT 1)"

int state_queue(struct state *state, struct queued **out, size_t *count, struct error *err)
{
    struct sql_query *query = sql_ask(state->sql, err, "SELECT r.id, r.retry_at, coalesce(r.executor, 'local') = 'local', r.gpus, t.experiment, e.concurrency, " OPEN_NEED
        ", r.reason FROM runs r LEFT JOIN trials t ON t.run = r.id LEFT JOIN experiments e ON e.id = t.experiment WHERE r.state = 'queued' "
        "ORDER BY r.id", "");
    struct queued *queue = NULL;
    size_t found = 0, capacity = 0;
    int got = -1;
    while (query && (got = sql_step(query, err)) > 0) {
        if (found == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            queue = reallocate(queue, capacity, sizeof *queue);
        }
        const char *reason = sql_text(query, 7);
        queue[found++] = (struct queued){.run = sql_integer(query, 0), .retry_at = sql_real(query, 1), .here = sql_integer(query, 2) != 0,
            .gpus = sql_integer(query, 3), .experiment = sql_integer(query, 4), .concurrency = sql_integer(query, 5),
            .need = sql_integer(query, 6), .reason = reason ? string_hash(reason) : 0};
    }
    sql_done(query);
    *out = queue;
    *count = found;
    if (got < 0)
        free(queue);
    return got;
}
