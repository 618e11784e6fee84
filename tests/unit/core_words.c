// The last words of a job: which lines of its stderr are worth a place in the sentence that says why it failed.
#include "daemon/core/core.h"
#include "schema/record/layout.h"
#include "tests/unit/store_support.h"

static void expect_words(void **context, const char *stderr_log, const char *expected)
{
    struct error err;
    char *run = in_folder(context, "run"), *directory = run_attempt_directory(run, 1), *path = path_join(directory, "stderr.log");
    assert_fine(directory_make(directory, &err), err);
    assert_fine(file_write_atomic(path, stderr_log, strlen(stderr_log), 0600, &err), err);
    char *words = last_words(run, 1);
    assert_string_equal(words, expected);
    free(words);
    free(path);
    free(directory);
    free(run);
}

static void test_last_lines(void **context)
{
    expect_words(context, "a\nb\n\nc\n   \nd\ne\n", "b | c | d | e");
    expect_words(context, "it is\n-----------\nmpirun noticed\n-----------\n", "it is");
    expect_words(context, "rank 1: wri", "rank 1: wri… (cut off there: was its disk full?)");
}

// Of the lines that say how far it is the last one is enough.
static void test_progress(void **context)
{
    expect_words(context, "warning\nstep 1/9  loss 2.5  1 tokens/s\nstep 2/9  loss 2.4  1 tokens/s\nstep 2: saved\nstep 3/9  loss 2.3\nstep 4/9  loss 2.2\nno room\n",
        "step 2/9  loss 2.4  1 tokens/s | step 2: saved | step 4/9  loss 2.2 | no room");
    expect_words(context, "step 1/9  loss 2.5\nstep 2/9  loss 2.4\n", "step 2/9  loss 2.4");
}

// Of Slurm's own words those about the first rank that ended: what it then did to the others is no reason.
static void test_first_rank(void **context)
{
    static const char after[] = "slurmstepd-n2: error:  mpi/pmix_v4: _errhandler: n2 [1]: pmixp_client_v2.c:211: Error handler invoked: status = -61\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd-n1: error: *** STEP 24.0 ON n1 CANCELLED AT 2026-11-30T21:24:00 ***\n"
        "srun: error: n2: task 2: Killed\nsrun: error: n1: tasks 0-1: Killed\n";
    char log[2000];
    snprintf(log, sizeof log, "rank 3: no such expert\nsrun: error: n2: task 3: Exited with exit code 1\n%s", after);
    expect_words(context, log, "rank 3: no such expert | srun: error: n2: task 3: Exited with exit code 1");
    expect_words(context, "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-30T21:24:00 DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Killed\n",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-30T21:24:00 DUE TO TIME LIMIT *** | srun: error: n1: task 0: Killed");
    expect_words(context, "srun: error: n1: task 0: Out Of Memory\nthe rank's own word\n", "srun: error: n1: task 0: Out Of Memory | the rank's own word");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_last_lines, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_progress, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_first_rank, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
