// The Slurm executor against a real cluster: each case drives a struct slurm of its own through one story, all at once, then those that take
// the controller away, one after the other. Prints a table; ends with 1 where a story did not end as it should.
//
//   test_slurm_executor CLUSTER DIRECTORY FOLDER [CASE…]   the cluster's script, its directory, a folder for run directories
#include "tests/slurm/controller.h"
#include "tests/slurm/stories.h"

// ---- with the controller ----

static void play_finish(struct scene *scene)
{
    run_script(scene, "test \"$STORY\" = \"of words with 'blanks'\" && test $SWITCHYARD_ATTEMPT = 1 && test ${#SWITCHYARD_TAG} = 32 && sleep 1");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    EXPECT(scene->job.nodes[0] == 'n' && scene->job.ran >= 0 && scene->job.asked > 0);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_COMPLETED && scene->job.code == 0 && scene->job.signal == 0);
}

static void play_fail(struct scene *scene)
{
    run_script(scene, "exit 3");
    hand_over(scene);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_FAILED && scene->job.code == 3);
    SAYS("failed with exit code 3");
}

static void play_pend(struct scene *scene)
{
    run_script(scene, "true");
    add_option(scene, "--begin=now+1hour");
    hand_over(scene);
    for (int i = 0; i < 200 && !strstr(scene->job.reason, "BeginTime"); i++)
        poll_once(scene);
    EXPECT(scene->job.phase == JOB_PENDING && scene->job.starts > clock_wall() + 1800 && scene->job.starts < clock_wall() + 5400);
    SAYS("its time to begin has not come (BeginTime)");
    kill_until_gone(scene);
    await(scene, JOB_ENDED, 20);
    EXPECT(scene->job.end == END_CANCELLED && attempts(scene) == 0);
}

static void play_hold(struct scene *scene)
{
    char out[200];
    run_script(scene, "true");
    add_option(scene, "--hold");
    hand_over(scene);
    for (int i = 0; i < 200 && !strstr(scene->job.reason, "held"); i++)
        poll_once(scene);
    EXPECT(scene->job.phase == JOB_PENDING);
    SAYS("held by a");
    EXPECT(command(out, sizeof out, "scontrol release %s", scene->job.id) == 0);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_COMPLETED);
}

static void play_cancelled(struct scene *scene)
{
    char out[200];
    run_script(scene, "sleep 100");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    EXPECT(command(out, sizeof out, "scancel %s", scene->job.id) == 0);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_CANCELLED);
    struct slurm_health health;
    slurm_health(scene->slurm, &health);
    if (health.accounting == ACCOUNT_WORKS)
        SAYS("cancelled by ");
}

static void play_requeued(struct scene *scene)
{
    char out[200];
    run_script(scene, "[ $SWITCHYARD_ATTEMPT -gt 1 ] || sleep 100");
    add_option(scene, "--requeue");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    for (int i = 0; i < 400 && attempts(scene) < 1; i++)
        poll_once(scene);
    EXPECT(command(out, sizeof out, "scontrol requeue %s", scene->job.id) == 0);
    await(scene, JOB_PENDING, 60);
    EXPECT(scene->job.restarts == 1);
    await(scene, JOB_ENDED, 90);
    EXPECT(scene->job.end == END_COMPLETED && attempts(scene) == 2 && jobs_of(scene, "all") == 1);
}

static void play_stopped(struct scene *scene)
{
    struct error err = {0};
    run_script(scene, "trap 'exit 75' USR1; while :; do sleep 0.1; done");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    for (int i = 0; i < 400 && attempts(scene) < 1; i++)
        poll_once(scene);
    for (int i = 0; i < 20; i++)
        poll_once(scene);
    EXPECT(call(scene, executor_slurm()->stop, &err) == 0);
    char *path = path_join(scene->directory, STOP_FILE);
    bool there = file_exists(path);
    free(path);
    EXPECT(there);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_FAILED && scene->job.code == 75);
}

