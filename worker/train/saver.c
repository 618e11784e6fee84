// Saves checkpoints, in the training thread or behind it. A save is two tasks: each rank writes its tensors; then, when all have, rank 0
// publishes. A task runs in a thread of its own or in place; between tasks the ranks agree, and only the training thread speaks to them.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/device/host_memory.h"
#include "worker/train/checkpoint_image.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum phase { PHASE_IDLE, PHASE_WRITING, PHASE_PUBLISHING };
enum { WRITER_NICE = 10 }; // training's threads go first

struct saver {
    struct comm *world;
    void *snapshot;             // host memory, made once; NULL: nothing is written behind the training
    size_t snapshot_bytes;
    enum phase phase;
    bool behind;                // this save's tasks run in a thread
    struct image image;
    struct written mine[IMAGE_FILES], *all; // all(ranks, IMAGE_FILES)
    int64_t bytes;
    struct task {               // of this rank and phase
        void (*run)(struct saver *saver);
        pthread_t thread;
        bool threaded;          // there is a thread to join
        _Atomic bool ended;     // status and err are final
        int status;
        struct error err;
    } task;
};

// The other ranks while rank 0 publishes.
static void do_nothing(struct saver *saver)
{
    (void)saver;
}

static void *run_task(void *context)
{
    struct saver *saver = context;
    setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE); // of this thread alone, on Linux
    saver->task.run(saver);
    atomic_store(&saver->task.ended, true);
    return NULL;
}

static void start_task(struct saver *saver, void (*run)(struct saver *saver))
{
    saver->task = (struct task){.run = run};
    if (saver->behind && run != do_nothing) {
        sigset_t all, before; // signals are the main thread's business
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        saver->task.threaded = pthread_create(&saver->task.thread, NULL, run_task, saver) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (saver->task.threaded)
            return;
    }
    run(saver); // in place, as also where the system gives no thread: later, but not lost
    atomic_store(&saver->task.ended, true);
}

static void wait_for_task(struct saver *saver)
{
    if (saver->task.threaded)
        pthread_join(saver->task.thread, NULL);
    saver->task.threaded = false;
}

static void write_mine(struct saver *saver)
{
    saver->task.status = image_write(&saver->image, saver->mine, &saver->task.err);
}

static void publish(struct saver *saver)
{
    saver->task.status = image_publish(&saver->image, saver->all, IMAGE_FILES * (size_t)saver->world->size, &saver->bytes, &saver->task.err);
}

void saver_open(struct saver **result, const struct training_state *state)
{
    const struct spec_checkpoint *checkpoint = &state->job->spec.checkpoint;
    struct saver *saver = allocate(1, sizeof *saver);
    saver->world = state->world;
    saver->all = allocate(IMAGE_FILES * (size_t)state->world->size, sizeof *saver->all);
    *result = saver;
    if (checkpoint->interval == 0 || !checkpoint->asynchronous)
        return;
    struct image image;
    image_init(&image, state);
    saver->snapshot_bytes = image_bytes(&image);
    saver->snapshot = host_memory.alloc(saver->snapshot_bytes);
    host_memory.zero(saver->snapshot, saver->snapshot_bytes); // its pages are there before a step waits for them
    image_release(&image);
}

// What was being written when the run failed is no checkpoint.
static void abandon(struct saver *saver)
{
    if (saver->phase != PHASE_IDLE && saver->world->rank == 0)
        directory_remove(saver->image.temporary, NULL);
    image_release(&saver->image);
    saver->phase = PHASE_IDLE;
}

void saver_close(struct saver *saver)
{
    if (!saver)
        return;
    wait_for_task(saver);
    abandon(saver);
    if (saver->snapshot)
        host_memory.free(saver->snapshot, saver->snapshot_bytes);
    free(saver->all);
    free(saver);
}

size_t saver_bytes(const struct saver *saver)
{
    return saver->snapshot_bytes;
}

int saver_begin(struct saver *saver, const struct training_state *state, bool behind, struct error *err)
{
    struct comm *world = saver->world;
    assert(saver->phase == PHASE_IDLE);
    image_init(&saver->image, state);
    char *mark = path_join(saver->image.final, COMPLETE_FILE);
    int64_t already = file_exists(mark);
    free(mark);
    world->ops->broadcast(world, &already, sizeof already, 0);
    int status = already ? 0 : agree(world, world->rank == 0 ? image_prepare(&saver->image, err) : 0, err);
    if (already || status != 0) {
        image_release(&saver->image);
        return status;
    }
    saver->behind = behind && saver->snapshot;
    if (saver->behind)
        image_snapshot(&saver->image, saver->snapshot);
    memset(saver->mine, 0, sizeof saver->mine);
    saver->phase = PHASE_WRITING;
    start_task(saver, write_mine);
    return 0;
}

void saver_tidy(struct saver *saver, const struct training_state *state)
{
    struct image image;
    if (saver->world->rank != 0)
        return;
    image_init(&image, state);
    image_remove_old(&image);
    image_release(&image);
}

bool saver_has_news(const struct saver *saver)
{
    return saver->phase != PHASE_IDLE && atomic_load(&saver->task.ended);
}

int saver_advance(struct saver *saver, struct saved *saved, struct error *err)
{
    struct comm *world = saver->world;
    *saved = (struct saved){0};
    if (saver->phase == PHASE_IDLE)
        return 0;
    wait_for_task(saver);
    if (saver->task.status != 0)
        *err = saver->task.err;
    if (agree(world, saver->task.status, err) != 0) {
        abandon(saver);
        return -1;
    }
    if (saver->phase == PHASE_WRITING) {
        world->ops->allgather(world, saver->all, saver->mine, sizeof saver->mine);
        saver->phase = PHASE_PUBLISHING;
        start_task(saver, world->rank == 0 ? publish : do_nothing);
        return 0;
    }
    *saved = (struct saved){saver->image.step, saver->bytes};
    image_release(&saver->image);
    saver->phase = PHASE_IDLE;
    return 0;
}

int saver_finish(struct saver *saver, struct saved *saved, struct error *err)
{
    *saved = (struct saved){0};
    while (saver->phase != PHASE_IDLE)
        if (saver_advance(saver, saved, err) != 0)
            return -1;
    return 0;
}
