// The gradient of every parameter tensor against central finite differences in double, for dense models and Mixtures of Experts; and
// what follows from the meaning of a micro batch, a fresh model, the guard device and a single expert.
#include "schema/base/text.h"
#include "tests/train/tiny_routing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS_MAX = 4 * TINY_SEQUENCE, SAMPLES = 8, ALL_OF = 64 };

struct fixture {
    struct spec spec;
    struct comm *world;
    struct parallel parallel;
    struct model *model;
    struct micro_batch *batch;
};

static void set_up(struct fixture *f, const struct tiny *tiny, const struct device *device, double deviation)
{
    struct error err = {{0}};
    tiny_spec(&f->spec, tiny);
    f->world = comm_self();
    assert_int_equal(parallel_init(&f->parallel, &f->spec, f->world, &err), 0);
    assert_int_equal(model_new(&f->model, &f->spec, device, &f->parallel, &err), 0);
    if (deviation > 0)
        tiny_values(f->model, deviation);
    f->batch = tiny_batch(&f->spec, 0);
}

static void tear_down(struct fixture *f)
{
    model_free(f->model);
    free(f->batch);
    parallel_release(&f->parallel);
    comm_finish(f->world);
}

// Cross-entropy plus the losses of routing with their coefficients: what the gradients are the gradient of. Gradients are left as they were.
static double whole_loss(struct fixture *f)
{
    struct moe_report report;
    moe_report_init(&report, &f->spec);
    model_statistics_reset(f->model);
    double loss = model_forward(f->model, f->batch, true, 1);
    model_statistics(f->model, &report);
    assert_int_equal(report.micro_batches, 1);
    for (enum spec_moe_loss type = MOE_LOSS_AUX; type <= MOE_LOSS_Z; type++)
        for (size_t layer = 0; layer < TINY_LAYERS; layer++)
            loss += spec_moe_coefficient(&f->spec, type) * report.losses[type][layer];
    moe_report_release(&report);
    return loss;
}

static double nudged_loss(struct fixture *f, void *at, double value)
{
    f->model->device->ops->from_double(at, &value, 1);
    return whole_loss(f);
}

// All elements of a small tensor, some of a large one. Returns the largest error relative to the tensor's largest gradient.
static double check_tensor(struct fixture *f, const struct param *param, const double *gradient)
{
    size_t count = param_elements(param), checks = count <= ALL_OF ? count : SAMPLES;
    double largest = 0, worst = 0, step = 1e-5;
    for (size_t j = 0; j < count; j++)
        largest = fmax(largest, fabs(gradient[j]));
    assert_true(largest > 0 || param->expert >= 0); // an expert may get no token
    // A key's bias shifts all scores of a query alike, unless rotated: no gradient but rounding. Differences of a loss near 3 resolve about 1e-11.
    largest = largest > 1e-12 ? fmax(largest, 1e-4) : 1;
    for (size_t check = 0; check < checks; check++) {
        size_t j = checks == count ? check : (size_t)(tiny_random((uint64_t)(param->layer + 10), 100 * (uint64_t)param->kind + check) * (double)count);
        void *at = real_at(f->model->device, model_param(f->model, param), j);
        double value;
        f->model->device->ops->to_double(&value, at, 1);
        double above = nudged_loss(f, at, value + step), below = nudged_loss(f, at, value - step);
        f->model->device->ops->from_double(at, &value, 1);
        double error = fabs((above - below) / (2 * step) - gradient[j]) / largest;
        if (error > 1e-6)
            print_error("%s[%zu]: gradient %.10g, finite difference %.10g\n", param->name, j, gradient[j], (above - below) / (2 * step));
        worst = fmax(worst, error);
    }
    return worst;
}

static void check_gradients(const struct tiny *tiny)
{
    struct fixture f;
    set_up(&f, tiny, device_reference_f64(), 0.5);
    model_zero_gradients(f.model);
    whole_loss(&f);
    model_backward(f.model);
    double **gradients = allocate(f.model->table.count, sizeof *gradients), worst = 0;
    for (size_t i = 0; i < f.model->table.count; i++) {
        const struct param *param = &f.model->table.items[i];
        gradients[i] = tiny_read(f.model, model_gradient(f.model, param), param_elements(param));
    }
    for (size_t i = 0; i < f.model->table.count; i++) {
        worst = fmax(worst, check_tensor(&f, &f.model->table.items[i], gradients[i]));
        free(gradients[i]);
    }
    free(gradients);
    print_message("%zu tensors, worst error %.2g of the largest gradient\n", f.model->table.count, worst);
    assert_true(worst < 1e-6);
    tear_down(&f);
}

