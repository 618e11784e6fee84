// What a run asks Slurm for, word by word; and that no value of a spec becomes a word of its own, an option, or a directive.
#include "daemon/exec/launch.h"
#include "daemon/exec/slurm/options.h"
#include "schema/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct machine machine = {.cores = 4, .root = true};

static void make_spec(struct spec *spec)
{
    spec_init(spec);
    spec->project = string_copy("moe-first-run");
    spec->executor = EXECUTOR_SLURM;
    spec->resources.nodes = 1;
    spec->resources.ranks_per_node = 8;
}

static char *joined(const struct word_list *list)
{
    struct text text;
    text_init(&text, 1 << 16);
    for (size_t i = 0; i < list->count; i++)
        text_addf(&text, "%s%s", i ? " " : "", list->at[i]);
    return text_take(&text);
}

static void expect(const struct word_list *list, const char *expected)
{
    char *got = joined(list);
    assert_string_equal(got, expected);
    free(got);
}

static bool has_name(const struct word_list *environment, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < environment->count; i++)
        found |= strncmp(environment->at[i], name, strlen(name)) == 0;
    return found;
}

// The launch line of the recipe: eight GPUs of a node, one rank each.
static void test_recipe(void **state)
{
    (void)state;
    struct spec spec;
    struct launch launch;
    make_spec(&spec);
    spec.resources.gpus_per_node = 8;
    spec.resources.time_limit = 7200;
    spec.slurm.partition = string_copy("gpu");
    assert_int_equal(launch_train(&launch, &spec, &machine, "/bin/w", "/s/moe-first-run/dense-1", NULL), 0);
    expect(&launch.options, "--job-name=moe-first-run.dense-1 --chdir=/s/moe-first-run/dense-1 --output=/s/moe-first-run/dense-1/submit.log --open-mode=append --nodes=1 "
                            "--ntasks-per-node=8 --gres=gpu:8 --time=02:00:00 --partition=gpu --no-requeue --signal=B:USR1@60 --export=ALL");
    expect(&launch.argv, "srun --nodes=1 --ntasks=8 --ntasks-per-node=8 --gres=gpu:8 --mpi=pmix --cpu-bind=none --wait=30 /bin/w train /s/moe-first-run/dense-1");
    assert_int_equal(launch.ranks, 8);
    assert_int_equal(launch.slots, 0);
    assert_false(has_name(&launch.environment, "OMPI_MCA_plm") || has_name(&launch.environment, "OMPI_ALLOW_RUN_AS_ROOT"));
    launch_release(&launch);
    spec_release(&spec);
}

static void test_every_option(void **state)
{
    (void)state;
    struct spec spec;
    struct launch launch;
    make_spec(&spec);
    spec.resources.nodes = 2;
    spec.resources.ranks_per_node = 2;
    spec.resources.threads_per_rank = 3;
    spec.resources.memory = ((int64_t)1 << 30) + 1;
    spec.resources.time_limit = 2 * 86400 + 3600 + 61;
    struct spec_slurm *slurm = &spec.slurm;
    slurm->partition = string_copy("a,b");
    slurm->account = string_copy("acc");
    slurm->qos = string_copy("high");
    slurm->reservation = string_copy("res");
    slurm->constraint = string_copy("a&b");
    slurm->nodelist = string_copy("n[1-2]");
    slurm->exclude = string_copy("n3");
    slurm->mpi = string_copy("pmix_v4");
    slurm->exclusive = slurm->requeue = true;
    slurm->grace = 90.5;
    assert_int_equal(launch_train(&launch, &spec, &machine, "w", "/r/p/x-1", NULL), 0);
    expect(&launch.options,
        "--job-name=moe-first-run.x-1 --chdir=/r/p/x-1 --output=/r/p/x-1/submit.log --open-mode=append --nodes=2 --ntasks-per-node=2 --cpus-per-task=3 --mem=1025M "
        "--time=2-01:02:00 --partition=a,b --account=acc --qos=high --reservation=res --constraint=a&b --nodelist=n[1-2] --exclude=n3 --exclusive --requeue "
        "--signal=B:USR1@91 --export=ALL");
    expect(&launch.argv, "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=3 --mpi=pmix_v4 --cpu-bind=cores --wait=30 w train /r/p/x-1");
    assert_false(has_name(&launch.environment, "OMPI_MCA_")); // across nodes the cluster's MPI chooses its fabric
    assert_true(has_name(&launch.environment, "OMP_NUM_THREADS=3"));
    launch_release(&launch);
    assert_int_equal(launch_check(&launch, &spec, &machine, "w", "determinism", "/r/p/x-1", NULL), 0);
    expect(&launch.argv, "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=3 --mpi=pmix_v4 --cpu-bind=cores --wait=30 w check determinism /r/p/x-1");
    launch_release(&launch);
    spec_release(&spec);
}

