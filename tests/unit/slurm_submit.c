// Handing a job to Slurm exactly once, finding it again, and ending it for good, whatever sbatch and squeue say.
#include "tests/unit/slurm_support.h"

static void assert_submission(const char *number)
{
    char *text = got("run/submission");
    assert_string_equal(text, number);
    free(text);
}

static void test_words_of_sbatch(void **state)
{
    (void)state;
    static const char *const options[] = {"--nodes=2", NULL}, *const modules[] = {"cuda", NULL};
    static const char *const environment[] = {"A=b c", NULL};
    job.options = options;
    job.modules = modules;
    job.environment = environment;
    put("sbatch.env", "");
    setenv("SBATCH_PARTITION", "elsewhere", 1);
    setenv("SLURM_JOB_ID", "3", 1);
    hand_over("7");
    unsetenv("SBATCH_PARTITION");
    unsetenv("SLURM_JOB_ID");
    char expected[600];
    snprintf(expected, sizeof expected, "--parsable --comment=" MARK ":1 --nodes=2 /script %s -m cuda -- true\n", run);
    char *text = got("sbatch.asked");
    assert_string_equal(text, expected);
    free(text);
    assert_says("sbatch.env", "A=b c\n");
    assert_says("sbatch.env", "SWITCHYARD_TAG=" TAG "\n");
    assert_says("sbatch.env", "SWITCHYARD_SUBMISSION=1\n");
    text = got("sbatch.env");
    assert_null(strstr(text, "SBATCH_PARTITION"));
    assert_null(strstr(text, "SLURM_JOB_ID"));
    free(text);
    assert_submission("1\n");
    assert_int_equal(job.phase, JOB_PENDING);
}

static void test_environment_of_sbatch_itself(void **state)
{
    (void)state;
    static const char *const environment[] = {"SBATCH_PARTITION=elsewhere", NULL};
    struct error err = {0};
    job.environment = environment;
    assert_int_equal(submit_until_decided(&err), -1);
    assert_string_equal(err.text, "the job's environment may not set SBATCH_PARTITION, which sbatch itself would read");
    assert_int_equal(lines_of("sbatch.asked"), 0);
}

static void test_talk_before_the_number(void **state)
{
    (void)state;
    put("sbatch.out", "our site says hello\n8;cluster\n");
    hand_over("8");
}

static void test_timed_out_and_there(void **state)
{
    (void)state;
    put("sbatch.out", NULL);
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    put("squeue.out", row("12", "PENDING", "Priority", MARK ":1"));
    hand_over("12");
    turn_for(0.2);
    assert_int_equal(lines_of("sbatch.asked"), 1);
    assert_int_equal(job.phase, JOB_PENDING);
    assert_submission("1\n");
}

