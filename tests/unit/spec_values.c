// What a good spec means: the flagship specs' values, strings by type, variables, paths, inheritance, overlays, options.
#include "tests/unit/spec_support.h"
#include "schema/spec/fields.h"

// ---- the flagship specs ----

static void load_experiment(struct spec_file *file, const char *name)
{
    char *path = string_format("%s/experiments/%s", getenv("SWITCHYARD_SOURCE") ? getenv("SWITCHYARD_SOURCE") : ".", name);
    if (spec_file_load(file, path, NULL, 0, NULL, 0) != 0)
        fail_msg("unexpected problems:\n%s", file->problems.at);
    free(path);
}

static void test_first_run_cpu(void **state)
{
    (void)state;
    struct spec_file file;
    load_experiment(&file, "first-run-cpu.yaml");
    assert_int_equal(file.count, 2);
    const struct spec *dense = &file.runs[0].spec, *moe = &file.runs[1].spec;
    assert_string_equal(dense->project, "moe-first-run-cpu");
    assert_string_equal(dense->name, "dense");
    assert_string_equal(moe->name, "moe");
    assert_non_null(dense->question);
    assert_false(spec_is_moe(dense));
    assert_true(spec_is_moe(moe));
    assert_int_equal(moe->model.moe.experts, 16);
    assert_int_equal(moe->model.moe.top_k, 4);
    assert_int_equal(moe->model.moe.losses_count, 1);
    assert_int_equal(moe->model.moe.losses[0].type, MOE_LOSS_AUX);
    assert_true(moe->model.moe.losses[0].coefficient == 1e-2);
    assert_true(moe->model.moe.per_layer_metrics);
    assert_int_equal(moe->parallelism.expert, 2);
    assert_int_equal(dense->parallelism.expert, 1);
    assert_int_equal(dense->model.kv_heads, 2);
    assert_int_equal(dense->model.head_dim, 32);
    assert_string_equal(dense->data.text, "/usr/share/dictd/gcide.dict.dz");
    assert_string_equal(dense->data.tokenizer, "byte");
    assert_int_equal(dense->executor, EXECUTOR_LOCAL);
    assert_int_equal(spec_world_size(moe), 2);
    assert_int_equal(spec_data_parallel_size(moe), 2);
    assert_true(moe->model.moe.grouped_gemm);
    assert_true(dense->training.learning_rate.peak > dense->training.learning_rate.minimum);
    assert_int_equal(dense->training.learning_rate.schedule, SCHEDULE_WSD);
    assert_true(dense->training.optimizer.eps == 1e-8);
    for (size_t i = 0; i < 2; i++) {
        struct error err;
        assert_int_equal(js_count(file.runs[i].unsupported), 0);
        assert_int_equal(spec_runnable(&file.runs[i].spec, &err), 0);
    }
    spec_file_release(&file);
}