static void test_signals(void **state)
{
    (void)state;
    static const struct { const char *signal, *option; } signals[] = {{NULL, "--signal=B:USR1@60"}, {"TERM", "--signal=B:TERM@60"},
        {"USR2@120", "--signal=B:USR2@120"}, {"B:USR1@0", "--signal=B:USR1@0"}};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct spec spec;
        struct launch launch;
        make_spec(&spec);
        spec.slurm.signal = string_copy(signals[i].signal);
        assert_int_equal(launch_train(&launch, &spec, &machine, "w", "/r", NULL), 0);
        assert_string_equal(launch.options.at[launch.options.count - 2], signals[i].option);
        launch_release(&launch);
        spec_release(&spec);
    }
}

// What config.yaml says of the cluster counts where the spec is silent.
static void test_site(void **state)
{
    (void)state;
    struct config_slurm site = {.mpi = (char *)(uintptr_t)"pmi2", .gpus = SLURM_GPUS_PER_NODE, .gpu_type = (char *)(uintptr_t)"h100",
        .partition = (char *)(uintptr_t)"main", .account = (char *)(uintptr_t)"ours"};
    struct machine there = machine;
    there.slurm = &site;
    struct spec spec;
    struct launch launch;
    make_spec(&spec);
    spec.resources.gpus_per_node = 4;
    spec.slurm.account = string_copy("mine");
    assert_int_equal(launch_train(&launch, &spec, &there, "w", "/r/p/x-1", NULL), 0);
    expect(&launch.options, "--job-name=moe-first-run.x-1 --chdir=/r/p/x-1 --output=/r/p/x-1/submit.log --open-mode=append --nodes=1 --ntasks-per-node=8 "
                            "--gpus-per-node=h100:4 --partition=main --account=mine --no-requeue --signal=B:USR1@60 --export=ALL");
    expect(&launch.argv, "srun --nodes=1 --ntasks=8 --ntasks-per-node=8 --gpus-per-node=h100:4 --mpi=pmi2 --cpu-bind=none --wait=30 w train /r/p/x-1");
    launch_release(&launch);
    site.gpus = SLURM_GRES;
    assert_int_equal(launch_train(&launch, &spec, &there, "w", "/r/p/x-1", NULL), 0);
    assert_string_equal(launch.options.at[6], "--gres=gpu:h100:4");
    launch_release(&launch);
    spec_release(&spec);
}

