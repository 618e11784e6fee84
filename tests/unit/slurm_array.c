// Runs of one kind handed over together: which are, what is asked of sbatch and written down for job.sh, and that each run's submission stays
// its own whatever sbatch answers; and job.sh as an element, in folders of any name.
#include "daemon/exec/slurm/tally.h"
#include "tests/unit/slurm_support.h"

enum { RUNS = 12 };
static struct job jobs[RUNS];
static char folders[RUNS][400];
static const char *argvs[RUNS][5];
static char *const_options[RUNS][3];
static const char *const environment[] = {"A=of one's own", NULL};

static void make_run(int i, const char *parent)
{
    snprintf(folders[i], sizeof folders[i], "%s/r-%d", parent, i);
    directory_make(folders[i], NULL);
    const char *words_of_it[] = {"worker", "train", folders[i], "--x", NULL};
    memcpy(argvs[i], words_of_it, sizeof words_of_it);
    free(const_options[i][0]);
    free(const_options[i][1]);
    const_options[i][0] = string_format("--job-name=p.r-%d", i);
    const_options[i][1] = string_copy("--mem=1M");
    jobs[i] = (struct job){.name = const_options[i][0] + strlen("--job-name="), .directory = folders[i], .argv = argvs[i], .environment = environment,
        .options = (const char *const *)const_options[i]};
    snprintf(jobs[i].tag, sizeof jobs[i].tag, "%08x%.24s", (unsigned)i * 2654435761u, TAG);
}

static void make_runs(void)
{
    char parent[300];
    snprintf(parent, sizeof parent, "%s/runs of %%j 'x\"", folder);
    directory_remove(parent, NULL);
    for (int i = 0; i < RUNS; i++)
        make_run(i, parent);
}

