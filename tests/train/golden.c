// The golden vectors of tests/train/golden/: loss, balance losses and every gradient as PyTorch computed them in double, by a model
// written independently of ours (tests/peers/torch_model.py, whose hash each file carries).
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/base/json.h"
#include "tests/train/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FILE_MAX = 1 << 20 };

static char *source_path(const char *name)
{
    const char *root = getenv("SWITCHYARD_SOURCE");
    return path_join(root ? root : ".", name);
}

static struct json *read_golden(const char *name)
{
    struct error err = {{0}};
    char *path = source_path(name);
    struct json *golden = js_read_file(path, FILE_MAX, &err);
    if (!golden)
        fail_msg("%s", err.text);
    free(path);
    return golden;
}

// A golden vector must not outlive the script that made it.
static void check_script(const struct json *golden)
{
    struct error err = {{0}};
    char *path = source_path(js_string_of(js_get(golden, "script"), "")), digest[HASH_HEX];
    if (hash_file(digest, path, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(digest, js_string_of(js_get(golden, "script_sha256"), ""));
    free(path);
}

static int64_t integer(const struct json *config, const char *key)
{
    const struct json *value = js_get(config, key);
    assert_int_equal(js_kind(value), JSON_KIND_INTEGER);
    return js_integer_of(value, -1);
}

static void spec_of(struct spec *spec, const struct json *config)
{
    tiny_spec(spec, &(struct tiny){.experts = integer(config, "experts"), .top_k = integer(config, "top_k"),
        .layer_frequency = integer(config, "layer_frequency"), .pre_softmax = integer(config, "pre_softmax"),
        .untied = integer(config, "untied"), .balance = js_real_of(js_get(config, "balance"), NAN),
        .micro_batch = integer(config, "micro_batch")});
    spec->model.moe.expert_ffn_hidden_size = integer(config, "expert_ffn");
    assert_int_equal(integer(config, "layers"), TINY_LAYERS); // the rest of the shape is tiny_model.h's
    assert_int_equal(integer(config, "hidden"), TINY_HIDDEN);
    assert_int_equal(integer(config, "vocab"), TINY_VOCAB);
    assert_int_equal(integer(config, "sequence"), TINY_SEQUENCE);
}

static void compare_tensor(const struct model *model, const struct param *param, const struct json *wanted, double tolerance)
{
    size_t count = param_elements(param);
    assert_int_equal(js_count(wanted), count);
    double *gradient = tiny_read(model, model_gradient(model, param), count), largest = 1e-30;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(js_real_of(js_at(wanted, i), NAN)));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(gradient[i] - js_real_of(js_at(wanted, i), NAN)) <= tolerance * largest))
            fail_msg("%s[%zu] on %s: %.10g, PyTorch %.10g", param->name, i, model->device->name, gradient[i], js_real_of(js_at(wanted, i), NAN));
    free(gradient);
}

static void compare_model(struct model *model, const struct json *golden, double tolerance)
{
    struct moe_report report;
    tiny_values(model, js_real_of(js_get(js_get(golden, "config"), "deviation"), NAN));
    struct micro_batch *batch = tiny_batch(model->spec, 0);
    double loss = model_forward(model, batch, true, 1);
    model_backward(model);
    free(batch);
    moe_report_init(&report, model->spec);
    model_statistics(model, &report);
    assert_true(fabs(loss - js_real_of(js_get(golden, "loss"), NAN)) <= tolerance);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++)
        assert_true(fabs(report.losses[MOE_LOSS_AUX][layer] - js_real_of(js_at(js_get(golden, "balance"), layer), NAN)) <= tolerance);
    moe_report_release(&report);
    const struct json *gradients = js_get(golden, "gradients");
    assert_int_equal(js_count(gradients), model->table.count);
    for (size_t i = 0; i < model->table.count; i++)
        compare_tensor(model, &model->table.items[i], js_get(gradients, model->table.items[i].name), tolerance);
}

static void check_golden(const char *name)
{
    struct json *golden = read_golden(name);
    check_script(golden);
    const struct { const struct device *device; double tolerance; } judged[] = {
        {device_reference_f64(), 1e-10}, {device_reference(), 1e-4}, {device_cpu(2), 1e-4}};
    for (size_t i = 0; i < sizeof judged / sizeof *judged; i++) {
        struct spec spec;
        struct parallel parallel;
        struct model *model;
        struct error err = {{0}};
        struct comm *world = comm_self();
        spec_of(&spec, js_get(golden, "config"));
        assert_int_equal(parallel_init(&parallel, &spec, world, &err), 0);
        assert_int_equal(model_new(&model, &spec, judged[i].device, &parallel, &err), 0);
        compare_model(model, golden, judged[i].tolerance);
        model_free(model);
        parallel_release(&parallel);
        comm_finish(world);
    }
    js_free(golden);
}

static void dense_gradients_are_pytorch_s(void **state)
{
    (void)state;
    check_golden("tests/train/golden/dense.json");
}

static void moe_gradients_are_pytorch_s(void **state)
{
    (void)state;
    check_golden("tests/train/golden/moe.json");
}

static void moe_gradients_with_pre_softmax_are_pytorch_s(void **state)
{
    (void)state;
    check_golden("tests/train/golden/moe-pre-softmax.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_gradients_are_pytorch_s),
        cmocka_unit_test(moe_gradients_are_pytorch_s),
        cmocka_unit_test(moe_gradients_with_pre_softmax_are_pytorch_s),
    };
    return cmocka_run_group_tests_name("golden vectors of the model", tests, NULL, NULL);
}