static void dense_tied_gradients_are_finite_differences(void **state)
{
    (void)state;
    check_gradients(&(struct tiny){0});
}

static void dense_untied_gradients_are_finite_differences(void **state)
{
    (void)state;
    check_gradients(&(struct tiny){.untied = true});
}

static void moe_gradients_are_finite_differences(void **state)
{
    (void)state;
    check_gradients(&(struct tiny){.experts = 4, .top_k = 2, .untied = true});
}

static void moe_gradients_with_balance_loss_are_finite_differences(void **state)
{
    (void)state;
    check_gradients(&(struct tiny){.experts = 4, .top_k = 2, .balance = 0.3});
}

static void moe_gradients_with_pre_softmax_are_finite_differences(void **state)
{
    (void)state;
    check_gradients(&(struct tiny){.experts = 4, .top_k = 1, .pre_softmax = true, .balance = 0.3, .layer_frequency = 2});
}

static void gradients_of_every_routing_are_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < tiny_routings_count; i++) {
        print_message("%s: ", tiny_routings[i].name);
        check_gradients(&tiny_routings[i].tiny);
    }
}

// ---- attention in every shape ----

static void learned(struct spec *spec)
{
    spec->model.position = POSITION_LEARNED;
    spec->model.max_position_embeddings = TINY_SEQUENCE;
    spec->model.bias = true;
}

static void scaled_rope(struct spec *spec)
{
    spec->model.rope_scaling_factor = 8;
    spec->model.rope_scaling_low_freq_factor = 1;
    spec->model.rope_scaling_high_freq_factor = 4;
    spec->model.rope_scaling_original_length = 32;
}

static void without_positions(struct spec *spec)
{
    spec->model.position = POSITION_NONE;
    spec->model.attention_window = 2;
}

static void normed_heads(struct spec *spec)
{
    spec->model.qk_norm = true;
}

static void normed_projections(struct spec *spec)
{
    spec->model.qk_norm = spec->model.bias = true;
    spec->model.qk_norm_over = QK_NORM_PROJECTION;
}

static void documents(struct spec *spec)
{
    spec->data.reset_attention_mask = spec->data.reset_position_ids = true;
}

static void learned_documents(struct spec *spec)
{
    learned(spec);
    spec->model.max_position_embeddings = TINY_SEQUENCE + 3;
    spec->data.reset_position_ids = true;
}

static void dropped(struct spec *spec)
{
    spec->model.attention_dropout = 0.3;
    spec->model.hidden_dropout = 0.2;
}

static void everything(struct spec *spec)
{
    normed_heads(spec);
    scaled_rope(spec);
    documents(spec);
    dropped(spec);
    spec->model.attention_window = 2;
    spec->model.bias = true;
}

static void attention_gradients_are_finite_differences(void **state)
{
    void (*const changes[])(struct spec *) = {
        learned, scaled_rope, without_positions, normed_heads, normed_projections, documents, learned_documents, dropped, everything};
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        check_gradients(&(struct tiny){.change = changes[i], .untied = i % 2});
    check_gradients(&(struct tiny){.experts = 4, .top_k = 2, .balance = 0.1, .change = everything});
    check_gradients(&(struct tiny){.experts = 4, .top_k = 2, .layer_frequency = 2, .change = dropped});
}

// ---- shapes ----

static void layernorm(struct spec *spec)
{
    spec->model.norm = NORM_LAYERNORM;
}

static void gelu(struct spec *spec)
{
    spec->model.activation = ACTIVATION_GELU;
}

static void biases(struct spec *spec)
{
    spec->model.bias = true;
}

static void gpt(struct spec *spec)
{
    layernorm(spec);
    gelu(spec);
    biases(spec);
}

static void shared_expert(struct spec *spec)
{
    spec->model.moe.shared_expert_size = 7;
}

static void gated_shared_expert(struct spec *spec)
{
    shared_expert(spec);
    spec->model.moe.shared_expert_gate = true;
}

static void residual(struct spec *spec)
{
    spec->model.moe.residual = true;
}

