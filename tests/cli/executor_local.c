// The local executor with real processes: found by tag, killed by tag and only by tag, identity by pid and start time.
#include "daemon/exec/executor.h"
#include "daemon/exec/process.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct room {
    char directory[64];
    char *script;
    struct local_context local;
    struct job job;
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, (ms % 1000) * 1000000L}, NULL);
}

static int setup(void **state)
{
    struct room *room = allocate(1, sizeof *room);
    strcpy(room->directory, "/tmp/switchyard-executor-XXXXXX");
    assert_non_null(mkdtemp(room->directory));
    room->script = path_join(room->directory, "job.sh");
    assert_int_equal(job_script_write(room->script, NULL), 0);
    room->local.job_script = room->script;
    room->job.directory = room->directory;
    random_hex(room->job.tag, 32);
    *state = room;
    return 0;
}

static int teardown(void **state)
{
    struct room *room = *state;
    executor_local()->kill(&room->local, &room->job, NULL);
    if (room->job.id[0])
        waitpid(atoi(room->job.id), NULL, WNOHANG);
    directory_remove(room->directory, NULL);
    local_context_release(&room->local);
    free(room->script);
    free(room);
    return 0;
}

static void submit(struct room *room, const char *const *argv, const char *const *environment)
{
    struct error err = {0};
    room->job.argv = argv;
    room->job.environment = environment;
    if (executor_local()->submit(&room->local, &room->job, &err) != 0)
        fail_msg("%s", err.text);
}

static enum job_phase phase(struct room *room)
{
    assert_int_equal(executor_local()->poll(&room->local, &room->job, 1, NULL), 0);
    return room->job.phase;
}

static void wait_for_phase(struct room *room, enum job_phase wanted)
{
    for (int i = 0; i < 400 && phase(room) != wanted; i++)
        pause_ms(25);
    assert_int_equal(phase(room), wanted);
}

// As the daemon does: asked again until nobody is left.
static void kill_all(struct room *room)
{
    int left = -1;
    for (int i = 0; i < 80 && left != 0; i++) {
        left = executor_local()->kill(&room->local, &room->job, NULL);
        pause_ms(left ? 25 : 0);
    }
    assert_int_equal(left, 0);
}

static char *attempt_text(struct room *room, const char *name)
{
    char *path = string_format("%s/attempt-1/%s", room->directory, name);
    struct text text;
    text_init(&text, 1 << 20);
    for (int i = 0; i < 400 && (text.length == 0); i++) {
        text_clear(&text);
        if (file_size(path) > 0)
            file_read(path, &text, NULL);
        if (text.length == 0)
            pause_ms(25);
    }
    free(path);
    return text_take(&text);
}

static void test_runs_to_its_end(void **state)
{
    struct room *room = *state;
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SWITCHYARD_TOKEN", "secret", 1);
    submit(room, (const char *const[]){"env", NULL}, (const char *const[]){"A=$(x) ;y", "PATH_OF_MINE=1", NULL});
    wait_for_phase(room, JOB_GONE);
    char *out = attempt_text(room, "stdout.log");
    char *tag = string_format("SWITCHYARD_TAG=%s\n", room->job.tag);
    assert_non_null(strstr(out, "A=$(x) ;y\n"));
    assert_non_null(strstr(out, tag));
    assert_non_null(strstr(out, "SWITCHYARD_ATTEMPT=1\n"));
    assert_null(strstr(out, "SLURM_JOB_ID"));
    assert_null(strstr(out, "secret"));
    unsetenv("SLURM_JOB_ID");
    unsetenv("SWITCHYARD_TOKEN");
    free(tag);
    free(out);
}

// job.sh killed: the run is alive as long as one process carries the tag, and is found again by it.
static void test_found_without_its_leader(void **state)
{
    struct room *room = *state;
    submit(room, (const char *const[]){"sh", "-c", "sleep 300 & echo up; wait", NULL}, NULL);
    free(attempt_text(room, "stdout.log"));
    struct job found = {.directory = room->directory};
    strcpy(found.tag, room->job.tag);
    assert_int_equal(executor_local()->find(&room->local, &found, NULL), 0);
    assert_string_equal(found.id, room->job.id);
    assert_true(found.started == room->job.started);
    kill(atoi(room->job.id), SIGKILL);
    pause_ms(100);
    assert_int_equal(phase(room), JOB_RUNNING);
    assert_true(room->job.ran > 0 && room->job.ran < 60);
    assert_int_equal(executor_local()->find(&room->local, &found, NULL), 0);
    assert_int_equal(found.phase, JOB_RUNNING);
    assert_string_not_equal(found.id, room->job.id);
    kill_all(room);
    assert_int_equal(phase(room), JOB_GONE);
    assert_int_equal(executor_local()->find(&room->local, &found, NULL), 0);
    assert_int_equal(found.phase, JOB_GONE);
}

