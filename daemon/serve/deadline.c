// One thread looks at all connections four times in the time that a request has. What is late is shut down, not closed: the socket's number
// belongs to its connection's thread, which sees the end of input and cleans up.
#include "daemon/serve/deadline.h"
#include "schema/base/clock.h"
#include "schema/base/text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

struct deadline {
    int socket;
    double since; // steady seconds; 0: paused
    struct deadline *next;
};

struct deadlines {
    double seconds;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool end; // this and the list: under the lock
    struct deadline *first;
};

static void shut_late(struct deadlines *deadlines)
{
    double now = clock_steady();
    for (struct deadline *at = deadlines->first; at; at = at->next)
        if (at->since > 0 && now - at->since >= deadlines->seconds) {
            shutdown(at->socket, SHUT_RDWR);
            at->since = 0;
        }
}

static void *watch(void *context)
{
    struct deadlines *deadlines = context;
    pthread_mutex_lock(&deadlines->lock);
    while (!deadlines->end) {
        struct timespec when = clock_steady_in(deadlines->seconds / 4);
        pthread_cond_timedwait(&deadlines->ending, &deadlines->lock, &when);
        shut_late(deadlines);
    }
    pthread_mutex_unlock(&deadlines->lock);
    return NULL;
}

struct deadlines *deadlines_new(double seconds)
{
    struct deadlines *deadlines = allocate(1, sizeof *deadlines);
    deadlines->seconds = seconds;
    clock_condition_init(&deadlines->ending);
    pthread_mutex_init(&deadlines->lock, NULL);
    if (pthread_create(&deadlines->thread, NULL, watch, deadlines) == 0)
        return deadlines;
    pthread_mutex_destroy(&deadlines->lock);
    pthread_cond_destroy(&deadlines->ending);
    free(deadlines);
    return NULL;
}

void deadlines_free(struct deadlines *deadlines)
{
    pthread_mutex_lock(&deadlines->lock);
    deadlines->end = true;
    pthread_cond_signal(&deadlines->ending);
    pthread_mutex_unlock(&deadlines->lock);
    pthread_join(deadlines->thread, NULL);
    pthread_mutex_destroy(&deadlines->lock);
    pthread_cond_destroy(&deadlines->ending);
    free(deadlines);
}

struct deadline *deadline_open(struct deadlines *deadlines, int socket)
{
    struct deadline *deadline = allocate(1, sizeof *deadline);
    pthread_mutex_lock(&deadlines->lock);
    *deadline = (struct deadline){.socket = socket, .since = clock_steady(), .next = deadlines->first};
    deadlines->first = deadline;
    pthread_mutex_unlock(&deadlines->lock);
    return deadline;
}

static void set_since(struct deadlines *deadlines, struct deadline *deadline, double since)
{
    pthread_mutex_lock(&deadlines->lock);
    deadline->since = since;
    pthread_mutex_unlock(&deadlines->lock);
}

void deadline_restart(struct deadlines *deadlines, struct deadline *deadline)
{
    set_since(deadlines, deadline, clock_steady());
}

void deadline_pause(struct deadlines *deadlines, struct deadline *deadline)
{
    set_since(deadlines, deadline, 0);
}

void deadline_close(struct deadlines *deadlines, struct deadline *deadline)
{
    pthread_mutex_lock(&deadlines->lock);
    for (struct deadline **at = &deadlines->first; *at; at = &(*at)->next)
        if (*at == deadline) {
            *at = deadline->next;
            break;
        }
    pthread_mutex_unlock(&deadlines->lock);
    free(deadline);
}