static void test_first_run(void **state)
{
    (void)state;
    struct spec_file file;
    setenv("SHARED_ROOT", "/shared/me", 1);
    setenv("GPU_PARTITION", "gpu", 1);
    load_experiment(&file, "first-run.yaml");
    assert_int_equal(file.count, 2);
    const struct spec *dense = &file.runs[0].spec, *moe = &file.runs[1].spec;
    assert_string_equal(dense->output, "/shared/me/runs");
    assert_string_equal(dense->image.path, "/shared/me/images/pytorch-26.06-efa.sqsh");
    assert_int_equal(dense->image.mounts.count, 1);
    assert_string_equal(dense->image.mounts.items[0], "/shared/me:/shared/me");
    assert_int_equal(dense->environment.variables.count, 2);
    assert_string_equal(dense->environment.variables.keys[1], "NCCL_SOCKET_IFNAME");
    assert_string_equal(dense->environment.variables.values[1], "^lo,docker0,veth_def_agent");
    assert_string_equal(dense->data.manifest, "/shared/me/data/fineweb-edu/data-args.txt");
    assert_int_equal(dense->executor, EXECUTOR_SLURM);
    assert_string_equal(dense->slurm.partition, "gpu");
    assert_int_equal(dense->resources.ranks_per_node, 8);
    assert_true(dense->resources.gpu_memory == 80000000000);
    assert_true(dense->resources.time_limit == 7200);
    assert_true(dense->preflight.alltoall.present);
    assert_true(dense->preflight.alltoall.size == (int64_t)8 << 30);
    assert_true(dense->preflight.alltoall.at_least == 0.9);
    assert_int_equal(dense->training.precision, PRECISION_BF16);
    assert_int_equal(dense->training.recompute.granularity, RECOMPUTE_FULL);
    assert_true(dense->training.overlap.parameter_gather);
    assert_int_equal(dense->training.learning_rate.total_iterations, 10000);
    assert_int_equal(dense->training.iterations, 120);
    assert_int_equal(moe->model.moe.expert_ffn_hidden_size, 1024);
    assert_int_equal(moe->parallelism.expert, 8);
    assert_true(moe->training.learning_rate.peak == 5e-4);
    assert_int_equal(file.errors, 0);
    // Each key that cannot run is named once, with its place and the words that a user waits for.
    const struct json *first = js_at(file.runs[0].unsupported, 0);
    assert_string_equal(js_string_of(js_get(first, "key"), ""), "image.path");
    bool sharded = false;
    for (size_t i = 0; i < js_count(file.runs[0].unsupported); i++) {
        const struct json *item = js_at(file.runs[0].unsupported, i);
        assert_non_null(strstr(js_string_of(js_get(item, "message"), ""), "this build cannot "));
        assert_true(js_integer_of(js_get(item, "line"), 0) > 0);
        if (strcmp(js_string_of(js_get(item, "key"), ""), "training.distributed_optimizer") == 0) {
            sharded = true;
            assert_non_null(strstr(js_string_of(js_get(item, "text"), ""),
                "training.distributed_optimizer: this build cannot shard the optimizer's state yet\n"));
            assert_non_null(strstr(js_string_of(js_get(item, "text"), ""), " |   distributed_optimizer: true\n       |                          ^\n"));
        }
    }
    assert_true(sharded);
    struct error err;
    assert_int_equal(spec_runnable(dense, &err), -1);
    assert_non_null(strstr(err.text, "image.path: this build cannot run in a container image yet"));
    spec_file_release(&file);
}

// ---- strings, variables, paths ----

static void test_strings_by_type(void **state)
{
    (void)state;
    struct spec_file file;
    setenv("WHO", "me & you", 1);
    load_good(&file,
        "base: good.yaml\n"
        "slurm: {account: 12345, qos: no, constraint: 1e-3, mpi: 'null'}\n"
        "code: {commit: \"a ${WHO} b\"}\n"
        "environment: {variables: {A: 007, B: true, C: '', D: '$${WHO}', E: 0x1F}}\n",
        NULL);
    const struct spec *spec = &file.runs[0].spec;
    assert_string_equal(spec->slurm.account, "12345");
    assert_string_equal(spec->slurm.qos, "no");
    assert_string_equal(spec->slurm.constraint, "1e-3");
    assert_string_equal(spec->slurm.mpi, "null");
    assert_string_equal(spec->code.commit, "a me & you b");
    assert_string_equal(spec->environment.variables.values[0], "007");
    assert_string_equal(spec->environment.variables.values[1], "true");
    assert_string_equal(spec->environment.variables.values[2], "");
    assert_string_equal(spec->environment.variables.values[3], "${WHO}");
    assert_string_equal(spec->environment.variables.values[4], "0x1F");
    spec_file_release(&file);
}

static void test_numbers_and_units(void **state)
{
    (void)state;
    static const struct { const char *time; double seconds; } times[] = {
        {"90s", 90}, {"2h", 7200}, {"30m", 1800}, {"1h30m", 5400}, {"1d 2h", 93600}, {"1.5h", 5400}, {"500ms", 0.5}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\nresources: {time_limit: %s}\n", times[i].time);
        load_good(&file, text, NULL);
        assert_true(file.runs[0].spec.resources.time_limit == times[i].seconds);
        spec_file_release(&file);
        free(text);
    }
    static const struct { const char *size; int64_t bytes; } sizes[] = {
        {"80GB", 80000000000}, {"8GiB", 8589934592}, {"1.5 KiB", 1536}, {"512MB", 512000000}, {"1TiB", 1099511627776}, {"7B", 7}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\nresources: {memory: %s}\n", sizes[i].size);
        load_good(&file, text, NULL);
        assert_true(file.runs[0].spec.resources.memory == sizes[i].bytes);
        spec_file_release(&file);
        free(text);
    }
    static const char *const floats[] = {"1e-3", "1E-3", ".001", "0.001", "+1e-3", "1.e-3", "01e-3"};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\nmodel: {norm_epsilon: %s}\n", floats[i]);
        load_good(&file, text, NULL);
        assert_true(file.runs[0].spec.model.norm_epsilon == 1e-3);
        spec_file_release(&file);
        free(text);
    }
}

