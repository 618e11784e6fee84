// Saving behind the training: what is saved is what was there when the save began; nothing is complete before all of it is on the disk; a
// save that fails says which file and why and leaves the checkpoint before it alone; a newer attempt fences it; the copy is as planned.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/shape/plan.h"
#include "tests/train/tiny_model.h"
#include "worker/train/checkpoint.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct bench { // a run of one rank, without a loop
    char folder[64];
    struct job job;
    struct parallel parallel;
    struct comm *self;
    struct model *model;
    struct optimizer optimizer;
    struct extra_states extra;
    double number;
    float bias[4];
    struct training_state state;
    struct saver *saver;
};

static void bench_init(struct bench *bench, bool asynchronous, int64_t keep)
{
    const struct tiny tiny = {.experts = 4, .top_k = 2};
    struct error err = {0};
    *bench = (struct bench){.folder = "/tmp/switchyard-saver-XXXXXX", .self = comm_self(), .number = 0.5, .bias = {1, 2, 3, 4}};
    assert_non_null(mkdtemp(bench->folder));
    bench->job = (struct job){.run_directory = bench->folder, .run_id = "0123", .attempt = 1};
    tiny_spec(&bench->job.spec, &tiny);
    bench->job.spec.checkpoint.interval = 1;
    bench->job.spec.checkpoint.keep = keep;
    bench->job.spec.checkpoint.asynchronous = asynchronous;
    bench->job.spec.training.iterations = 100;
    struct layout layout;
    assert_int_equal(layout_from_spec(&layout, &bench->job.spec, &err), 0);
    bench->parallel = (struct parallel){.layout = layout, .world = bench->self, .dp = bench->self, .ep = bench->self, .edp = bench->self};
    assert_int_equal(model_new(&bench->model, &bench->job.spec, device_reference(), &bench->parallel, &err), 0);
    optimizer_init(&bench->optimizer, bench->model);
    extra_states_add(&bench->extra, "a number", EXTRA_F64, &bench->number, 1, EXTRA_PROGRESS);
    extra_states_add(&bench->extra, "a bias", EXTRA_F32, bench->bias, 4, EXTRA_MODEL);
    bench->state = (struct training_state){.job = &bench->job, .model = bench->model, .optimizer = &bench->optimizer, .extra = &bench->extra,
        .world = bench->self, .step = 1, .identity = js_object()};
    saver_open(&bench->saver, &bench->state);
}

static void bench_release(struct bench *bench)
{
    saver_close(bench->saver);
    js_free(bench->state.identity);
    extra_states_release(&bench->extra);
    optimizer_release(&bench->optimizer);
    model_free(bench->model);
    bench->self->ops->free(bench->self);
    assert_int_equal(directory_remove(bench->folder, NULL), 0);
}

static void fill(struct bench *bench, float value)
{
    size_t count = bench->model->dense.count;
    float *values = allocate(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = value;
    device_reference()->memory->upload(bench->model->dense.params, values, count * sizeof *values);
    device_reference()->memory->upload(bench->optimizer.dense.m, values, count * sizeof *values);
    free(values);
}

static float first_value(const void *at)
{
    float value;
    device_reference()->memory->read_back(&value, at, sizeof value);
    return value;
}

static bool is_there(const struct bench *bench, const char *name)
{
    char *path = path_join(bench->folder, name);
    bool there = file_exists(path);
    free(path);
    return there;
}

static void save(struct bench *bench, bool behind)
{
    struct error err = {0};
    struct saved saved;
    assert_int_equal(saver_begin(bench->saver, &bench->state, behind, &err), 0);
    assert_int_equal(saver_finish(bench->saver, &saved, &err), 0);
    assert_int_equal(saved.step, bench->state.step);
    assert_true(saved.bytes > 0);
}

static void test_what_is_saved_is_what_was_there(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    struct saved saved;
    bench_init(&bench, true, 0);
    fill(&bench, 1.25f);
    assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), 0);
    fill(&bench, 9);
    bench.number = 9;
    bench.bias[2] = 9;
    bench.state.step = 2;
    assert_int_equal(saver_finish(bench.saver, &saved, &err), 0);
    assert_int_equal(saved.step, 1);
    char *directory = run_checkpoint_directory(bench.folder, 1);
    assert_int_equal(checkpoint_verify(directory, VERIFY_ALL, &err), 0);
    free(directory);
    struct resumed resumed;
    assert_int_equal(checkpoint_resume(&bench.state, &resumed, &err), 0);
    assert_int_equal(resumed.step, 1);
    assert_true(first_value(bench.model->dense.params) == 1.25f);
    assert_true(first_value(bench.optimizer.dense.m) == 1.25f);
    assert_true(bench.number == 0.5 && bench.bias[2] == 3);
    bench_release(&bench);
}