static void pyramid(struct spec *spec)
{
    static int64_t experts[] = {6, 2};
    spec->model.moe.experts_per_layer = (struct spec_integers){experts, 2};
}

static void second_layer(struct spec *spec)
{
    static int64_t layers[] = {1};
    spec->model.moe.layers = (struct spec_integers){layers, 1};
}

// A share of experts that drop what is too much.
static void limited_residual(struct spec *spec)
{
    residual(spec);
    spec->model.moe.capacity_factor = 1;
}

static void all_at_once(struct spec *spec)
{
    gpt(spec);
    gated_shared_expert(spec);
    residual(spec);
    pyramid(spec);
}

static void recomputed(struct spec *spec)
{
    all_at_once(spec);
    spec->training.recompute = (struct spec_recompute_keys){RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 1};
}

static void shapes_gradients_are_finite_differences(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct spec *spec);
        bool dense, moe;
    } cases[] = {
        {"layer norm", layernorm, true, true}, {"gelu", gelu, true, true}, {"biases", biases, true, true}, {"gpt", gpt, true, true},
        {"shared expert", shared_expert, .moe = true}, {"gated shared expert", gated_shared_expert, .moe = true},
        {"residual", residual, .moe = true}, {"residual with capacity", limited_residual, .moe = true}, {"pyramid", pyramid, .moe = true}, {"listed layers", second_layer, .moe = true},
        {"all at once", all_at_once, .moe = true}, {"all at once, recomputed", recomputed, .moe = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("%s: ", cases[i].name);
        if (cases[i].dense)
            check_gradients(&(struct tiny){.change = cases[i].change});
        if (cases[i].moe)
            check_gradients(&(struct tiny){.experts = 6, .top_k = 2, .balance = 0.3, .change = cases[i].change});
    }
}

static void copy_gradients(struct fixture *f, double **dense, double **experts)
{
    *dense = tiny_read(f->model, f->model->dense.gradients, f->model->dense.count);
    *experts = f->model->experts.count ? tiny_read(f->model, f->model->experts.gradients, f->model->experts.count) : NULL;
}

static void micro_batches_add_up_to_the_batch(void **state)
{
    (void)state;
    struct fixture whole, parts;
    struct tiny tiny = {.experts = 4, .top_k = 2, .micro_batch = 4};
    set_up(&whole, &tiny, device_reference_f64(), 0.5);
    tiny.micro_batch = 2;
    set_up(&parts, &tiny, device_reference_f64(), 0.5);
    int32_t targets[TOKENS_MAX];
    for (size_t t = 0; t < TOKENS_MAX; t++)
        targets[t] = whole.batch->targets[t] < 0 ? 1 : whole.batch->targets[t]; // so that both halves count equally many
    whole.batch->targets = targets;

    double loss = model_forward(whole.model, whole.batch, true, 1), sum = 0;
    model_backward(whole.model);
    for (size_t half = 0; half < 2; half++) {
        size_t first = half * TOKENS_MAX / 2;
        struct micro_batch part = {.tokens = whole.batch->tokens + first, .targets = targets + first};
        sum += model_forward(parts.model, &part, true, 0.5) / 2;
        model_backward(parts.model);
    }
    assert_true(fabs(sum - loss) < 1e-12);
    double *dense[2], *experts[2];
    copy_gradients(&whole, &dense[0], &experts[0]);
    copy_gradients(&parts, &dense[1], &experts[1]);
    for (size_t i = 0; i < whole.model->dense.count; i++)
        assert_true(fabs(dense[0][i] - dense[1][i]) < 1e-12);
    for (size_t i = 0; i < whole.model->experts.count; i++)
        assert_true(fabs(experts[0][i] - experts[1][i]) < 1e-12);
    for (size_t i = 0; i < 2; i++)
        free(dense[i]), free(experts[i]);
    tear_down(&whole);
    tear_down(&parts);
}

static void a_fresh_model_knows_nothing(void **state)
{
    (void)state;
    for (int64_t experts = 0; experts <= 4; experts += 4) {
        struct fixture f;
        set_up(&f, &(struct tiny){.experts = experts, .top_k = 2}, device_reference(), 0);
        double loss = model_forward(f.model, f.batch, false, 1);
        assert_true(fabs(loss - log(TINY_VOCAB)) < 0.05);
        tear_down(&f);
    }
}