static void test_paths_and_inheritance(void **state)
{
    (void)state;
    struct spec_file file;
    assert_int_equal(directory_make("deep/er", NULL), 0);
    write_text("deep/parent.yaml", "base: ../good.yaml\noutput: out\ncode: {path: ../code}\ntraining: {seed: 7, iterations: 11}\ncheckpoint: {keep: 2}\n");
    write_text("deep/er/child.yaml", "# Does it\n# inherit?\nbase: ../parent.yaml\ndata: {cache: ./cache}\ntraining: {seed: 8}\ncheckpoint: null\n"
                                     "runs: {a: {}, b: {output: null, training: {learning_rate: {minimum: 1e-4}}}}\n");
    assert_int_equal(spec_file_load(&file, "deep/er/child.yaml", NULL, 0, NULL, 0), 0);
    const struct spec *a = &file.runs[0].spec, *b = &file.runs[1].spec;
    char *expected = path_join(here, "deep/out");
    assert_string_equal(a->output, expected);
    free(expected);
    expected = path_join(here, "deep/er/cache");
    assert_string_equal(a->data.cache, expected);
    free(expected);
    expected = path_join(here, "text.txt");
    assert_string_equal(a->data.text, expected);
    free(expected);
    assert_string_equal(a->question, "Does it inherit?");
    assert_int_equal(a->training.seed, 8);
    assert_int_equal(a->training.iterations, 11);
    assert_int_equal(a->checkpoint.keep, 0);
    assert_null(b->output);
    assert_true(b->training.learning_rate.minimum == 1e-4);
    assert_true(b->training.learning_rate.peak == 1e-3);
    assert_true(a->training.learning_rate.minimum == 0);
    spec_file_release(&file);
}

static void test_runs_are_inherited(void **state)
{
    (void)state;
    struct spec_file file;
    write_text("parent.yaml", "base: good.yaml\noutput: out\ntraining: {seed: 1}\n"
                              "runs: {a: {training: {seed: 2}}, b: {training: {seed: 3}}, gone: {}}\n");
    load_good(&file, "base: parent.yaml\nruns: {gone: null, a: {training: {seed: null, iterations: 3}}, c: {output: null}}\n", NULL);
    assert_int_equal(file.count, 3);
    assert_string_equal(file.runs[0].spec.name, "a");
    assert_int_equal(file.runs[0].spec.training.seed, 1234);
    assert_int_equal(file.runs[0].spec.training.iterations, 3);
    assert_int_equal(file.runs[1].spec.training.seed, 3);
    assert_non_null(file.runs[1].spec.output);
    assert_string_equal(file.runs[2].spec.name, "c");
    assert_int_equal(file.runs[2].spec.training.seed, 1);
    assert_null(file.runs[2].spec.output);
    spec_file_release(&file);
}

static void test_only_run_is_named_after_the_file(void **state)
{
    (void)state;
    struct spec_file file;
    write_text("my first.run.yaml", "base: good.yaml\n");
    assert_int_equal(spec_file_load(&file, "my first.run.yaml", NULL, 0, NULL, 0), 0);
    assert_int_equal(file.count, 1);
    assert_string_equal(file.runs[0].spec.name, "my-first-run");
    assert_null(file.runs[0].spec.question);
    assert_string_equal(file.runs[0].spec.code.path, here);
    spec_file_release(&file);
    static const char *const odd[] = {"-x.yaml", ".hidden"}; // what commands would take for an option is no name
    for (size_t k = 0; k < 2; k++) {
        write_text(odd[k], GOOD_SPEC);
        assert_int_equal(spec_file_load(&file, odd[k], NULL, 0, NULL, 0), 0);
        assert_string_equal(file.runs[0].spec.name, k ? "_hidden" : "_x");
        spec_file_release(&file);
    }
}