// Processes that start others while they are being killed, and ignore what can be ignored.
static void test_kill_leaves_nobody(void **state)
{
    struct room *room = *state;
    submit(room,
        (const char *const[]){"sh", "-c",
            "trap '' TERM INT USR1; echo up; for i in 1 2 3 4 5 6 7 8; do (trap '' TERM; setsid sleep 300 & sleep 300) & done; wait", NULL},
        NULL);
    free(attempt_text(room, "stdout.log"));
    kill_all(room);
    assert_int_equal(phase(room), JOB_GONE);
}

// The recorded pid belongs to somebody else now: not alive for us, and never signalled.
static void test_foreign_process_untouched(void **state)
{
    struct room *room = *state;
    pid_t foreign = fork();
    if (foreign == 0) {
        execlp("sleep", "sleep", "300", NULL);
        _exit(127);
    }
    pause_ms(100);
    snprintf(room->job.id, sizeof room->job.id, "%d", (int)foreign);
    room->job.started = process_started(foreign, NULL);
    assert_true(room->job.started > 0);
    assert_int_equal(phase(room), JOB_GONE);
    assert_int_equal(executor_local()->stop(&room->local, &room->job, NULL), 0);
    assert_int_equal(executor_local()->kill(&room->local, &room->job, NULL), 0);
    assert_false(process_signal_tagged(foreign, room->job.tag, SIGKILL));
    pause_ms(50);
    assert_true(process_started(foreign, NULL) == room->job.started);
    kill(foreign, SIGKILL);
    waitpid(foreign, NULL, 0);
    room->job.id[0] = 0;
}

// The stop file for everybody, the signal for who handles it: `sleep` would die of it and must not get it.
static void test_stop(void **state)
{
    struct room *room = *state;
    submit(room, (const char *const[]){"sh", "-c", "trap 'echo asked; exit 75' USR1; echo up; while :; do sleep 0.05; done", NULL}, NULL);
    free(attempt_text(room, "stdout.log"));
    assert_int_equal(executor_local()->stop(&room->local, &room->job, NULL), 0);
    wait_for_phase(room, JOB_GONE);
    char *stop = path_join(room->directory, "stop"), *end = string_format("%s/attempt-1/exit.json", room->directory);
    struct exit_record record;
    assert_true(file_exists(stop));
    assert_int_equal(exit_record_read(&record, end, NULL), 0);
    assert_int_equal(record.code, 75);
    assert_int_equal(record.signal, 0);
    free(stop);
    free(end);
}

static void test_stop_spares_the_deaf(void **state)
{
    struct room *room = *state;
    submit(room, (const char *const[]){"sh", "-c", "echo up; exec sleep 300", NULL}, NULL);
    free(attempt_text(room, "stdout.log"));
    pause_ms(100);
    assert_int_equal(executor_local()->stop(&room->local, &room->job, NULL), 0);
    pause_ms(200);
    assert_int_equal(phase(room), JOB_RUNNING);
}

// A launcher takes the signal and passes it on: to ranks that have begun, which the records show, and to no others.
static void test_stop_waits_for_ranks(void **state)
{
    struct room *room = *state;
    char *mpirun = path_join(room->directory, "mpirun"), *records;
    assert_int_equal(symlink("/bin/sh", mpirun), 0);
    submit(room, (const char *const[]){mpirun, "-c", "trap 'exit 75' USR1; echo up; while :; do sleep 0.05; done", NULL}, NULL);
    free(attempt_text(room, "stdout.log"));
    pause_ms(100);
    assert_int_equal(executor_local()->stop(&room->local, &room->job, NULL), 0);
    pause_ms(300);
    assert_int_equal(phase(room), JOB_RUNNING);
    records = run_attempt_file(room->directory, 1, RECORDS_FILE);
    assert_int_equal(file_write_atomic(records, "{}\n", 3, 0644, NULL), 0);
    assert_int_equal(executor_local()->stop(&room->local, &room->job, NULL), 0);
    wait_for_phase(room, JOB_GONE);
    free(records);
    free(mpirun);
}

