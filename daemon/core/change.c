// The way in which the store changes. The lock and a transaction are one thing: change_begin takes both, change_end gives both back, and what
// was done in between is stored whole or not at all. Who only reads takes the lock alone. Nobody writes otherwise: what would write outside of a
// change is our own mistake, and ends the daemon.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <assert.h>

int change_begin(struct daemon *daemon, struct error *err)
{
    pthread_mutex_lock(&daemon->lock);
    assert(!daemon->changing);
    daemon->changing = state_begin(daemon->state, err) == 0;
    if (daemon->changing)
        return 0;
    pthread_mutex_unlock(&daemon->lock);
    return -1;
}

int change_end(struct daemon *daemon, int status, struct error *err)
{
    assert(daemon->changing);
    daemon->changing = false;
    status = state_end(daemon->state, status, err);
    if (status == 0)
        pthread_cond_broadcast(&daemon->changed);
    pthread_mutex_unlock(&daemon->lock);
    return status;
}

int change_begin_for(struct daemon *daemon, struct answer *answer)
{
    int status = change_begin(daemon, &answer->error);
    if (status != 0)
        answer->status = 500;
    return status;
}

int change_end_for(struct daemon *daemon, int status, struct answer *answer)
{
    int stored = change_end(daemon, status, &answer->error);
    if (status == 0 && stored != 0)
        answer->status = 500;
    return stored;
}

bool change_begin_of(struct daemon *daemon, const struct view *view, struct error *err)
{
    int status = change_begin(daemon, err);
    if (status != 0)
        log_run(view, err);
    return status == 0;
}

int change_end_of(struct daemon *daemon, const struct view *view, int status, struct error *err)
{
    status = change_end(daemon, status, err);
    if (status != 0)
        log_run(view, err);
    return status;
}

void change_event(struct daemon *daemon, const struct view *view, const char *kind, const char *text, const char *witness)
{
    struct error err = {0};
    if (!change_begin_of(daemon, view, &err))
        return;
    core_event(daemon, view->id, kind, text, witness, clock_wall());
    change_end_of(daemon, view, 0, &err);
}

static void keep_state(void *context, const struct run_head *head)
{
    *(enum run_state *)context = head->state;
}

bool core_is_queued(struct daemon *daemon, int64_t run)
{
    enum run_state now = RUN_LOST;
    return state_head(daemon->state, run, keep_state, &now, NULL) == 0 && now == RUN_QUEUED;
}

int core_change(struct daemon *daemon, int64_t run, enum run_state to, const char *reason, const char *witness, struct error *err)
{
    assert(daemon->changing);
    return state_change(daemon->state, run, to, reason, witness, err);
}

void core_event(struct daemon *daemon, int64_t run, const char *kind, const char *text, const char *witness, double when)
{
    struct error err = {0};
    assert(daemon->changing);
    if (state_add_event(daemon->state, run, kind, text, witness, when, &err) != 0)
        core_log("run %lld: event %s: %s", (long long)run, kind, err.text);
}
