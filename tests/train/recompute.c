// Recomputation changes no bit: loss, every gradient and what is counted are those of a model that keeps everything, over every kind of
// model and every way to recompute; and the arena is smaller.
#include "schema/base/text.h"
#include "tests/train/tiny_routing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 5 };

struct outcome {
    double loss[2];
    double *dense, *experts, balance[LAYERS];
    int64_t *counts, micro_batches;
    size_t dense_count, expert_count, counts_count, bytes;
};

// Two micro batches: the second one meets what the first left in the shared place.
static void run(struct outcome *o, const struct spec *spec, const struct device *device)
{
    struct error err = {{0}};
    struct comm *world = comm_self();
    struct parallel parallel;
    struct model *model;
    assert_int_equal(parallel_init(&parallel, spec, world, &err), 0);
    assert_int_equal(model_new(&model, spec, device, &parallel, &err), 0);
    tiny_values(model, 0.5);
    model_zero_gradients(model);
    for (int64_t i = 0; i < 2; i++) {
        struct micro_batch *batch = tiny_batch(spec, i * 2);
        o->loss[i] = model_forward(model, batch, true, 0.5);
        free(batch);
        model_backward(model);
    }
    o->counts_count = (size_t)(LAYERS * spec->model.moe.experts);
    o->counts = allocate(o->counts_count, sizeof *o->counts);
    struct moe_report report;
    moe_report_init(&report, spec);
    model_statistics(model, &report);
    o->micro_batches = report.micro_batches;
    memcpy(o->counts, report.counts, o->counts_count * sizeof *o->counts);
    memcpy(o->balance, report.losses[MOE_LOSS_AUX], sizeof o->balance);
    moe_report_release(&report);
    o->dense_count = model->dense.count;
    o->expert_count = model->experts.count;
    o->dense = tiny_read(model, model->dense.gradients, o->dense_count);
    o->experts = o->expert_count ? tiny_read(model, model->experts.gradients, o->expert_count) : NULL;
    o->bytes = model_bytes(model, "activations");
    model_free(model);
    parallel_release(&parallel);
    comm_finish(world);
}

static void release(struct outcome *o)
{
    free(o->dense);
    free(o->experts);
    free(o->counts);
}

static void compare(const struct outcome *kept, const struct outcome *again)
{
    assert_true(kept->loss[0] == again->loss[0] && kept->loss[1] == again->loss[1]);
    assert_memory_equal(kept->dense, again->dense, kept->dense_count * sizeof(double));
    if (kept->expert_count)
        assert_memory_equal(kept->experts, again->experts, kept->expert_count * sizeof(double));
    assert_int_equal(again->micro_batches, 2);
    if (kept->counts_count)
        assert_memory_equal(kept->counts, again->counts, kept->counts_count * sizeof *kept->counts);
    assert_memory_equal(kept->balance, again->balance, sizeof kept->balance);
}