// A launcher that hangs after the last of its ranks is ended, with a word; one that has a rank yet is left alone.
static void test_launcher_hangs(void **state)
{
    struct room *room = *state;
    struct job jobs[2];
    char *mpirun = path_join(room->directory, "mpirun"), *fifo = path_join(room->directory, "fifo"), *other = path_join(room->directory, "other");
    assert_int_equal(symlink("/bin/sh", mpirun), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(directory_make(other, NULL), 0);
    jobs[1] = room->job;
    jobs[1].directory = other;
    jobs[1].argv = (const char *const[]){mpirun, "-c", "sleep 300 & wait", NULL};
    random_hex(jobs[1].tag, 32);
    assert_int_equal(executor_local()->submit(&room->local, &jobs[1], NULL), 0);
    submit(room, (const char *const[]){mpirun, "-c", "read word <\"$0\"", fifo, NULL}, NULL);
    jobs[0] = room->job;
    room->local.launchers.patience = 0.5;
    for (double began = clock_steady(); jobs[0].phase == JOB_RUNNING && clock_steady() - began < 60; pause_ms(50))
        assert_int_equal(executor_local()->poll(&room->local, jobs, 2, NULL), 0);
    assert_int_equal(jobs[0].phase, JOB_GONE);
    assert_int_equal(jobs[1].phase, JOB_RUNNING);
    char *text = attempt_text(room, "stderr.log"), *end = attempt_text(room, EXIT_FILE);
    assert_non_null(strstr(text, "hangs, though none of them is left"));
    assert_non_null(strstr(end, "\"code\":137,\"signal\":9"));
    while (executor_local()->kill(&room->local, &jobs[1], NULL) == 1)
        pause_ms(20);
    waitpid(atoi(jobs[1].id), NULL, 0);
    free(end);
    free(text);
    free(other);
    free(fifo);
    free(mpirun);
}

// Many runs at once: what a tick asks costs little processor time, also while some have lost their job.sh and limits are looked at; and to
// end them all costs one look at the machine at a time, not one for each.
enum { MANY = 500, ORPHANED = 5 };

static double thread_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void test_many(void **state)
{
    struct room *room = *state;
    struct job *jobs = allocate(MANY, sizeof *jobs);
    char **places = allocate(MANY, sizeof *places);
    double start = thread_ms();
    for (int i = 0; i < MANY; i++) {
        places[i] = string_format("%s/run-%d", room->directory, i);
        assert_int_equal(directory_make(places[i], NULL), 0);
        jobs[i] = (struct job){.directory = places[i], .argv = (const char *const[]){"sleep", "600", NULL}};
        jobs[i].memory = i % 10 == 0 ? 1LL << 40 : 0;
        random_hex(jobs[i].tag, 32);
        assert_int_equal(executor_local()->submit(&room->local, &jobs[i], NULL), 0);
    }
    double submitted = thread_ms();
    for (int i = 0; i < ORPHANED; i++)
        kill(atoi(jobs[i].id), SIGKILL);
    pause_ms(500);
    double ticks[5];
    for (size_t tick = 0; tick < 5; tick++) {
        double before = thread_ms();
        assert_int_equal(executor_local()->poll(&room->local, jobs, MANY, NULL), 0);
        ticks[tick] = thread_ms() - before;
        pause_ms(300);
    }
    int running = 0;
    for (int i = 0; i < MANY; i++)
        running += jobs[i].phase == JOB_RUNNING;
    double before = thread_ms();
    int left = MANY;
    for (int round = 0; round < 50 && left; round++) {
        left = 0;
        for (int i = 0; i < MANY; i++)
            if (jobs[i].phase == JOB_RUNNING)
                left += executor_local()->kill(&room->local, &jobs[i], NULL) != 0;
        pause_ms(100);
        assert_int_equal(executor_local()->poll(&room->local, jobs, MANY, NULL), 0);
    }
    double ended = thread_ms();
    print_message("%d runs: %.1f ms to submit one, %.1f %.1f %.1f %.1f %.1f ms a tick, %.0f ms to end all (processor time)\n", MANY,
        (submitted - start) / MANY, ticks[0], ticks[1], ticks[2], ticks[3], ticks[4], ended - before);
    for (int i = 0; i < MANY; i++)
        free(places[i]);
    free(places);
    free(jobs);
    assert_true(running >= MANY - ORPHANED);
    assert_int_equal(left, 0);
    double least = INFINITY; // a machine that has other work charges us some of it
    for (size_t tick = 0; tick < 5; tick++)
        least = ticks[tick] < least ? ticks[tick] : least;
    assert_true(least < 100);
    assert_true(ended - before < 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_without_its_leader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kill_leaves_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_process_untouched, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_spares_the_deaf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_waits_for_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launcher_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