static void play_killed(struct scene *scene)
{
    run_script(scene, "trap '' TERM USR1; while :; do sleep 0.1; done");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    for (int i = 0; i < 400 && attempts(scene) < 1; i++)
        poll_once(scene); // before that job.sh would end by itself: its number counts no more
    kill_until_gone(scene);
    EXPECT(jobs_of(scene, "running,completing,pending") == 0);
    await(scene, JOB_ENDED, 30);
    EXPECT(scene->job.end == END_CANCELLED);
}

// After a job's end the next one is another one: the old one's end is not taken for its own, not by a new daemon either.
static void play_retried(struct scene *scene)
{
    char first[64];
    run_script(scene, "exit $SWITCHYARD_ATTEMPT");
    hand_over(scene);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.code == 1);
    memcpy(first, scene->job.id, sizeof first);
    kill_until_gone(scene);
    restart(scene);
    hand_over(scene);
    EXPECT(strcmp(first, scene->job.id) != 0);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.code == 2 && attempts(scene) == 2);
}

static void play_found(struct scene *scene)
{
    char id[64];
    run_script(scene, "sleep 6");
    hand_over(scene);
    memcpy(id, scene->job.id, sizeof id);
    restart(scene); // the answer was not written down
    hand_over(scene);
    EXPECT(strcmp(id, scene->job.id) == 0);
    await(scene, JOB_RUNNING, 60);
    restart(scene);
    hand_over(scene);
    EXPECT(strcmp(id, scene->job.id) == 0 && scene->job.phase == JOB_RUNNING);
    await(scene, JOB_ENDED, 60);
    restart(scene);
    hand_over(scene);
    EXPECT(strcmp(id, scene->job.id) == 0 && scene->job.phase == JOB_ENDED && scene->job.end == END_COMPLETED);
    EXPECT(jobs_of(scene, "all") == 1 && attempts(scene) == 1);
}

// The daemon is killed while sbatch runs; sbatch goes on.
static void play_intent(struct scene *scene)
{
    struct error err = {0};
    struct job nobody;
    run_script(scene, "sleep 3");
    for (int i = 0; i < 400; i++) {
        executor_slurm()->poll(scene->slurm, &nobody, 0, &err);
        EXPECT(call(scene, executor_slurm()->submit, &err) == 0);
        if (strstr(scene->job.reason, "is being submitted"))
            break;
        pause_ms(2);
    }
    SAYS("is being submitted");
    struct slurm *dead = scene->slurm; // as if it were: nobody looks at its sbatch any more
    scene->slurm = executor_new();
    hand_over(scene);
    await(scene, JOB_ENDED, 60);
    slurm_free(dead);
    EXPECT(scene->job.end == END_COMPLETED && attempts(scene) == 1 && jobs_of(scene, "all") == 1);
}

static void play_asked_often(struct scene *scene)
{
    struct error err = {0};
    struct job nobody;
    run_script(scene, "sleep 1");
    for (int i = 0; i < 300; i++) {
        executor_slurm()->poll(scene->slurm, &nobody, 0, &err);
        EXPECT(call(scene, executor_slurm()->submit, &err) == 0);
        pause_ms(10);
    }
    await(scene, JOB_ENDED, 60);
    EXPECT(jobs_of(scene, "all") == 1 && attempts(scene) == 1);
}

static void play_refused(struct scene *scene)
{
    struct error err = {0};
    struct job nobody;
    run_script(scene, "true");
    add_option(scene, "--partition=nowhere");
    int status = 0;
    for (int i = 0; i < 600 && status == 0; i++) {
        executor_slurm()->poll(scene->slurm, &nobody, 0, &err);
        status = call(scene, executor_slurm()->submit, &err);
        EXPECT(status != 0 || scene->job.phase == JOB_UNKNOWN);
        pause_ms(20);
    }
    if (status == 0 || !strstr(err.text, "sbatch refused the job: ") || !strstr(err.text, "nvalid partition"))
        fail(scene, "refused: %d '%s'", status, err.text);
    EXPECT(jobs_of(scene, "all") == 0 && attempts(scene) == 0);
}

