// Finding a job again that was handed to Slurm, and ending it for good, whatever sbatch and squeue say.
#include "tests/unit/slurm_support.h"

static void find_until_decided(void)
{
    struct error err = {0};
    for (double began = clock_steady(); clock_steady() - began < 20;) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->find(slurm, &job, &err), 0);
        if (job.phase != JOB_UNKNOWN)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    fail_msg("not found, nor not: %s", job.reason);
}

static void test_find(void **state)
{
    (void)state;
    find_until_decided();
    assert_int_equal(job.phase, JOB_GONE); // nothing has ever been sent: nobody needs to be asked
    assert_int_equal(lines_of("squeue.asked"), 0);
    new_executor();
    put("run/submission", "2\n");
    put("squeue.out", row("5", "COMPLETED", "None", MARK ":1"));
    find_until_decided();
    assert_int_equal(job.phase, JOB_GONE); // an older one is another
    new_executor();
    put("squeue.out", row("6", "FAILED", "None", MARK ":2"));
    find_until_decided();
    assert_int_equal(job.phase, JOB_ENDED);
    assert_string_equal(job.id, "6");
    // No answer: not known.
    new_executor();
    put("squeue.err", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
    struct error err = {0};
    for (int i = 0; i < 100; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        executor_slurm()->find(slurm, &job, &err);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    // A file that says nothing sensible: not known either, and nothing is sent.
    new_executor();
    put("squeue.err", NULL);
    put("run/submission", "two\n");
    executor_slurm()->find(slurm, &job, &err);
    assert_int_equal(job.phase, JOB_UNKNOWN);
    executor_slurm()->submit(slurm, &job, &err);
    assert_int_equal(job.phase, JOB_UNKNOWN);
    assert_non_null(strstr(job.reason, "does not hold the number of a submission"));
}

// One line of sacct, submitted so many seconds after the number was written down.
static void put_account(const char *state, double after, const char *mark, const char *name)
{
    char line[800], path[400];
    struct stat status;
    snprintf(path, sizeof path, "%s/submission", run);
    assert_int_equal(stat(path, &status), 0);
    snprintf(line, sizeof line, "9\x1f%s\x1f" "5:0\x1f" "Unknown\x1f%lld\x1f" "5\x1fn1\x1f%s\x1f%s\x1f%s\n", state, (long long)((double)status.st_mtime + after),
        mark, name, run);
    put("sacct.out", line);
}

// squeue has purged it: accounting knows its end, by the mark or, where it keeps no comments, by directory and time.
static void test_find_in_accounting(void **state)
{
    (void)state;
    static const struct {
        const char *state, *mark, *name;
        double after;
        enum job_phase phase;
    } cases[] = {
        {"FAILED", MARK ":2", "demo.moe-1", 0, JOB_ENDED},
        {"FAILED", "", "demo.moe-1", 1, JOB_ENDED},
        {"CANCELLED by 12", "", "demo.moe-1", -1, JOB_ENDED},
        {"FAILED", MARK ":1", "demo.moe-1", 1, JOB_GONE},    // an earlier one
        {"FAILED", "", "demo.moe-1", -10, JOB_GONE},         // …
        {"RUNNING", "", "demo.moe-1", 1, JOB_GONE},          // squeue would list it
        {"FAILED", "something else", "demo.moe-2", 1, JOB_GONE}, // another run's
    };
    put("run/submission", "2\n");
    put("sacct.err", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        new_executor();
        put("sacct.asked", NULL);
        put_account(cases[i].state, cases[i].after, cases[i].mark, cases[i].name);
        find_until_decided();
        if (job.phase != cases[i].phase)
            fail_msg("case %zu: phase %d, '%s'", i, (int)job.phase, job.reason);
        assert_says("sacct.asked", "--name=demo.moe-1 --starttime=");
        if (job.phase == JOB_ENDED)
            assert_string_equal(job.id, "9");
    }
    // It does not answer: so long as it may, nothing is decided, then the job is gone.
    new_executor();
    put("sacct.err", "sacct: error: Problem talking to the database: Connection refused\n");
    double began = clock_steady();
    find_until_decided();
    assert_int_equal(job.phase, JOB_GONE);
    assert_true(clock_steady() - began >= 0.5);
}

// … and it is asked too before a call that gave no clear answer is made once more.
static void test_unclear_in_accounting(void **state)
{
    (void)state;
    put("sbatch.out", "");
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    put("sacct.err", NULL);
    struct error err = {0};
    put("run/submission", "1\n"); // only for its time
    put_account("CANCELLED by 12", 0, MARK ":1", "demo.moe-1");
    put("run/submission", NULL);
    hand_over("9");
    executor_slurm()->poll(slurm, &job, 1, &err);
    assert_int_equal(job.phase, JOB_ENDED);
    assert_int_equal(job.end, END_CANCELLED);
    assert_int_equal(lines_of("sbatch.asked"), 1);
}

static void kill_until_gone(void)
{
    struct error err = {0};
    int left = 1;
    for (int i = 0; i < 4000 && left == 1; i++) {
        left = executor_slurm()->kill(slurm, &job, &err);
        turn();
    }
    assert_int_equal(left, 0);
}

static void test_kill(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 0); // nothing was ever sent
    hand_over("7");
    char lines[1300];
    int length = snprintf(lines, sizeof lines, "%s", row("7", "RUNNING", "None", MARK ":1"));
    snprintf(lines + length, sizeof lines - (size_t)length, "%s", row("6", "PENDING", "None", MARK ":0"));
    put("squeue.out", lines);
    until(JOB_RUNNING);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 1);
        turn();
    }
    assert_submission("2\n");
    assert_says("scancel.asked", "7");
    assert_says("scancel.asked", "6");
    put("squeue.out", row("7", "COMPLETING", "None", MARK ":1"));
    for (int i = 0; i < 60; i++) {
        assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 1);
        turn();
    }
    put("squeue.out", row("7", "CANCELLED", "None", MARK ":1"));
    kill_until_gone();
    // What comes after it has a number of its own, and goes without a look around.
    put("sbatch.out", "9\n");
    find_until_decided();
    assert_int_equal(job.phase, JOB_GONE);
    hand_over("9");
    assert_says("sbatch.asked", MARK ":2");
}

