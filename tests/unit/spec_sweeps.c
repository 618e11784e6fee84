// Sweeps and stages: what comes of them, and every way of writing them wrongly.
#include "tests/unit/spec_support.h"

#include <time.h>

static const char *name_of(const struct spec_file *file, size_t run)
{
    return file->runs[run].spec.name;
}

static void check_names(const struct spec_file *file, const char *const *names)
{
    for (size_t i = 0; i < file->count || names[i]; i++)
        if (i >= file->count || !names[i] || strcmp(name_of(file, i), names[i]) != 0)
            fail_msg("run %zu is %s, expected %s", i, i < file->count ? name_of(file, i) : "missing", names[i] ? names[i] : "nothing");
}

// ---- what comes of a sweep ----

static void test_grid(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\n"
                     "sweep: {grid: {training.learning_rate.peak: [1e-3, 0.25], training.seed: [1, 2, 3]}, canary: 2, concurrency: 4}\n",
        NULL);
    check_names(&file, (const char *const[]){"spec-peak1e-3-seed1", "spec-peak1e-3-seed2", "spec-peak1e-3-seed3", "spec-peak25e-2-seed1",
        "spec-peak25e-2-seed2", "spec-peak25e-2-seed3", NULL});
    const struct spec_run *last = &file.runs[5];
    assert_int_equal(last->spec.training.seed, 3);
    assert_true(last->spec.training.learning_rate.peak == 0.25);
    struct text text;
    text_init(&text, 1024);
    js_write(&text, last->sweep);
    assert_string_equal(text.at, "{\"training.learning_rate.peak\":0.25,\"training.seed\":3}");
    text_release(&text);
    assert_int_equal(file.concurrency, 4);
    assert_int_equal(file.entries_count, 1);
    assert_true(file.entries[0].swept && file.entries[0].canary == 2 && file.entries[0].count == 6);
    for (size_t i = 0; i < file.count; i++) {
        size_t count, *needs = spec_file_needs(&file, i, &count);
        assert_int_equal(count, i < 2 ? 0 : 2);
        assert_true(i < 2 || (needs[0] == 0 && needs[1] == 1));
        free(needs);
    }
    spec_file_release(&file);
}

static void test_zip_and_list(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\nsweep: {zip: {model.layers: [1, 3], model: {hidden_size: [32, 96]}}}\n", NULL);
    check_names(&file, (const char *const[]){"spec-layers1-hidden_size32", "spec-layers3-hidden_size96", NULL});
    assert_int_equal(file.runs[1].spec.model.hidden_size, 96);
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\nsweep: {list: [{training.seed: 5}, {training: {seed: 6, precision: bf16}}, {model.kv_heads: 2}]}\n", NULL);
    check_names(&file, (const char *const[]){"spec-seed5", "spec-seed6-precisionbf16", "spec-kv_heads2", NULL});
    assert_int_equal(file.runs[2].spec.model.kv_heads, 2);
    assert_int_equal(file.runs[1].spec.model.kv_heads, 4);
    assert_int_equal(js_count(file.runs[1].sweep), 2);
    spec_file_release(&file);
}

// A sweep of the common part is each run's; an overlay adds keys to it or takes it away.
static void test_sweeps_of_runs(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\n"
                     "sweep: {grid: {training.seed: [1, 2]}}\n"
                     "runs:\n"
                     "  dense: {}\n"
                     "  moe: {model: {moe: {experts: 4}}, sweep: {grid: {model.moe.top_k: [2, 3]}}}\n"
                     "  once: {sweep: null, model: {layers: 1}}\n",
        NULL);
    check_names(&file, (const char *const[]){"dense-seed1", "dense-seed2", "moe-seed1-top_k2", "moe-seed1-top_k3", "moe-seed2-top_k2",
        "moe-seed2-top_k3", "once", NULL});
    assert_null(file.runs[6].sweep);
    spec_file_release(&file);
    const char *only[] = {"dense-seed2", "once"};
    assert_int_equal(spec_file_load(&file, "spec.yaml", only, 2, NULL, 0), 0);
    check_names(&file, (const char *const[]){"dense-seed2", "once", NULL});
    assert_int_equal(file.entries[1].count, 0);
    spec_file_release(&file);
    only[0] = "dense-seed3";
    assert_int_equal(spec_file_load(&file, "spec.yaml", only, 2, NULL, 0), -1);
    assert_true(has_message(file.problem_list, "--run dense-seed3: there is no such run: there is `dense`, `moe`, `once`"));
    spec_file_release(&file);
}

