// What squeue and sacct say of a job, and what poll makes of it: every word, silence, garbage, jobs that are gone.
#include "daemon/exec/slurm/marks.h"
#include "daemon/exec/slurm/queue.h"
#include "tests/unit/slurm_support.h"

static void test_every_word(void **state)
{
    (void)state;
    hand_over("7");
    for (const struct state_word *word = state_words; word->word; word++) {
        put("squeue.out", row("7", word->word, "None", MARK ":1"));
        until(word->phase);
        if (word->phase == JOB_ENDED)
            assert_int_equal(job.end, word->end);
        put("squeue.out", row("7", "REQUEUED", "None", MARK ":1")); // an end is one until it is started again
        until(JOB_PENDING);
    }
}

static void test_unknown_word(void **state)
{
    (void)state;
    hand_over("7");
    put("squeue.out", row("7", "TELEPORTED", "None", MARK ":1"));
    turn_for(0.4);
    assert_int_equal(job.phase, JOB_UNKNOWN);
    assert_string_equal(job.reason, "Slurm calls its state 'TELEPORTED', which this build does not know");
}

static void test_empty_answer_in_between(void **state)
{
    (void)state;
    hand_over("7");
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
    double asked = job.asked;
    put("squeue.out", "");
    for (int i = 0; i < 4000 && job.phase == JOB_RUNNING; i++)
        turn();
    assert_int_equal(job.phase, JOB_UNKNOWN);
    assert_true(job.asked > asked);
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
}

static void test_gone(void **state)
{
    (void)state;
    hand_over("7");
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
    put("squeue.out", "");
    until(JOB_GONE);
    assert_string_equal(job.reason, "Slurm does not know job 7 any more");
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
}

static void test_number_of_another(void **state)
{
    (void)state;
    hand_over("7");
    put("sacct.err", NULL);
    put("sacct.out", "7\x1f" "COMPLETED\x1f" "0:0\x1f" "1796023116\x1f" "1796023110\x1f" "5\x1fn1\x1f\x1f" "somebody.else\x1f/else\n");
    put("squeue.out", row("7", "RUNNING", "None", "switchyard:ffffffffffffffffffffffffffffffff:1"));
    until(JOB_GONE);
    assert_string_equal(job.reason, "Slurm does not know job 7 any more, nor does accounting");
}

// A daemon that has just started finds the job that it gave up, whose end is not the run's: its own, 8, nobody knows any more.
static void test_end_of_a_submission_that_was_given_up(void **state)
{
    (void)state;
    put("run/submission", "2\n");
    strcpy(job.id, "8");
    put("squeue.out", row("7", "CANCELLED", "None", MARK ":1"));
    until(JOB_GONE);
    assert_string_equal(job.id, "8");
}

// … but where it was about to end its own job when it was killed, the number has been raised, and the job is still the run's.
static void test_end_of_a_job_that_was_being_killed(void **state)
{
    (void)state;
    put("run/submission", "2\n");
    strcpy(job.id, "7");
    put("squeue.out", row("7", "TIMEOUT", "TimeLimit", MARK ":1"));
    until(JOB_ENDED);
    assert_int_equal(job.end, END_TIME_LIMIT);
}

// More GPUs than a node has: taken by sbatch, ended before it began.
static void test_cannot_be_placed(void **state)
{
    (void)state;
    hand_over("7");
    put("sacct.err", NULL);
    put("sacct.out", "7\x1f" "FAILED\x1f" "0:1\x1f" "1\x1f" "1\x1f" "5\x1fNone assigned\x1f\x1f" "demo.moe-1\x1f/x\n");
    put("squeue.out", row("7", "FAILED", "BadConstraints", MARK ":1"));
    until(JOB_ENDED);
    assert_string_equal(job.reason, "Slurm would not start it: no nodes can have what it asks for (BadConstraints)");
}

static void test_accounting_knows(void **state)
{
    (void)state;
    hand_over("7");
    put("sacct.err", NULL);
    put("sacct.out", "7\x1fPREEMPTED\x1f" "0:0\x1f" "1\x1f" "1\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/x\n"
                     "7\x1f" "FAILED\x1f" "4:0\x1f" "1\x1f" "1\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/x\n");
    until(JOB_ENDED);
    assert_int_equal(job.end, END_FAILED);
    assert_int_equal(job.code, 4);
    assert_says("sacct.asked", "--allocations --duplicates --noheader --parsable2");
}

