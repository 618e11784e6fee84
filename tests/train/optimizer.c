// The optimizer on a small model, by values that are known: what decays, what clipping does, what an update counts.
#include "tests/train/tiny_model.h"
#include "worker/train/optimizer.h"

#include "schema/base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct fixture {
    struct spec spec;
    struct comm *world;
    struct parallel parallel;
    struct model *model;
    struct optimizer optimizer;
};

// In double, with values that are not round, gradients zero, rate 0.01 and decay 0.1; experts at a rate of 0.002.
static void open_fixture(struct fixture *f)
{
    struct error err;
    *f = (struct fixture){0};
    tiny_spec(&f->spec, &(struct tiny){.experts = 3, .top_k = 2, .layer_frequency = 2, .untied = true});
    f->spec.training.iterations = 10;
    f->spec.training.optimizer = (struct spec_optimizer){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 1};
    f->spec.training.learning_rate = (struct spec_learning_rate){.schedule = SCHEDULE_CONSTANT, .peak = 0.01, .expert_peak = 0.002};
    f->world = comm_self();
    assert_int_equal(parallel_init(&f->parallel, &f->spec, f->world, &err), 0);
    assert_int_equal(model_new(&f->model, &f->spec, device_reference_f64(), &f->parallel, &err), 0);
    optimizer_init(&f->optimizer, f->model);
    tiny_values(f->model, 0.5);
    model_zero_gradients(f->model);
}

static void close_fixture(struct fixture *f)
{
    optimizer_release(&f->optimizer);
    model_free(f->model);
    parallel_release(&f->parallel);
    comm_finish(f->world);
}

// Every tensor before and after one update.
static void take_update(struct fixture *f, double norm, void (*check)(const struct param *param, const double *before, const double *after))
{
    size_t count = f->model->table.count;
    double **before = allocate(count, sizeof *before);
    for (size_t i = 0; i < count; i++) {
        const struct param *param = &f->model->table.items[i];
        before[i] = tiny_read(f->model, model_param(f->model, param), param_elements(param));
    }
    optimizer_step(&f->optimizer, f->model, norm, 1, 2);
    for (size_t i = 0; i < count; i++) {
        const struct param *param = &f->model->table.items[i];
        double *after = tiny_read(f->model, model_param(f->model, param), param_elements(param));
        check(param, before[i], after);
        free(before[i]);
        free(after);
    }
    free(before);
}

static double rate_of(const struct param *param)
{
    return strstr(param->name, ".experts.") ? 0.002 : 0.01;
}

static bool is_vector(const struct param *param)
{
    return strstr(param->name, "norm") != NULL; // all that this model has
}

static void check_decay(const struct param *param, const double *before, const double *after)
{
    double keep = is_vector(param) ? 1 : 1 - rate_of(param) * 0.1;
    for (size_t j = 0; j < param_elements(param); j++)
        if (fabs(after[j] - before[j] * keep) > 1e-15)
            fail_msg("%s[%zu]: %.17g became %.17g, not %.17g", param->name, j, before[j], after[j], before[j] * keep);
}

// Without gradients an update is the decay alone: p · (1 − rate · 0.1) for matrices, embedding, output and router included; norms stand still.
static void test_weight_decay(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    take_update(&f, 0, check_decay);
    close_fixture(&f);
}

static void check_first_update(const struct param *param, const double *before, const double *after)
{
    double g = 0.25 / (2 + 1e-6); // clipped from norm 2 to 1
    for (size_t j = 0; j < param_elements(param); j++) {
        double wanted = before[j] - rate_of(param) * (g / (g + 1e-8) + (is_vector(param) ? 0 : 0.1) * before[j]);
        if (fabs(after[j] - wanted) > 1e-14)
            fail_msg("%s[%zu]: %.17g became %.17g, not %.17g", param->name, j, before[j], after[j], wanted);
    }
}

// The first update with its bias corrected: both moments are the gradient's own, so the move is rate · g / (|g| + eps).
static void test_first_update(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < f.model->table.count; i++) {
        const struct param *param = &f.model->table.items[i];
        double *values = allocate(param_elements(param), sizeof *values);
        for (size_t j = 0; j < param_elements(param); j++)
            values[j] = 0.25;
        f.model->device->ops->from_double(model_gradient(f.model, param), values, param_elements(param));
        free(values);
    }
    take_update(&f, 2, check_first_update);
    close_fixture(&f);
}

static void test_clip(void **state)
{
    (void)state;
    struct spec spec = {0};
    spec.training.optimizer.clip_grad = 1;
    assert_true(optimizer_clip(&spec, 0) == 1);
    assert_true(optimizer_clip(&spec, 0.5) == 1);
    assert_true(optimizer_clip(&spec, 1 - 1e-6) == 1);
    assert_true(optimizer_clip(&spec, 1) == 1 / (1 + 1e-6)); // torch.nn.utils.clip_grad_norm_ and Megatron add 1e-6 too
    assert_true(optimizer_clip(&spec, 4) == 1 / (4 + 1e-6));
    assert_true(optimizer_clip(&spec, INFINITY) == 0);
    assert_true(optimizer_clip(&spec, NAN) == 1);
    spec.training.optimizer.clip_grad = 0; // no clipping
    assert_true(optimizer_clip(&spec, 1e30) == 1);
}

static void ignore(const struct param *param, const double *before, const double *after)
{
    (void)param, (void)before, (void)after;
}

// Two counters move with an update and with nothing else: a step that is skipped meets the same bias correction and the same rate again.
static void test_counters(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    assert_true(f.optimizer.updates == 0 && f.optimizer.samples == 0);
    take_update(&f, 0, ignore);
    take_update(&f, 0, ignore);
    assert_true(f.optimizer.updates == 2 && f.optimizer.samples == 4);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weight_decay), cmocka_unit_test(test_first_update), cmocka_unit_test(test_clip), cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
