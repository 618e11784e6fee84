// FLOPs, memory and volumes: Megatron's figures for the flagship, what the worker really allocates, and the plan as JSON.
#include "tests/unit/shape_support.h"
#include "schema/base/json.h"
#include "worker/model/model.h"

#include <math.h>

static struct plan plan_of(const struct spec *spec)
{
    struct plan plan;
    struct error err = {0};
    if (plan_init(&plan, spec, &err) != 0)
        fail_msg("%s", err.text);
    return plan;
}

static void test_flagship(void **state)
{
    (void)state;
    struct spec dense = flagship(false), moe = flagship(true);
    struct plan a = plan_of(&dense), b = plan_of(&moe);
    assert_true(a.flops_per_token == 8119123968.0);
    assert_true(b.flops_per_token == 8119123968.0);
    assert_int_equal(a.tokens_per_step, 2097152);
    assert_int_equal(a.tokens_total, 120 * 2097152);
    assert_int_equal(a.micro_batches, 8);
    assert_int_equal(a.memory.state, 9142778880);
    assert_int_equal(b.memory.state, 17614224384);
    assert_int_equal(b.memory.parameters, (int64_t)2 * (805306368 + 415827968));
    assert_int_equal(b.layout.edp, 1);
    assert_int_equal(a.volume.alltoall_total, 0);
    // 16 layers, 8 micro batches of 32,768 tokens, 8 experts a token, 2,048 wide in bf16, 4 times; and fp32 weights twice.
    assert_int_equal(b.volume.alltoall_rows, (int64_t)16 * 8 * 32768 * 8 * 2048 * 2 * 4);
    assert_int_equal(b.volume.alltoall_probabilities, (int64_t)16 * 8 * 32768 * 8 * 4 * 2);
    // Recomputed layer by layer: the rows' way there once more, but for the last layer.
    assert_int_equal(b.volume.alltoall_recompute, (int64_t)15 * 8 * 32768 * 8 * (2048 * 2 + 4));
    assert_int_equal(b.volume.alltoall_total, b.volume.alltoall_rows + b.volume.alltoall_probabilities + b.volume.alltoall_recompute);
    assert_int_equal(a.volume.gradient_reduce, (int64_t)4 * 1219037184);
    assert_int_equal(b.volume.gradient_reduce, (int64_t)4 * 415827968); // experts have no replica
    assert_true(a.memory.total < dense.resources.gpu_memory);
}

static void test_flops_of_other_models(void **state)
{
    (void)state;
    struct spec spec = flagship(false);
    double whole = flops_per_token(&spec);
    spec.model.attention_window = 4096;
    assert_true(flops_per_token(&spec) == whole);
    spec.model.attention_window = 1024; // 896 keys on average instead of 2048
    assert_true(flops_per_token(&spec) == whole - 12.0 * 2048 * 16 * (2048 - 896));
    spec = flagship(false);
    spec.model.activation = ACTIVATION_GELU;
    assert_true(flops_per_token(&spec) == whole - 6.0 * 16 * 2048 * 8192);
    spec = flagship(true);
    spec.model.moe.layer_frequency = 2; // same active width in dense layers
    assert_true(flops_per_token(&spec) == whole);
    spec.model.moe.shared_expert_size = 512;
    assert_true(flops_per_token(&spec) == whole + 6.0 * 8 * 3 * 2048 * 512);
}

static void test_state_by_precision(void **state)
{
    (void)state;
    struct spec spec = flagship(false);
    int64_t n = 1219037184;
    spec.training.distributed_optimizer = false;
    assert_int_equal(plan_of(&spec).memory.state, 18 * n);
    spec.training.precision = PRECISION_FP32;
    struct plan plan = plan_of(&spec);
    assert_int_equal(plan.memory.parameters, 4 * n);
    assert_int_equal(plan.memory.gradients, 4 * n);
    assert_int_equal(plan.memory.optimizer, 8 * n);
    spec.training.distributed_optimizer = true;
    assert_int_equal(plan_of(&spec).memory.optimizer, n);
}