static void test_accounting_silent_or_wrong(void **state)
{
    (void)state;
    hand_over("7");
    put("sacct.err", "sacct: error: Problem talking to the database: Connection refused\n");
    double began = clock_steady();
    until(JOB_GONE);
    assert_true(clock_steady() - began >= 0.3);
    assert_string_equal(job.reason, "Slurm does not know job 7 any more, and accounting does not answer");
    struct slurm_health health;
    slurm_health(slurm, &health);
    assert_int_equal(health.accounting, ACCOUNT_SILENT);
    assert_true(health.accounting_silent_since > 0);
    assert_non_null(strstr(health.accounting_fault, "Connection refused"));
    // It calls a job running that Slurm has forgotten: believed for a while.
    new_executor();
    put("sacct.err", NULL);
    put("sacct.out", "7\x1fRUNNING\x1f" "0:0\x1f" "1\x1f" "1\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/x\n");
    strcpy(job.id, "7");
    until(JOB_GONE);
    assert_string_equal(job.reason, "Slurm does not know job 7 any more; accounting still calls it RUNNING");
}

static void test_who_cancelled(void **state)
{
    (void)state;
    hand_over("7");
    put("sacct.err", NULL);
    put("sacct.out", "7\x1f" "CANCELLED by 4711\x1f" "0:0\x1f" "1\x1f" "1\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/x\n");
    put("squeue.out", row("7", "CANCELLED", "None", MARK ":1"));
    until(JOB_ENDED);
    assert_string_equal(job.reason, "cancelled by user 4711");
}

static void test_silence(void **state)
{
    (void)state;
    hand_over("7");
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
    put("squeue.err", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
    for (int i = 0; i < 4000 && job.phase == JOB_RUNNING; i++)
        turn();
    size_t before = lines_of("squeue.asked");
    double began = clock_steady();
    for (double asked = job.asked; clock_steady() - began < 1.0;) {
        turn();
        assert_int_equal(job.phase, JOB_UNKNOWN);
        assert_true(job.asked == asked); // what was answered last was asked then
    }
    assert_true(lines_of("squeue.asked") - before <= 12); // less and less often
    assert_non_null(strstr(job.reason, "Slurm has not answered since 20"));
    assert_non_null(strstr(job.reason, "Unable to contact slurm controller"));
    struct slurm_health health;
    slurm_health(slurm, &health);
    assert_true(health.queue.silent_since > 0 && health.queue.silent_since <= clock_wall());
    put("squeue.err", NULL);
    until(JOB_RUNNING);
    slurm_health(slurm, &health);
    assert_true(health.queue.silent_since == 0);
}

// squeue does not come back: it is ended at its deadline, and every call returns at once in the meantime.
static void test_hanging(void **state)
{
    (void)state;
    slurm_free(slurm);
    slurm = slurm_new(&(struct slurm_settings){.job_script = "/script", .interval = 0.02, .interval_max = 0.1, .deadline = 0.3});
    hand_over("7");
    put("squeue.slow", "30");
    struct error err = {0};
    for (double began = clock_steady(); !strstr(job.reason, "no answer within"); turn()) {
        double before = clock_steady();
        executor_slurm()->find(slurm, &job, &err);
        executor_slurm()->kill(slurm, &job, &err);
        executor_slurm()->poll(slurm, &job, 1, &err);
        assert_true(clock_steady() - before < 0.25 && clock_steady() - began < 20);
    }
    assert_int_equal(job.phase, JOB_UNKNOWN);
    put("squeue.slow", NULL);
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
}

// A scheduler that is slower than the longest pause is not kept busy with our questions, whoever waits for its answer.
static void test_slow(void **state)
{
    (void)state;
    struct queue *queue = queue_new(&(struct queue_settings){.interval = 0.02, .interval_max = 0.1, .deadline = 20});
    put("squeue.slow", "0.5");
    double began = clock_steady();
    for (int answers = 0; answers < 3; nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL)) {
        queue_want(queue, clock_steady(), true);
        answers += queue_turn(queue);
    }
    assert_true(clock_steady() - began >= 3 * 0.5 + 2 * 0.9);
    queue_free(queue);
}

