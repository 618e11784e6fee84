// The real worker's steps on command, for tests/bench/train: bench_trainer RUN_DIR, alone or under mpirun. Commands, one a line on rank 0's
// standard input, each answered with lines that end with `ok`:
//   steps N         N steps: `step SECONDS CPU_SECONDS WAITED LOSS`, WAITED the share of the step that threads of a rank waited for a core
//   profile N       N steps with every operation timed: `part SECONDS NAME` a step, and `whole SECONDS`
//   products N SEC  the products of the profiled N steps again, each alone, for about SEC seconds (see timed.h)
//   allocations N   N steps: `allocations COUNT`, how often rank 0 asked for memory meanwhile
//   peak            multiply-adds that never leave registers, on as many threads as the worker has: `peak KIND GFLOPS`
#include "tests/bench/allocations.h"
#include "tests/bench/peak.h"
#include "tests/bench/seconds.h"
#include "tests/bench/timed.h"
#include "worker/train/loop.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The share of the step that the worst rank's threads waited.
static double worst(struct comm *world, double share)
{
    double *all = calloc((size_t)world->size, sizeof *all);
    if (!all)
        abort();
    world->ops->allgather(world, all, &share, sizeof share);
    for (int64_t r = 0; r < world->size; r++)
        share = all[r] > share ? all[r] : share;
    free(all);
    return share;
}

static void take_steps(struct trainer *trainer, int count)
{
    for (int i = 0; i < count; i++) {
        double waited = seconds_waited(), cpu = cpu_seconds();
        train_step(trainer);
        double took = trainer->result.seconds, share = worst(trainer->world, (seconds_waited() - waited) / took);
        if (trainer->world->rank == 0)
            printf("step %.6f %.6f %.4f %.9g\n", took, cpu_seconds() - cpu, share, trainer->result.loss);
    }
}

static void count_allocations(struct trainer *trainer, int count)
{
    int64_t before = allocations();
    for (int i = 0; i < count; i++)
        train_step(trainer);
    int64_t after = allocations();
    if (trainer->world->rank == 0)
        printf("allocations %lld\n", after < 0 ? -1LL : (long long)(after - before));
}

static void profile(struct trainer *trainer, int count)
{
    const struct device *device = trainer->model->device;
    trainer->model->device = trainer->optimizer.device = timed_device(device);
    timed_reset();
    double began = seconds();
    for (int i = 0; i < count; i++)
        train_step(trainer);
    double took = seconds() - began;
    trainer->model->device = trainer->optimizer.device = device;
    if (trainer->world->rank != 0)
        return;
    timed_print(count);
    printf("whole %.6f\n", took / count);
}

static void print_peak(const char *kind, double (*rate)(void), int threads)
{
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    total += rate();
    if (total > 0)
        printf("peak %s %.1f\n", kind, total);
}

// Carries out one command; false if there is no such command.
static bool obey(struct trainer *trainer, const char *line)
{
    int count;
    double limit;
    if (sscanf(line, "steps %d", &count) == 1)
        take_steps(trainer, count);
    else if (sscanf(line, "profile %d", &count) == 1)
        profile(trainer, count);
    else if (sscanf(line, "allocations %d", &count) == 1)
        count_allocations(trainer, count);
    else if (sscanf(line, "products %d %lf", &count, &limit) == 2)
        timed_products(count, limit);
    else if (!strcmp(line, "peak\n")) {
        print_peak("fp32", peak_rate, trainer->threads);
        print_peak("bf16", peak_rate_bf16, trainer->threads);
    } else
        return false;
    return true;
}

// The next line of rank 0's standard input, on every rank; false at its end. The others look at the length of a file until rank 0 has a
// line for them: waiting in a collective, they would keep a core from whoever is measured meanwhile.
static bool next_line(struct comm *world, const char *turns, size_t turn, char *line, size_t size)
{
    if (world->rank == 0) {
        if (!fgets(line, (int)size, stdin))
            line[0] = 0;
        FILE *file = fopen(turns, "ae");
        if (!file || fputc('.', file) == EOF || fclose(file) != 0)
            comm_abort(world, 1);
    }
    struct stat info = {0};
    while (world->rank != 0 && (stat(turns, &info) != 0 || (size_t)info.st_size < turn))
        usleep(1000);
    world->ops->broadcast(world, line, (int64_t)size, 0);
    return line[0];
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: bench_trainer RUN_DIR, commands on standard input\n");
        return 2;
    }
    struct comm *world = comm_world();
    struct trainer trainer = {.world = world};
    struct error err = {0};
    if (trainer_open(&trainer, argv[1], &err) != 0) {
        fprintf(stderr, "bench_trainer: %s\n", err.text);
        comm_abort(world, 2);
    }
    seconds_of_cpu = trainer.threads == 1 && world->size == 1;
    char line[100], turns[4096];
    snprintf(turns, sizeof turns, "%s/turns", argv[1]);
    if (world->rank == 0)
        unlink(turns); // of an earlier time
    world->ops->barrier(world);
    for (size_t turn = 1; next_line(world, turns, turn, line, sizeof line); turn++) {
        bool known = obey(&trainer, line);
        if (world->rank == 0) {
            printf(known ? "ok\n" : "unknown command\n");
            fflush(stdout);
        }
    }
    trainer_close(&trainer);
    comm_finish(world);
    return 0;
}
