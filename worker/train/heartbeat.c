#include "worker/train/heartbeat.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BEAT_SECONDS = 5 };

struct heartbeat {
    char *path;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ending;
    bool end; // under mutex
    _Atomic int64_t step;
};

static void *beat(void *context)
{
    struct heartbeat *heartbeat = context;
    pthread_mutex_lock(&heartbeat->mutex);
    while (!heartbeat->end) {
        struct timespec next;
        clock_gettime(CLOCK_MONOTONIC, &next); // the time of day may be set: back by an hour, it would be silent for as long
        next.tv_sec += BEAT_SECONDS;
        pthread_cond_timedwait(&heartbeat->ending, &heartbeat->mutex, &next);
        // A beat that cannot be written is no reason to end a run: the disk may have room again.
        heartbeat_write(heartbeat->path, atomic_load(&heartbeat->step), getpid(), NULL);
    }
    pthread_mutex_unlock(&heartbeat->mutex);
    return NULL;
}

int heartbeat_start(struct heartbeat **result, const char *run_directory, int64_t attempt, struct error *err)
{
    struct heartbeat *heartbeat = allocate(1, sizeof *heartbeat);
    heartbeat->path = run_attempt_file(run_directory, attempt, HEARTBEAT_FILE);
    pthread_mutex_init(&heartbeat->mutex, NULL);
    pthread_condattr_t by_monotonic;
    pthread_condattr_init(&by_monotonic);
    pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&heartbeat->ending, &by_monotonic);
    pthread_condattr_destroy(&by_monotonic);
    *result = NULL;
    if (heartbeat_write(heartbeat->path, 0, getpid(), err) != 0)
        goto fail;
    sigset_t all, before; // signals are the main thread's business
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&heartbeat->thread, NULL, beat, heartbeat);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) {
        *result = heartbeat;
        return 0;
    }
    error_set(err, "cannot start the heartbeat thread");
fail:
    free(heartbeat->path);
    free(heartbeat);
    return -1;
}

void heartbeat_step_is(struct heartbeat *heartbeat, int64_t step)
{
    if (heartbeat)
        atomic_store(&heartbeat->step, step);
}

void heartbeat_end(struct heartbeat *heartbeat)
{
    if (!heartbeat)
        return;
    pthread_mutex_lock(&heartbeat->mutex);
    heartbeat->end = true;
    pthread_cond_signal(&heartbeat->ending);
    pthread_mutex_unlock(&heartbeat->mutex);
    pthread_join(heartbeat->thread, NULL);
    pthread_cond_destroy(&heartbeat->ending);
    pthread_mutex_destroy(&heartbeat->mutex);
    free(heartbeat->path);
    free(heartbeat);
}
