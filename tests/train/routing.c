// What the numbers of routing mean: losses and drops by known values, the bias that moves, capacities, and a balance that stands still.
#include "schema/base/text.h"
#include "schema/shape/arena.h"
#include "tests/train/tiny_routing.h"
#include "worker/train/routing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 2 * TINY_SEQUENCE, EXPERTS = 8, TOP_K = 2 };

struct fixture {
    struct spec spec;
    struct comm *world;
    struct parallel parallel;
    struct model *model;
    struct micro_batch *batch;
    struct moe_report report;
};

static void set_up(struct fixture *f, const struct tiny *tiny, const struct device *device)
{
    struct error err = {{0}};
    tiny_spec(&f->spec, tiny);
    f->world = comm_self();
    assert_int_equal(parallel_init(&f->parallel, &f->spec, f->world, &err), 0);
    assert_int_equal(model_new(&f->model, &f->spec, device, &f->parallel, &err), 0);
    tiny_values(f->model, 0.5);
    f->batch = tiny_batch(&f->spec, 0);
    moe_report_init(&f->report, &f->spec);
}

static void tear_down(struct fixture *f)
{
    moe_report_release(&f->report);
    free(f->batch);
    model_free(f->model);
    parallel_release(&f->parallel);
    comm_finish(f->world);
}

static double forward(struct fixture *f, bool training)
{
    model_statistics_reset(f->model);
    double loss = model_forward(f->model, f->batch, training, 1);
    model_statistics(f->model, &f->report);
    return loss;
}

static void fill_routers(struct fixture *f, double (*value)(int64_t expert, int64_t channel))
{
    for (int64_t layer = 0; layer < TINY_LAYERS; layer++) {
        const struct param *router = param_find(&f->model->table, PARAM_ROUTER, layer, -1);
        double *values = allocate(param_elements(router), sizeof *values);
        for (int64_t i = 0; i < (int64_t)param_elements(router); i++)
            values[i] = value(i / TINY_HIDDEN, i % TINY_HIDDEN);
        f->model->device->ops->from_double(model_param(f->model, router), values, param_elements(router));
        free(values);
    }
}

static double nothing(int64_t expert, int64_t channel)
{
    (void)expert, (void)channel;
    return 0;
}

static void all_losses(struct spec *spec)
{
    static const struct spec_moe_loss_term all[] = {{MOE_LOSS_AUX, 0.3}, {MOE_LOSS_SEQ_AUX, 0.2}, {MOE_LOSS_GLOBAL_AUX, 0.4}, {MOE_LOSS_Z, 0.05}};
    memcpy(spec->model.moe.losses, all, sizeof all);
    spec->model.moe.losses_count = SPEC_MOE_LOSSES_MAX;
}

// ---- losses ----

// Logits of zero: uniform scores make every balance loss 1 although all tokens choose experts 0 and 1 (ties go to the lower index), which is
// why counts are logged beside it; and a token's z is (ln E)².
static void zero_logits_are_one_and_the_square_of_ln_E(void **state)
{
    static const enum spec_score functions[] = {SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SQRTSOFTPLUS};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        set_up(&f, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .change = all_losses}, device_reference());
        f.spec.model.moe.score_function = functions[i]; // read at each step
        fill_routers(&f, nothing);
        forward(&f, true);
        for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
            for (enum spec_moe_loss type = MOE_LOSS_AUX; type < MOE_LOSS_Z; type++)
                assert_true(fabs(f.report.losses[type][layer] - 1) < 1e-12);
            assert_true(fabs(f.report.losses[MOE_LOSS_Z][layer] - log(EXPERTS) * log(EXPERTS)) < 1e-12);
            for (size_t e = 0; e < EXPERTS; e++)
                assert_int_equal(f.report.counts[layer * EXPERTS + e], e < TOP_K ? TOKENS : 0);
        }
        tear_down(&f);
    }
}

static double towards_two(int64_t expert, int64_t channel)
{
    return channel == 0 && expert < TOP_K ? 1e3 : 0;
}

