// The command of a run: mpirun only for several ranks, binding only where the run has the machine to itself, the user's words untouched.
#include "daemon/exec/launch.h"
#include "schema/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct machine two_cores = {.cores = 2}, eight_cores = {.cores = 8, .root = true, .ptrace_restricted = true};

static char *joined(char *const *words)
{
    struct text text;
    text_init(&text, 1 << 16);
    for (size_t i = 0; words[i]; i++)
        text_addf(&text, "%s%s", i ? " " : "", words[i]);
    return text_take(&text);
}

static const char *variable(const struct launch *launch, const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < launch->environment.count; i++)
        if (strncmp(launch->environment.at[i], name, strlen(name)) == 0 && launch->environment.at[i][strlen(name)] == '=')
            found = launch->environment.at[i] + strlen(name) + 1;
    return found;
}

static void make(struct launch *launch, const struct machine *machine, int64_t ranks, int64_t threads)
{
    struct spec spec;
    spec_init(&spec);
    spec.resources.nodes = 1;
    spec.resources.ranks_per_node = ranks;
    spec.resources.threads_per_rank = threads;
    assert_int_equal(launch_train(launch, &spec, machine, "/bin/w", "/r u n/$(x)", NULL), 0);
    spec_release(&spec);
}

static void expect(const struct machine *machine, int64_t ranks, int64_t threads, const char *argv, int64_t slots, bool oversubscribed)
{
    struct launch launch;
    make(&launch, machine, ranks, threads);
    char *got = joined(launch.argv.at);
    assert_string_equal(got, argv);
    assert_int_equal(launch.slots, slots);
    assert_int_equal(launch.oversubscribed, oversubscribed);
    free(got);
    launch_release(&launch);
}

static void test_argv(void **state)
{
    (void)state;
    expect(&two_cores, 1, 1, "/bin/w train /r u n/$(x)", 1, false);
    expect(&two_cores, 1, 0, "/bin/w train /r u n/$(x)", 2, false);
    expect(&two_cores, 2, 1, "mpirun -n 2 --map-by slot:PE=1 --bind-to core:overload-allowed --oversubscribe /bin/w train /r u n/$(x)", 2,
        false);
    expect(&two_cores, 4, 1, "mpirun -n 4 --bind-to none --oversubscribe /bin/w train /r u n/$(x)", 2, true);
    expect(&two_cores, 2, 2, "mpirun -n 2 --bind-to none --oversubscribe /bin/w train /r u n/$(x)", 2, true);
    expect(&eight_cores, 2, 2, "mpirun -n 2 --bind-to none --oversubscribe /bin/w train /r u n/$(x)", 4, false);
    expect(&eight_cores, 2, 0, "mpirun -n 2 --map-by slot:PE=4 --bind-to core:overload-allowed --oversubscribe /bin/w train /r u n/$(x)", 8,
        false);
}

static void test_environment(void **state)
{
    (void)state;
    struct launch launch;
    make(&launch, &eight_cores, 2, 4);
    assert_string_equal(variable(&launch, "OMP_NUM_THREADS"), "4");
    assert_string_equal(variable(&launch, "OMP_PROC_BIND"), "close");
    assert_string_equal(variable(&launch, "OMPI_ALLOW_RUN_AS_ROOT"), "1");
    assert_string_equal(variable(&launch, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    assert_string_equal(variable(&launch, "OMPI_MCA_plm"), "isolated");
    assert_string_equal(variable(&launch, "OMPI_MCA_pml"), "ob1");
    assert_string_equal(variable(&launch, "OMPI_MCA_btl"), "self,vader");
    assert_string_equal(variable(&launch, "OMPI_MCA_btl_vader_single_copy_mechanism"), "none");
    assert_string_equal(variable(&launch, "MALLOC_MMAP_MAX_"), "0");
    assert_null(variable(&launch, "OMP_WAIT_POLICY"));
    launch_release(&launch);
    make(&launch, &two_cores, 2, 2);
    assert_string_equal(variable(&launch, "OMP_WAIT_POLICY"), "passive");
    assert_string_equal(variable(&launch, "OMP_PROC_BIND"), "false");
    assert_null(variable(&launch, "OMPI_ALLOW_RUN_AS_ROOT"));
    launch_release(&launch);
}

// Values travel as they are, last, so that they win; names that could do harm are refused.
static void test_user_variables(void **state)
{
    (void)state;
    struct spec spec;
    spec_init(&spec);
    spec.resources.nodes = spec.resources.ranks_per_node = spec.resources.threads_per_rank = 1;
    char *keys[] = {"OMP_NUM_THREADS", "A"}, *values[] = {"7", "$(touch /tmp/x); `y` \n'\""};
    char *bad[] = {"SWITCHYARD_TAG", "sy_run", "", "1A", "A B", "A=B", "A;B"};
    struct launch launch;
    spec.environment.variables = (struct spec_pairs){keys, values, 2};
    assert_int_equal(launch_train(&launch, &spec, &two_cores, "w", "r", NULL), 0);
    assert_string_equal(variable(&launch, "OMP_NUM_THREADS"), "7");
    assert_string_equal(variable(&launch, "A"), values[1]);
    launch_release(&launch);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct error err = {0};
        spec.environment.variables = (struct spec_pairs){&bad[i], values, 1};
        assert_int_equal(launch_train(&launch, &spec, &two_cores, "w", "r", &err), -1);
        assert_non_null(strstr(err.text, "environment.variables"));
    }
    spec.environment.variables = (struct spec_pairs){0};
    spec_release(&spec);
}

static void test_tokenize_and_json(void **state)
{
    (void)state;
    struct launch launch, again;
    assert_int_equal(launch_tokenize(&launch, NULL, &two_cores, "/bin/w", "/r", NULL), 0);
    char *argv = joined(launch.argv.at);
    assert_string_equal(argv, "/bin/w tokenize /r");
    struct json *json = launch_to_json(&launch);
    assert_int_equal(launch_from_json(&again, json, NULL), 0);
    char *back = joined(again.argv.at), *one = joined(launch.environment.at), *two = joined(again.environment.at);
    assert_string_equal(argv, back);
    assert_string_equal(one, two);
    assert_int_equal(again.slots, 1);
    launch_release(&again);
    js_set(json, "argv", js_integer(1));
    assert_int_equal(launch_from_json(&again, json, NULL), -1);
    free(argv);
    free(back);
    free(one);
    free(two);
    js_free(json);
    launch_release(&launch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_argv), cmocka_unit_test(test_environment),
        cmocka_unit_test(test_user_variables), cmocka_unit_test(test_tokenize_and_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
