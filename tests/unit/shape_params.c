// The parameter table against a formula written here on its own, its places in memory, and initial values.
#include "tests/unit/shape_support.h"
#include "schema/shape/philox.h"

#include <math.h>

static struct spec random_spec(uint64_t *random)
{
    struct spec spec = {0};
    struct spec_model *m = &spec.model;
    m->layers = pick(random, 1, 7);
    m->kv_heads = pick(random, 1, 4);
    m->attention_heads = m->kv_heads * pick(random, 1, 4);
    m->head_dim = 2 * pick(random, 1, 16);
    m->hidden_size = pick(random, 1, 2) == 1 ? m->attention_heads * m->head_dim : 8 * pick(random, 1, 16);
    m->ffn_hidden_size = pick(random, 1, 300);
    m->vocab_size = pick(random, 2, 2000);
    m->tied_embeddings = pick(random, 0, 1);
    m->bias = pick(random, 0, 3) == 0;
    m->qk_norm = pick(random, 0, 3) == 0;
    m->norm = pick(random, 0, 3) == 0 ? NORM_LAYERNORM : NORM_RMSNORM;
    m->activation = pick(random, 0, 3) == 0 ? ACTIVATION_GELU : ACTIVATION_SWIGLU;
    m->qk_norm_over = pick(random, 0, 1) ? QK_NORM_PROJECTION : QK_NORM_HEAD;
    m->position = pick(random, 0, 3) == 0 ? POSITION_LEARNED : POSITION_ROPE;
    m->init.std = 0.02;
    spec.data.sequence_length = pick(random, 1, 64);
    m->max_position_embeddings = spec.data.sequence_length * pick(random, 1, 3);
    if (pick(random, 0, 2) == 0)
        return spec;
    m->moe.experts = 4 * pick(random, 1, 4);
    m->moe.top_k = pick(random, 1, m->moe.experts);
    m->moe.expert_ffn_hidden_size = pick(random, 1, 90);
    m->moe.layer_frequency = pick(random, 1, 3);
    m->moe.shared_expert_size = pick(random, 0, 2) == 0 ? pick(random, 1, 50) : 0;
    m->moe.shared_expert_gate = pick(random, 0, 1);
    return spec;
}

// Parameters by another road: sums of products, no walk. experts: how many of each layer count.
static int64_t formula(const struct spec *spec, int64_t experts)
{
    const struct spec_model *m = &spec->model;
    int64_t C = m->hidden_size, q = m->attention_heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    int64_t mats = m->activation == ACTIVATION_SWIGLU ? 3 : 2, norm = m->norm == NORM_LAYERNORM ? 2 * C : C;
    int64_t bias = m->bias ? 1 : 0;
    int64_t attention = 2 * C * q + 2 * C * kv + bias * (q + 2 * kv + C) + (m->qk_norm ? m->qk_norm_over == QK_NORM_HEAD ? 2 * m->head_dim : q + kv : 0) + 2 * norm;
    int64_t dense = mats * C * m->ffn_hidden_size + bias * ((mats - 1) * m->ffn_hidden_size + C);
    int64_t X = m->moe.expert_ffn_hidden_size;
    int64_t sparse = m->moe.experts * C + experts * (mats * C * X + bias * ((mats - 1) * X + C)) + mats * C * m->moe.shared_expert_size +
        (m->moe.shared_expert_size && m->moe.shared_expert_gate ? C : 0);
    int64_t moe_layers = 0;
    for (int64_t i = 0; m->moe.experts && i < m->layers; i++)
        moe_layers += i % m->moe.layer_frequency == 0;
    return m->vocab_size * C * (m->tied_embeddings ? 1 : 2) + (m->position == POSITION_LEARNED ? m->max_position_embeddings * C : 0) +
        m->layers * attention + (m->layers - moe_layers) * dense + moe_layers * sparse + norm;
}

static void test_counts_of_random_specs(void **state)
{
    (void)state;
    uint64_t random = 42;
    for (int i = 0; i < 200; i++) {
        struct spec spec = random_spec(&random);
        struct param_count count = param_count(&spec);
        assert_int_equal(count.total, formula(&spec, spec.model.moe.experts));
        assert_int_equal(count.active, formula(&spec, spec.model.moe.experts ? spec.model.moe.top_k : 0));
        struct param_table table;
        param_table_init(&table, &spec, 0, 1);
        assert_int_equal(table.dense_elements + table.expert_elements, count.total);
        param_table_release(&table);
    }
}