// Looked at from outside all the while: a mark is never there before the whole of the checkpoint is, nor a report before the mark.
static void test_nothing_is_early(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    bench_init(&bench, true, 0);
    for (bench.state.step = 1; bench.state.step <= 20; bench.state.step++) {
        struct saved saved = {0};
        char *directory = run_checkpoint_directory(bench.folder, bench.state.step), *mark = path_join(directory, COMPLETE_FILE);
        assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), 0);
        while (saved.bytes == 0) {
            if (file_exists(mark))
                assert_int_equal(checkpoint_verify(directory, VERIFY_ALL, &err), 0);
            if (saver_has_news(bench.saver))
                assert_int_equal(saver_advance(bench.saver, &saved, &err), 0);
        }
        assert_true(file_exists(mark));
        free(mark);
        free(directory);
    }
    bench_release(&bench);
}

static void test_old_ones_go_last(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, true, 2);
    for (bench.state.step = 1; bench.state.step <= 4; bench.state.step++) {
        save(&bench, bench.state.step % 2);
        assert_true(is_there(&bench, "checkpoints/step-0000001/complete.json") == (bench.state.step < 3));
    }
    assert_false(is_there(&bench, "checkpoints/step-0000002"));
    assert_true(is_there(&bench, "checkpoints/step-0000003/complete.json"));
    bench.state.step = 4;
    struct error err = {0};
    struct saved saved;
    assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), 0); // it is there already
    assert_int_equal(saver_finish(bench.saver, &saved, &err), 0);
    assert_int_equal(saved.bytes, 0);
    bench_release(&bench);
}

// A file that may not grow is a disk that is full.
static void test_a_full_disk(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    struct saved saved;
    struct rlimit before, small;
    bench_init(&bench, true, 1);
    save(&bench, true);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){4096, before.rlim_max};
    for (bench.state.step = 2; bench.state.step <= 3; bench.state.step++) {
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        int begun = saver_begin(bench.saver, &bench.state, bench.state.step == 2, &err);
        int ended = saver_finish(bench.saver, &saved, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(begun, 0);
        assert_int_equal(ended, -1);
        assert_non_null(strstr(err.text, bench.state.step == 2 ? "step-0000002.1.tmp/model-00001-of-00002.safetensors: File too large"
                                                               : "step-0000003.1.tmp/model-00001-of-00002.safetensors: File too large"));
    }
    char *directory = run_checkpoint_directory(bench.folder, 1);
    assert_int_equal(checkpoint_verify(directory, VERIFY_ALL, &err), 0);
    free(directory);
    assert_false(is_there(&bench, "checkpoints/step-0000002"));
    assert_false(is_there(&bench, "checkpoints/step-0000002.1.tmp"));
    assert_false(is_there(&bench, "checkpoints/step-0000003.1.tmp"));
    bench.state.step = 4;
    save(&bench, true); // with room again, the next one is good
    bench_release(&bench);
}

static void test_a_newer_attempt_fences(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    struct saved saved;
    bench_init(&bench, true, 0);
    save(&bench, true);
    bench.state.step = 2;
    // The newer attempt appears while the tensors are being written: what is published comes after, and may not.
    assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), 0);
    char *newer = run_attempt_directory(bench.folder, 2);
    assert_int_equal(mkdir(newer, 0777), 0);
    assert_int_equal(saver_finish(bench.saver, &saved, &err), -1);
    assert_string_equal(err.text, "attempt 1 is fenced: attempt 2 exists and is the run's only writer");
    assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), -1);
    assert_false(is_there(&bench, "checkpoints/step-0000002"));
    assert_false(is_there(&bench, "checkpoints/step-0000002.1.tmp"));
    assert_int_equal(run_last_checkpoint(bench.folder), 1);
    free(newer);
    bench_release(&bench);
}