// ---- options and choice of runs ----

static void test_options(void **state)
{
    (void)state;
    struct spec_file file;
    const char *sets[] = {"model.moe.top_k=3", "training.learning_rate={peak: 0.5}", "environment.variables.A=x: y=z", "data.split=[80, 20, 0]",
        "training.seed=", "output=out", NULL};
    load_good(&file, GOOD_SPEC "runs:\n  a: {model: {moe: {experts: 4, top_k: 2}}, training: {seed: 3}}\n", NULL);
    assert_int_equal(file.runs[0].spec.training.seed, 3);
    spec_file_release(&file);
    // "x: y" in a value is YAML too, and a map where a string is wanted.
    load_text(&file, GOOD_SPEC "runs:\n  a: {model: {moe: {experts: 4, top_k: 2}}, training: {seed: 3}}\n", sets);
    assert_int_equal(file.errors, 1);
    assert_string_equal(js_string_of(js_get(js_at(file.problem_list, 0), "message"), ""), "`environment.variables.A` expects a string");
    spec_file_release(&file);
    sets[2] = "environment.variables.A='x: y=z'";
    load_good(&file, GOOD_SPEC "runs:\n  a: {model: {moe: {experts: 4, top_k: 2}}, training: {seed: 3}}\n", sets);
    const struct spec *spec = &file.runs[0].spec;
    assert_int_equal(spec->model.moe.top_k, 3);
    assert_true(spec->training.learning_rate.peak == 0.5);
    assert_string_equal(spec->environment.variables.values[0], "x: y=z");
    assert_true(spec->data.split[0] == 80 && spec->data.split[1] == 20);
    assert_int_equal(spec->training.seed, 1234);
    char *expected = path_join(here, "out");
    assert_string_equal(spec->output, expected);
    free(expected);
    spec_file_release(&file);
}

static void test_chosen_runs(void **state)
{
    (void)state;
    struct spec_file file;
    const char *only[] = {"c", "a"};
    write_text("spec.yaml", GOOD_SPEC "runs: {a: {}, b: {model: {layers: bad}}, c: {}}\n");
    assert_int_equal(spec_file_load(&file, "spec.yaml", only, 2, NULL, 0), 0);
    assert_int_equal(file.count, 2);
    assert_string_equal(file.runs[0].spec.name, "a");
    assert_string_equal(file.runs[1].spec.name, "c");
    spec_file_release(&file);
}

static void test_aliases(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC "runs:\n  a: &a {training: {seed: 5}}\n  b: *a\n", NULL);
    assert_int_equal(file.runs[0].spec.training.seed, 5);
    assert_int_equal(file.runs[1].spec.training.seed, 5);
    spec_file_release(&file);
}

static void test_warnings_of_absent_inputs(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\ndata: {text: null, prefix: nowhere/data}\n", NULL);
    assert_int_equal(js_count(file.warning_list), 2);
    assert_int_equal(js_count(file.runs[0].missing), 2);
    assert_non_null(strstr(file.warnings.at, "spec.yaml:2:28: warning: `data.prefix`: "));
    assert_non_null(strstr(file.warnings.at, "nowhere/data.idx is not there (needed to run, not to validate)"));
    spec_file_release(&file);
}

static void test_warnings_of_a_place_that_cannot_be(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\noutput: spec.yaml/runs\n", NULL);
    assert_non_null(strstr(file.warnings.at, "spec.yaml:2:9: warning: `output`: "));
    assert_non_null(strstr(file.warnings.at, "/spec.yaml is no directory (needed to run, not to validate)"));
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\noutput: runs/of/mine\n", NULL);
    assert_null(strstr(file.warnings.at, "`output`"));
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\noutput: /nowhere/runs\n", NULL);
    assert_null(strstr(file.warnings.at, "`output`"));
    spec_file_release(&file);
}

