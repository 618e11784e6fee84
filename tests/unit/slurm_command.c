// Commands that nobody waits for: they end, hang, flood, leave children behind, and are gone all the same.
#include "daemon/exec/slurm/command.h"
#include "schema/base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const small_environment[] = {"PATH=/usr/bin:/bin", "GREETING=hello", NULL};

static struct command *start(const char *script, double deadline, size_t output_max)
{
    const char *argv[] = {"sh", "-c", script, "sh", NULL};
    struct command_request request = {
        .argv = argv, .environment = small_environment, .deadline = deadline, .output_max = output_max};
    struct error err = {0};
    struct command *command = command_start(&request, &err);
    if (!command)
        fail_msg("%s", err.text);
    return command;
}

static const struct command_result *wait_for(struct command *command)
{
    const struct command_result *result;
    for (double began = clock_steady(); !(result = command_poll(command));) {
        assert_true(clock_steady() - began < 60);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return result;
}

// Gone, or a zombie that whoever inherited it has yet to reap.
static bool is_gone(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    char *after = got ? strrchr(line, ')') : NULL;
    return !after || after[2] == 'Z' || after[2] == 'X';
}

static void assert_gone(pid_t pid)
{
    for (int i = 0; i < 2500 && !is_gone(pid); i++)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    assert_true(is_gone(pid));
}

static void test_answer(void **state)
{
    (void)state;
    struct command *command = start("echo $GREETING; echo trouble >&2; test -z \"$HOME\"; exit 3", 30, 1000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_EXITED);
    assert_int_equal(result->code, 3);
    assert_string_equal(result->output.at, "hello\n");
    assert_string_equal(result->talk.at, "trouble\n");
    char words[200];
    command_describe(words, sizeof words, result);
    assert_string_equal(words, "exit code 3: trouble");
    assert_ptr_equal(command_poll(command), result);
    command_free(command);
}

static void test_not_there(void **state)
{
    (void)state;
    const char *argv[] = {"no-such-command-of-ours", NULL};
    struct command_request request = {.argv = argv, .environment = small_environment, .deadline = 5, .output_max = 10};
    struct error err = {0};
    assert_null(command_start(&request, &err));
    assert_string_equal(err.text, "there is no no-such-command-of-ours on the daemon's PATH: start `switchyard serve` where Slurm's commands are");
    argv[0] = "true";
    request.directory = "/no/such/directory";
    assert_null(command_start(&request, &err));
}

static void test_starting_does_not_wait(void **state)
{
    (void)state;
    double before = clock_steady();
    struct command *command = start("sleep 20", 30, 10);
    assert_null(command_poll(command));
    command_free(command);
    assert_true(clock_steady() - before < 5);
}

// What it took is how long it worked, as far as anybody has looked: a scheduler is not called slow because it is asked after once a second.
static void test_looked_at_seldom(void **state)
{
    (void)state;
    struct command *command = start("exit 0", 30, 1000);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    assert_true(wait_for(command)->took < 0.4);
    command_free(command);
    command = start("sleep 0.5", 30, 1000);
    assert_true(wait_for(command)->took > 0.4);
    command_free(command);
}

// Ignores TERM, and has a child that does: both are gone soon after the deadline.
static void test_deadline(void **state)
{
    (void)state;
    struct command *command = start("trap '' TERM INT HUP; (trap '' TERM; sleep 60) & echo $$ $!; while :; do sleep 1; done", 1, 1000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_LATE);
    assert_true(result->took >= 1 && result->took < 20);
    int leader = 0, child = 0;
    assert_int_equal(sscanf(result->output.at, "%d %d", &leader, &child), 2);
    assert_gone(leader);
    assert_gone(child);
    assert_true(kill(-leader, 0) != 0 || is_gone(leader));
    char words[200];
    command_describe(words, sizeof words, result);
    assert_non_null(strstr(words, "no answer within"));
    command_free(command);
}

// Ends by itself, and leaves a child that holds its pipes open: the answer is there at once, the child is gone.
static void test_left_behind(void **state)
{
    (void)state;
    double before = clock_steady();
    struct command *command = start("sleep 60 & echo $!", 30, 1000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_EXITED);
    assert_int_equal(result->code, 0);
    assert_true(clock_steady() - before < 20);
    assert_gone((pid_t)strtol(result->output.at, NULL, 10));
    command_free(command);
}

static void test_floods(void **state)
{
    (void)state;
    struct command *command = start("echo $$; yes", 60, 100000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_FLOODING);
    assert_true(result->output.length <= 100001);
    assert_gone((pid_t)strtol(result->output.at, NULL, 10));
    command_free(command);
    // Of what it says on the other side as much as fits is kept, and it is not held up.
    command = start("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo done", 60, 1000);
    result = wait_for(command);
    assert_int_equal(result->end, COMMAND_EXITED);
    assert_string_equal(result->output.at, "done\n");
    assert_int_equal(result->talk.length, COMMAND_TALK_MAX);
    command_free(command);
    // Just as much as it may; one more byte than it may, and over at once.
    command = start("printf 12345", 60, 5);
    result = wait_for(command);
    assert_int_equal(result->end, COMMAND_EXITED);
    assert_string_equal(result->output.at, "12345");
    command_free(command);
    command = start("printf 123456", 60, 5);
    assert_int_equal(wait_for(command)->end, COMMAND_FLOODING);
    command_free(command);
}

static void test_large_answer(void **state)
{
    (void)state;
    struct command *command = start("head -c 5000000 /dev/zero | tr '\\0' y", 60, 6000000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_EXITED);
    assert_int_equal(result->output.length, 5000000);
    command_free(command);
}

static void test_closed_pipes(void **state)
{
    (void)state;
    struct command *command = start("exec >&- 2>&-; sleep 0.2; exit 5", 30, 1000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_EXITED);
    assert_int_equal(result->code, 5);
    command_free(command);
}

static void test_killed_by_another(void **state)
{
    (void)state;
    struct command *command = start("kill -SEGV $$", 30, 1000);
    const struct command_result *result = wait_for(command);
    assert_int_equal(result->end, COMMAND_KILLED);
    assert_int_equal(result->signal, SIGSEGV);
    command_free(command);
}

static void test_given_up(void **state)
{
    (void)state;
    struct command *command = start("echo $$; sleep 60", 60, 1000);
    while (command_poll(command) == NULL) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        FILE *children = fopen(path, "re");
        int child = 0;
        int got = children ? fscanf(children, "%d", &child) : 0;
        if (children)
            fclose(children);
        if (got == 1) {
            command_free(command);
            assert_gone(child);
            break;
        }
    }
    // Nobody of ours is left once the next one has been started and ended.
    command = start("true", 30, 10);
    wait_for(command);
    command_free(command);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

static void test_environment(void **state)
{
    (void)state;
    setenv("SLURM_CONF", "/etc/of/the/test", 1);
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SQUEUE_FORMAT", "%i", 1);
    setenv("SACCT_FORMAT", "jobid", 1);
    setenv("SBATCH_PARTITION", "x", 1);
    setenv("LANG", "de_DE.UTF-8", 1);
    setenv("LC_TIME", "de_DE.UTF-8", 1);
    setenv("KEPT", "yes", 1);
    const char **list = command_environment();
    int seen = 0;
    for (const char **at = list; *at; at++) {
        static const char *const wanted[] = {"SLURM_CONF=/etc/of/the/test", "KEPT=yes", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"};
        for (size_t i = 0; i < 4; i++)
            seen += strcmp(*at, wanted[i]) == 0;
        assert_null(strstr(*at, "SLURM_JOB_ID"));
        assert_null(strstr(*at, "SQUEUE_"));
        assert_null(strstr(*at, "SACCT_"));
        assert_null(strstr(*at, "SBATCH_"));
        assert_null(strstr(*at, "de_DE"));
    }
    assert_int_equal(seen, 4);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_starting_does_not_wait),
        cmocka_unit_test(test_looked_at_seldom),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_large_answer),
        cmocka_unit_test(test_closed_pipes),
        cmocka_unit_test(test_killed_by_another),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