// What cannot be written is numbered; null is the default; two keys that end alike are told apart.
static void test_names(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\nsweep: {grid: {data.split: [[90, 10, 0], [80, 20, 0]]}}\n", NULL);
    check_names(&file, (const char *const[]){"spec-1", "spec-2", NULL});
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\nsweep: {grid: {model.kv_heads: [null, 2]}}\n", NULL);
    check_names(&file, (const char *const[]){"spec-kv_headsdefault", "spec-kv_heads2", NULL});
    assert_int_equal(file.runs[0].spec.model.kv_heads, 4);
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\ntraining: {precision: fp16}\n"
                     "sweep: {grid: {training.learning_rate.minimum: [0, 1.50e-4], training.loss_scale.minimum: [1.0, 2]}}\n", NULL);
    check_names(&file, (const char *const[]){"spec-learning_rate_minimum0-loss_scale_minimum1", "spec-learning_rate_minimum0-loss_scale_minimum2",
        "spec-learning_rate_minimum15e-5-loss_scale_minimum1", "spec-learning_rate_minimum15e-5-loss_scale_minimum2", NULL});
    spec_file_release(&file);
    // A number in a name is still that number.
    static const char *const numbers[] = {"1e-3", "0.001", "1E-3", ".001", "100", "1.0", "0.5", "12.50", "1e+2", "0", "0.0", "2.50e-7"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *lines = string_format("base: good.yaml\nsweep: {grid: {training.optimizer.weight_decay: [%s]}}\n", numbers[i]);
        load_good(&file, lines, NULL);
        const char *written = name_of(&file, 0) + strlen("spec-weight_decay");
        if (strtod(written, NULL) != strtod(numbers[i], NULL))
            fail_msg("%s is written %s", numbers[i], written);
        spec_file_release(&file);
        free(lines);
    }
    // The name of a trial is nobody else's, and leaves room for the submission's number.
    load_good(&file, "base: good.yaml\nsweep: {grid: {training.seed: [1, 2]}}\nruns: {a: {}, a-seed2: {sweep: null}}\n", NULL);
    check_names(&file, (const char *const[]){"a-1", "a-2", "a-seed2", NULL});
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\nsweep: {grid: {training.seed: [1, 2]}}\n"
                     "runs: {abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl: {}}\n", NULL);
    assert_true(strlen(name_of(&file, 1)) <= 56);
    spec_file_release(&file);
}

// Whatever makes two trials one run, one of them is left out, and said so.
static void test_the_same_twice(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\nsweep: {grid: {training.learning_rate.peak: [1e-3, 0.001, 2e-3]}}\n", NULL);
    check_names(&file, (const char *const[]){"spec-1", "spec-3", NULL});
    assert_true(has_message(file.warning_list, "`sweep`: 1 of 3 trials are left out, because another has the same configuration: `spec-2` is `spec-1`"));
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\nsweep: {grid: {model.kv_heads: [null, 2, 4]}}\n", NULL); // as many as there are heads: 4
    check_names(&file, (const char *const[]){"spec-kv_headsdefault", "spec-kv_heads2", NULL});
    assert_true(has_message(file.warning_list,
        "`sweep`: 1 of 3 trials are left out, because another has the same configuration: `spec-kv_heads4` is `spec-kv_headsdefault`"));
    spec_file_release(&file);
}

// ---- counts ----

static uint64_t pick(uint64_t *random, uint64_t below)
{
    *random = *random * 6364136223846793005U + 1442695040888963407U;
    return (*random >> 33) % below;
}