static void test_rented_machines(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC "hf-jobs: {flavor: h200x8}\n", NULL);
    assert_non_null(strstr(file.warnings.at, "the keys of `hf-jobs` are not used by this `executor`"));
    assert_true(file.runs[0].spec.hf_jobs.timeout == 1800);
    spec_file_release(&file);
    load_good(&file, GOOD_SPEC "executor: hf-jobs\nhf-jobs: {flavor: h200x8, timeout: 10m}\nresources: {time_limit: 1h}\n", NULL);
    assert_int_equal(js_count(file.runs[0].unsupported), 2);
    assert_non_null(strstr(file.warnings.at, "the machine is taken away after 600 s, before `resources.time_limit` 3600 s"));
    spec_file_release(&file);
}

static void test_recompute_without_layers(void **state)
{
    (void)state;
    struct spec_file file;
    const char *sets[] = {"training.recompute={granularity: selective, method: block, layers: 2}", NULL};
    load_good(&file, GOOD_SPEC, sets);
    assert_non_null(strstr(file.warnings.at, "`training.recompute.method` is used by `granularity: full` only"));
    assert_non_null(strstr(file.warnings.at, "`training.recompute.layers` is used by `granularity: full` only"));
    spec_file_release(&file);
}

static void test_sound_parts(void **state)
{
    (void)state;
    static const struct { const char *line; bool model, memory; } cases[] = {
        {"training: {iterations: no}", true, true}, {"model: {layers: no}", false, true}, {"model: {kv_heads: 3}", false, true},
        {"model: {moe: {expert: 4}}", false, true}, {"modle: {layers: 2}", false, true}, {"resources: {gpu_memry: 1GB}", true, false},
        {"frobnicate: 1", true, true}, {"resources: {time_limit: 3}", true, true}, {"model: no", false, true}};
    static const char *const model[] = {"model", "data.sequence_length", NULL}, *const memory[] = {"resources.gpu_memory", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\n%s\n", cases[i].line);
        assert_int_equal(load_text(&file, text, NULL), -1);
        if (spec_file_is_sound(&file, 0, model) != cases[i].model || spec_file_is_sound(&file, 0, memory) != cases[i].memory)
            fail_msg("%s", cases[i].line);
        spec_file_release(&file);
        free(text);
    }
}

static void test_base_by_variable(void **state)
{
    (void)state;
    struct spec_file file;
    setenv("WHERE", here, 1);
    load_good(&file, "base: ${WHERE}/good.yaml\n", NULL);
    assert_string_equal(file.runs[0].spec.project, "good");
    spec_file_release(&file);
    setenv("WHERE", "good", 1);
    load_good(&file, "base: ${WHERE}.yaml\n", NULL);
    spec_file_release(&file);
    unsetenv("WHERE");
    expect_problems("base: ${WHERE}.yaml\n", NULL,
        "spec.yaml:1:7: the environment has no variable `WHERE`\n"
        "     1 | base: ${WHERE}.yaml\n"
        "       |       ^\n");
}

static void test_faults_from_outside(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC "resources: {gpu_memory: 1GB}\n", NULL);
    spec_file_fault(&file, 0, "resources.gpu_memory", false, "%d bytes too many", 5);
    spec_file_faults_end(&file);
    assert_int_equal(file.errors, 1);
    assert_string_equal(file.problems.at, "spec.yaml:5:25: 5 bytes too many\n"
                                          "     5 | resources: {gpu_memory: 1GB}\n"
                                          "       |                         ^\n");
    spec_file_release(&file);
}

// ---- documentation ----

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_run_cpu),
        cmocka_unit_test(test_first_run),
        cmocka_unit_test(test_strings_by_type),
        cmocka_unit_test(test_numbers_and_units),
        cmocka_unit_test(test_paths_and_inheritance),
        cmocka_unit_test(test_runs_are_inherited),
        cmocka_unit_test(test_only_run_is_named_after_the_file),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_chosen_runs),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_recompute_without_layers),
        cmocka_unit_test(test_warnings_of_absent_inputs),
        cmocka_unit_test(test_warnings_of_a_place_that_cannot_be),
        cmocka_unit_test(test_rented_machines),
        cmocka_unit_test(test_sound_parts),
        cmocka_unit_test(test_base_by_variable),
        cmocka_unit_test(test_faults_from_outside),
    };
    return cmocka_run_group_tests_name("spec values", tests, enter_folder, leave_folder);
}
