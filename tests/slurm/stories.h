// What the stories of the Slurm executor are told with: a scene (a struct slurm of its own and one run), a daemon's ticks, and the cluster's
// faults. A story that does not go as it should ends its thread with a sentence.
#pragma once
#include "daemon/exec/executor.h"
#include "daemon/exec/slurm/slurm.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPTIONS_MAX = 16, STORY_MAX = 400 };

static const char *cluster_script, *cluster_directory, *folder, *job_script;

struct scene {
    const char *name;
    void (*play)(struct scene *scene);
    bool alone;       // it takes the controller away
    const char *node; // of its own, because it breaks it; NULL: any of the others
    struct scene *other; // that plays along: its fault is this one's; NULL: none
    pthread_t thread;
    struct slurm *slurm;
    struct job job;
    char directory[400], title[120], chdir[420], job_name[140];
    const char *argv[8], *environment[4], *options[OPTIONS_MAX];
    char story[STORY_MAX]; // phases, as they were first told
    char fault[700];
    double began, took;
};

static _Noreturn void fail(struct scene *scene, const char *format, ...) __attribute__((format(printf, 2, 3)));

static _Noreturn void fail(struct scene *scene, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(scene->fault, sizeof scene->fault, format, args);
    va_end(args);
    pthread_exit(NULL);
}

#define EXPECT(condition) \
    do { \
        if (!(condition)) \
            fail(scene, "line %d: not so: %s (job %s, phase %d, end %d, code %lld, signal %d, '%s')", __LINE__, #condition, scene->job.id, \
                (int)scene->job.phase, (int)scene->job.end, (long long)scene->job.code, scene->job.signal, scene->job.reason); \
    } while (0)
#define SAYS(words) EXPECT(strstr(scene->job.reason, words) != NULL)

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

// ---- the scene ----

static struct slurm *executor_new(void)
{
    return slurm_new(&(struct slurm_settings){
        .job_script = job_script, .interval = 0.5, .interval_max = 4, .deadline = 20, .patience = 20});
}

static void describe_job(struct scene *scene)
{
    scene->job = (struct job){.name = scene->title,
        .directory = scene->directory,
        .argv = scene->argv,
        .environment = scene->environment,
        .options = scene->options};
}

static void prepare(struct scene *scene)
{
    char tag[33];
    struct error err = {0};
    snprintf(scene->directory, sizeof scene->directory, "%.300s/%.60s", folder, scene->name);
    snprintf(scene->title, sizeof scene->title, "stories.%.100s", scene->name);
    snprintf(scene->chdir, sizeof scene->chdir, "--chdir=%s", scene->directory);
    snprintf(scene->job_name, sizeof scene->job_name, "--job-name=%s", scene->title);
    if (directory_make(scene->directory, &err) != 0)
        fail(scene, "%s", err.text);
    const char *options[] = {scene->job_name, scene->chdir, "--output=submit.log", "--open-mode=append", "--no-requeue",
        scene->node ? scene->node : "--exclude=n3,n4,n5"};
    memcpy(scene->options, options, sizeof options);
    scene->environment[0] = "STORY=of words with 'blanks'";
    describe_job(scene);
    random_hex(tag, 32);
    memcpy(scene->job.tag, tag, sizeof tag);
    scene->slurm = executor_new();
}

static void add_option(struct scene *scene, const char *option)
{
    size_t count = 0;
    while (scene->options[count])
        count++;
    scene->options[count] = option;
}

static void run_script(struct scene *scene, const char *script)
{
    scene->argv[0] = "/bin/sh";
    scene->argv[1] = "-c";
    scene->argv[2] = script;
}

static int call(struct scene *scene, int (*function)(void *, struct job *, struct error *), struct error *err)
{
    (void)scene;
    return function(scene->slurm, &scene->job, err);
}

// One tick of a daemon.
static void poll_once(struct scene *scene)
{
    static const char *const names[] = {"unknown", "pending", "running", "ended", "gone"};
    struct error err = {0};
    if (executor_slurm()->poll(scene->slurm, &scene->job, 1, &err) != 0)
        fail(scene, "poll: %s", err.text);
    const char *name = names[scene->job.phase];
    size_t length = strlen(scene->story);
    bool same = length >= strlen(name) && strcmp(scene->story + length - strlen(name), name) == 0;
    if (!same && scene->job.phase != JOB_UNKNOWN)
        snprintf(scene->story + length, sizeof scene->story - length, "%s%s", length ? " " : "", name);
    pause_ms(50);
}

static void await(struct scene *scene, enum job_phase phase, double seconds)
{
    for (double began = clock_steady(); clock_steady() - began < seconds;) {
        poll_once(scene);
        if (scene->job.phase == phase)
            return;
        if (scene->job.phase == JOB_ENDED || scene->job.phase == JOB_GONE)
            break;
    }
    fail(scene, "waited for phase %d, got %d '%s' after '%s'", (int)phase, (int)scene->job.phase, scene->job.reason, scene->story);
}

// As the daemon does it: find, then submit, once a tick, until it is handed over.
static void hand_over(struct scene *scene)
{
    const struct executor *executor = executor_slurm();
    struct error err = {0};
    struct job nobody;
    for (double began = clock_steady(); clock_steady() - began < 120;) {
        executor->poll(scene->slurm, &nobody, 0, &err);
        if (call(scene, executor->find, &err) != 0)
            fail(scene, "find: %s", err.text);
        if (scene->job.phase == JOB_GONE && call(scene, executor->submit, &err) != 0)
            fail(scene, "submit: %s", err.text);
        if (scene->job.phase != JOB_UNKNOWN && scene->job.phase != JOB_GONE) {
            EXPECT(scene->job.id[0] && strspn(scene->job.id, "0123456789") == strlen(scene->job.id));
            return;
        }
        pause_ms(50);
    }
    fail(scene, "not handed over: %s", scene->job.reason);
}

static void kill_until_gone(struct scene *scene)
{
    struct error err = {0};
    for (double began = clock_steady(); clock_steady() - began < 90;) {
        int left = call(scene, executor_slurm()->kill, &err);
        if (left == 0)
            return;
        if (left < 0)
            fail(scene, "kill: %s", err.text);
        poll_once(scene);
    }
    fail(scene, "not gone: %s", scene->job.reason);
}

static void restart(struct scene *scene)
{
    char tag[33];
    memcpy(tag, scene->job.tag, sizeof tag);
    slurm_free(scene->slurm);
    scene->slurm = executor_new();
    describe_job(scene);
    memcpy(scene->job.tag, tag, sizeof tag);
}

// Runs a command; what it prints, cut.
static int command(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int command(char *out, size_t size, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    FILE *pipe = popen(line, "re");
    size_t got = pipe ? fread(out, 1, size - 1, pipe) : 0;
    out[got] = 0;
    char rest[512];
    while (pipe && fread(rest, 1, sizeof rest, pipe) > 0)
        continue;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void fault(struct scene *scene, const char *which, const char *words)
{
    char out[600];
    if (command(out, sizeof out, "'%s' %s '%s' %s 2>&1", cluster_script, which, cluster_directory, words) != 0)
        fail(scene, "%s %s: %s", which, words, out);
}

// How many jobs Slurm has had of this run, whatever became of them.
static int jobs_of(struct scene *scene, const char *states)
{
    char out[64];
    command(out, sizeof out, "squeue -h -t %s -n '%s' -o %%i | wc -l", states, scene->title);
    return (int)strtol(out, NULL, 10);
}

static int64_t attempts(const struct scene *scene)
{
    return run_last_attempt(scene->directory);
}
