// Handing a job to Slurm exactly once, whatever sbatch and squeue say.
#include "tests/unit/slurm_support.h"

#include <fcntl.h>

static void name_run(struct job *one, char (*directory)[300], int i)
{
    *one = job;
    snprintf(one->tag, sizeof one->tag, "%08x%.24s", (unsigned)i * 2654435761u, TAG);
    snprintf(*directory, sizeof *directory, "%s/%d", run, i);
    directory_make(*directory, NULL);
    one->directory = *directory;
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

// A site's own script in sbatch's place says what it does not like on standard output.
static void test_talk_in_place_of_the_number(void **state)
{
    (void)state;
    put("sbatch.out", "checking your budget\nthere is none left\n");
    for (int code = 0; code < 2; code++) {
        put("sbatch.code", code ? "1" : "0");
        new_executor();
        for (double began = clock_steady(); clock_steady() - began < 20 && !strstr(job.reason, "none left");)
            offer();
        assert_string_equal(job.reason, code ? "sbatch could not hand it over: exit code 1: there is none left"
                                             : "sbatch gave no clear answer: exit code 0: there is none left");
    }
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
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") < 2; i++) {
        offer();
        assert_int_equal(job.phase, JOB_UNKNOWN);
    }
    assert_says("sbatch.asked", MARK ":2");
    // Now the first appears: it is cancelled, and its successor is the job.
    put("squeue.out", row("11", "RUNNING", "None", MARK ":1"));
    for (int i = 0; i < 2000 && lines_of("scancel.asked") < 1; i++)
        offer();
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
        assert_int_equal(heartbeat_write(beat, 1, 1, NULL), 0);
        offer();
    }
    assert_submission("2 unsent\n");
    assert_int_equal(lines_of("sbatch.asked"), 1);
    put("squeue.out", row("14", "RUNNING", "None", MARK ":1")); // there it is: the run's job, and no other is sent
    hand_over("14");
    assert_submission("1\n");
    assert_int_equal(lines_of("sbatch.asked"), 1);
    assert_int_equal(lines_of("scancel.asked"), 0);
}

// It has begun, and is watched from then on, though neither sbatch nor squeue has told of it: its silence is judged, but nothing more is sent.
static void test_begun_untold(void **state)
{
    (void)state;
    char attempt[400];
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    for (double began = clock_steady(); clock_steady() - began < 20 && !strstr(job.reason, "Socket timed out");)
        offer();
    snprintf(attempt, sizeof attempt, "%s/attempt-1", run);
    directory_make(attempt, NULL);
    struct timespec long_ago = {.tv_sec = time(NULL) - 100};
    assert_int_equal(utimensat(AT_FDCWD, attempt, (struct timespec[]){long_ago, long_ago}, 0), 0);
    turn_for(1.5);
    assert_int_equal(lines_of("sbatch.asked"), 1);
    assert_submission("1\n");
}

// While it waits for its turn to be sent anew, the job of the earlier call appears: that is the run's job, and its number is not sent twice.
static void test_taken_back_in_its_turn(void **state)
{
    (void)state;
    struct error err = {0};
    char directories[2][300];
    struct job others[2];
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    while (lines_of("sbatch.asked") < 1)
        offer();
    slurm_set_array_max(slurm, 1);
    put("sbatch.slow", "3"); // no more than two calls at once
    for (int i = 0; i < 2; i++) {
        name_run(&others[i], &directories[i], i);
        assert_int_equal(executor_slurm()->submit(slurm, &others[i], &err), 0);
    }
    for (double began = clock_steady(); clock_steady() - began < 1;)
        offer();
    assert_submission("2 unsent\n");
    put("squeue.out", row("12", "PENDING", "Priority", MARK ":1"));
    struct job watched = others[0]; // whoever has a run there asks for all
    snprintf(watched.tag, sizeof watched.tag, "%.32s", "fedcba9876543210fedcba9876543210");
    for (double began = clock_steady(); clock_steady() - began < 1.5 && job.phase == JOB_UNKNOWN;) {
        assert_int_equal(executor_slurm()->poll(slurm, &watched, 1, &err), 0);
        offer();
    }
    assert_string_equal(job.id, "12");
    assert_submission("1\n");
    turn_for(2.5);
    char *text = got("sbatch.asked"), *first = strstr(text, MARK ":");
    assert_non_null(first);
    assert_null(strstr(first + 1, MARK ":"));
    free(text);
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

// The controller cannot write down what it is given: that is no fault of the job's.
static void test_slurms_own_disk_is_full(void **state)
{
    (void)state;
    put("sbatch.err", "sbatch: error: Batch job submission failed: I/O error writing script/environment to file\n");
    for (double began = clock_steady(); clock_steady() - began < 20 && lines_of("sbatch.asked") < 2;)
        offer();
    assert_true(lines_of("sbatch.asked") >= 2);
    put("sbatch.err", NULL);
    hand_over("7");
}

// A refusal says why.
static void test_failed_without_a_word(void **state)
{
    (void)state;
    put("sbatch.code", "1");
    put("sbatch.out", "");
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") < 2; i++) {
        offer();
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
    assert_string_equal(err.text, "there is no sbatch on the daemon's PATH: start `switchyard serve` where Slurm's commands are");
}

static void test_limit_of_submissions_is_waited_for(void **state)
{
    (void)state;
    put("sbatch.err", "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n");
    for (int i = 0; i < 2000 && lines_of("sbatch.asked") < 3; i++) {
        offer();
        assert_int_equal(job.phase, JOB_UNKNOWN);
    }
    assert_string_equal(job.reason, "sbatch takes no more jobs at present: AssocMaxSubmitJobLimit; Batch job submission failed: Job violates "
                                    "accounting/QOS policy");
    put("sbatch.err", NULL);
    hand_over("7");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_words_of_sbatch),
        CASE(test_environment_of_sbatch_itself),
        CASE(test_talk_before_the_number),
        CASE(test_talk_in_place_of_the_number),
        CASE(test_timed_out_and_there),
        CASE(test_timed_out_and_not_there),
        CASE(test_nothing_said),
        CASE(test_beats_unlisted),
        CASE(test_begun_untold),
        CASE(test_taken_back_in_its_turn),
        CASE(test_taken_back_after_a_crash),
        CASE(test_not_taken_back),
        CASE(test_failed_without_a_word),
        CASE(test_late_sbatch),
        CASE(test_slurms_own_disk_is_full),
        CASE(test_refused),
        CASE(test_refused_by_a_telling_name),
        CASE(test_not_installed),
        CASE(test_limit_of_submissions_is_waited_for),
        CASE(test_order),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