static void test_counts_of_the_flagship(void **state)
{
    (void)state;
    struct spec dense = flagship(false), moe = flagship(true);
    assert_int_equal(param_count(&dense).total, 1219037184);
    assert_int_equal(param_count(&dense).active, 1219037184);
    assert_int_equal(param_count(&moe).total, 6858278912);
    assert_int_equal(param_count(&moe).active, 1221134336);
}

// Every rank's segments are filled without gap or overlap, and the experts of all ranks together are all experts, each once.
static void test_residency_partitions_experts(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int i = 0; i < 60; i++) {
        struct spec spec = random_spec(&random);
        int64_t ranks = spec.model.moe.experts ? pick(&random, 0, 1) ? 4 : 2 : 1;
        struct param_table all;
        param_table_init(&all, &spec, 0, 1);
        int *holders = calloc(all.count, sizeof *holders);
        for (int64_t rank = 0; rank < ranks; rank++) {
            struct param_table table;
            param_table_init(&table, &spec, rank, ranks);
            assert_int_equal(table.count, all.count);
            for (int64_t layer = 0; layer < spec.model.layers; layer++)
                assert_int_equal(layer_local_experts(&table, &spec, layer) * ranks, spec_layer_experts(&spec, layer));
            assert_true(table.ep_rank == rank && table.ep_size == ranks);
            assert_int_equal(table.dense_elements, all.dense_elements);
            assert_int_equal(table.expert_elements * (size_t)ranks, all.expert_elements);
            size_t dense = 0, expert = 0;
            for (size_t k = 0; k < table.count; k++) {
                const struct param *item = &table.items[k];
                assert_string_equal(item->name, all.items[k].name);
                holders[k] += item->resident;
                if (!item->resident)
                    continue;
                size_t *end = item->expert < 0 ? &dense : &expert;
                assert_int_equal(item->offset, *end);
                *end += param_elements(item);
            }
            assert_int_equal(dense, table.dense_elements);
            assert_int_equal(expert, table.expert_elements);
            param_table_release(&table);
        }
        for (size_t k = 0; k < all.count; k++)
            assert_int_equal(holders[k], all.items[k].expert < 0 ? ranks : 1);
        free(holders);
        param_table_release(&all);
    }
}

static void test_order_and_names(void **state)
{
    (void)state;
    struct spec spec = small(true);
    spec.model.layers = 2;
    spec.model.moe.layer_frequency = 2;
    spec.model.moe.experts = 2;
    spec.model.moe.top_k = 1;
    spec.model.tied_embeddings = false;
    const char *names[] = {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight", "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight", "model.layers.0.block_sparse_moe.experts.0.w3.weight",
        "model.layers.0.block_sparse_moe.experts.1.w1.weight", "model.layers.0.block_sparse_moe.experts.1.w3.weight",
        "model.layers.0.block_sparse_moe.experts.0.w2.weight", "model.layers.0.block_sparse_moe.experts.1.w2.weight",
        "model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"};
    struct param_table table;
    param_table_init(&table, &spec, 0, 1);
    assert_int_equal(table.count, sizeof names / sizeof *names);
    for (size_t i = 0; i < table.count; i++)
        assert_string_equal(table.items[i].name, names[i]);

    const struct param *k = param_find(&table, PARAM_K, 1, -1), *w2 = param_find(&table, PARAM_EXPERT_DOWN, 0, 1);
    assert_int_equal(k->rows, 64);
    assert_int_equal(k->columns, 128);
    assert_int_equal(w2->rows, 128);
    assert_int_equal(w2->columns, 128);
    assert_true(fabs(w2->init_std - 0.02 / 2) < 1e-15); // 2L = 4
    assert_true(param_find(&table, PARAM_EXPERT_UP, 0, 1)->init_std == 0.02);
    assert_true(k->decay && w2->decay && param_find(&table, PARAM_ROUTER, 0, -1)->decay);
    const struct param *norm = param_find(&table, PARAM_FINAL_NORM, -1, -1);
    assert_false(norm->decay);
    assert_int_equal(norm->init, INIT_ONES);
    assert_int_equal(norm->rows, 1);
    param_table_release(&table);
}