static void submit_round(void)
{
    struct error err = {0};
    executor_slurm()->poll(slurm, NULL, 0, &err);
    for (int i = 0; i < RUNS; i++)
        if (jobs[i].phase == JOB_UNKNOWN && executor_slurm()->submit(slurm, &jobs[i], &err) != 0) {
            jobs[i].phase = JOB_ENDED;
            snprintf(jobs[i].reason, sizeof jobs[i].reason, "%.250s", err.text);
        }
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static bool are_decided(void)
{
    for (int i = 0; i < RUNS; i++)
        if (jobs[i].phase == JOB_UNKNOWN)
            return false;
    return true;
}

static void submit_all(void)
{
    for (double began = clock_steady(); !are_decided();) {
        submit_round();
        if (clock_steady() - began > 30)
            fail_msg("not decided: %s", jobs[0].reason);
    }
}

static size_t calls_with(const char *what)
{
    char *text = got("sbatch.asked");
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    free(text);
    return count;
}

// The directory of the only array, or of the newest where there are more.
static void array_directory(char out[400])
{
    char *text = got("sbatch.asked"), *at = NULL;
    for (char *next = text; (next = strstr(next, "--chdir=")); next++)
        at = next + strlen("--chdir=");
    assert_non_null(at);
    snprintf(out, 400, "%.*s", (int)(strstr(at, " --output=") - at), at);
    free(text);
}

static void test_one_call(void **state)
{
    (void)state;
    char directory[400], line[1000], id[64];
    make_runs();
    put("sbatch.env", "");
    submit_all();
    assert_int_equal(lines_of("sbatch.asked"), 1);
    assert_says("sbatch.asked", "--array=0-11 --job-name=p.r-0+11 ");
    assert_says("sbatch.asked", "--output=");
    assert_says("sbatch.asked", "/runs of %%j 'x\"/.arrays/");
    assert_says("sbatch.asked", "/%a/submit.log --mem=1M /script -a ");
    array_directory(directory);
    snprintf(line, sizeof line, "-a %s -- worker train %s --x\n", directory, directory);
    assert_says("sbatch.asked", line);
    assert_says("sbatch.env", "A=of one's own");
    char *text = got("sbatch.env");
    assert_null(strstr(text, TAG_VARIABLE "="));
    assert_null(strstr(text, SUBMISSION_VARIABLE "="));
    free(text);
    struct text list;
    text_init(&list, 1 << 16);
    snprintf(line, sizeof line, "%s/elements", directory);
    assert_int_equal(file_read(line, &list, NULL), 0);
    for (int i = 0; i < RUNS; i++) {
        snprintf(id, sizeof id, "7_%d", i);
        assert_string_equal(jobs[i].id, id);
        snprintf(line, sizeof line, "%s 1 r-%d\n", jobs[i].tag, i);
        assert_non_null(strstr(list.at, line));
        snprintf(line, sizeof line, "%s/%d/submission", directory, i);
        assert_true(file_exists(line));
    }
    text_release(&list);
}

static void add_all(struct word_list *list, const char *const *from)
{
    for (; from && *from; from++)
        word_list_add(list, *from);
}

// What `plan` says of them.
static void assert_tally(int64_t array_max, int64_t arrays, int64_t elements)
{
    struct slurm_tally tally = {0};
    struct config_slurm site = {.max_array_size = array_max};
    for (int i = 0; i < RUNS; i++) {
        struct launch launch = {0};
        add_all(&launch.argv, jobs[i].argv);
        add_all(&launch.environment, jobs[i].environment);
        add_all(&launch.options, jobs[i].options);
        add_all(&launch.modules, jobs[i].modules);
        slurm_tally_add(&tally, &launch, jobs[i].directory);
        launch_release(&launch);
    }
    struct json *said = slurm_tally_end(&tally, &site);
    assert_int_equal(js_integer_of(js_get(said, "jobs"), 0), RUNS);
    assert_int_equal(js_integer_of(js_get(said, "arrays"), -1), arrays);
    assert_int_equal(js_integer_of(js_get(said, "elements"), -1), elements);
    js_free(said);
}

static void test_only_the_same_kind(void **state)
{
    (void)state;
    static const char *const modules[] = {"cuda", NULL}, *const other[] = {"A=2", NULL};
    char *elsewhere = string_format("%s/elsewhere", folder);
    make_runs();
    jobs[1].environment = other;
    jobs[2].modules = modules;
    const_options[3][1][6] = '2';
    argvs[4][3] = "--y";
    make_run(5, elsewhere);
    argvs[6][2] = "/somebody/else's";
    assert_tally(1001, 1, 6);
    submit_all();
    assert_int_equal(lines_of("sbatch.asked"), 7);
    assert_int_equal(calls_with("--array=0-5 "), 1);
    assert_int_equal(calls_with("--array="), 1);
    free(elsewhere);
}

static void test_as_many_as_may_be(void **state)
{
    (void)state;
    make_runs();
    assert_tally(5, 3, 12);
    assert_tally(0, 1, 12);
    assert_tally(11, 1, 11);
    assert_tally(1, 0, 0);
    slurm_set_array_max(slurm, 5);
    submit_all();
    assert_int_equal(calls_with("--array=0-4 "), 2);
    assert_int_equal(calls_with("--array=0-1 "), 1);
    assert_int_equal(lines_of("sbatch.asked"), 3);
    put("sbatch.asked", NULL);
    new_executor();
    make_runs();
    slurm_set_array_max(slurm, 1);
    submit_all();
    assert_int_equal(lines_of("sbatch.asked"), RUNS);
    assert_int_equal(calls_with("--array"), 0);
}

static size_t count_in(enum job_phase phase)
{
    size_t count = 0;
    for (int i = 0; i < RUNS; i++)
        count += jobs[i].phase == phase;
    return count;
}

// A refusal may be the array's own: each run is sent by itself then, and has its own answer.
static void test_refused(void **state)
{
    (void)state;
    make_runs();
    put("sbatch.err", "sbatch: error: Batch job submission failed: Invalid job array specification\n");
    for (double began = clock_steady(); calls_with("--comment=switchyard:array:") < 1 && clock_steady() - began < 20;)
        submit_round();
    for (double began = clock_steady(); count_in(JOB_ENDED) == 0 && clock_steady() - began < 20;)
        submit_round();
    put("sbatch.err", NULL);
    submit_all();
    assert_int_equal(calls_with("--array="), 1);
    assert_true(count_in(JOB_ENDED) >= 1); // those that were sent before the complaint was gone
    assert_true(lines_of("sbatch.asked") == 1 + RUNS);
}

// Where the user's limit does not leave room for so many, fewer are tried.
static void test_limit(void **state)
{
    (void)state;
    make_runs();
    put("sbatch.err", "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n");
    for (double began = clock_steady(); calls_with("--array=0-5 ") < 1 && clock_steady() - began < 20;)
        submit_round();
    put("sbatch.err", NULL);
    submit_all();
    assert_int_equal(calls_with("--array=0-11 "), 1);
    assert_true(calls_with("--array=0-5 ") >= 1);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(jobs[i].phase, JOB_PENDING);
}

static void list_array(const char *state, const char *directory, const char *id, int from, int to)
{
    struct text lines;
    text_init(&lines, 1 << 16);
    for (int n = 0; n <= abs(to - from); n++)
        text_addf(&lines, "%s_%d\x1f%s\x1f" "0\x1f" "0\x1f" "1796023116\x1f" "0:05\x1fn1\x1fNone\x1fswitchyard:array:%s\x1fp.r-0+11\x1f%s\n", id,
            from < to ? from + n : from - n, state, strrchr(directory, '/') + 1, directory);
    put("squeue.out", lines.at);
    text_release(&lines);
}

static void turn_all(enum job_phase phase, double seconds)
{
    struct error err = {0};
    bool there = false;
    for (double began = clock_steady(); !there && clock_steady() - began < seconds;) {
        executor_slurm()->poll(slurm, jobs, RUNS, &err);
        there = true;
        for (int i = 0; i < RUNS; i++)
            there &= jobs[i].phase == phase;
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    for (int i = 0; i < RUNS; i++)
        if (jobs[i].phase != phase)
            fail_msg("run %d: phase %d, wanted %d: %s", i, (int)jobs[i].phase, (int)phase, jobs[i].reason);
}

// sbatch says that it failed, and the array is there all the same: each run finds its own row. So does a daemon after a crash, by the array's
// working directory alone.
static void test_unclear(void **state)
{
    (void)state;
    char directory[400], id[32];
    make_runs();
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    for (double began = clock_steady(); lines_of("sbatch.asked") < 1 && clock_steady() - began < 20;)
        submit_round();
    array_directory(directory);
    list_array("PENDING", directory, "31", 0, RUNS - 1);
    submit_all();
    assert_int_equal(lines_of("sbatch.asked"), 1);
    new_executor();
    for (int i = 0; i < RUNS; i++) {
        jobs[i].id[0] = 0;
        jobs[i].phase = JOB_UNKNOWN;
    }
    list_array("RUNNING", directory, "31", 0, RUNS - 1);
    submit_all();
    turn_all(JOB_RUNNING, 20);
    for (int i = 0; i < RUNS; i++) {
        snprintf(id, sizeof id, "31_%d", i);
        assert_string_equal(jobs[i].id, id);
    }
    assert_int_equal(lines_of("sbatch.asked"), 1);
}

// sbatch's answer is lost with the daemon, and Slurm has purged the array by the time that the next one looks: accounting, asked by the array's
// name, knows its elements, also where it keeps no comments. Not those of an array of the same name that went out under other numbers.
static void test_purged(void **state)
{
    (void)state;
    char directory[400], id[32];
    struct text lines;
    make_runs();
    put("sbatch.err", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    for (double began = clock_steady(); lines_of("sbatch.asked") < 1 && clock_steady() - began < 20;)
        submit_round();
    array_directory(directory);
    new_executor();
    text_init(&lines, 1 << 16);
    for (int i = 0; i < RUNS; i++) {
        text_addf(&lines, "41_%d\x1f" "COMPLETED\x1f" "0:0\x1f%lld\x1f%lld\x1f" "5\x1fn1\x1f\x1fp.r-0+11\x1f%s\n", i, (long long)time(NULL),
            (long long)time(NULL), directory);
        text_addf(&lines, "42_%d\x1f" "FAILED\x1f" "1:0\x1f%lld\x1f%lld\x1f" "5\x1fn1\x1f\x1fp.r-0+11\x1f%s/.arrays/" TAG "\n", i, (long long)time(NULL),
            (long long)time(NULL), folder);
        jobs[i].id[0] = 0;
        jobs[i].phase = JOB_UNKNOWN;
    }
    put("sacct.out", lines.at);
    put("sacct.err", NULL);
    text_release(&lines);
    submit_all();
    assert_says("sacct.asked", "--name=p.r-0+11 ");
    assert_int_equal(lines_of("sbatch.asked"), 1);
    turn_all(JOB_ENDED, 20);
    for (int i = 0; i < RUNS; i++) {
        snprintf(id, sizeof id, "41_%d", i);
        assert_string_equal(jobs[i].id, id);
        assert_int_equal(jobs[i].end, END_COMPLETED);
    }
}

// Slurm keeps no trace of an element that was cancelled while it waited.
static void test_cancelled_waiting(void **state)
{
    (void)state;
    char directory[400];
    struct error err = {0};
    make_runs();
    submit_all();
    array_directory(directory);
    list_array("RUNNING", directory, "7", 0, RUNS - 1); // what is only handed over is pending, too
    turn_all(JOB_RUNNING, 20);
    list_array("PENDING", directory, "7", 0, RUNS - 1);
    turn_all(JOB_PENDING, 20);
    list_array("PENDING", directory, "7", 0, RUNS - 2);
    struct job *last = &jobs[RUNS - 1];
    for (double began = clock_steady(); last->phase != JOB_ENDED && clock_steady() - began < 20;) {
        executor_slurm()->poll(slurm, jobs, RUNS, &err);
        assert_int_not_equal(last->phase, JOB_GONE);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    assert_int_equal(last->phase, JOB_ENDED);
    assert_int_equal(last->end, END_CANCELLED);
    assert_int_equal(jobs[0].phase, JOB_PENDING);
}

// A daemon that was not there when it was cancelled, and that sees its array for a moment only: as others that wait, or as a whole that has
// ended without its last elements having begun.
static void test_cancelled_unseen(void **state)
{
    (void)state;
    char directory[400], last_of_all[600];
    struct error err = {0};
    struct job *last = &jobs[RUNS - 1];
    make_runs();
    submit_all();
    array_directory(directory);
    snprintf(last_of_all, sizeof last_of_all, "7\x1f" "CANCELLED\x1f" "0\x1f" "0\x1fN/A\x1f" "0:00\x1f\x1fNone\x1fswitchyard:array:%s\x1fp.r-0+11\x1f%s\n",
        strrchr(directory, '/') + 1, directory);
    for (int whole = 0; whole < 2; whole++) {
        new_executor();
        list_array("PENDING", directory, "7", 0, RUNS - 2);
        if (whole)
            put("squeue.out", last_of_all);
        last->phase = JOB_UNKNOWN;
        for (double began = clock_steady(); last->phase != JOB_ENDED && clock_steady() - began < 20;) {
            executor_slurm()->poll(slurm, last, 1, &err);
            assert_int_not_equal(last->phase, JOB_GONE);
            if (strstr(last->reason, "only others of its array"))
                put("squeue.out", "");
            nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        }
        assert_int_equal(last->phase, JOB_ENDED);
        assert_int_equal(last->end, END_CANCELLED);
        assert_true(last->if_unbegun);
    }
    // Nobody knows the array, or one answer alone, which may have lacked a line: nothing is known of its element.
    for (int once = 0; once < 2; once++) {
        new_executor();
        if (once)
            list_array("PENDING", directory, "7", 0, RUNS - 2);
        last->phase = JOB_UNKNOWN;
        for (double began = clock_steady(); last->phase != JOB_GONE && clock_steady() - began < 20;) {
            executor_slurm()->poll(slurm, last, 1, &err);
            assert_int_not_equal(last->phase, JOB_ENDED);
            if (strstr(last->reason, "asked again"))
                put("squeue.out", "");
            nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        }
        assert_int_equal(last->phase, JOB_GONE);
    }
}

static void kill_one(struct job *one)
{
    struct error err = {0};
    put("scancel.asked", NULL);
    for (double began = clock_steady(); lines_of("scancel.asked") == 0 && clock_steady() - began < 20;) {
        executor_slurm()->poll(slurm, jobs, RUNS, &err);
        assert_true(executor_slurm()->kill(slurm, one, &err) >= 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
}

static void assert_asked(const char *name, const char *what)
{
    char *asked = got(name);
    assert_string_equal(asked, what);
    free(asked);
}

// Told with its name, scancel would end all elements that wait: the element gets a record of its own first. Without the name only where a site
// does not allow that, and not at all where Slurm does not answer.
static void test_cancel_waiting(void **state)
{
    (void)state;
    char directory[400];
    make_runs();
    submit_all();
    array_directory(directory);
    list_array("RUNNING", directory, "7", 0, RUNS - 1);
    turn_all(JOB_RUNNING, 20);
    kill_one(&jobs[2]);
    assert_says("scancel.asked", "--name=p.r-0+11 7_2\n");
    list_array("PENDING", directory, "7", 0, RUNS - 1);
    turn_all(JOB_PENDING, 20);
    kill_one(&jobs[3]);
    assert_asked("scontrol.asked", "update JobId=7_3 Switches=0\n");
    assert_asked("scancel.asked", "--name=p.r-0+11 7_3\n");
    put("scontrol.err", "7_4: Invalid job id specified\n");
    kill_one(&jobs[4]);
    assert_asked("scancel.asked", "--name=p.r-0+11 7_4\n");
    put("scontrol.err", "7_5: Access/permission denied\n");
    kill_one(&jobs[5]);
    assert_asked("scancel.asked", "7_5\n");
    put("scontrol.err", "slurm_update error: Unable to contact slurm controller (connect failure)\n");
    put("scontrol.asked", NULL);
    put("scancel.asked", NULL);
    struct error err = {0};
    for (double began = clock_steady(); clock_steady() - began < 0.5;) {
        executor_slurm()->poll(slurm, jobs, RUNS, &err);
        assert_int_equal(executor_slurm()->kill(slurm, &jobs[6], &err), 1);
    }
    assert_asked("scontrol.asked", "update JobId=7_6 Switches=0\n");
    assert_asked("scancel.asked", "");
}

static void test_strangers(void **state)
{
    (void)state;
    char directory[400];
    struct slurm_stranger *list = NULL;
    size_t count = 0;
    struct error err = {0};
    make_runs();
    submit_all();
    array_directory(directory);
    new_executor();
    list_array("RUNNING", directory, "7", 3, 2);
    for (double began = clock_steady(); slurm_strangers(slurm, &list, &count) != 0 && clock_steady() - began < 20;)
        executor_slurm()->poll(slurm, NULL, 0, &err);
    assert_int_equal(count, 2);
    assert_string_equal(list[0].tag, jobs[2].tag);
    assert_string_equal(list[0].directory, folders[2]);
    assert_string_equal(list[1].id, "7_3");
    slurm_strangers_free(list, count);
}

// ---- job.sh ----

static void test_script(void **state)
{
    (void)state;
    static const char *const parents[] = {"plain", "with blanks ", " -a", "quo'te\"s", "$(touch x)`touch y`", "ünïcödé\xff", "100%j;&|*?[a]~#"};
    struct error err = {0};
    char path[300], command[4000];
    snprintf(path, sizeof path, "%s/job.sh", folder);
    assert_int_equal(job_script_write(path, &err), 0);
    for (size_t p = 0; p < sizeof parents / sizeof *parents; p++) {
        char *runs = string_format("%s/script/%s", folder, parents[p]), *array = string_format("%s/.arrays/%s", runs, TAG);
        char *list = string_format("%s/elements", array), *own = string_format("%s/two 2 ", runs);
        assert_int_equal(directory_make(array, &err) + directory_make(own, &err), 0);
        char *text = string_format("%s 4 one\n%s 5 two 2 \n", TAG, "f123456789abcdef0123456789abcdef");
        assert_int_equal(file_write_atomic(list, text, strlen(text), 0644, &err), 0);
        char *number = path_join(own, "submission");
        assert_int_equal(file_write_atomic(number, "5\n", 2, 0644, &err), 0);
        setenv("T_SCRIPT", path, 1);
        setenv("T_ARRAY", array, 1);
        snprintf(command, sizeof command,
            "cd / && SLURM_JOB_ID=99 SLURM_ARRAY_JOB_ID=98 SLURM_ARRAY_TASK_ID=1 dash \"$T_SCRIPT\" -a \"$T_ARRAY\" -- sh -c "
            "'printf \"%%s|\" \"$0\" \"$1\" \"$PWD\" \"$SWITCHYARD_TAG\" \"$SWITCHYARD_SUBMISSION\"' \"$T_ARRAY\" \"x$T_ARRAY\"");
        assert_int_equal(system(command), 0);
        char *expected = string_format("%s|x%s|%s|f123456789abcdef0123456789abcdef|5|", own, array, own);
        struct text said;
        text_init(&said, 1 << 16);
        char *out = path_join(own, "attempt-1/stdout.log"), *end = path_join(own, "attempt-1/exit.json");
        assert_int_equal(file_read(out, &said, &err), 0);
        assert_string_equal(said.at, expected);
        text_clear(&said);
        assert_int_equal(file_read(end, &said, &err), 0);
        assert_non_null(strstr(said.at, "\"job_id\":\"98_1\""));
        text_release(&said);
        char *freed[] = {runs, array, list, own, text, number, expected, out, end};
        for (size_t i = 0; i < sizeof freed / sizeof *freed; i++)
            free(freed[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_one_call),
        CASE(test_only_the_same_kind),
        CASE(test_as_many_as_may_be),
        CASE(test_refused),
        CASE(test_limit),
        CASE(test_unclear),
        CASE(test_purged),
        CASE(test_cancelled_waiting),
        CASE(test_cancelled_unseen),
        CASE(test_cancel_waiting),
        CASE(test_strangers),
        CASE(test_script),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