// One process without srun, but in the environment of the run that needs the data: the worker's libraries may come from there.
static void test_tokenize(void **state)
{
    (void)state;
    char *module = (char *)(uintptr_t)"openmpi/4", *key = (char *)(uintptr_t)"LD_LIBRARY_PATH", *value = (char *)(uintptr_t)"/lib/x";
    struct spec spec;
    struct launch launch, again;
    make_spec(&spec);
    spec.resources.gpus_per_node = 8;
    spec.environment.modules = (struct spec_list){&module, 1};
    spec.environment.variables = (struct spec_pairs){&key, &value, 1};
    assert_int_equal(launch_tokenize(&launch, &spec, &machine, "w", "/r/p/tokenize-1", NULL), 0);
    expect(&launch.options, "--job-name=moe-first-run.tokenize-1 --chdir=/r/p/tokenize-1 --output=/r/p/tokenize-1/submit.log --open-mode=append --nodes=1 --ntasks-per-node=1 "
                            "--cpus-per-task=1 --no-requeue --signal=B:USR1@60 --export=ALL");
    expect(&launch.argv, "w tokenize /r/p/tokenize-1");
    expect(&launch.modules, "openmpi/4");
    assert_true(has_name(&launch.environment, "LD_LIBRARY_PATH=/lib/x"));
    struct json *json = launch_to_json(&launch);
    assert_int_equal(launch_from_json(&again, json, NULL), 0);
    char *options = joined(&launch.options);
    expect(&again.options, options);
    expect(&again.modules, "openmpi/4");
    free(options);
    js_free(json);
    launch_release(&launch);
    launch_release(&again);
    spec.environment = (struct spec_environment){0};
    spec_release(&spec);
}

static void test_sbatch(void **state)
{
    (void)state;
    const char *const options[] = {"--nodes=1", NULL}, *const modules[] = {"a", "b", NULL}, *const argv[] = {"srun", "w", NULL};
    struct word_list words = {0};
    slurm_sbatch(&words, options, "0123", 7, "/h/job.sh", "/r", modules, argv);
    expect(&words, "sbatch --parsable --comment=switchyard:0123:7 --nodes=1 /h/job.sh /r -m a -m b -- srun w");
    word_list_release(&words);
}

// A value that got past the spec's own rules stays within its word all the same; a directory that Slurm could not show is refused.
static void test_values_stay_words(void **state)
{
    (void)state;
    struct spec spec;
    struct launch launch, plain;
    struct error err;
    unsigned random = 1;
    make_spec(&spec);
    spec.slurm.partition = string_copy("p");
    assert_int_equal(launch_train(&plain, &spec, &machine, "w", "/r/p/x-1", NULL), 0);
    for (int round = 0; round < 2000; round++) {
        char value[32], directory[64];
        for (size_t i = 0; i < sizeof value - 1; i++) {
            random = random * 1103515245U + 12345U;
            value[i] = (char)(random >> 16 ? random >> 16 & 0xFF : 1);
            value[i] = value[i] ? value[i] : ' ';
        }
        value[sizeof value - 1] = 0;
        free(spec.slurm.partition);
        spec.slurm.partition = string_copy(value);
        snprintf(directory, sizeof directory, "/r/p/%s", value);
        bool shown = true;
        for (size_t i = 0; value[i]; i++)
            shown &= (unsigned char)value[i] >= 0x20 && value[i] != 0x7F && value[i] != '\\';
        assert_int_equal(launch_train(&launch, &spec, &machine, "w", directory, &err), shown ? 0 : -1);
        if (!shown)
            continue;
        assert_int_equal(launch.options.count, plain.options.count);
        assert_int_equal(launch.argv.count, plain.argv.count);
        for (size_t i = 0; i < plain.options.count; i++) { // the same names in the same places
            size_t name = strcspn(plain.options.at[i], "=");
            assert_int_equal(strncmp(launch.options.at[i], plain.options.at[i], name), 0);
        }
        assert_string_equal(launch.argv.at[launch.argv.count - 1], directory);
        launch_release(&launch);
    }
    assert_int_equal(launch_train(&launch, &spec, &machine, "w", "relative/x-1", &err), -1);
    assert_int_equal(launch_train(&launch, &spec, &machine, "w", "/r/100%j/x-1", NULL), 0);
    assert_string_equal(launch.options.at[1], "--chdir=/r/100%j/x-1");
    assert_string_equal(launch.options.at[2], "--output=/r/100%%j/x-1/submit.log");
    launch_release(&launch);
    launch_release(&plain);
    spec_release(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recipe), cmocka_unit_test(test_every_option), cmocka_unit_test(test_signals),
        cmocka_unit_test(test_site), cmocka_unit_test(test_tokenize), cmocka_unit_test(test_sbatch), cmocka_unit_test(test_values_stay_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