static void test_a_single_expert_still_has_a_decayed_router(void **state)
{
    (void)state;
    struct spec spec = small(true);
    spec.model.moe.experts = spec.model.moe.top_k = 1;
    struct param_table table;
    param_table_init(&table, &spec, 0, 1);
    const struct param *router = param_find(&table, PARAM_ROUTER, 0, -1);
    assert_int_equal(router->rows, 1);
    assert_true(router->decay);
    assert_int_equal(router->init, INIT_NORMAL);
    param_table_release(&table);
}

// ---- initial values ----

static void test_philox_vectors(void **state)
{
    (void)state;
    // The generator's published known answers (zeros, ones, digits of pi).
    const uint32_t counters[3][4] = {{0, 0, 0, 0}, {~0u, ~0u, ~0u, ~0u}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
    const uint32_t keys[3][2] = {{0, 0}, {~0u, ~0u}, {0xa4093822, 0x299f31d0}};
    const uint32_t answers[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(out, counters[i], keys[i]);
        assert_memory_equal(out, answers[i], sizeof out);
    }
}

enum { VALUES = 200000 };

static void test_initial_values(void **state)
{
    (void)state;
    struct param param = {.name = "model.embed_tokens.weight", .rows = 1, .columns = VALUES, .init = INIT_NORMAL, .init_std = 0.02};
    double *whole = calloc(VALUES, sizeof *whole), *part = calloc(VALUES, sizeof *part);
    param_initial(whole, &param, 1234, 0, VALUES);
    double sum = 0, squares = 0, cubes = 0, fourths = 0;
    for (int i = 0; i < VALUES; i++) {
        double z = whole[i] / 0.02;
        sum += z;
        squares += z * z;
        cubes += z * z * z;
        fourths += z * z * z * z;
    }
    assert_true(fabs(sum / VALUES) < 4 / sqrt(VALUES));
    assert_true(fabs(squares / VALUES - 1) < 4 * sqrt(2.0 / VALUES));
    assert_true(fabs(cubes / VALUES) < 4 * sqrt(15.0 / VALUES));
    assert_true(fabs(fourths / VALUES - 3) < 4 * sqrt(96.0 / VALUES));

    // Slices are the whole, wherever they are cut.
    uint64_t random = 3;
    for (size_t at = 0; at < VALUES;) {
        size_t count = (size_t)pick(&random, 1, 5000);
        count = count < VALUES - at ? count : VALUES - at;
        param_initial(part + at, &param, 1234, at, count);
        at += count;
    }
    assert_memory_equal(whole, part, VALUES * sizeof *whole);

    // Another seed, another name, another place beyond 2^32 elements: other values.
    param_initial(part, &param, 1235, 0, 8);
    assert_memory_not_equal(whole, part, 8 * sizeof *whole);
    param_initial(part, &param, 1234 + ((uint64_t)1 << 32), 0, 8);
    assert_memory_not_equal(whole, part, 8 * sizeof *whole);
    param_initial(part, &param, 1234, (size_t)1 << 34, 8);
    assert_memory_not_equal(whole, part, 8 * sizeof *whole);
    strcpy(param.name, "lm_head.weight");
    param_initial(part, &param, 1234, 0, 8);
    assert_memory_not_equal(whole, part, 8 * sizeof *whole);

    param.init = INIT_ONES;
    param_initial(part, &param, 1234, 5, 3);
    assert_true(part[0] == 1 && part[1] == 1 && part[2] == 1);
    free(whole);
    free(part);
}

// ---- weight decay ----

// What decays, told here once more for every kind: matrices do, the embedding, the output layer, routers and gates of one row included;
// norms and biases, the vectors, do not. A kind without a line here fails.
static const struct { enum param_kind kind; bool decays; } decay_of[] = {
    {PARAM_EMBEDDING, true}, {PARAM_POSITION, true}, {PARAM_LM_HEAD, true},
    {PARAM_Q, true}, {PARAM_K, true}, {PARAM_V, true}, {PARAM_O, true},
    {PARAM_GATE, true}, {PARAM_UP, true}, {PARAM_DOWN, true},
    {PARAM_ROUTER, true}, {PARAM_EXPERT_GATE, true}, {PARAM_EXPERT_UP, true}, {PARAM_EXPERT_DOWN, true},
    {PARAM_SHARED_GATE, true}, {PARAM_SHARED_UP, true}, {PARAM_SHARED_DOWN, true}, {PARAM_SHARED_ROUTER, true},
    {PARAM_RESIDUAL_GATE, true}, {PARAM_RESIDUAL_UP, true}, {PARAM_RESIDUAL_DOWN, true}, {PARAM_RESIDUAL_COEFFICIENT, true},
    {PARAM_RESIDUAL_GATE_BIAS, false}, {PARAM_RESIDUAL_UP_BIAS, false}, {PARAM_RESIDUAL_DOWN_BIAS, false}, {PARAM_RESIDUAL_COEFFICIENT_BIAS, false},
    {PARAM_ATTENTION_NORM, false}, {PARAM_MLP_NORM, false}, {PARAM_FINAL_NORM, false}, {PARAM_Q_NORM, false}, {PARAM_K_NORM, false},
    {PARAM_ATTENTION_NORM_BIAS, false}, {PARAM_MLP_NORM_BIAS, false}, {PARAM_FINAL_NORM_BIAS, false},
    {PARAM_Q_BIAS, false}, {PARAM_K_BIAS, false}, {PARAM_V_BIAS, false}, {PARAM_O_BIAS, false},
    {PARAM_GATE_BIAS, false}, {PARAM_UP_BIAS, false}, {PARAM_DOWN_BIAS, false},
    {PARAM_RESIDUAL_GATE_BIAS, false}, {PARAM_RESIDUAL_UP_BIAS, false}, {PARAM_RESIDUAL_DOWN_BIAS, false}, {PARAM_RESIDUAL_COEFFICIENT_BIAS, false},
    {PARAM_EXPERT_GATE_BIAS, false}, {PARAM_EXPERT_UP_BIAS, false}, {PARAM_EXPERT_DOWN_BIAS, false},
};

static void check_decay(void *context, const struct param *param)
{
    bool *seen = context, told = false;
    for (size_t i = 0; i < sizeof decay_of / sizeof *decay_of; i++) {
        if (decay_of[i].kind != param->kind)
            continue;
        told = true;
        if (param->decay != decay_of[i].decays)
            fail_msg("%s: decay is %d", param->name, param->decay);
    }
    if (!told)
        fail_msg("%s: nobody says whether it decays", param->name);
    bool vector = strstr(param->name, "norm.") || strstr(param->name, ".bias");
    assert_int_equal(param->decay, !vector); // Megatron's rule: one dimension, or a name that ends in .bias
    seen[param->kind] = true;
}

static void test_weight_decay_of_every_kind(void **state)
{
    (void)state;
    bool seen[PARAM_KINDS] = {false};
    struct spec spec = small(true);
    spec.model.tied_embeddings = false;
    spec.model.norm = NORM_LAYERNORM;
    spec.model.position = POSITION_LEARNED;
    spec.model.bias = spec.model.qk_norm = true;
    spec.model.moe.layer_frequency = 2; // dense layers too
    spec.model.moe.shared_expert_size = 32;
    spec.model.moe.shared_expert_gate = spec.model.moe.residual = true;
    param_walk(&spec, check_decay, seen);
    for (size_t i = 0; i < PARAM_KINDS; i++)
        if (!seen[i])
            fail_msg("no tensor of kind %zu in a model that should have all", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_of_random_specs), cmocka_unit_test(test_counts_of_the_flagship),
        cmocka_unit_test(test_residency_partitions_experts), cmocka_unit_test(test_order_and_names),
        cmocka_unit_test(test_a_single_expert_still_has_a_decayed_router), cmocka_unit_test(test_philox_vectors),
        cmocka_unit_test(test_initial_values), cmocka_unit_test(test_weight_decay_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