static void play_ghost(struct scene *scene)
{
    char out[400];
    run_script(scene, "sleep 8");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    // What an sbatch brought about that had been given up.
    EXPECT(command(out, sizeof out, "cd '%s' && sbatch --parsable --hold --comment=switchyard:%s:0 --job-name='%s' '%s' '%s' -- true",
               scene->directory, scene->job.tag, scene->title, job_script, scene->directory) == 0);
    // Somebody's own job, with a comment that he found at ours.
    EXPECT(command(out, sizeof out, "sbatch --parsable --hold --chdir=/tmp --comment=switchyard:%s:1 --job-name=copied-mark '%s' /tmp -- true",
               scene->job.tag, job_script) == 0);
    for (int i = 0; i < 400 && jobs_of(scene, "pending") > 0; i++)
        poll_once(scene);
    EXPECT(jobs_of(scene, "pending") == 0);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_COMPLETED);
    kill_until_gone(scene);
    EXPECT(command(out, sizeof out, "squeue -h -t pending -n copied-mark -o %%i | grep . && scancel --name=copied-mark") == 0);
}

static void play_time_limit(struct scene *scene)
{
    run_script(scene, "sleep 300");
    add_option(scene, "--time=1");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    await(scene, JOB_ENDED, 150);
    EXPECT(scene->job.end == END_TIME_LIMIT);
    SAYS("Slurm's time limit was reached");
}

static void play_node_down(struct scene *scene)
{
    run_script(scene, "sleep 100");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    fault(scene, "admin", "scontrol update nodename=n3 state=down reason=story");
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_NODE_FAILED && strcmp(scene->job.nodes, "n3") == 0);
}

// Another job takes its node.
static void preempt(struct scene *scene)
{
    char out[200];
    EXPECT(command(out, sizeof out, "cd '%s' && printf '#!/bin/sh\\nsleep 1\\n' >urgent.sh && sbatch --partition=urgent %s --exclusive "
                                    "--output=/dev/null urgent.sh",
               scene->directory, scene->node) == 0);
}

static void play_scavenged(struct scene *scene)
{
    run_script(scene, "[ $SWITCHYARD_ATTEMPT -gt 1 ] || sleep 100");
    add_option(scene, "--partition=scavenge");
    add_option(scene, "--exclusive");
    add_option(scene, "--requeue");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    for (int i = 0; i < 400 && attempts(scene) < 1; i++)
        poll_once(scene);
    preempt(scene);
    await(scene, JOB_PENDING, 90);
    EXPECT(scene->job.restarts == 1);
    await(scene, JOB_ENDED, 120);
    EXPECT(scene->job.end == END_COMPLETED && attempts(scene) == 2);
}

static void play_preempted(struct scene *scene)
{
    run_script(scene, "sleep 100");
    add_option(scene, "--partition=fragile");
    add_option(scene, "--exclusive");
    hand_over(scene);
    await(scene, JOB_RUNNING, 60);
    preempt(scene);
    await(scene, JOB_ENDED, 90);
    EXPECT(scene->job.end == END_PREEMPTED);
}

// Slurm lists an ended job for a while only: what has become of it is remembered, and by a new daemon asked of accounting.
static void play_purged(struct scene *scene)
{
    char out[200], id[64];
    run_script(scene, "exit 5");
    hand_over(scene);
    memcpy(id, scene->job.id, sizeof id);
    await(scene, JOB_ENDED, 60);
    for (double began = clock_steady(); jobs_of(scene, "all") > 0;) {
        EXPECT(clock_steady() - began < 120);
        poll_once(scene);
        pause_ms(1000);
        EXPECT(scene->job.phase == JOB_ENDED && scene->job.code == 5);
    }
    for (int i = 0; i < 40; i++)
        poll_once(scene);
    EXPECT(scene->job.phase == JOB_ENDED && scene->job.code == 5);
    bool accounts = command(out, sizeof out, "sacct -n -X -j %s -o state 2>&1", id) == 0;
    restart(scene);
    memcpy(scene->job.id, id, sizeof id);
    for (double began = clock_steady(); scene->job.phase != JOB_ENDED && scene->job.phase != JOB_GONE;) {
        EXPECT(clock_steady() - began < 90);
        poll_once(scene);
    }
    if (accounts)
        EXPECT(scene->job.phase == JOB_ENDED && scene->job.end == END_FAILED && scene->job.code == 5);
    else
        EXPECT(scene->job.phase == JOB_GONE);
}