// The trials of a grid are the product of its axes, each combination once.
static void test_counts(void **state)
{
    (void)state;
    static const char *const keys[] = {"training.seed", "training.iterations", "training.learning_rate.warmup_iterations", "checkpoint.interval",
        "logging.interval"};
    uint64_t random = 1;
    for (int round = 0; round < 200; round++) {
        struct text text;
        text_init(&text, 1 << 16);
        text_add(&text, "base: good.yaml\nsweep:\n  grid:\n");
        size_t axes = 1 + pick(&random, 5), product = 1;
        for (size_t i = 0; i < axes; i++) {
            size_t values = 1 + pick(&random, 5), first = i == 1 ? 100 : 1; // as many iterations as a warm-up takes
            product *= values;
            text_addf(&text, "    %s: [", keys[i]);
            for (size_t j = 0; j < values; j++)
                text_addf(&text, "%s%zu", j ? ", " : "", first + j);
            text_add(&text, "]\n");
        }
        if (product > 1000)
            text_add(&text, "  limit: 10000\n");
        struct spec_file file;
        load_good(&file, text.at, NULL);
        assert_int_equal(file.count, product);
        struct json *names = js_object(), *points = js_object();
        for (size_t i = 0; i < file.count; i++) {
            struct text point;
            text_init(&point, 4096);
            js_write(&point, file.runs[i].sweep);
            js_set(names, name_of(&file, i), js_boolean(true));
            js_set(points, point.at, js_boolean(true));
            assert_int_equal(js_count(file.runs[i].sweep), axes);
            text_release(&point);
        }
        assert_int_equal(js_count(names), product);
        assert_int_equal(js_count(points), product);
        js_free(names);
        js_free(points);
        spec_file_release(&file);
        text_release(&text);
    }
}

// 10,000 trials are read, laid out and checked in a fraction of the second that `plan` has for them (of this thread's time: machines are busy).
static void test_ten_thousand(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 1 << 16);
    text_add(&text, "base: good.yaml\nsweep:\n  limit: 10000\n  grid:\n    model.hidden_size: [64, 128, 192, 256, 320, 384, 448, 512, 576, 640]\n"
                    "    model.layers: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n    training.seed: [");
    for (int i = 0; i < 100; i++)
        text_addf(&text, "%s%d", i ? ", " : "", i);
    text_add(&text, "]\n");
    struct timespec begin, end;
    struct spec_file file;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    load_good(&file, text.at, NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    printf("10000 trials in %.3f s\n", seconds);
    assert_int_equal(file.count, 10000);
#if !defined __SANITIZE_ADDRESS__ && defined NDEBUG
    assert_true(seconds < 1);
#endif
    spec_file_release(&file);
    text_release(&text);
}

// ---- what is wrong ----