// Five hundred runs: one squeue for all of them, and a tick that costs next to nothing.
static void test_many(void **state)
{
    (void)state;
    enum { RUNS = 500 };
    struct error err = {0};
    struct job *jobs = allocate(RUNS, sizeof *jobs);
    struct text lines;
    text_init(&lines, 1 << 20);
    for (int i = 0; i < RUNS; i++) {
        char id[32], mark[MARK_MAX];
        jobs[i] = job;
        snprintf(jobs[i].tag, sizeof jobs[i].tag, "%08x%.24s", (unsigned)i * 2654435761u, TAG);
        snprintf(jobs[i].id, sizeof jobs[i].id, "%d", i + 1);
        snprintf(id, sizeof id, "%d", i + 1);
        mark_write(mark, jobs[i].tag, 1);
        text_add(&lines, row(id, i % 2 ? "RUNNING" : "PENDING", "Priority", mark));
    }
    put("squeue.out", lines.at);
    text_release(&lines);
    struct timespec before, after;
    int ticks = 0;
    double slowest = 0;
    for (double began = clock_steady(); clock_steady() - began < 1.5 || jobs[RUNS - 1].phase != JOB_RUNNING; ticks++) {
        assert_true(clock_steady() - began < 20);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        executor_slurm()->poll(slurm, jobs, RUNS, &err);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        slowest = fmax(slowest, (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(jobs[i].phase, i % 2 ? JOB_RUNNING : JOB_PENDING);
    printf("%d ticks of %d runs, %zu questions, the slowest tick %.2f ms of CPU time\n", ticks, RUNS, lines_of("squeue.asked"), slowest * 1e3);
    assert_true(slowest < 0.1);
    assert_true(lines_of("squeue.asked") <= 100);
    free(jobs);
}

static void test_old_squeue(void **state)
{
    (void)state;
    hand_over("7");
    char line[600];
    snprintf(line, sizeof line, "7\x1fRUNNING\x1f" "1796023116\x1f" "0:05\x1fn1\x1fNone\x1f" MARK ":1\x1f" "demo.moe-1\x1f%s\n", run);
    put("old", "");
    put("squeue.out", line);
    until(JOB_RUNNING);
    struct slurm_health health;
    slurm_health(slurm, &health);
    assert_true(health.queue.plain && health.queue.malformed == 0);
}

static void test_garbage(void **state)
{
    (void)state;
    hand_over("7");
    char lines[1200];
    snprintf(lines, sizeof lines, "\x01\x02 what\n%sslurm_load_jobs error: half a li", row("7", "RUNNING", "None", MARK ":1"));
    put("squeue.out", lines);
    until(JOB_RUNNING);
    struct slurm_health health;
    slurm_health(slurm, &health);
    assert_int_equal(health.queue.malformed, 2);
    assert_string_equal(health.queue.sample, "?? what");
}

static void test_stop(void **state)
{
    (void)state;
    struct error err = {0};
    hand_over("7");
    put("squeue.out", row("7", "RUNNING", "None", MARK ":1"));
    until(JOB_RUNNING);
    assert_int_equal(executor_slurm()->stop(slurm, &job, &err), 0);
    for (int i = 0; i < 2000 && lines_of("scancel.asked") == 0; i++)
        turn();
    assert_says("scancel.asked", "--signal=USR1 --batch 7\n");
    char *text = got("run/" STOP_FILE);
    assert_string_equal(text, "");
    free(text);
}

static void test_strangers(void **state)
{
    (void)state;
    struct slurm_stranger *list;
    size_t count;
    hand_over("7");
    char lines[1300];
    int length = snprintf(lines, sizeof lines, "%s", row("7", "RUNNING", "None", MARK ":1"));
    snprintf(lines + length, sizeof lines - (size_t)length, "%s",
        row("8", "RUNNING", "None", "switchyard:ffffffffffffffffffffffffffffffff:3"));
    put("squeue.out", lines);
    until(JOB_RUNNING);
    while (slurm_strangers(slurm, &list, &count) != 0)
        turn();
    assert_int_equal(count, 1);
    assert_string_equal(list[0].id, "8");
    assert_string_equal(list[0].tag, "ffffffffffffffffffffffffffffffff");
    assert_int_equal(list[0].submission, 3);
    assert_int_equal(list[0].phase, JOB_RUNNING);
    assert_string_equal(list[0].directory, run);
    slurm_strangers_free(list, count);
}

// squeue lists 7 and 8 under one number, in either order.
static void put_twins(const char *state_of_7, const char *state_of_8, bool first_7)
{
    char line[600], both[1400];
    snprintf(line, sizeof line, "%s", row("7", state_of_7, "None", MARK ":1"));
    const char *other = row("8", state_of_8, "None", MARK ":1");
    snprintf(both, sizeof both, "%s%s", first_7 ? line : other, first_7 ? other : line);
    put("squeue.out", both);
}

// One call made two jobs, 7 and 8, of which sbatch told one: the one that has begun is the run's job, in whatever order they come and end.
static void test_twins(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        bool told_8 = i & 1, begun_8 = i & 2, first_7 = i & 4;
        const char *own = begun_8 ? "8" : "7", *other = begun_8 ? "7" : "8";
        set_up(NULL);
        put("sbatch.out", told_8 ? "8\n" : "7\n");
        hand_over(told_8 ? "8" : "7");
        put_twins("PENDING", "PENDING", first_7);
        until(JOB_PENDING);
        turn_for(0.1);
        assert_int_equal(lines_of("scancel.asked"), 0); // it is not known yet which of them will begin
        put("run/submission.1", begun_8 ? "8\n" : "7\n");
        put_twins(begun_8 ? "PENDING" : "RUNNING", begun_8 ? "RUNNING" : "PENDING", first_7);
        until(JOB_RUNNING);
        turn_for(0.1);
        assert_string_equal(job.id, own);
        assert_int_equal(lines_of("scancel.asked"), 1);
        assert_says("scancel.asked", other);
        put_twins(begun_8 ? "COMPLETED" : "TIMEOUT", begun_8 ? "TIMEOUT" : "COMPLETED", first_7);
        until(JOB_ENDED);
        turn_for(0.1);
        assert_int_equal(job.phase, JOB_ENDED);
        assert_int_equal(job.end, END_TIME_LIMIT);
        put("squeue.out", row(other, "PENDING", "None", MARK ":1")); // the other is all that is listed: no word of the run's job
        turn_for(0.1);
        assert_string_equal(job.id, own);
        assert_int_equal(job.end, END_TIME_LIMIT);
        slurm_free(slurm);
        slurm = NULL;
    }
    new_executor();
}

// Slurm has forgotten both, and accounting is asked for the one that began, not for the one that sbatch told.
static void test_twins_in_accounting(void **state)
{
    (void)state;
    hand_over("7");
    put("run/submission.1", "8\n");
    put("squeue.out", row("7", "COMPLETED", "None", MARK ":1"));
    put("sacct.err", NULL);
    put("sacct.out", "7\x1f" "COMPLETED\x1f" "0:0\x1f" "1796023116\x1f" "1796023110\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/run\n"
                     "8\x1f" "NODE_FAIL\x1f" "0:0\x1f" "1796023116\x1f" "1796023110\x1f" "5\x1fn1\x1f\x1f" "demo.moe-1\x1f/run\n");
    until(JOB_ENDED);
    assert_int_equal(job.end, END_NODE_FAILED);
    assert_string_equal(job.id, "8");
}

// As recorded of a run directory that was not there: squeue has the number 4021, scontrol and sacct have 0:53.
static void test_barred(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char line[600];
        hand_over("7");
        snprintf(line, sizeof line, "7\x1f" "FAILED\x1f%s\x1f" "0\x1f" "1796023116\x1f" "0:05\x1fn1\x1fJobLaunchFailure\x1f" MARK ":1\x1f" "demo.moe-1\x1f%s\n",
            i ? "0:53" : "4021", run);
        put("squeue.out", line);
        until(JOB_ENDED);
        assert_int_equal(job.end, END_FAILED);
        assert_int_equal(job.code, -1);
        assert_int_equal(job.signal, 0);
        assert_string_equal(job.reason, "its node could not enter its run directory, or not write submit.log there: is the directory there, on every node, "
                                        "with room? (JobLaunchFailure)");
        put("squeue.out", "");
        put("run/submission", NULL);
        new_executor();
    }
}

// Sites put scripts of their own around Slurm's commands. Whatever these make of an answer, a job is not taken for forgotten by it.
static void test_spoilt_answers(void **state)
{
    static const struct { const char *before, *talk; size_t kept; } spoilt[] = {
        {"Welcome to this machine ", "", 999}, // a banner without a newline
        {"", "", 20},                          // cut off
        {"", "", 5},
        {"", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", 0}, // squeue | sed: its exit code is lost
    };
    (void)state;
    hand_over("7");
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        char line[800];
        const char *whole = row("7", "RUNNING", "None", MARK ":1");
        snprintf(line, sizeof line, "%s%.*s", spoilt[i].before, (int)spoilt[i].kept, whole);
        put("squeue.out", whole);
        until(JOB_RUNNING);
        put("squeue.talk", spoilt[i].talk);
        put("squeue.out", line);
        for (double began = clock_steady(); clock_steady() - began < 1.2;) {
            turn();
            if (job.phase == JOB_GONE)
                fail_msg("gone, says '%s'", line);
        }
        put("squeue.talk", NULL);
    }
    put("squeue.out", "Welcome to this machine\nmultiline comment of another\x1fname\x1f/x\nno more"); // nothing of ours can be in these
    until(JOB_GONE);
}

// A job is known by its number and its directory where somebody has written over the mark; a name alone makes none ours.
static void test_mark_is_written_over(void **state)
{
    (void)state;
    char elsewhere[600], line[600];
    snprintf(run, sizeof run, "%s/demo/moe-1", folder);
    assert_int_equal(directory_make(run, NULL), 0);
    hand_over("7");
    put("squeue.out", row("7", "PENDING", "Resources", "for the audit"));
    until(JOB_PENDING);
    turn_for(0.8);
    assert_int_equal(job.phase, JOB_PENDING);
    assert_string_equal(job.reason, "waits for resources (Resources)");
    new_executor();
    strcpy(job.id, "7"); // as the database has it
    put("squeue.out", row("7", "RUNNING", "None", "for the audit"));
    until(JOB_RUNNING);
    snprintf(elsewhere, sizeof elsewhere, "%s", row("7", "RUNNING", "None", "for the audit"));
    snprintf(line, sizeof line, "%.*s2\n", (int)strcspn(elsewhere, "\n"), elsewhere);
    put("squeue.out", line);
    until(JOB_GONE);
}

// What Slurm leaves of a job that its node would not start (refusal.c).
static void expect_refused(const char *line, const char *says)
{
    put("run/submission", "1\n");
    put("squeue.out", line);
    new_executor();
    strcpy(job.id, "7");
    until(JOB_GONE);
    assert_true(job.unlaunched);
    if (!strstr(job.reason, says))
        fail_msg("'%s' does not say '%s'", job.reason, says);
}

static void test_refused_by_its_node(void **state)
{
    (void)state;
    put("sinfo.out", "n1\x1f" "1796023118\x1f" "Duplicate jobid\n" "n1\x1f" "1796023118\x1f" "Duplicate jobid\n");
    expect_refused(row("7", "CANCELLED", "None", MARK ":1"), "n1 refused job 7: it still ran another one of that number, which Slurm had forgotten, and Slurm cancelled it");
    assert_says("sinfo.asked", "--nodes=n1");
    char *mark = string_format("n1\x1fUnknown\x1fnone\nn4\x1f%.0f\x1f" "Duplicate jobid\n", clock_wall());
    put("sinfo.out", mark);
    free(mark);
    expect_refused("7\x1fPENDING\x1f" "0\x1f" "1\x1f" "N/A\x1f" "0:00\x1f\x1flaunch failed requeued held\x1f" MARK ":1\x1f" "demo.moe-1\x1f/run\n",
        "its node refused job 7: it still ran another one of that number, which Slurm had forgotten, and Slurm holds it");
    expect_refused("7\x1f" "FAILED\x1f" "256\x1f" "0\x1f" "1796023116\x1f" "0:01\x1fn1\x1fNonZeroExitCode\x1f" MARK ":1\x1f" "demo.moe-1\x1f/run\n",
        "Slurm could not start job 7 on n1: failed with exit code 1 at once");
    put("old", ""); // it says no code
    static const char failed[] = "7\x1f" "FAILED\x1f" "1796023116\x1f" "0:01\x1fn1\x1fNonZeroExitCode\x1f" MARK ":1\x1f" "demo.moe-1\x1f/run\n";
    expect_refused(failed, "Slurm could not start job 7 on n1: failed at once");
    put("run/submission.1", "7\n"); // it had begun
    new_executor();
    until(JOB_ENDED);
    assert_int_equal(job.end, END_FAILED);
}

// Nobody's scancel is taken for that.
static void test_cancelled_and_not_refused(void **state)
{
    (void)state;
    static const char *const marks[] = {"n1\x1fUnknown\x1fnone\n", "n1\x1f" "1796023000\x1f" "Duplicate jobid\n", "n1\x1f" "1796023118\x1f" "Duplicate jobid.\n",
        "n2\x1f" "1796023118\x1f" "Duplicate jobid\n", "", "garbage\n"};
    put("run/submission", "1\n");
    put("squeue.out", row("7", "CANCELLED", "None", MARK ":1"));
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        put("sinfo.out", marks[i]);
        new_executor();
        until(JOB_ENDED);
        assert_int_equal(job.end, END_CANCELLED);
        assert_string_equal(job.reason, "cancelled before anything of it began: by a person, or by Slurm itself, of which its node shows no sign");
    }
    put("sinfo.asked", NULL);
    put("sinfo.out", "n1\x1f" "1796023118\x1f" "Duplicate jobid\n");
    put("run/submission.1", "7\n"); // it had begun
    new_executor();
    until(JOB_ENDED);
    assert_string_equal(job.reason, "cancelled");
    assert_int_equal(lines_of("sinfo.asked"), 0);
}