static const struct spec_recompute_keys ways[] = {
    {RECOMPUTE_SELECTIVE, RECOMPUTE_UNIFORM, 1}, {RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 1}, {RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 2},
    {RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 3}, {RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 5}, {RECOMPUTE_FULL, RECOMPUTE_BLOCK, 1},
    {RECOMPUTE_FULL, RECOMPUTE_BLOCK, 3}, {RECOMPUTE_FULL, RECOMPUTE_BLOCK, 5},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void five_layers(struct spec *spec)
{
    spec->model.layers = LAYERS;
}

// Everything that a layer can have beside its experts, and layers of 4, 0, 8, 0 and 2 experts.
static void every_shape(struct spec *spec)
{
    static int64_t layers[] = {0, 2, 4}, experts[] = {4, 8, 2};
    five_layers(spec);
    spec->model.norm = NORM_LAYERNORM;
    spec->model.activation = ACTIVATION_GELU;
    spec->model.bias = true;
    spec->model.moe.layers = (struct spec_integers){layers, 3};
    spec->model.moe.experts_per_layer = (struct spec_integers){experts, 3};
    spec->model.moe.shared_expert_size = 7;
    spec->model.moe.shared_expert_gate = true;
    spec->model.moe.residual = true;
}

// Random numbers and borders of documents, which come out the same the second time.
static void dropped(struct spec *spec)
{
    five_layers(spec);
    spec->model.hidden_dropout = 0.2;
    spec->model.attention_dropout = 0.1;
    spec->model.qk_norm = true;
    spec->data.reset_attention_mask = spec->data.reset_position_ids = true;
}

static void every_shape_dropped(struct spec *spec)
{
    every_shape(spec);
    dropped(spec);
}

// What full experts drop, and what a bias has chosen, is so the second time.
static void limited(struct spec *spec)
{
    five_layers(spec);
    spec->model.moe.capacity_factor = 1;
    spec->model.moe.score_function = SCORE_SIGMOID;
    spec->model.moe.expert_bias = true;
    spec->model.moe.bias_update_rate = 1e-3;
    spec->model.moe.residual = true;
}

static void chosen_by_experts(struct spec *spec)
{
    five_layers(spec);
    spec->model.moe.routing = ROUTING_EXPERT_CHOICE;
    spec->model.moe.capacity_factor = 1;
    spec->model.moe.residual = true;
}

static const struct tiny kinds[] = {
    {.experts = 4, .top_k = 2, .balance = 0.1, .change = limited},
    {.experts = 4, .top_k = 2, .change = chosen_by_experts},
    {.change = five_layers},
    {.change = dropped},
    {.experts = 4, .top_k = 2, .balance = 0.1, .layer_frequency = 2, .change = dropped},
    {.experts = 8, .top_k = 2, .balance = 0.1, .change = every_shape_dropped},
    {.experts = 4, .top_k = 2, .balance = 0.1, .untied = true, .change = five_layers},
    {.experts = 4, .top_k = 2, .balance = 0.1, .layer_frequency = 2, .grouped_gemm = true, .change = five_layers},
    {.experts = 8, .top_k = 2, .balance = 0.1, .change = every_shape},
};

static void changes_no_bit_of(struct spec *spec, const struct device *device)
{
    struct outcome kept, again;
    run(&kept, spec, device);
    for (size_t way = 0; way < WAYS; way++) {
        spec->training.recompute = ways[way];
        run(&again, spec, device);
        compare(&kept, &again);
        bool everything = ways[way].layers == LAYERS && ways[way].method == RECOMPUTE_UNIFORM; // one chunk: made once, kept to the end
        bool only_one = ways[way].layers == 1 && ways[way].method == RECOMPUTE_BLOCK;            // so is a block of one layer
        assert_true(everything || only_one ? again.bytes == kept.bytes : again.bytes < kept.bytes);
        release(&again);
    }
    release(&kept);
}

static void changes_no_bit(const struct device *device)
{
    struct spec spec;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        tiny_spec(&spec, &kinds[kind]);
        changes_no_bit_of(&spec, device);
    }
    for (size_t i = 0; i < tiny_routings_count; i++) {
        tiny_spec(&spec, &tiny_routings[i].tiny);
        five_layers(&spec);
        changes_no_bit_of(&spec, device);
    }
}

static void recomputation_changes_no_bit_on_reference(void **state)
{
    (void)state;
    changes_no_bit(device_reference());
}

static void recomputation_changes_no_bit_on_cpu(void **state)
{
    (void)state;
    changes_no_bit(device_cpu(2));
}

static void recomputation_dereferences_no_device_memory(void **state)
{
    (void)state;
    changes_no_bit(device_guard(device_cpu(2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_changes_no_bit_on_reference),
        cmocka_unit_test(recomputation_changes_no_bit_on_cpu),
        cmocka_unit_test(recomputation_dereferences_no_device_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