static void test_timed_out_and_not_there(void **state)
{
    (void)state;
    struct error err = {0};
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") < 2; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->submit(slurm, &job, &err), 0);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_says("sbatch.asked", MARK ":2");
    // Now the first appears: it is cancelled, and its successor is the job.
    put("squeue.out", row("11", "RUNNING", "None", MARK ":1"));
    for (int i = 0; i < 2000 && lines_of("scancel.asked") < 1; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        executor_slurm()->submit(slurm, &job, &err);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_says("scancel.asked", "11\n");
    put("sbatch.err", NULL);
    put("squeue.out", row("11", "CANCELLED", "None", MARK ":1"));
    hand_over("7");
}

static void test_nothing_said(void **state)
{
    (void)state;
    put("sbatch.out", "");
    put("squeue.out", row("13", "RUNNING", "None", MARK ":1"));
    hand_over("13");
    assert_int_equal(lines_of("sbatch.asked"), 1);
}

// squeue lists nothing, but the job that the first call made has begun and beats: it has no successor beside it.
static void test_beats_unlisted(void **state)
{
    (void)state;
    char beat[400];
    snprintf(beat, sizeof beat, "%s/attempt-1", run);
    directory_make(beat, NULL);
    snprintf(beat, sizeof beat, "%s/attempt-1/" HEARTBEAT_FILE, run);
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    for (int i = 0; i < 300; i++) {
        struct error err = {0};
        assert_int_equal(heartbeat_write(beat, 1, 1, NULL), 0);
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->submit(slurm, &job, &err), 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_submission("2 unsent\n");
    assert_int_equal(lines_of("sbatch.asked"), 1);
    put("squeue.out", row("14", "RUNNING", "None", MARK ":1")); // there it is: the run's job, and no other is sent
    hand_over("14");
    assert_submission("1\n");
    assert_int_equal(lines_of("sbatch.asked"), 1);
    assert_int_equal(lines_of("scancel.asked"), 0);
}

// Killed between the raise and what would have come of it: a daemon after us takes the job back too.
static void test_taken_back_after_a_crash(void **state)
{
    (void)state;
    struct error err = {0};
    put("run/submission", "2 unsent\n");
    put("squeue.out", row("14", "PENDING", "Priority", MARK ":1"));
    for (int i = 0; i < 1000 && (job.phase == JOB_UNKNOWN || !job.id[0]); i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->find(slurm, &job, &err), 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_string_equal(job.id, "14");
    assert_int_equal(job.phase, JOB_PENDING);
    assert_submission("1\n");
    assert_int_equal(lines_of("scancel.asked"), 0);
}

// What has a lower number still, or was given up by a kill, is not.
static void test_not_taken_back(void **state)
{
    (void)state;
    struct error err = {0};
    put("run/submission", "3 unsent\n");
    put("squeue.out", row("14", "PENDING", "Priority", MARK ":1"));
    for (int i = 0; i < 1000 && lines_of("scancel.asked") == 0; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->find(slurm, &job, &err), 0);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_says("scancel.asked", "--name=");
    assert_submission("3 unsent\n");
    put("run/submission", "2\n");
    new_executor();
    put("scancel.asked", NULL);
    for (int i = 0; i < 1000 && lines_of("scancel.asked") == 0; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->find(slurm, &job, &err), 0);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_submission("2\n");
}

// A refusal says why.
static void test_failed_without_a_word(void **state)
{
    (void)state;
    put("sbatch.code", "1");
    put("sbatch.out", "");
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") < 2; i++) {
        struct error err = {0};
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->submit(slurm, &job, &err), 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_says("sbatch.asked", MARK ":2");
}

static void test_late_sbatch(void **state)
{
    (void)state;
    slurm_free(slurm);
    slurm = slurm_new(&(struct slurm_settings){.job_script = "/script", .interval = 0.02, .interval_max = 0.1, .deadline = 0.5});
    put("sbatch.slow", "30");
    put("squeue.out", row("14", "PENDING", "None", MARK ":1"));
    double began = clock_steady();
    hand_over("14");
    assert_true(clock_steady() - began < 15);
}

static void test_refused(void **state)
{
    (void)state;
    struct error err = {0};
    put("sbatch.err", "sbatch: error: invalid partition specified: nowhere\n"
                      "sbatch: error: Batch job submission failed: Invalid partition name specified\n");
    assert_int_equal(submit_until_decided(&err), -1);
    assert_string_equal(err.text, "sbatch refused the job: invalid partition specified: nowhere; Batch job submission failed: Invalid partition "
                                  "name specified");
    assert_submission("2\n"); // what it may yet bring about does nothing
    assert_int_equal(lines_of("sbatch.asked"), 1);
}

// Names that people choose say nothing about Slurm.
static void test_refused_by_a_telling_name(void **state)
{
    (void)state;
    struct error err = {0};
    put("sbatch.err", "sbatch: error: invalid partition specified: munge-connection timed out\n"
                      "sbatch: error: Batch job submission failed: Invalid partition name specified\n");
    assert_int_equal(submit_until_decided(&err), -1);
    assert_int_equal(lines_of("sbatch.asked"), 1);
}

static void test_not_installed(void **state)
{
    (void)state;
    struct error err = {0};
    put("sbatch", NULL);
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(submit_until_decided(&err), -1);
    assert_string_equal(err.text, "cannot start sbatch: No such file or directory");
}

static void test_limit_of_submissions_is_waited_for(void **state)
{
    (void)state;
    struct error err = {0};
    put("sbatch.err", "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n");
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") < 3; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        assert_int_equal(executor_slurm()->submit(slurm, &job, &err), 0);
        assert_int_equal(job.phase, JOB_UNKNOWN);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_string_equal(job.reason, "sbatch takes no more jobs at present: AssocMaxSubmitJobLimit; Batch job submission failed: Job violates "
                                    "accounting/QOS policy");
    put("sbatch.err", NULL);
    hand_over("7");
}

static void name_run(struct job *one, char (*directory)[300], int i)
{
    *one = job;
    snprintf(one->tag, sizeof one->tag, "%08x%.24s", (unsigned)i * 2654435761u, TAG);
    snprintf(*directory, sizeof *directory, "%s/%d", run, i);
    directory_make(*directory, NULL);
    one->directory = *directory;
}

// Many at once: as many sbatch at a time as may be, in the order in which they came.
static void test_order(void **state)
{
    (void)state;
    enum { RUNS = 12 };
    struct error err = {0};
    struct job jobs[RUNS];
    char directories[RUNS][300];
    put("sbatch.slow", "0.3");
    slurm_set_array_max(slurm, 1);
    for (int i = 0; i < RUNS; i++) {
        name_run(&jobs[i], &directories[i], i);
        executor_slurm()->submit(slurm, &jobs[i], &err);
    }
    for (int i = 0; i < 20; i++)
        executor_slurm()->poll(slurm, NULL, 0, &err);
    struct slurm_health health;
    slurm_health(slurm, &health);
    assert_int_equal(health.submissions, RUNS);
    nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
    assert_true(lines_of("sbatch.asked") <= 2);
    put("sbatch.slow", "0.01");
    for (double began = clock_steady(); health.submissions > 0 && clock_steady() - began < 30; slurm_health(slurm, &health)) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        for (int i = 0; i < RUNS; i++)
            executor_slurm()->submit(slurm, &jobs[i], &err);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    // Two run side by side, so neighbours may have changed places.
    char *text = got("sbatch.asked");
    int line = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1, line++) {
        const char *directory = strstr(at, "/script ") + strlen("/script ");
        int number = (int)strtol(directory + strlen(run) + 1, NULL, 10);
        if (abs(number - line) > 1)
            fail_msg("run %d was sent as number %d:\n%s", number, line, text);
    }
    free(text);
    assert_int_equal(line, RUNS);
}

// ---- find, kill ----

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
    int left = 1;
    for (int i = 0; i < 4000 && left == 1; i++) {
        left = executor_slurm()->kill(slurm, &job, &err);
        turn();
    }
    assert_int_equal(left, 0);
    // What comes after it has a number of its own, and goes without a look around.
    put("sbatch.out", "9\n");
    find_until_decided();
    assert_int_equal(job.phase, JOB_GONE);
    hand_over("9");
    assert_says("sbatch.asked", MARK ":2");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_words_of_sbatch),
        CASE(test_environment_of_sbatch_itself),
        CASE(test_talk_before_the_number),
        CASE(test_timed_out_and_there),
        CASE(test_timed_out_and_not_there),
        CASE(test_nothing_said),
        CASE(test_beats_unlisted),
        CASE(test_taken_back_after_a_crash),
        CASE(test_not_taken_back),
        CASE(test_failed_without_a_word),
        CASE(test_late_sbatch),
        CASE(test_refused),
        CASE(test_refused_by_a_telling_name),
        CASE(test_not_installed),
        CASE(test_limit_of_submissions_is_waited_for),
        CASE(test_order),
        CASE(test_find),
        CASE(test_find_in_accounting),
        CASE(test_unclear_in_accounting),
        CASE(test_kill),
        CASE(test_kill_while_sbatch_runs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