static void test_lists_of_nodes(void **state)
{
    (void)state;
    assert_true(node_list_has("n1", "n1") && node_list_has("a,n1", "n1") && node_list_has("n[1-3,07],m5", "n2") && node_list_has("n[1-3,07],m5", "m5"));
    assert_true(node_list_has("n[1-3,07]", "n07") && node_list_has("n[08-11]", "n10") && node_list_has("n[1-2]x[3-4]y", "n2x4y") && node_list_has("n[0-1][0-2]", "n12"));
    assert_false(node_list_has("n1", "n11") || node_list_has("n11", "n1") || node_list_has("n[1-3,07]", "n7") || node_list_has("n[08-11]", "n8") ||
                 node_list_has("n[1-3]", "n") || node_list_has("n[1-3]", "n4") || node_list_has("n[1-2]x", "n1") || node_list_has("", "n1"));
    assert_true(node_list_has("m1,n[1-3,5-1", "n3"));
    assert_false(node_list_has("m1,n[1-3,5-1", "n5"));
}

// Somebody submits a job of his own with a comment that he found at one of ours.
static void test_copied_mark(void **state)
{
    (void)state;
    static const char copy[] = "9\x1f%s\x1f" "0\x1f" "0\x1f" "1796023116\x1f" "0:05\x1fn1\x1fNone\x1f" MARK ":1\x1f" "mine\x1f/home/mine\n";
    struct error err = {0};
    hand_over("7");
    put("run/submission.1", "7\n");
    for (int i = 0; i < 3; i++) {
        char lines[1500];
        static const char *const states[] = {"PENDING", "RUNNING"};
        snprintf(lines, sizeof lines, "%s", row("7", i < 2 ? "RUNNING" : "COMPLETED", "None", MARK ":1"));
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), copy, states[i < 2 ? i : 1]);
        put("squeue.out", lines);
        until(i < 2 ? JOB_RUNNING : JOB_ENDED);
        turn_for(0.3);
        assert_int_equal(job.phase, i < 2 ? JOB_RUNNING : JOB_ENDED);
        assert_string_equal(job.id, "7");
    }
    assert_int_equal(job.end, END_COMPLETED);
    for (double began = clock_steady(); executor_slurm()->kill(slurm, &job, &err) != 0 && clock_steady() - began < 20;)
        turn();
    assert_int_equal(executor_slurm()->kill(slurm, &job, &err), 0);
    assert_int_equal(lines_of("scancel.asked"), 0);
}