// The daemon is killed before it has noted the job's number, and squeue has forgotten the job when it is back.
static void play_purged_unnoted(struct scene *scene)
{
    char out[200], id[64];
    run_script(scene, "exit 5");
    hand_over(scene);
    memcpy(id, scene->job.id, sizeof id);
    await(scene, JOB_ENDED, 60);
    for (double began = clock_steady(); jobs_of(scene, "all") > 0; pause_ms(1000))
        EXPECT(clock_steady() - began < 120);
    bool accounts = command(out, sizeof out, "sacct -n -X -j %s -o state 2>&1", id) == 0;
    restart(scene);
    struct error err = {0};
    struct job nobody;
    for (double began = clock_steady(); scene->job.phase == JOB_UNKNOWN; pause_ms(50)) {
        EXPECT(clock_steady() - began < 90);
        executor_slurm()->poll(scene->slurm, &nobody, 0, &err);
        EXPECT(call(scene, executor_slurm()->find, &err) == 0);
    }
    if (accounts)
        EXPECT(scene->job.phase == JOB_ENDED && scene->job.end == END_FAILED && scene->job.code == 5 && strcmp(scene->job.id, id) == 0);
    else
        EXPECT(scene->job.phase == JOB_GONE);
}

static void play_strangers(struct scene *scene)
{
    struct slurm *other = executor_new();
    struct slurm_stranger *list = NULL;
    struct error err = {0};
    struct job nobody;
    size_t count = 0;
    run_script(scene, "sleep 12");
    hand_over(scene);
    bool seen = false;
    for (double began = clock_steady(); !seen && clock_steady() - began < 20; pause_ms(50)) {
        executor_slurm()->poll(other, &nobody, 0, &err);
        if (slurm_strangers(other, &list, &count) == 0)
            for (size_t i = 0; i < count; i++)
                seen |= strcmp(list[i].tag, scene->job.tag) == 0 && strcmp(list[i].id, scene->job.id) == 0 && list[i].directory &&
                        strcmp(list[i].directory, scene->directory) == 0 && strcmp(list[i].name, scene->title) == 0;
        slurm_strangers_free(list, count);
    }
    slurm_free(other);
    EXPECT(seen);
    await(scene, JOB_RUNNING, 60);
    while (slurm_strangers(scene->slurm, &list, &count) != 0)
        poll_once(scene);
    bool own = false;
    for (size_t i = 0; i < count; i++)
        own |= strcmp(list[i].tag, scene->job.tag) == 0;
    slurm_strangers_free(list, count);
    EXPECT(!own);
    await(scene, JOB_ENDED, 60);
}

// ---- two jobs of one call ----

// However often it is asked, and by a daemon that comes later: the end is the one of the job that began.
static void expect_end_of_one(struct scene *scene)
{
    char out[64], id[64];
    await(scene, JOB_ENDED, 60);
    for (int i = 0; i < 60; i++)
        poll_once(scene);
    EXPECT(scene->job.phase == JOB_ENDED && scene->job.end == END_FAILED && scene->job.code == 5);
    EXPECT(attempts(scene) == 1 && jobs_of(scene, "all") == 2 && jobs_of(scene, "pending,running") == 0);
    command(out, sizeof out, "cat '%s/submission.1'", scene->directory);
    memcpy(id, scene->job.id, sizeof id);
    EXPECT(strncmp(out, id, strlen(id)) == 0 && out[strlen(id)] == '\n');
    restart(scene);
    hand_over(scene);
    await(scene, JOB_ENDED, 60);
    EXPECT(scene->job.end == END_FAILED && scene->job.code == 5 && strcmp(scene->job.id, id) == 0 && attempts(scene) == 1);
}

// Both start at once. The one that is too late is judged by nobody.
static void play_twins(struct scene *scene)
{
    run_script(scene, "sleep 3; exit 5");
    hand_over(scene);
    expect_end_of_one(scene);
    char out[400];
    command(out, sizeof out, "grep -c 'nothing is started$' '%s/submit.log'", scene->directory);
    EXPECT(strcmp(out, "1\n") == 0);
}