// Tensor and pipeline parallelism cut the state: all ranks together hold the model once, replicas and tied copies aside.
static void test_state_is_cut(void **state)
{
    (void)state;
    struct spec spec = flagship(false);
    spec.model.tied_embeddings = false;
    spec.training.distributed_optimizer = false;
    spec.parallelism.tensor = 2;
    spec.parallelism.pipeline = 4;
    spec.training.global_batch_size = 64;
    struct layout layout;
    struct error err = {0};
    assert_int_equal(layout_from_spec(&layout, &spec, &err), 0);
    struct param_table table;
    param_table_init(&table, &spec, 0, 1);
    int64_t cut = 0, replicated = 0, total = 0;
    for (size_t i = 0; i < table.count; i++) {
        const struct param *param = &table.items[i];
        int64_t holders = 0;
        for (int64_t stage = 0; stage < layout.pp; stage++) {
            int64_t here = param_elements_on(param, &spec, &layout, stage);
            holders += here > 0;
            if (here == (int64_t)param_elements(param))
                replicated += here;
            else
                cut += here;
        }
        assert_int_equal(holders, 1);
        total += (int64_t)param_elements(param);
    }
    assert_int_equal(2 * cut + replicated, total);
    assert_int_equal(replicated, 2048 * (2 * 16 + 1)); // the norms
    param_table_release(&table);
    assert_true(plan_of(&spec).bubble == 3.0 / 8);
    assert_int_equal(layer_stage(&spec, &layout, 3), 0);
    assert_int_equal(layer_stage(&spec, &layout, 4), 1);
    spec.parallelism.virtual_pipeline = 2;
    assert_int_equal(layer_stage(&spec, &layout, 2), 1);
    assert_int_equal(layer_stage(&spec, &layout, 8), 0);
}

// ---- what the worker allocates ----