// Nobody wants to know anything: nobody is asked.
static void test_idle(void **state)
{
    (void)state;
    struct error err = {0};
    for (int i = 0; i < 50; i++) {
        executor_slurm()->poll(slurm, NULL, 0, &err);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_int_equal(lines_of("squeue.asked"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_every_word),
        CASE(test_unknown_word),
        CASE(test_empty_answer_in_between),
        CASE(test_gone),
        CASE(test_number_of_another),
        CASE(test_end_of_a_submission_that_was_given_up),
        CASE(test_end_of_a_job_that_was_being_killed),
        CASE(test_cannot_be_placed),
        CASE(test_accounting_knows),
        CASE(test_accounting_silent_or_wrong),
        CASE(test_who_cancelled),
        CASE(test_silence),
        CASE(test_hanging),
        CASE(test_slow),
        CASE(test_many),
        CASE(test_old_squeue),
        CASE(test_garbage),
        CASE(test_stop),
        CASE(test_strangers),
        CASE(test_twins),
        CASE(test_twins_in_accounting),
        CASE(test_barred),
        CASE(test_spoilt_answers),
        CASE(test_mark_is_written_over),
        CASE(test_refused_by_its_node),
        CASE(test_cancelled_and_not_refused),
        CASE(test_lists_of_nodes),
        CASE(test_copied_mark),
        CASE(test_idle),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