// All tokens to the same two experts, with all of the mass: E / k. Every token has the same positive channels, since nothing is added to its embedding.
static void collapse_is_E_over_k(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .change = all_losses}, device_reference());
    for (int64_t layer = 0; layer < TINY_LAYERS; layer++) {
        double ones[TINY_VOCAB * TINY_HIDDEN];
        for (size_t i = 0; i < TINY_VOCAB * TINY_HIDDEN; i++)
            ones[i] = 1;
        const struct param *embedding = param_find(&f.model->table, PARAM_EMBEDDING, -1, -1), *value = param_find(&f.model->table, PARAM_O, layer, -1);
        f.model->device->ops->from_double(model_param(f.model, embedding), ones, TINY_VOCAB * TINY_HIDDEN);
        f.model->device->memory->zero(model_param(f.model, value), param_elements(value) * sizeof(float)); // attention adds nothing
        for (int64_t e = 0; e < EXPERTS; e++) {
            const struct param *down = param_find(&f.model->table, PARAM_EXPERT_DOWN, layer, e);
            f.model->device->memory->zero(model_param(f.model, down), param_elements(down) * sizeof(float)); // nor do experts
        }
    }
    fill_routers(&f, towards_two);
    forward(&f, true);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++)
        for (enum spec_moe_loss type = MOE_LOSS_AUX; type < MOE_LOSS_Z; type++)
            assert_true(fabs(f.report.losses[type][layer] - (double)EXPERTS / TOP_K) < 1e-9);
    tear_down(&f);
}

// Of one sequence, one rank and one micro batch all three are the same; of two sequences the loss of sequences is the mean of each alone.
static void sequences_have_losses_of_their_own(void **state)
{
    (void)state;
    struct fixture both, one;
    set_up(&both, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .change = all_losses}, device_reference_f64());
    forward(&both, true);
    double alone = 0;
    for (int64_t first = 0; first < 2; first++) {
        set_up(&one, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .micro_batch = 1, .change = all_losses}, device_reference_f64());
        free(one.batch);
        one.batch = tiny_batch(&one.spec, first);
        forward(&one, true);
        double balance = one.report.losses[MOE_LOSS_AUX][0];
        assert_true(fabs(balance - one.report.losses[MOE_LOSS_SEQ_AUX][0]) < 1e-14 && fabs(balance - one.report.losses[MOE_LOSS_GLOBAL_AUX][0]) < 1e-14);
        alone += balance / 2;
        tear_down(&one);
    }
    assert_true(fabs(alone - both.report.losses[MOE_LOSS_SEQ_AUX][0]) < 1e-12);
    assert_true(fabs(alone - both.report.losses[MOE_LOSS_AUX][0]) > 1e-6);
    tear_down(&both);
}

// The global loss weighs each micro batch's masses with the mean counts of those so far.
static void the_global_loss_counts_the_step_so_far(void **state)
{
    (void)state;
    struct fixture f, second;
    set_up(&f, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .change = all_losses}, device_reference_f64());
    set_up(&second, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .change = all_losses}, device_reference_f64());
    free(second.batch);
    second.batch = tiny_batch(&f.spec, 2);
    forward(&f, true);
    double first = f.report.losses[MOE_LOSS_GLOBAL_AUX][0];
    model_forward(f.model, second.batch, true, 1);
    model_statistics(f.model, &f.report);
    forward(&second, true);
    assert_int_equal(f.report.micro_batches, 2);
    double together = 2 * f.report.losses[MOE_LOSS_GLOBAL_AUX][0] - first, alone = second.report.losses[MOE_LOSS_GLOBAL_AUX][0];
    assert_true(fabs(first - f.report.losses[MOE_LOSS_AUX][0]) > 1e-6 && fabs(together - alone) > 1e-6);
    assert_true(fabs(second.report.losses[MOE_LOSS_AUX][0] - alone) < 1e-14);
    tear_down(&f);
    tear_down(&second);
}

// ---- capacity ----

static void capacities_are_rounded_up(void **state)
{
    static const struct { double factor, later; int64_t least, top_k; size_t tokens, experts, training, validation; } cases[] = {
        {0, 0, 0, 2, 100, 8, 0, 0},          // dropless
        {1, 0, 0, 2, 100, 8, 25, 25},
        {1.25, 2, 0, 1, 100, 8, 16, 25},     // 12.5 · 1.25 = 15.6
        {1.25, 0, 20, 1, 100, 8, 20, 20},
        {1, 0, 0, 1, 7, 2, 4, 4},
        {8, 0, 0, 2, 100, 8, 100, 100},      // never more than there are
        {1, 0, 1000, 2, 100, 8, 100, 100},
        {0.001, 0, 0, 2, 100, 8, 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec_moe moe = {.top_k = cases[i].top_k, .capacity_factor = cases[i].factor, .eval_capacity_factor = cases[i].later, .min_capacity = cases[i].least};
        assert_int_equal(expert_capacity(&moe, cases[i].tokens, cases[i].experts, true), cases[i].training);
        assert_int_equal(expert_capacity(&moe, cases[i].tokens, cases[i].experts, false), cases[i].validation);
    }
    struct spec_moe chooses = {.routing = ROUTING_EXPERT_CHOICE, .top_k = 2};
    assert_int_equal(expert_capacity(&chooses, 100, 8, true), 25); // factor 1 unless given
}

static void half(struct spec *spec)
{
    spec->model.moe.capacity_factor = 0.5; // 10 · 2 / 8 · 0.5 = 1.25: two
}

// Logits of zero: experts 0 and 1 get all 10 tokens and keep two each; balance sees what was asked for.
static void full_experts_drop_the_rest(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .balance = 0.1, .change = half}, device_reference());
    fill_routers(&f, nothing);
    forward(&f, true);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
        assert_int_equal(f.report.asked[layer], TOKENS * TOP_K);
        assert_int_equal(f.report.lost[layer], TOKENS * TOP_K - 4);
        for (size_t e = 0; e < EXPERTS; e++) {
            assert_int_equal(f.report.counts[layer * EXPERTS + e], e < TOP_K ? TOKENS : 0);
            assert_int_equal(f.report.kept[layer * EXPERTS + e], e < TOP_K ? 2 : 0);
        }
    }
    tear_down(&f);
}

