// What is said of `runs:` and its overlays: names, the common part, and a fault that only some runs have.
#include "tests/unit/spec_support.h"

static void test_runs(void **state)
{
    (void)state;
    expect_problems(GOOD_SPEC "runs:\n"
                              "  dense: {}\n"
                              "  a b: {}\n"
                              "  empty:\n"
                              "  moe: {runs: {}, base: x}\n",
        NULL,
        "spec.yaml:7:3: `runs`: `a b` is no name of 1 to 64 letters, digits, `_` and `-`\n"
        "     7 |   a b: {}\n"
        "       |   ^\n"
        "spec.yaml:8:9: `runs.empty` expects a map of keys; `empty: {}` is a run with nothing of its own\n"
        "     8 |   empty:\n"
        "       |         ^\n"
        "spec.yaml:9:9: `runs` stands at the top of a file, not inside a run\n"
        "     9 |   moe: {runs: {}, base: x}\n"
        "       |         ^\n"
        "spec.yaml:9:19: `base` stands at the top of a file, not inside a run\n"
        "     9 |   moe: {runs: {}, base: x}\n"
        "       |                   ^\n");
    struct spec_file file;
    const char *only[] = {"dens"};
    write_text("spec.yaml", GOOD_SPEC "runs: {dense: {}}\n");
    assert_int_equal(spec_file_load(&file, "spec.yaml", only, 1, NULL, 0), -1);
    assert_string_equal(js_string_of(js_get(js_at(file.problem_list, 0), "message"), ""),
        "--run dens: there is no such run; did you mean `dense`?");
    spec_file_release(&file);
    only[0] = "other";
    write_text("spec.yaml", GOOD_SPEC "runs: {dense: {}, moe: {}}\n");
    assert_int_equal(spec_file_load(&file, "spec.yaml", only, 1, NULL, 0), -1);
    assert_string_equal(js_string_of(js_get(js_at(file.problem_list, 0), "message"), ""), "--run other: there is no such run: there is `dense`, `moe`");
    spec_file_release(&file);
}

// Of two keys that disagree in one run only, one stands in the common part, where it is right for the others.
static void test_a_fault_of_one_run_names_it(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\n"
                    "training: {learning_rate: {peak: 1e-3, minimum: 1e-4}}\n"
                    "runs:\n"
                    "  a: {}\n"
                    "  b: {training: {learning_rate: {peak: 1e-5}}}\n",
        NULL,
        "spec.yaml:2:49: `minimum` 0.0001 is more than `peak` 1e-05 (in run `b`)\n"
        "     2 | training: {learning_rate: {peak: 1e-3, minimum: 1e-4}}\n"
        "       |                                                 ^\n");
    expect_problems("base: good.yaml\n"
                    "training: {learning_rate: {peak: 1e-5, minimum: 1e-4}}\n"
                    "runs:\n"
                    "  a: {}\n"
                    "  b: {training: {seed: 2}}\n"
                    "  c: {training: {learning_rate: {peak: 1}}}\n",
        NULL,
        "spec.yaml:2:49: `minimum` 0.0001 is more than `peak` 1e-05 (in runs `a`, `b`)\n"
        "     2 | training: {learning_rate: {peak: 1e-5, minimum: 1e-4}}\n"
        "       |                                                 ^\n");
    expect_problems("base: good.yaml\n"
                    "training: {learning_rate: {peak: 1e-5, minimum: 1e-4}}\n"
                    "runs: {a: {}, b: {training: {seed: 2}}}\n",
        NULL,
        "spec.yaml:2:49: `minimum` 0.0001 is more than `peak` 1e-05\n"
        "     2 | training: {learning_rate: {peak: 1e-5, minimum: 1e-4}}\n"
        "       |                                                 ^\n");
}

// A key that an overlay puts out of use by setting it to nothing is not a key that is not used.
static void test_nothing_is_not_unused(void **state)
{
    (void)state;
    struct spec_file file;
    write_text("spec.yaml", "base: good.yaml\n"
                            "training: {learning_rate: {schedule: wsd, peak: 1e-3, decay_iterations: 2}}\n"
                            "runs: {a: {}, b: {training: {learning_rate: {schedule: constant, decay_iterations: 0}}}}\n");
    assert_int_equal(spec_file_load(&file, "spec.yaml", NULL, 0, NULL, 0), 0);
    assert_string_equal(file.warnings.at, "");
    spec_file_release(&file);
}

// What every run replaces is wrong all the same; what they share is said once.
static void test_the_common_part_is_checked(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\n"
                    "model: {bias: no}\n"
                    "training: {seed: -1}\n"
                    "runs: {a: {model: {bias: false}}, b: {model: {bias: true}}}\n",
        NULL,
        "spec.yaml:2:15: `model.bias` expects `true` or `false`, not `no`: write `false`\n"
        "     2 | model: {bias: no}\n"
        "       |               ^\n"
        "spec.yaml:3:18: `training.seed` expects a whole number of at least 0, not `-1`\n"
        "     3 | training: {seed: -1}\n"
        "       |                  ^\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_a_fault_of_one_run_names_it),
        cmocka_unit_test(test_nothing_is_not_unused),
        cmocka_unit_test(test_the_common_part_is_checked),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