static const struct { const char *lines, *expected; } faults[] = {
    {"sweep: {grid: {}}", "`sweep.grid` expects a map of keys to lists of values"},
    {"sweep: {grid: {training.seed: 3}}", "`sweep.grid`: `training.seed` expects a list of values, not one value: write `[3]`"},
    {"sweep: {grid: {training.seed: []}}", "`sweep.grid`: `training.seed` expects a list of values, not an empty one"},
    {"sweep: {grid: {training.seed: \"1,2,3\"}}", "`sweep.grid`: `training.seed` expects a list of values, not one string: write `[1,2,3]`"},
    {"sweep: {zip: {training.seed: range(1,4)}}", "`sweep.zip`: `training.seed` expects a list of values: write all of them, `[VALUE, VALUE, …]`"},
    {"sweep: {grid: {training.seed: {values: [1]}}}", "`sweep.grid`: `training.seed` expects a list of values: write what stands in `values` without it"},
    {"sweep: {grid: {training.seed: {min: 1}}}", "`sweep.grid`: `training.seed` expects a list of values: no values are drawn from a range; write `[VALUE, VALUE, …]`"},
    {"sweep: {grid: {training.seed: [1, x]}}", "`training.seed` expects a whole number of at least 0, not `x`"},
    {"sweep: {grid: {training.seed: [1, 2], training: {seed: [3]}}}", "`sweep.grid`: `training.seed` stands here twice (line 2)"},
    {"sweep: {grid: {training: [1]}}", "`training` is no key of a run; write its whole path, such as `model.moe.top_k`"},
    {"sweep: {grid: {sweep: [1]}}", "`sweep` is no key of a run; write its whole path, such as `model.moe.top_k`"},
    {"sweep: {grid: {training.sed: [1]}}", "`training.sed` is no key of a run; did you mean `training.seed`?"},
    {"sweep: {grid: {environment.variables.A: [x, y]}}", "`environment.variables.A`: `environment.variables` is swept as a whole: write `environment.variables: [{NAME: value}, …]`"},
    {"sweep: {grid: {environment.variables: [{A: x}, {A: y}]}}", NULL},
    {"sweep: {grid: {name: [a]}}", "`name` is no key of a run; write its whole path, such as `model.moe.top_k`"},
    {"sweep: {list: []}", "`sweep.list` expects a list of {KEY: VALUE, …}"},
    {"sweep: {list: [1]}", "`sweep.list`: each item is {KEY: VALUE, …}"},
    {"sweep: {list: [{seed: 1}]}", "`seed` is no key of a run; did you mean `training.seed`?"},
    {"sweep: {list: [{lr: 1}]}", "`lr` is no key of a run; did you mean `training.learning_rate.peak`?"},
    {"sweep: {canary: 1}", "`sweep` needs exactly one of `grid`, `zip`, `list`, such as `grid: {model.moe.top_k: [1, 2]}`"},
    {"sweep: {canary: 1}\nruns: {a: {sweep: {grid: {training.seed: [1, 2]}}}, b: {sweep: {zip: {training.seed: [1]}}}, c: {sweep: null}}", NULL},
    {"sweep: [1]", "`sweep` expects a map, not a list"},
    {"sweep: {grid: {training.seed: [1]}, canary: -1}", "`sweep.canary` expects a whole number from 0 to 100, not `-1`"},
    {"sweep: {grid: {training.seed: [1]}, concurrency: 0}", "`sweep.concurrency` expects a whole number from 1 to 10000, not `0`"},
    {"sweep: {grid: {training.seed: [1]}, limit: 10001}", "`sweep.limit` expects a whole number from 1 to 10000, not `10001`"},
    {"runs: {a: {sweep: {grid: {training.seed: [1]}, concurrency: 2}}, b: {sweep: {grid: {training.seed: [1]}, concurrency: 3}}}",
        "`sweep.concurrency` is one limit for all trials of a submission, and another run of this file says 2"},
    {"runs: {a: {sweep: {grid: {training.seed: [1, 2]}}}, b: {model: {from: {run: a}}}}",
        "`model.from.run`: run `a` is a sweep of 2 trials: name one of them, such as `a-seed1`"},
    {"checkpoint: {interval: 1}\nruns: {a: {sweep: {grid: {training.seed: [1, 2]}}}, b: {model: {from: {run: a-seed2}}}}", NULL},
    {"runs: {a: {sweep: {grid: {data.split: [[90, 10, 0]]}}}, a-1: {}}", "`sweep`: trial `a-1` would have the name of another run: rename that one"},
    {"stages: 3", "`stages` expects a map of 1 to 64 names to stages, such as `tokens: {kind: tokenize}`"},
    {"stages: {a b: {kind: train}}", "`stages`: `a b` is no name of 1 to 64 letters, digits, `_` and `-`"},
    {"stages: {-a: {kind: train}}", "`stages`: `-a` is no name of 1 to 64 letters, digits, `_` and `-`: commands would take it for an option"},
    {"runs: {-a: {}}", "`runs`: `-a` is no name of 1 to 64 letters, digits, `_` and `-`: commands would take it for an option"},
    {"stages: {a: 3}", "`stages.a` expects {kind: …, needs: […]} and keys of its own"},
    {"stages: {a: {kind: sleep}}", "`stages.a.kind` expects one of `train`, `tokenize`, `check`, not `sleep`"},
    {"stages: {a: {kind: trian}}", "`stages.a.kind` expects one of `train`, `tokenize`, `check`, not `trian`: did you mean `train`?"},
    {"stages: {a: {kind: [train]}}", "`stages.a.kind` expects one of `train`, `tokenize`, `check`"},
    {"stages: {a: {kind: train}}\nruns: {a: {}}", "`a` is in `runs` and in `stages`: a name stands for one of them"},
    {"stages: {a: {kind: train, needs: b}}", "`needs` expects a list of runs and stages: write `[b]`"},
    {"stages: {a: {kind: train, sweep: {grid: {training.seed: [1, 2]}}}, b: {kind: train, needs: [a-seed1]}}",
        "`stages.b.needs`: `a-seed1` is a trial of a sweep; write `a`, which is all 2 of them"},
    {"stages: {first: {kind: train}, b: {kind: train, needs: [frist]}}", "`stages.b.needs`: there is no run or stage `frist`; did you mean `first`?"},
    {"stages: {a: {kind: train, needs: [a]}}", "`stages.a.needs`: `a` would wait for itself"},
    {"runs: {a: {needs: [b]}, b: {}}", NULL},
    {"runs: {a: {needs: [b]}, b: {needs: [c]}, c: {needs: [a]}}", "these wait for each other, so that none could begin: `a` → `b` → `c` → `a`"},
    {"checkpoint: {interval: 1}\nruns: {a: {needs: [b]}, b: {model: {from: {run: a}}}}", "these wait for each other, so that none could begin: `a` → `b` → `a`"},
    {"runs: {a: {needs: [b, c]}, b: {needs: [d]}, c: {needs: [d]}, d: {}}", NULL},
    {"data: {text: null, prefix: p}\nstages: {a: {kind: tokenize}}", "stage `a` tokenizes, and has no `data.text` to take"},
    {"runs: {a: {stages: {}}}", "`stages` stands at the top of a file, not inside a run"},
    {"needs: [a]", "unknown key `needs`"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        check_rule(faults[i].lines, faults[i].expected);
}

// A sweep of the common part makes a mixture of the dense run too, and says so.
static void test_a_section_that_a_run_lacks(void **state)
{
    static const char warned[] = "`sweep`: `dense` has no `model.moe`, and each of its trials gets one; `sweep: null` in it leaves it one run";
    static const char two[] = "base: good.yaml\nsweep: {grid: {model.moe.experts: [4, 8]}}\nruns: {moe: {model: {moe: {experts: 4, top_k: 2}}}, dense: %s}\n";
    static const struct { const char *dense; bool warns; } cases[] = {
        {"{}", true}, {"{sweep: null}", false}, {"{sweep: {grid: {training.seed: [1]}}}", false}, {"{model: {moe: {experts: 4, top_k: 1, pre_softmax: true}}}", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec_file file;
        struct text text;
        text_init(&text, 4096);
        text_addf(&text, two, cases[i].dense);
        load_good(&file, text.at, NULL);
        assert_int_equal(has_message(file.warning_list, warned), cases[i].warns);
        spec_file_release(&file);
        text_release(&text);
    }
}

// A rule that a trial breaks says which trial, where its values stand, and of how many more it is true.
static void test_a_fault_names_its_trial(void **state)
{
    (void)state;
    expect_problems("base: good.yaml\n"
                    "parallelism: {tensor: 1}\n"
                    "sweep:\n"
                    "  grid:\n"
                    "    model.hidden_size: [64, 130]\n"
                    "    training.seed: [1, 2, 3]\n",
        NULL,
        "spec.yaml:5:29: `model.hidden_size` 130 is not divisible by `model.attention_heads` 4 (remainder 2) (in trial `spec-hidden_size130-seed1`: "
        "`model.hidden_size` 130 (line 5), `training.seed` 1 (line 6); and in 2 more)\n"
        "     5 |     model.hidden_size: [64, 130]\n"
        "       |                             ^\n");
    // At a key that is not swept; the numbers differ from trial to trial.
    expect_problems("base: good.yaml\n"
                    "training: {learning_rate: {peak: 1e-5, minimum: 2e-3}}\n"
                    "sweep: {grid: {training.learning_rate.peak: [1e-3, 1e-4, 1]}}\n",
        NULL,
        "spec.yaml:2:49: `minimum` 0.002 is more than `peak` 0.001 (in trial `spec-peak1e-3`: `training.learning_rate.peak` 1e-3 (line 3); "
        "and in 1 more)\n"
        "     2 | training: {learning_rate: {peak: 1e-5, minimum: 2e-3}}\n"
        "       |                                                 ^\n");
    // What is wrong whatever the values is said without them.
    expect_problems("base: good.yaml\n"
                    "model: {attention_heads: 5}\n"
                    "sweep: {grid: {training.seed: [1, 2]}}\n",
        NULL,
        "good.yaml:3:33: `model.hidden_size` 64 is not divisible by `model.attention_heads` 5 (remainder 4)\n"
        "     3 | model: {layers: 2, hidden_size: 64, ffn_hidden_size: 128, attention_heads: 4, vocab_size: 257}\n"
        "       |                                 ^\n");
    expect_problems("base: good.yaml\nsweep: {grid: {training.seed: [1, 2]}}\n", (const char *const[]){"training.seed=3", NULL},
        "--set training.seed=3: `training.seed` is swept (spec.yaml:2): an option cannot set it for all trials\n"
        "       | training.seed=3\n"
        "       |               ^\n");
}

static void test_how_many(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 1 << 18);
    text_add(&text, "base: good.yaml\nsweep:\n  grid:\n    training.seed: [");
    for (int i = 0; i < 1001; i++)
        text_addf(&text, "%s%d", i ? ", " : "", i);
    text_add(&text, "]\n");
    struct spec_file file;
    assert_int_equal(load_text(&file, text.at, NULL), -1);
    assert_true(has_message(file.problem_list, "`sweep` makes 1001 trials: where more than 1000 are meant, give it a `limit` (of at most 10000)"));
    assert_int_equal(file.count, 1);
    spec_file_release(&file);
    load_good(&file, text.at, (const char *const[]){"sweep.limit=1001", NULL});
    assert_int_equal(file.count, 1001);
    spec_file_release(&file);
    assert_int_equal(load_text(&file, text.at, (const char *const[]){"sweep={limit: 10000, grid: {model: {layers: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}}", NULL}), -1);
    assert_true(has_message(file.problem_list, "`sweep` makes 10010 trials, more than the 10000 of `limit`"));
    spec_file_release(&file);
    text_release(&text);
}

// Each trial that waits for the canary is as many needs as the canary has trials: what could not be submitted is no good spec.
static void test_canary_of_many(void **state)
{
    (void)state;
    struct spec_file file;
    static const char spec[] = "base: good.yaml\nsweep:\n  limit: 10000\n  grid: {training.seed: [%s]}\n  canary: %d\n";
    struct text seeds;
    text_init(&seeds, 1 << 20);
    for (int i = 1; i <= 10000; i++)
        text_addf(&seeds, "%s%d", i > 1 ? ", " : "", i);
    char *far = string_format(spec, seeds.at, 100), *fine = string_format(spec, seeds.at, 10);
    assert_int_equal(load_text(&file, far, NULL), -1);
    assert_true(has_message(file.problem_list, "`sweep.canary`: 9900 trials that need the first 100 each: 100000 needs are the most"));
    assert_int_equal(js_integer_of(js_get(js_at(file.problem_list, 0), "line"), 0), 5);
    spec_file_release(&file);
    load_good(&file, fine, NULL);
    assert_int_equal(file.entries[0].canary, 10);
    spec_file_release(&file);
    free(fine);
    free(far);
    text_release(&seeds);
}

// ---- stages ----

static void test_stages(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, "base: good.yaml\n"
                     "checkpoint: {interval: 5}\n"
                     "stages:\n"
                     "  tokens: {kind: tokenize}\n"
                     "  first: {kind: train, needs: [tokens], training: {seed: 5}}\n"
                     "runs:\n"
                     "  rest: {needs: [first], sweep: {grid: {training.seed: [1, 2, 3]}, canary: 1}}\n",
        NULL);
    check_names(&file, (const char *const[]){"tokens", "first", "rest-seed1", "rest-seed2", "rest-seed3", NULL});
    assert_string_equal(file.entries[0].kind, "tokenize");
    assert_string_equal(file.entries[1].kind, "train");
    assert_int_equal(file.runs[1].spec.training.seed, 5);
    static const size_t expected[5][3] = {{0}, {1, 0}, {1, 1}, {2, 1, 2}, {2, 1, 2}}; // how many, which
    for (size_t i = 0; i < 5; i++) {
        size_t count, *needs = spec_file_needs(&file, i, &count);
        assert_int_equal(count, expected[i][0]);
        for (size_t j = 0; j < count; j++)
            assert_int_equal(needs[j], expected[i][1 + j]);
        free(needs);
    }
    assert_int_equal(js_count(file.runs[0].unsupported), 0);
    spec_file_release(&file);
    load_good(&file, "base: good.yaml\nstages:\n  look:\n    kind: check\n", NULL);
    const struct json *refused = js_at(file.runs[0].unsupported, 0);
    assert_string_equal(js_string_of(js_get(refused, "text"), ""), "spec.yaml:4:11: stages: check: this build cannot run checks as a stage yet\n"
                                                                   "     4 |     kind: check\n"
                                                                   "       |           ^\n");
    spec_file_release(&file);
    // A file that inherits lays its stages upon the other's.
    write_text("under.yaml", "base: good.yaml\nstages: {a: {kind: train, training: {seed: 7}}, b: {kind: train}}\n");
    load_good(&file, "base: under.yaml\nstages: {a: {training: {iterations: 20}}, b: null, c: {kind: train, needs: [a]}}\n", NULL);
    check_names(&file, (const char *const[]){"a", "c", NULL});
    assert_true(file.runs[0].spec.training.seed == 7 && file.runs[0].spec.training.iterations == 20);
    spec_file_release(&file);
}

