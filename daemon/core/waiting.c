// Who waits for what: the tick loop for a reason to look again, readers of the stream of events for the next one.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

void daemon_wake(struct daemon *daemon)
{
    pthread_mutex_lock(&daemon->wake_lock);
    daemon->awake = true;
    pthread_cond_signal(&daemon->wake);
    pthread_mutex_unlock(&daemon->wake_lock);
}

void daemon_wait(struct daemon *daemon, int timeout_ms)
{
    struct timespec until = clock_steady_in(timeout_ms / 1000.0);
    pthread_mutex_lock(&daemon->wake_lock);
    while (!daemon->awake && pthread_cond_timedwait(&daemon->wake, &daemon->wake_lock, &until) == 0)
        continue;
    daemon->awake = false;
    pthread_mutex_unlock(&daemon->wake_lock);
}

void daemon_events(struct daemon *daemon, int64_t after, int wait_ms, struct answer *answer)
{
    if (wait_ms > EVENTS_WAIT_MAX_MS)
        wait_ms = EVENTS_WAIT_MAX_MS;
    struct timespec until = clock_steady_in(wait_ms / 1000.0);
    pthread_mutex_lock(&daemon->lock);
    int64_t newest = after < 0 ? state_last_event(daemon->state) : 0;
    struct json *events = after < 0 ? js_array() : state_events_after(daemon->state, after, &answer->error);
    while (events && js_count(events) == 0 && wait_ms > 0 && after >= 0 && pthread_cond_timedwait(&daemon->changed, &daemon->lock, &until) == 0) {
        js_free(events);
        events = state_events_after(daemon->state, after, &answer->error);
    }
    pthread_mutex_unlock(&daemon->lock);
    answer->status = events ? 200 : 500;
    if (!events)
        return;
    size_t count = js_count(events);
    int64_t last = after < 0 ? newest : count ? js_integer_of(js_get(js_at(events, count - 1), "id"), after) : after;
    answer->body = js_object();
    js_set(answer->body, "events", events);
    js_set(answer->body, "last", js_integer(last));
}