static void chooses(struct spec *spec)
{
    spec->model.moe.routing = ROUTING_EXPERT_CHOICE;
}

// Logits of zero: every expert takes the first three tokens (10 · 2 / 8, rounded up), and seven are left alone.
static void experts_choose_as_many_tokens_each(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .balance = 0.1, .change = chooses}, device_reference());
    fill_routers(&f, nothing);
    forward(&f, true);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
        assert_int_equal(f.report.asked[layer], TOKENS);
        assert_int_equal(f.report.lost[layer], TOKENS - 3);
        for (size_t e = 0; e < EXPERTS; e++)
            assert_int_equal(f.report.counts[layer * EXPERTS + e], 3);
    }
    tear_down(&f);
}

static void later_more(struct spec *spec)
{
    half(spec);
    spec->model.moe.eval_capacity_factor = 100;
}

static void dropless(struct spec *spec)
{
    spec->model.moe.capacity_factor = 0;
}

static void padded(struct spec *spec)
{
    half(spec);
    spec->model.moe.pad_to_capacity = true;
}

static double loss_of(void (*change)(struct spec *), bool training, const struct device *device)
{
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = EXPERTS, .top_k = TOP_K, .balance = 0.1, .change = change}, device);
    double loss = forward(&f, training);
    if (training)
        model_backward(f.model);
    int64_t zeros;
    double norm = training ? model_gradient_norm(f.model, &zeros) : 0;
    tear_down(&f);
    return loss + norm;
}

static void validation_has_a_capacity_of_its_own(void **state)
{
    (void)state;
    assert_true(loss_of(later_more, false, device_reference()) == loss_of(dropless, false, device_reference()));
    assert_true(loss_of(later_more, true, device_reference()) == loss_of(half, true, device_reference()));
    assert_true(loss_of(half, false, device_reference()) != loss_of(dropless, false, device_reference()));
}

// Empty rows add nothing to any sum.
static void filling_up_changes_no_bit(void **state)
{
    (void)state;
    assert_true(loss_of(padded, true, device_reference()) == loss_of(half, true, device_reference()));
    assert_true(loss_of(padded, true, device_cpu(2)) == loss_of(half, true, device_cpu(2)));
}

// ---- the bias for choosing ----

static void biased(struct spec *spec)
{
    spec->model.moe.score_function = SCORE_SIGMOID;
    spec->model.moe.expert_bias = true;
    spec->model.moe.bias_update_rate = 0.25;
}

static void the_bias_moves_towards_balance(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = 4, .top_k = 2, .change = biased}, device_reference());
    static const int64_t kept[TINY_LAYERS][4] = {{300, 301, 299, 300}, {1000000007, 1, 1, 1}};
    static const float moved[TINY_LAYERS][4] = {{0, -0.25f, 0.25f, 0}, {-0.25f, 0.25f, 0.25f, 0.25f}};
    for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
        memset(model_expert_bias(f.model, layer), 0, 4 * sizeof(float));
        memcpy(f.report.kept + 4 * layer, kept[layer], sizeof kept[layer]);
    }
    model_move_expert_bias(f.model, &f.report);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++)
        assert_memory_equal(model_expert_bias(f.model, layer), moved[layer], sizeof moved[layer]);
    tear_down(&f);
}

// A bias decides who is chosen, and nothing else: on experts that are chosen anyway it changes no bit; large ones force the choice.
static void the_bias_is_for_choosing_only(void **state)
{
    (void)state;
    double losses[2];
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, &(struct tiny){.experts = 4, .top_k = 4, .change = biased}, device_reference());
        for (size_t e = 0; e < 4; e++)
            model_expert_bias(f.model, 0)[e] = model_expert_bias(f.model, 1)[e] = i ? 3 : 0;
        losses[i] = forward(&f, true);
        tear_down(&f);
    }
    assert_true(losses[0] == losses[1]);
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = 4, .top_k = 2, .change = biased}, device_reference());
    for (size_t e = 0; e < 4; e++)
        model_expert_bias(f.model, 0)[e] = e < 2 ? 0 : 5;
    forward(&f, true);
    for (size_t e = 0; e < 4; e++)
        assert_int_equal(f.report.counts[e], e < 2 ? 0 : TOKENS);
    tear_down(&f);
}