// The model of a rank is really allocated (not trained), with communicators that only know how large they are.
static void check_allocation(struct spec spec, int64_t ep_rank)
{
    struct plan plan = plan_of(&spec);
    struct comm *self = comm_self();
    struct comm world = *self, dp = world, ep = world, edp = world;
    dp.size = plan.layout.dp;
    ep.size = plan.layout.ep;
    ep.rank = ep_rank;
    edp.size = plan.layout.edp;
    struct parallel parallel = {.layout = plan.layout, .world = &world, .dp = &dp, .ep = &ep, .edp = &edp};
    struct model *model;
    struct error err = {0};
    static const enum format formats[] = {[PRECISION_FP32] = FORMAT_FP32, [PRECISION_BF16] = FORMAT_BF16, [PRECISION_FP16] = FORMAT_FP16};
    if (model_new(&model, &spec, device_reference_in(formats[spec.training.precision]), &parallel, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(model_bytes(model, "parameters"), plan.memory.parameters);
    assert_int_equal(model_bytes(model, "master") + 2 * model_bytes(model, "gradients"), plan.memory.optimizer); // moments are as large as gradients
    assert_int_equal(model_bytes(model, "gradients"), plan.memory.gradients);
    assert_int_equal(model_bytes(model, "activations"), plan.memory.activations_worst);
    assert_int_equal(model_bytes(model, "dispatch"), plan.memory.dispatch_worst);
    assert_true(plan.memory.activations_balanced <= plan.memory.activations_worst);
    assert_true(plan.memory.dispatch_balanced <= plan.memory.dispatch_worst);
    assert_int_equal((int64_t)model->dense.count + (int64_t)model->experts.count * plan.layout.ep, plan.parameters.total);
    model_free(model);
    self->ops->free(self);
}

static void test_random_models_are_allocated_as_planned(void **state)
{
    (void)state;
    uint64_t random = 99;
    for (int i = 0; i < 200; i++) {
        bool moe = pick(&random, 0, 2) > 0;
        struct spec spec = small(moe);
        struct spec_model *m = &spec.model;
        m->layers = pick(&random, 1, 4);
        m->kv_heads = pick(&random, 1, 3);
        m->attention_heads = m->kv_heads * pick(&random, 1, 3);
        m->head_dim = 2 * pick(&random, 1, 8);
        m->hidden_size = pick(&random, 1, 50);
        m->ffn_hidden_size = pick(&random, 1, 70);
        m->vocab_size = pick(&random, 2, 300);
        m->tied_embeddings = pick(&random, 0, 1);
        m->position = (enum spec_position)pick(&random, POSITION_ROPE, POSITION_NONE);
        m->qk_norm = pick(&random, 0, 1);
        m->qk_norm_over = (enum spec_qk_norm_over)pick(&random, QK_NORM_HEAD, QK_NORM_PROJECTION);
        m->bias = pick(&random, 0, 1);
        m->hidden_dropout = pick(&random, 0, 2) ? 0 : 0.5;
        spec.data.reset_attention_mask = pick(&random, 0, 1);
        spec.data.sequence_length = pick(&random, 1, 40);
        spec.training.micro_batch_size = pick(&random, 1, 3);
        spec.training.precision = (enum spec_precision)pick(&random, PRECISION_FP32, PRECISION_FP16);
        if (moe) {
            m->moe.experts = 4 * pick(&random, 1, 3);
            m->moe.top_k = pick(&random, 1, m->moe.experts);
            m->moe.expert_ffn_hidden_size = pick(&random, 1, 40);
            m->moe.layer_frequency = pick(&random, 1, 2);
            m->moe.shared_expert_size = pick(&random, 0, 1) * pick(&random, 1, 60);
            m->moe.shared_expert_gate = pick(&random, 0, 1);
            m->moe.residual = pick(&random, 0, 1);
            spec.parallelism.expert = (int64_t)1 << pick(&random, 0, 2);
        }
        m->norm = pick(&random, 0, 1) ? NORM_LAYERNORM : NORM_RMSNORM;
        m->activation = pick(&random, 0, 1) ? ACTIVATION_GELU : ACTIVATION_SWIGLU;
        spec.training.recompute = (struct spec_recompute_keys){(enum spec_recompute)pick(&random, RECOMPUTE_NONE, RECOMPUTE_FULL),
            (enum spec_recompute_method)pick(&random, RECOMPUTE_UNIFORM, RECOMPUTE_BLOCK), pick(&random, 1, m->layers)};
        spec.resources.ranks_per_node = spec.parallelism.expert * pick(&random, 1, 2);
        spec.training.global_batch_size = spec.training.micro_batch_size * spec.resources.ranks_per_node * pick(&random, 1, 3);
        check_allocation(spec, spec.parallelism.expert - 1);
    }
}

static void test_the_worker_allocates_what_is_planned(void **state)
{
    (void)state;
    struct spec dense = small(false), moe = small(true);
    check_allocation(dense, 0);
    check_allocation(moe, 1);
    moe.model.moe.layer_frequency = 3;
    moe.model.tied_embeddings = false;
    moe.training.micro_batch_size = 1;
    moe.data.sequence_length = 33;
    check_allocation(moe, 0);
    moe.parallelism.expert = 1;
    check_allocation(moe, 0);
    moe.model.moe.top_k = 16;
    moe.parallelism.expert = 2;
    moe.resources.ranks_per_node = 4; // two replicas of each expert
    check_allocation(moe, 1);
}

static void test_volume_of_the_small_one(void **state)
{
    (void)state;
    struct spec spec = small(true);
    struct plan plan = plan_of(&spec);
    int64_t choices = 8 * 256 * 4, times = 4 * 2; // layers, micro batches of a rank
    assert_int_equal(plan.micro_batches, 2);
    assert_int_equal(plan.volume.alltoall_rows, 4 * choices * 128 * 4 * times);
    assert_int_equal(plan.volume.alltoall_probabilities, 2 * choices * 4 * times);
    spec.parallelism.expert = 1;
    assert_int_equal(plan_of(&spec).volume.alltoall_total, 0);
}

static void test_recomputation_saves(void **state)
{
    (void)state;
    struct spec spec = flagship(true);
    int64_t full = plan_of(&spec).memory.activations_balanced;
    spec.training.recompute.layers = 4;
    int64_t four = plan_of(&spec).memory.activations_balanced;
    spec.training.recompute = (struct spec_recompute_keys){RECOMPUTE_FULL, RECOMPUTE_BLOCK, 8};
    int64_t block = plan_of(&spec).memory.activations_balanced;
    spec.training.recompute.granularity = RECOMPUTE_NONE;
    int64_t none = plan_of(&spec).memory.activations_balanced;
    assert_true(full < four && four < block && block < none);
}

// ---- JSON ----

static void test_json(void **state)
{
    (void)state;
    struct spec spec = flagship(true);
    struct plan plan = plan_of(&spec);
    struct json *json = plan_to_json(&plan, &spec);
    assert_string_equal(js_string_of(js_get(json, "name"), ""), "moe");
    assert_int_equal(js_integer_of(js_get(js_get(json, "parameters"), "total"), 0), 6858278912);
    assert_int_equal(js_integer_of(js_get(js_get(json, "parameters"), "active"), 0), 1221134336);
    assert_int_equal(js_integer_of(js_get(json, "flops_per_token"), 0), 8119123968);
    assert_int_equal(js_integer_of(js_get(json, "alltoall_bytes_per_step"), 0), plan.volume.alltoall_total);
    assert_int_equal(js_integer_of(js_get(js_get(json, "layout"), "expert"), 0), 8);
    const struct json *rates = js_get(json, "learning_rate");
    assert_true(js_count(rates) >= 50 && js_count(rates) <= PLAN_RATES_MAX);
    int64_t before = 0;
    for (size_t i = 0; i < js_count(rates); i++) {
        int64_t iteration = js_integer_of(js_at(js_at(rates, i), 0), 0);
        assert_true(iteration > before && iteration <= 120);
        before = iteration;
    }
    assert_int_equal(before, 120);
    assert_null(js_get(json, "batch_ramp"));
    assert_null(js_get(json, "expert_learning_rate"));
    js_free(json);
    spec.training.rampup_batch_size = (struct spec_rampup){true, 64, 64, 7 * 640}; // 640 samples a stage: 10 steps, 5, 4 (from 1280, to 2048), …
    spec.training.learning_rate.expert_peak = 1e-4;
    json = plan_to_json(&plan, &spec);
    const struct json *ramp = js_get(json, "batch_ramp"), *experts = js_get(json, "expert_learning_rate");
    static const int64_t stages[][2] = {{1, 64}, {11, 128}, {16, 192}, {20, 256}, {22, 320}, {24, 384}, {26, 448}, {28, 512}};
    assert_int_equal(js_count(ramp), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(js_integer_of(js_at(js_at(ramp, i), 0), 0), stages[i][0]);
        assert_int_equal(js_integer_of(js_at(js_at(ramp, i), 1), 0), stages[i][1]);
    }
    assert_int_equal(js_count(experts), js_count(js_get(json, "learning_rate")));
    assert_true(js_real_of(js_at(js_at(experts, js_count(experts) - 1), 1), 0) == 1e-4);
    js_free(json);
}

// Layers with different numbers of experts (pyramid), and layers listed instead of counted: sums of layers that are planned otherwise.
static void test_experts_by_layer(void **state)
{
    (void)state;
    int64_t pyramid[] = {16, 8, 4, 4}, odd[] = {1, 3};
    struct spec spec = small(true), uniform = small(true);
    spec.model.moe.experts_per_layer = (struct spec_integers){pyramid, 4};
    int64_t total = 0, held = 0, active = 0;
    for (size_t i = 0; i < 4; i++) {
        uniform.model.moe.experts = pyramid[i];
        struct plan plan = plan_of(&uniform);
        total += plan.parameters.total;
        active += plan.parameters.active;
        held += plan.memory.state;
    }
    struct plan plan = plan_of(&spec);
    assert_int_equal(plan.parameters.total, total / 4);
    assert_int_equal(plan.parameters.active, active / 4);
    assert_int_equal(plan.memory.state, held / 4);
    uniform.model.moe.experts = 16;
    struct plan most = plan_of(&uniform);
    assert_int_equal(plan.volume.alltoall_rows, most.volume.alltoall_rows);
    assert_true(plan.memory.activations_balanced < most.memory.activations_balanced);
    assert_true(plan.memory.activations_worst < most.memory.activations_worst); // four experts, two a rank: fewer of top-4 can meet
    assert_int_equal(plan.memory.dispatch_worst, most.memory.dispatch_worst);

    spec = small(true), uniform = small(true);
    spec.model.moe.layers = (struct spec_integers){odd, 2};
    uniform.model.moe.layer_frequency = 2;
    struct plan listed = plan_of(&spec), counted = plan_of(&uniform);
    assert_int_equal(listed.parameters.total, counted.parameters.total);
    assert_true(listed.flops_per_token == counted.flops_per_token);
    assert_int_equal(listed.memory.total_worst, counted.memory.total_worst);
    assert_int_equal(listed.volume.alltoall_total, counted.volume.alltoall_total);
    assert_true(listed.parameters.total < most.parameters.total);
}

// Against the ramp as Megatron walks it: sample counts decide each step's batch.
static void test_batch_ramp(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (int i = 0; i < 200; i++) {
        struct spec spec = small(false);
        struct spec_rampup *ramp = &spec.training.rampup_batch_size;
        int64_t stages = pick(&random, 1, 9), iteration = 1, seen = 0;
        spec.training.micro_batch_size = 2; // of two ranks
        *ramp = (struct spec_rampup){true, 4 * pick(&random, 1, 5), 4 * pick(&random, 1, 3), pick(&random, 1, 4000)};
        spec.training.global_batch_size = ramp->start + stages * ramp->increment;
        for (; iteration < 400; iteration++) {
            assert_int_equal(samples_before(&spec, iteration), seen);
            int64_t stage = seen * stages / ramp->samples;
            seen += ramp->start + (stage < stages ? stage : stages) * ramp->increment;
        }
        spec.training.iterations = iteration - 1;
        assert_int_equal(plan_of(&spec).tokens_total, seen * spec.data.sequence_length);
    }
    struct spec spec = small(false);
    assert_int_equal(samples_before(&spec, 11), 320);
}

static void test_what_cannot_be_planned(void **state)
{
    (void)state;
    struct spec spec = flagship(false);
    struct plan plan;
    struct error err = {0};
    spec.training.global_batch_size = 500;
    assert_int_equal(plan_init(&plan, &spec, &err), -1);
    assert_non_null(strstr(err.text, "global_batch_size 500"));
    spec = flagship(false);
    spec.resources.gpu_memory = 9142778879; // a byte less than the state
    assert_int_equal(plan_init(&plan, &spec, &err), -1);
    assert_non_null(strstr(err.text, "9142778880"));
    spec.resources.gpu_memory++;
    assert_int_equal(plan_init(&plan, &spec, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flagship), cmocka_unit_test(test_flops_of_other_models), cmocka_unit_test(test_state_by_precision),
        cmocka_unit_test(test_state_is_cut), cmocka_unit_test(test_the_worker_allocates_what_is_planned),
        cmocka_unit_test(test_random_models_are_allocated_as_planned),
        cmocka_unit_test(test_volume_of_the_small_one), cmocka_unit_test(test_recomputation_saves), cmocka_unit_test(test_json),
        cmocka_unit_test(test_what_cannot_be_planned), cmocka_unit_test(test_experts_by_layer), cmocka_unit_test(test_batch_ramp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