// The disk with the run directory is gone, after a restart of the daemon: that is no run which was never handed over. What there is of it is
// cancelled all the same, and when the disk is back its file is what counts.
static void test_disk_is_away(void **state)
{
    (void)state;
    struct error err = {0};
    char elsewhere[300];
    hand_over("7");
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    snprintf(elsewhere, sizeof elsewhere, "%s.away", run);
    assert_int_equal(rename(run, elsewhere), 0);
    new_executor();
    for (int i = 0; i < 60; i++) {
        assert_int_equal(executor_slurm()->find(slurm, &job, &err), 0);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        assert_int_equal(executor_slurm()->submit(slurm, &job, &err), 0);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        turn();
    }
    assert_int_equal(lines_of("sbatch.asked"), 1);
    for (int i = 0; i < 4000 && lines_of("scancel.asked") == 0; i++) {
        assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 1);
        turn();
    }
    assert_says("scancel.asked", "7\n");
    put("squeue.out", row("7", "CANCELLED", "None", MARK ":1"));
    kill_until_gone();
    assert_int_equal(rename(elsewhere, run), 0);
    assert_submission("1\n");
    put("squeue.out", row("7", "CANCELLED", "None", MARK ":1"));
    executor_slurm()->poll(slurm, &job, 1, &err);
    assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 1);
    assert_submission("2\n");
}

static void test_kill_while_sbatch_runs(void **state)
{
    (void)state;
    struct error err = {0};
    put("sbatch.slow", "0.5");
    executor_slurm()->submit(slurm, &job, &err);
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") == 0; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 1);
    put("squeue.out", row("7", "PENDING", "None", MARK ":1"));
    for (int i = 0; i < 4000 && lines_of("scancel.asked") == 0; i++) {
        assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 1);
        executor_slurm()->poll(slurm, NULL, 0, &err);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_says("scancel.asked", "7\n");
    assert_submission("2\n");
}

// The end of a start that is said to have been followed by none: squeue may know of another, once it answers again.
static void test_end_of_a_former_start(void **state)
{
    (void)state;
    hand_over("7");
    put("sacct.err", NULL);
    put("sacct.slow", "0.3");
    put("sacct.out", "7\x1fPREEMPTED\x1f" "0:0\x1f" "1\x1f" "1\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/x\n");
    while (lines_of("sacct.asked") == 0)
        turn();
    put("squeue.err", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
    for (double began = clock_steady(); clock_steady() - began < 1.5;) {
        turn();
        assert_int_equal(job.phase, JOB_UNKNOWN);
    }
    assert_string_equal(job.reason, "preempted by a job of higher priority, says accounting; Slurm is asked whether it is to be started again");
    put("squeue.out", row("7", "PENDING", "BeginTime", MARK ":1"));
    put("squeue.err", NULL);
    until(JOB_PENDING);
    put("squeue.out", "");
    until(JOB_ENDED); // it knows of none
    assert_int_equal(job.end, END_PREEMPTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_find),
        CASE(test_find_in_accounting),
        CASE(test_unclear_in_accounting),
        CASE(test_kill),
        CASE(test_disk_is_away),
        CASE(test_kill_while_sbatch_runs),
        CASE(test_end_of_a_former_start),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