static void validation_leaves_no_trace(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = 4, .top_k = 2, .balance = 0.1}, device_reference(), 0.5);
    double loss = model_forward(f.model, f.batch, false, 1);
    assert_true(loss > 0);
    int64_t zeros;
    struct moe_report report;
    assert_true(model_gradient_norm(f.model, &zeros) == 0);
    assert_int_equal(zeros, f.model->dense.count + f.model->experts.count);
    moe_report_init(&report, &f.spec);
    model_statistics(f.model, &report);
    assert_int_equal(report.micro_batches, 0);
    for (size_t i = 0; i < TINY_LAYERS * 4; i++)
        assert_int_equal(report.counts[i], 0);
    moe_report_release(&report);
    tear_down(&f);
}

static void statistics_count_every_choice(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = 4, .top_k = 2, .layer_frequency = 2}, device_reference(), 0.5);
    for (int i = 0; i < 3; i++)
        model_forward(f.model, f.batch, true, 1);
    int64_t sum = 0;
    struct moe_report report;
    moe_report_init(&report, &f.spec);
    model_statistics(f.model, &report);
    assert_int_equal(report.micro_batches, 3);
    for (size_t e = 0; e < 4; e++) {
        sum += report.counts[e];
        assert_int_equal(report.counts[4 + e], 0); // the second layer is dense
    }
    assert_int_equal(sum, 3 * 2 * TINY_SEQUENCE * 2);
    const double *balance = report.losses[MOE_LOSS_AUX];
    assert_true(balance[0] > 0.5 && balance[0] < 2 && balance[1] == 0);
    moe_report_release(&report);
    tear_down(&f);
}

static void guarded_is_plain(const struct device *device)
{
    struct tiny tiny = {.experts = 4, .top_k = 2, .balance = 0.1, .layer_frequency = 2, .grouped_gemm = true};
    struct fixture plain, guarded;
    int64_t zeros[2];
    set_up(&plain, &tiny, device, 0.5);
    set_up(&guarded, &tiny, device_guard(device), 0.5);
    struct fixture *both[] = {&plain, &guarded};
    double loss[2], norm[2];
    for (size_t i = 0; i < 2; i++) {
        model_zero_gradients(both[i]->model);
        loss[i] = model_forward(both[i]->model, both[i]->batch, true, 1);
        model_backward(both[i]->model);
        model_reduce_gradients(both[i]->model);
        norm[i] = model_gradient_norm(both[i]->model, &zeros[i]);
    }
    assert_true(loss[0] == loss[1] && norm[0] == norm[1] && zeros[0] == zeros[1]);
    tear_down(&guarded);
    tear_down(&plain);
}

static void nobody_dereferences_device_memory(void **state)
{
    (void)state;
    guarded_is_plain(device_reference());
    guarded_is_plain(device_cpu(2));
}

static void grouped_is_one_by_one(const struct device *device)
{
    struct fixture sides[2];
    double loss[2], *dense[2], *experts[2];
    for (size_t i = 0; i < 2; i++) {
        set_up(&sides[i], &(struct tiny){.experts = 8, .top_k = 2, .balance = 0.1, .grouped_gemm = i == 1}, device, 0.5);
        loss[i] = model_forward(sides[i].model, sides[i].batch, true, 1);
        model_backward(sides[i].model);
        copy_gradients(&sides[i], &dense[i], &experts[i]);
    }
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(dense[0], dense[1], sides[0].model->dense.count * sizeof **dense);
    assert_memory_equal(experts[0], experts[1], sides[0].model->experts.count * sizeof **experts);
    for (size_t i = 0; i < 2; i++) {
        free(dense[i]), free(experts[i]);
        tear_down(&sides[i]);
    }
}

static void grouped_products_change_no_bit(void **state)
{
    (void)state;
    grouped_is_one_by_one(device_reference());
    grouped_is_one_by_one(device_cpu(2));
}

// ---- a single expert is the dense ffn ----

static const struct param *dense_twin(const struct model *dense, const struct param *param)
{
    switch (param->kind) {
    case PARAM_EXPERT_GATE:
        return param_find(&dense->table, PARAM_GATE, param->layer, -1);
    case PARAM_EXPERT_UP:
        return param_find(&dense->table, PARAM_UP, param->layer, -1);
    case PARAM_EXPERT_DOWN:
        return param_find(&dense->table, PARAM_DOWN, param->layer, -1);
    case PARAM_ROUTER:
        return NULL;
    default:
        return param_find(&dense->table, param->kind, param->layer, -1);
    }
}