// One waits, and is cancelled when the other has begun.
static void play_twin_held(struct scene *scene)
{
    run_script(scene, "sleep 4; exit 5");
    hand_over(scene);
    expect_end_of_one(scene);
    EXPECT(jobs_of(scene, "cancelled") == 1);
}

static struct scene scenes[] = {
    {.name = "finish", .play = play_finish},
    {.name = "fail", .play = play_fail},
    {.name = "pend", .play = play_pend},
    {.name = "hold", .play = play_hold},
    {.name = "cancelled", .play = play_cancelled},
    {.name = "requeued", .play = play_requeued},
    {.name = "stopped", .play = play_stopped},
    {.name = "killed", .play = play_killed},
    {.name = "retried", .play = play_retried},
    {.name = "found", .play = play_found},
    {.name = "intent", .play = play_intent},
    {.name = "asked-often", .play = play_asked_often},
    {.name = "refused", .play = play_refused},
    {.name = "ghost", .play = play_ghost},
    {.name = "time-limit", .play = play_time_limit},
    {.name = "node-down", .play = play_node_down, .node = "--nodelist=n3"},
    {.name = "preempted", .play = play_preempted, .node = "--nodelist=n4"},
    {.name = "scavenged", .play = play_scavenged, .node = "--nodelist=n5"},
    {.name = "purged", .play = play_purged},
    {.name = "purged-unnoted", .play = play_purged_unnoted},
    {.name = "twins", .play = play_twins},
    {.name = "twin-held-first", .play = play_twin_held},
    {.name = "twin-held-last", .play = play_twin_held},
    {.name = "strangers", .play = play_strangers},
    {.name = "slow-controller", .play = play_slow_controller, .alone = true},
    {.name = "no-controller", .play = play_no_controller, .alone = true},
    {.name = "forgetful-controller", .play = play_forgetful_controller, .alone = true, .node = "--nodelist=n1"},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void note_time(void *context)
{
    struct scene *scene = context;
    scene->took = clock_steady() - scene->began;
    if (scene->other && scene->other->fault[0] && !scene->fault[0])
        memcpy(scene->fault, scene->other->fault, sizeof scene->fault);
}

static void *play(void *context)
{
    struct scene *scene = context;
    pthread_cleanup_push(note_time, scene);
    prepare(scene);
    scene->play(scene);
    pthread_cleanup_pop(1);
    return NULL;
}

static void start(struct scene *scene)
{
    scene->began = clock_steady();
    pthread_create(&scene->thread, NULL, play, scene);
}

static void end(struct scene *scene)
{
    pthread_join(scene->thread, NULL);
    slurm_free(scene->slurm);
    printf("%-22s %-8s %5.1f s  %-34s %s\n", scene->name, scene->fault[0] ? "WRONG" : "right", scene->took, scene->story,
        scene->fault[0] ? scene->fault : scene->job.reason);
    fflush(stdout);
}

static bool is_wanted(const struct scene *scene, int count, char **words)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], scene->name) == 0)
            return true;
    return count == 0;
}

int main(int count, char **words)
{
    struct error err = {0};
    if (count < 4) {
        fprintf(stderr, "usage: test_slurm_executor CLUSTER DIRECTORY FOLDER [CASE...]\n");
        return 2;
    }
    cluster_script = words[1];
    cluster_directory = words[2];
    folder = words[3];
    char *script = path_join(folder, "job.sh");
    job_script = script;
    if (job_script_write(script, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    int wrong = 0;
    for (size_t i = 0; i < SCENES; i++)
        if (!scenes[i].alone && is_wanted(&scenes[i], count - 4, words + 4))
            start(&scenes[i]);
    for (size_t i = 0; i < SCENES; i++) {
        if (!is_wanted(&scenes[i], count - 4, words + 4))
            continue;
        if (scenes[i].alone)
            start(&scenes[i]);
        end(&scenes[i]);
        wrong += scenes[i].fault[0] != 0;
    }
    free(script);
    return wrong ? 1 : 0;
}
