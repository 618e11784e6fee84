// Stories of the Slurm executor (executor.c) in which the controller is slow, away, or forgets.
#pragma once
#include "tests/slurm/stories.h"

// ---- without the controller ----

// sbatch gives up after ten seconds, and Slurm makes the job when it wakes.
static void play_slow_controller(struct scene *scene)
{
    struct error err = {0};
    struct job nobody;
    run_script(scene, "sleep 2");
    fault(scene, "ctld-pause", "");
    for (double began = clock_steady(); clock_steady() - began < 16;) {
        executor_slurm()->poll(scene->slurm, &nobody, 0, &err);
        EXPECT(call(scene, executor_slurm()->submit, &err) == 0);
        EXPECT(scene->job.phase == JOB_UNKNOWN);
        pause_ms(50);
    }
    fault(scene, "ctld-resume", "");
    hand_over(scene);
    await(scene, JOB_ENDED, 90);
    EXPECT(scene->job.end == END_COMPLETED && attempts(scene) == 1 && jobs_of(scene, "all") == 1);
}

// Slurm saves what it knows of all jobs within five seconds after one was submitted, but not for its backfill's having started one: a controller
// that was killed then takes a job that runs for one that waits, and starts it once more (to no purpose: its node refuses the second copy).
static void let_slurm_save(struct scene *scene)
{
    char out[200];
    EXPECT(command(out, sizeof out, "sbatch --parsable --hold --job-name=saved --output=/dev/null '%s' 2>&1 && scancel --name=saved", job_script) == 0);
    for (double began = clock_steady(); clock_steady() - began < 8;)
        poll_once(scene);
}

static void play_no_controller(struct scene *scene)
{
    run_script(scene, "sleep 25; exit 6");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    let_slurm_save(scene);
    fault(scene, "ctld-kill", "");
    bool silent = false;
    for (double began = clock_steady(), down = 0; down < 14 || (!silent && down < 20); down = clock_steady() - began) { // a client gives up after nine seconds or more
        poll_once(scene);
        EXPECT(scene->job.phase == JOB_RUNNING || scene->job.phase == JOB_UNKNOWN);
        silent |= strstr(scene->job.reason, "Slurm has not answered since") != NULL;
    }
    EXPECT(silent);
    struct slurm_health health;
    slurm_health(scene->slurm, &health);
    EXPECT(health.queue.silent_since > 0 && strstr(health.queue.fault, "Unable to contact"));
    fault(scene, "ctld-start", "");
    await(scene, JOB_ENDED, 90);
    EXPECT(scene->job.end == END_FAILED && scene->job.code == 6 && attempts(scene) == 1);
}

// ---- a controller that forgets ----

// What Slurm has saved is put aside, and is what a controller finds that is killed before it has saved again (which it does every five seconds).
static void keep_saved(struct scene *scene)
{
    char words[1000];
    snprintf(words, sizeof words, "sh -c \"rm -rf '%s/kept' && cp -a '%s/state' '%s/kept'\"", cluster_directory, cluster_directory, cluster_directory);
    fault(scene, "admin", words);
}

static void kill_unsaved(struct scene *scene)
{
    char words[1000];
    snprintf(words, sizeof words, "sh -c \"rm -rf '%s/state' && mv '%s/kept' '%s/state'\"", cluster_directory, cluster_directory, cluster_directory);
    fault(scene, "ctld-kill", "");
    fault(scene, "admin", words);
    fault(scene, "ctld-start", "");
}

// A script of somebody else's, whose end takes its node a while (executor.py). Its number.
static void squat(struct scene *scene, const char *node, char number[32])
{
    char out[32] = "";
    EXPECT(command(out, sizeof out, "sbatch --parsable --no-requeue %s --job-name=stories.forgetful-squatter --output=/dev/null '%s/squat.sh'", node, folder) == 0);
    snprintf(number, 32, "%.*s", (int)strspn(out, "0123456789"), out);
    for (double began = clock_steady(); clock_steady() - began < 30; pause_ms(50))
        if (command(out, sizeof out, "squeue -h -j %s -o %%T", number) == 0 && strcmp(out, "RUNNING\n") == 0)
            return;
    fail(scene, "job %s does not run", number);
}

// Both jobs get the numbers of two that the controller has forgotten, on the nodes where those still run.
static void reuse_numbers(struct scene *scene, struct scene *other)
{
    char first[32], second[32];
    keep_saved(scene);
    squat(scene, scene->node, first);
    squat(scene, other->node, second);
    kill_unsaved(scene);
    hand_over(scene);
    hand_over(other);
    EXPECT(strcmp(scene->job.id, first) == 0 && strcmp(other->job.id, second) == 0);
}

// Slurm's own doing is told for what it is: nobody has cancelled the job, nor is it to wait until somebody releases it.
static bool is_refused(struct scene *scene)
{
    for (double began = clock_steady(); clock_steady() - began < 60;) {
        poll_once(scene);
        if (scene->job.phase == JOB_ENDED || scene->job.phase == JOB_GONE)
            break;
    }
    if (scene->job.phase == JOB_ENDED)
        EXPECT(scene->job.end == END_COMPLETED); // its node took it all the same, or another one
    else
        EXPECT(scene->job.phase == JOB_GONE && scene->job.unlaunched);
    return scene->job.phase == JOB_GONE && strstr(scene->job.reason, "refused job");
}

static void play_forgetful_controller(struct scene *scene)
{
    enum { TRIES = 5 };
    static struct scene other = {.name = "forgetful-requeue", .node = "--nodelist=n2"};
    bool cancelled = false, held = false;
    char out[200];
    EXPECT(command(out, sizeof out, "printf '#!/bin/sh\\nsleep 60\\n' >'%s/squat.sh'", folder) == 0);
    scene->other = &other;
    prepare(&other);
    other.options[4] = "--requeue";
    run_script(scene, "true");
    run_script(&other, "true");
    for (int tries = 0; tries < TRIES && !(cancelled && held); tries++) {
        reuse_numbers(scene, &other);
        if (is_refused(scene)) {
            SAYS("and Slurm cancelled it");
            restart(scene); // a daemon that was not there
            run_script(scene, "true");
            EXPECT(is_refused(scene));
            cancelled = true;
        }
        held |= is_refused(&other) && strstr(other.job.reason, "and Slurm holds it");
        kill_until_gone(scene);
        kill_until_gone(&other);
        fault(scene, "admin", "sh -c \"scontrol update nodename=n1,n2 state=resume || true\"");
    }
    EXPECT(cancelled && held);
    hand_over(scene);
    await(scene, JOB_ENDED, 90);
    EXPECT(scene->job.end == END_COMPLETED);
    slurm_free(other.slurm);
}