// Every element of every tensor equal (==, so that 0 and -0 are equal), and the router's gradient exactly zero.
static void compare_twins(const struct fixture *dense, const struct fixture *single)
{
    for (size_t i = 0; i < single->model->table.count; i++) {
        const struct param *param = &single->model->table.items[i], *twin = dense_twin(dense->model, param);
        size_t count = param_elements(param);
        double *gradient = tiny_read(single->model, model_gradient(single->model, param), count);
        double *other = twin ? tiny_read(dense->model, model_gradient(dense->model, twin), count) : allocate(count, sizeof *other);
        for (size_t j = 0; j < count; j++)
            if (gradient[j] != other[j])
                fail_msg("%s[%zu]: %.9g, dense %.9g", param->name, j, gradient[j], other[j]);
        free(gradient);
        free(other);
    }
}

static void single_expert_is_dense(const struct device *device)
{
    struct fixture dense, single;
    set_up(&dense, &(struct tiny){0}, device, 0.5);
    set_up(&single, &(struct tiny){.experts = 1, .top_k = 1, .pre_softmax = true, .balance = 0.3}, device, 0.5);
    model_free(single.model); // again, with the dense width
    struct error err = {{0}};
    single.spec.model.moe.expert_ffn_hidden_size = TINY_FFN;
    assert_int_equal(model_new(&single.model, &single.spec, device, &single.parallel, &err), 0);
    tiny_values(single.model, 0.5);
    for (size_t i = 0; i < single.model->table.count; i++) {
        const struct param *param = &single.model->table.items[i], *twin = dense_twin(dense.model, param);
        if (twin)
            device->memory->copy(model_param(single.model, param), model_param(dense.model, twin), param_elements(param) * device->real_bytes);
    }
    int64_t zeros[2];
    double losses[2];
    struct moe_report report;
    struct fixture *both[] = {&dense, &single};
    double norms[2];
    for (size_t i = 0; i < 2; i++) {
        losses[i] = model_forward(both[i]->model, both[i]->batch, true, 1);
        model_backward(both[i]->model);
        norms[i] = model_gradient_norm(both[i]->model, &zeros[i]);
    }
    assert_true(losses[0] == losses[1]);
    assert_true(norms[0] == norms[1]);
    assert_int_equal(zeros[1] - zeros[0], TINY_LAYERS * TINY_HIDDEN);
    moe_report_init(&report, &single.spec);
    model_statistics(single.model, &report);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++)
        assert_true(report.losses[MOE_LOSS_AUX][layer] == 1);
    moe_report_release(&report);
    compare_twins(&dense, &single);
    tear_down(&dense);
    tear_down(&single);
}

static void single_expert_is_dense_on_reference(void **state)
{
    (void)state;
    single_expert_is_dense(device_reference());
}

static void single_expert_is_dense_on_cpu(void **state)
{
    (void)state;
    single_expert_is_dense(device_cpu(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_tied_gradients_are_finite_differences),
        cmocka_unit_test(dense_untied_gradients_are_finite_differences),
        cmocka_unit_test(moe_gradients_are_finite_differences),
        cmocka_unit_test(moe_gradients_with_balance_loss_are_finite_differences),
        cmocka_unit_test(moe_gradients_with_pre_softmax_are_finite_differences),
        cmocka_unit_test(gradients_of_every_routing_are_finite_differences),
        cmocka_unit_test(attention_gradients_are_finite_differences),
        cmocka_unit_test(shapes_gradients_are_finite_differences),
        cmocka_unit_test(micro_batches_add_up_to_the_batch),
        cmocka_unit_test(a_fresh_model_knows_nothing),
        cmocka_unit_test(validation_leaves_no_trace),
        cmocka_unit_test(statistics_count_every_choice),
        cmocka_unit_test(nobody_dereferences_device_memory),
        cmocka_unit_test(grouped_products_change_no_bit),
        cmocka_unit_test(single_expert_is_dense_on_reference),
        cmocka_unit_test(single_expert_is_dense_on_cpu),
    };
    return cmocka_run_group_tests_name("gradients of the model", tests, NULL, NULL);
}