static void forced(struct spec *spec)
{
    spec->model.moe.force_balance = true;
}

static void forced_balance_is_exact(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, &(struct tiny){.experts = 4, .top_k = 2, .balance = 0.1, .change = forced}, device_reference());
    forward(&f, true);
    for (size_t e = 0; e < 4; e++)
        assert_int_equal(f.report.counts[e], TOKENS * 2 / 4);
    assert_true(f.report.losses[MOE_LOSS_AUX][0] != 1); // the losses still see what the router wishes
    tear_down(&f);
}

// ---- a balance that stands still ----

static int64_t first_alarm(struct spec *spec, double step)
{
    struct balance_watch watch;
    struct moe_report report;
    int64_t found = 0;
    balance_watch_init(&watch, spec);
    moe_report_init(&report, spec);
    for (int64_t i = 1; i <= 3 * BALANCE_STEPS && !found; i++) {
        report.losses[MOE_LOSS_AUX][0] = 1 + (double)i * 1e-3;
        report.losses[MOE_LOSS_AUX][1] = 1 + (i > 7 ? 7 : (double)i) * step;
        if (balance_watch_step(&watch, &report, spec) == 1)
            found = i;
    }
    moe_report_release(&report);
    balance_watch_release(&watch);
    return found;
}

static void a_constant_balance_is_told(void **state)
{
    (void)state;
    struct spec spec;
    tiny_spec(&spec, &(struct tiny){.experts = 4, .top_k = 2, .balance = 0.1});
    assert_int_equal(first_alarm(&spec, 0), BALANCE_STEPS);
    assert_int_equal(first_alarm(&spec, 1e-9), 6 + BALANCE_STEPS); // the same from step 7 on
    spec.model.moe.top_k = 4; // every token goes to every expert: 1 is right
    assert_int_equal(first_alarm(&spec, 0), 0);
    tiny_spec(&spec, &(struct tiny){.experts = 1, .top_k = 1, .pre_softmax = true});
    assert_int_equal(first_alarm(&spec, 0), 0);
}

static void metrics_have_their_names(void **state)
{
    (void)state;
    struct spec spec;
    struct moe_report report;
    tiny_spec(&spec, &(struct tiny){.experts = 4, .top_k = 2, .change = all_losses});
    spec.model.moe.capacity_factor = 1;
    spec.model.moe.per_layer_metrics = true;
    moe_report_init(&report, &spec);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
        for (size_t type = 0; type < MOE_LOSSES; type++)
            report.losses[type][layer] = (double)(10 * type + layer);
        report.asked[layer] = 8;
        report.lost[layer] = (int64_t)(2 * layer);
        for (size_t e = 0; e < 4; e++)
            report.counts[layer * 4 + e] = (int64_t)(1 + e);
    }
    struct json *metrics = js_object();
    routing_add_means(metrics, &report, &spec);
    routing_add_layers(metrics, &report, &spec);
    static const struct { const char *name; double value; } expected[] = {{"load_balancing_loss", 0.5}, {"seq_load_balancing_loss", 10.5},
        {"global_load_balancing_loss", 20.5}, {"z_loss", 30.5}, {"tokens_dropped", 0.125}, {"moe/layer_01/load_balancing_loss", 1},
        {"moe/layer_00/z_loss", 30}, {"moe/layer_01/tokens_dropped", 0.25}, {"moe/layer_00/largest_share", 0.4}, {"moe/layer_00/smallest_share", 0.1}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(js_real_of(js_get(metrics, expected[i].name), NAN) == expected[i].value);
    js_free(metrics);
    moe_report_release(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_logits_are_one_and_the_square_of_ln_E),
        cmocka_unit_test(collapse_is_E_over_k),
        cmocka_unit_test(sequences_have_losses_of_their_own),
        cmocka_unit_test(the_global_loss_counts_the_step_so_far),
        cmocka_unit_test(capacities_are_rounded_up),
        cmocka_unit_test(full_experts_drop_the_rest),
        cmocka_unit_test(experts_choose_as_many_tokens_each),
        cmocka_unit_test(validation_has_a_capacity_of_its_own),
        cmocka_unit_test(filling_up_changes_no_bit),
        cmocka_unit_test(the_bias_moves_towards_balance),
        cmocka_unit_test(the_bias_is_for_choosing_only),
        cmocka_unit_test(forced_balance_is_exact),
        cmocka_unit_test(a_constant_balance_is_told),
        cmocka_unit_test(metrics_have_their_names),
    };
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
