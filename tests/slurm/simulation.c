#include "tests/slurm/simulation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VERSION = 5 };

const char *const fault_names[FAULTS] = {"none", "empty", "partial", "garbage", "truncated", "slow", "hang", "error", "timeout", "code"};
const char *const program_names[PROGRAMS] = {"sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol", "srun"};

static struct simulation *map(const char *path, int flags)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        return NULL;
    void *at = MAP_FAILED;
    if (!(flags & O_CREAT) || ftruncate(fd, sizeof(struct simulation)) == 0)
        at = mmap(NULL, sizeof(struct simulation), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

struct simulation *simulation_new(const char *path, uint64_t seed)
{
    struct simulation *simulation = map(path, O_CREAT | O_EXCL);
    if (!simulation)
        return NULL;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&simulation->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    simulation->version = VERSION;
    simulation->seed = seed;
    simulation->now = 1.8e9;
    simulation->next_id = 1;
    simulation->hang = 30;
    simulation->array_max = 1001;
    return simulation;
}

struct simulation *simulation_open(const char *path)
{
    struct simulation *simulation = map(path, 0);
    if (simulation && simulation->version != VERSION) {
        simulation_close(simulation);
        return NULL;
    }
    return simulation;
}

void simulation_close(struct simulation *simulation)
{
    munmap(simulation, sizeof *simulation);
}

// A command may be killed at any moment, also while it has the lock: what it was about to change is then as a killed command leaves it.
void simulation_lock(struct simulation *simulation)
{
    if (pthread_mutex_lock(&simulation->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&simulation->lock);
}

void simulation_unlock(struct simulation *simulation)
{
    pthread_mutex_unlock(&simulation->lock);
}

uint64_t simulation_draw(struct simulation *simulation, uint64_t below)
{
    uint64_t z = simulation->seed + ++simulation->draws * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

bool simulation_chance(struct simulation *simulation, double probability)
{
    return (double)simulation_draw(simulation, 1000000) < probability * 1e6;
}

struct simulated_job *simulation_job(struct simulation *simulation, const char *id)
{
    char *end;
    int64_t number = strtoll(id, &end, 10), element = *end == '_' ? strtoll(end + 1, NULL, 10) : -1;
    for (size_t i = simulation->job_count; i-- > 0;) {
        struct simulated_job *job = &simulation->jobs[i];
        if (job->id == number && job->element == element && job->listed && job->appears <= simulation->now)
            return job;
    }
    return NULL;
}

struct simulated_job *simulation_serial(struct simulation *simulation, uint64_t serial)
{
    for (size_t i = simulation->job_count; i-- > 0;)
        if (simulation->jobs[i].serial == serial)
            return &simulation->jobs[i];
    return NULL;
}

// Room for a new one: where the jobs that nobody knows any more stood, once the table is full.
static void compact(struct simulation *simulation)
{
    size_t kept = 0;
    for (size_t i = 0; i < simulation->job_count; i++)
        if (!simulation->jobs[i].forgotten)
            simulation->jobs[kept++] = simulation->jobs[i];
    simulation->job_count = kept;
}

bool simulation_has_room(struct simulation *simulation, size_t count)
{
    if (simulation->job_count + count > SIMULATED_JOBS_MAX)
        compact(simulation);
    return simulation->job_count + count <= SIMULATED_JOBS_MAX;
}

struct simulated_job *simulation_add(struct simulation *simulation)
{
    if (simulation->job_count == SIMULATED_JOBS_MAX)
        compact(simulation);
    if (simulation->job_count == SIMULATED_JOBS_MAX)
        return NULL;
    struct simulated_job *job = &simulation->jobs[simulation->job_count++];
    *job = (struct simulated_job){.serial = ++simulation->next_serial,
        .id = simulation->next_id++,
        .element = -1,
        .submission = -1,
        .cancelled_by = -1,
        .listed = true,
        .accounted = simulation->accounting,
        .appears = simulation->now,
        .submitted = simulation->now};
    strcpy(job->state, "PENDING");
    strcpy(job->reason, "None");
    strcpy(job->partition, "main");
    return job;
}

bool simulated_job_shares(const struct simulated_job *job)
{
    return job->element >= 0 && job->started == 0 && job->restarts == 0 && !job->parted;
}

bool simulated_job_over(const struct simulated_job *job)
{
    static const char *const ends[] = {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(job->state, ends[i]) == 0)
            return true;
    return false;
}