// A run directory that was removed or renamed is not begun anew under its old name.
static void test_a_directory_that_is_gone(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    bench_init(&bench, true, 0);
    save(&bench, true);
    bench.state.step = 2;
    char *away = string_format("%s-away", bench.folder);
    assert_int_equal(rename(bench.folder, away), 0);
    assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), -1);
    assert_non_null(strstr(err.text, " is not there any more"));
    assert_false(file_exists(bench.folder));
    assert_int_equal(rename(away, bench.folder), 0);
    save(&bench, true);
    free(away);
    bench_release(&bench);
}

// Closed in the middle, as where training fails: no checkpoint, and nothing left behind.
static void test_closed_in_the_middle(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    bench_init(&bench, true, 0);
    assert_int_equal(saver_begin(bench.saver, &bench.state, true, &err), 0);
    saver_close(bench.saver);
    bench.saver = NULL;
    assert_int_equal(run_last_checkpoint(bench.folder), -1);
    assert_false(is_there(&bench, "checkpoints/step-0000001.1.tmp"));
    bench_release(&bench);
}

static void test_the_copy_is_planned(void **state)
{
    (void)state;
    struct bench bench;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        struct memory_cost memory, none;
        bench_init(&bench, asynchronous, 0);
        memory_cost(&memory, &bench.job.spec, &bench.parallel.layout);
        size_t extra = asynchronous ? sizeof bench.number + sizeof bench.bias : 0;
        assert_int_equal(saver_bytes(bench.saver), memory.checkpoint + (int64_t)extra);
        assert_true(asynchronous == (memory.checkpoint > 0));
        struct spec without = bench.job.spec;
        without.checkpoint.interval = 0;
        memory_cost(&none, &without, &bench.parallel.layout);
        assert_int_equal(none.checkpoint, 0);
        assert_int_equal(memory.total_worst - none.total_worst, memory.checkpoint);
        without.checkpoint.interval = 1;
        without.resources.gpus_per_node = 1;
        memory_cost(&none, &without, &bench.parallel.layout);
        assert_int_equal(none.checkpoint, memory.checkpoint); // in the host's memory, not in the GPU's
        assert_int_equal(memory.total_worst - none.total_worst, memory.checkpoint + memory.process);
        bench_release(&bench);
    }
}

static void test_extra_state_is_demanded(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    struct resumed resumed;
    bench_init(&bench, true, 0);
    save(&bench, true);
    int64_t counter = 7;
    extra_states_add(&bench.extra, "a counter", EXTRA_I64, &counter, 1, EXTRA_MODEL);
    assert_int_equal(checkpoint_resume(&bench.state, &resumed, &err), -1);
    assert_non_null(strstr(err.text, "step-0000001: no state a counter in it, which this run needs"));
    bench.number = bench.bias[0] = 0;
    char *directory = run_checkpoint_directory(bench.folder, 1);
    assert_int_equal(extra_states_load_model(&bench.extra, directory, &err), 0); // weights alone: what goes with them, where it is there
    free(directory);
    assert_true(bench.number == 0 && bench.bias[0] == 1 && counter == 7);
    bench.state.step = 2;
    save(&bench, true);
    bench.extra.items[1].count = 3;
    assert_int_equal(checkpoint_resume(&bench.state, &resumed, &err), -1);
    assert_non_null(strstr(err.text, "step-0000002: a bias is 4 values of F32, but this run's are 3 of F32"));
    bench.extra.items[1].count = 4;
    bench.extra.items[1].kind = EXTRA_I64;
    assert_int_equal(checkpoint_resume(&bench.state, &resumed, &err), -1);
    assert_non_null(strstr(err.text, "a bias is 4 values of F32, but this run's are 4 of I64"));
    bench_release(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_saved_is_what_was_there), cmocka_unit_test(test_nothing_is_early), cmocka_unit_test(test_old_ones_go_last),
        cmocka_unit_test(test_a_full_disk), cmocka_unit_test(test_a_newer_attempt_fences), cmocka_unit_test(test_a_directory_that_is_gone),
        cmocka_unit_test(test_closed_in_the_middle),
        cmocka_unit_test(test_the_copy_is_planned), cmocka_unit_test(test_extra_state_is_demanded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