// ---- anything ----

// Odd values in every place of a sweep and of stages: an answer, never a crash, and a good file has unique names that are names.
static void test_odd_values(void **state)
{
    (void)state;
    static const char *const odd[] = {"1", "-1", "0", "null", "~", "''", "[]", "{}", "[1, 2]", "[[1], [2]]", "{a: 1}", "x y", "'../..'", "1e999", ".nan",
        "0x10", "a.b", "[1, 1]", "{training.seed: 1}", "{training.seed: [1, 2]}", "[{training.seed: 1}]", "{model: {moe: {experts: [2, 4]}}}",
        "{environment.variables: [{A: b}, {C: d}]}", "[tokens]", "tokens", "true", "\"\\u202e\"", "{training: {seed: [1, null]}}",
        "{data.split: [[90, 10, 0]]}", "{project: [a, b]}", "{training.learning_rate.peak: [1e-3, -0.0, 5.e-1, 1e400]}"};
    static const char *const places[] = {"sweep", "sweep.grid", "sweep.zip", "sweep.list", "sweep.limit", "sweep.canary", "sweep.concurrency"};
    enum { ODD = sizeof odd / sizeof *odd, PLACES = sizeof places / sizeof *places };
    static const char *const shapes[] = {"sweep: %s", "sweep: {grid: %s}", "sweep: {zip: %s}", "sweep: {list: %s}",
        "sweep: {grid: {training.seed: %s}}", "sweep: {zip: {training.seed: [1, 2], model.layers: %s}}", "sweep: {grid: {training.seed: [1, 2]}, limit: %s}",
        "sweep: {grid: {training.seed: [1, 2]}, canary: %s}", "sweep: {grid: {training.seed: [1, 2]}, concurrency: %s}", "stages: %s", "stages: {tokens: %s}",
        "stages: {tokens: {kind: %s}}", "stages: {tokens: {kind: train, needs: %s}}", "runs: {a: {needs: %s, sweep: {grid: {training.seed: [1, 2]}}}}",
        "stages: {tokens: {kind: tokenize, sweep: %s}}"};
    size_t good = 0, bad = 0;
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
        for (size_t i = 0; i < ODD; i++)
            for (size_t j = (i + shape) % PLACES; j <= PLACES; j += PLACES - (i + shape) % PLACES) { // one of the places, and none
                const char *at = strstr(shapes[shape], "%s");
                char *lines = string_format("base: good.yaml\n%.*s%s%s\n", (int)(at - shapes[shape]), shapes[shape], odd[i], at + 2);
                char *set = j < PLACES ? string_format("%s=%s", places[j], odd[(i + j * 7 + shape) % ODD]) : NULL;
                struct spec_file file;
                int status = load_text(&file, lines, (const char *const[]){set, NULL});
                struct json *names = js_object();
                for (size_t k = 0; k < file.count && status == 0; k++) {
                    assert_true(strlen(name_of(&file, k)) <= 64 && !js_get(names, name_of(&file, k)));
                    js_set(names, name_of(&file, k), js_boolean(true));
                }
                if (status != 0)
                    assert_true(file.errors > 0 && file.problems.length > 0);
                good += status == 0;
                bad += status != 0;
                js_free(names);
                spec_file_release(&file);
                free(lines);
                free(set);
            }
    printf("%zu good, %zu bad\n", good, bad);
    assert_true(good > 10 && bad > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_zip_and_list),
        cmocka_unit_test(test_sweeps_of_runs),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_same_twice),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_a_section_that_a_run_lacks),
        cmocka_unit_test(test_a_fault_names_its_trial),
        cmocka_unit_test(test_how_many),
        cmocka_unit_test(test_canary_of_many), cmocka_unit_test(test_stages),
        cmocka_unit_test(test_odd_values),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
