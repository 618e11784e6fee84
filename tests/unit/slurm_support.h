// The Slurm executor against commands that say what a test wants them to say: six shell scripts on PATH, and files that they read. The real
// ones are in tests/slurm; here are the answers that those do not give when they are asked to.
#pragma once
#include "daemon/exec/slurm/slurm.h"
#include "schema/base/clock.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/switchyard-slurm-XXXXXX";
#include "tests/unit/folder.h"

#define TAG "0123456789abcdef0123456789abcdef"
#define MARK "switchyard:" TAG

// Each notes its words in <name>.asked, then says <name>.out and complains <name>.err, with which it fails; <name>.code is another exit code,
// <name>.talk what it says on standard error all the same.
static const char script[] = "#!/bin/sh\n"
                             "name=${0##*/}\n"
                             "cd \"$FAKE\"\n"
                             "echo \"$*\" >>$name.asked\n"
                             "[ ! -f $name.slow ] || sleep \"$(cat $name.slow)\"\n"
                             "if [ -f old ]; then case \"$*\" in *--Format*) echo \"squeue: unrecognized option '--Format'\" >&2; exit 1 ;; esac; fi\n"
                             "[ ! -f $name.env ] || env >$name.env\n"
                             "complaint=$(cat $name.err 2>/dev/null)\n"
                             "[ -z \"$complaint\" ] || { echo \"$complaint\" >&2; exit 1; }\n"
                             "cat $name.talk >&2 2>/dev/null\n"
                             "cat $name.out 2>/dev/null\n"
                             "exit \"$(cat $name.code 2>/dev/null || echo 0)\"\n";

static struct slurm *slurm;
static struct job job;
static const char *const words[] = {"true", NULL};
static char run[256];

static void put(const char *name, const char *text)
{
    char path[400];
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text)
        unlink(path);
    else if (file_write_atomic(path, text, strlen(text), 0755, &err) != 0)
        fail_msg("%s", err.text);
}

static char *got(const char *name) // free()
{
    char path[400];
    struct text text;
    text_init(&text, 1 << 20);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_exists(path))
        assert_int_equal(file_read(path, &text, NULL), 0);
    return text_take(&text);
}

static size_t lines_of(const char *name)
{
    char *text = got(name);
    size_t lines = 0;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    free(text);
    return lines;
}

static void assert_says(const char *name, const char *what)
{
    char *text = got(name);
    if (!strstr(text, what))
        fail_msg("%s does not say '%s' but '%s'", name, what, text);
    free(text);
}

__attribute__((unused)) static char *row(const char *id, const char *state, const char *reason, const char *mark) // lent until the next call
{
    static char line[600];
    snprintf(line, sizeof line, "%s\x1f%s\x1f" "768\x1f" "0\x1f" "1796023116\x1f" "0:05\x1fn1\x1f%s\x1f%s\x1f" "demo.moe-1\x1f%s\n", id, state,
        reason, mark, run);
    return line;
}

static void new_executor(void)
{
    slurm_free(slurm);
    slurm = slurm_new(&(struct slurm_settings){
        .job_script = "/script", .interval = 0.02, .interval_max = 0.1, .deadline = 5, .patience = 0.5, .submissions_max = 2});
    job = (struct job){.tag = TAG, .name = "demo.moe-1", .directory = run, .argv = words};
}

static int set_up(void **state)
{
    (void)state;
    static const char *const names[] = {"squeue", "sbatch", "scancel", "sacct", "sinfo", "scontrol"};
    static const char *const kinds[] = {"asked", "slow", "out", "err", "talk", "env", "code"};
    char name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put(names[i], script);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            snprintf(name, sizeof name, "%s.%s", names[i], kinds[k]);
            put(name, NULL);
        }
    }
    put("old", NULL);
    put("sbatch.out", "7\n");
    put("sacct.err", "Slurm accounting storage is disabled\n");
    snprintf(run, sizeof run, "%s/run", folder);
    directory_remove(run, NULL);
    directory_make(run, NULL);
    setenv("FAKE", folder, 1);
    static char path[1000];
    if (!path[0])
        snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    new_executor();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    slurm_free(slurm);
    slurm = NULL;
    return 0;
}

static void turn(void)
{
    struct error err = {0};
    assert_int_equal(executor_slurm()->poll(slurm, &job, 1, &err), 0);
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

__attribute__((unused)) static void turn_for(double seconds)
{
    for (double began = clock_steady(); clock_steady() - began < seconds;)
        turn();
}

__attribute__((unused)) static void until(enum job_phase phase)
{
    for (double began = clock_steady(); clock_steady() - began < 20;) {
        turn();
        if (job.phase == phase)
            return;
    }
    fail_msg("phase %d, wanted %d: %s", (int)job.phase, (int)phase, job.reason);
}

// Polls as a daemon does that has nothing yet to poll for.
static int submit_until_decided(struct error *err)
{
    for (double began = clock_steady(); clock_steady() - began < 20;) {
        assert_int_equal(executor_slurm()->poll(slurm, NULL, 0, err), 0);
        int status = executor_slurm()->submit(slurm, &job, err);
        if (status != 0 || job.phase != JOB_UNKNOWN)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    fail_msg("not decided: %s", job.reason);
    return -1;
}

__attribute__((unused)) static void hand_over(const char *id)
{
    struct error err = {0};
    if (submit_until_decided(&err) != 0)
        fail_msg("%s", err.text);
    assert_string_equal(job.id, id);
}

// What a daemon does in a tick while it is not decided.
__attribute__((unused)) static void offer(void)
{
    struct error err = {0};
    assert_int_equal(executor_slurm()->poll(slurm, NULL, 0, &err), 0);
    assert_int_equal(executor_slurm()->submit(slurm, &job, &err), 0);
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

__attribute__((unused)) static void assert_submission(const char *number)
{
    char *text = got("run/submission");
    assert_string_equal(text, number);
    free(text);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
