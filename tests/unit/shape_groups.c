// Rank groups against Megatron's own lists, and what must hold of every layout.
#include "tests/unit/shape_support.h"

enum { WORLD_MAX = 64 };
static const enum group_kind kinds[] = {GROUP_TP, GROUP_CP, GROUP_DP, GROUP_PP, GROUP_ETP, GROUP_EP, GROUP_EDP, GROUP_DP_CP, GROUP_TP_CP,
    GROUP_ETP_EP};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct layout layout(int64_t world, int64_t tp, int64_t cp, int64_t pp, int64_t ep, int64_t etp)
{
    struct spec spec = {0};
    spec.resources = (struct spec_resources){.nodes = 1, .ranks_per_node = world};
    spec.parallelism = (struct spec_parallelism){.tensor = tp, .context = cp, .pipeline = pp, .expert = ep, .expert_tensor = etp};
    spec.model.moe.experts = ep;
    struct layout made;
    struct error err = {0};
    if (layout_from_spec(&made, &spec, &err) != 0)
        fail_msg("%s", err.text);
    return made;
}

// text: "0 2 4 6" — the group that the first rank named is in.
static void expect(const struct layout *l, enum group_kind kind, const char *text)
{
    int64_t wanted[WORLD_MAX], ranks[WORLD_MAX];
    int64_t count = 0;
    for (char *end; *text; text = end + strspn(end, " "))
        wanted[count++] = strtoll(text, &end, 10);
    assert_int_equal(group_size(l, kind), count);
    for (int64_t i = 0; i < count; i++) { // every member names the same group
        assert_int_equal(group_ranks(l, kind, wanted[i], ranks), count);
        assert_memory_equal(ranks, wanted, (size_t)count * sizeof *ranks);
        assert_int_equal(group_index(l, kind, wanted[i]), i);
    }
}

static void test_megatron_lists(void **state)
{
    (void)state;
    struct layout l = layout(16, 2, 1, 2, 2, 2); // TP2 PP2 EP2 ETP2
    expect(&l, GROUP_DP, "0 2 4 6");
    expect(&l, GROUP_DP, "1 3 5 7");
    expect(&l, GROUP_DP, "8 10 12 14");
    expect(&l, GROUP_DP, "9 11 13 15");
    expect(&l, GROUP_PP, "0 8");
    expect(&l, GROUP_PP, "1 9");
    expect(&l, GROUP_EP, "0 2");
    expect(&l, GROUP_EP, "1 3");
    expect(&l, GROUP_EP, "4 6");
    expect(&l, GROUP_EP, "5 7");
    expect(&l, GROUP_EP, "8 10");
    expect(&l, GROUP_EDP, "0 4");
    expect(&l, GROUP_EDP, "1 5");
    expect(&l, GROUP_EDP, "3 7");
    expect(&l, GROUP_ETP_EP, "0 1 2 3");
    l = layout(16, 2, 1, 2, 2, 1); // ETP1
    expect(&l, GROUP_EP, "0 1");
    expect(&l, GROUP_EP, "2 3");
    expect(&l, GROUP_EDP, "0 2 4 6");
    l = layout(16, 2, 1, 4, 1, 2); // TP2 PP4
    expect(&l, GROUP_TP, "0 1");
    expect(&l, GROUP_DP, "0 2");
    expect(&l, GROUP_DP, "1 3");
    expect(&l, GROUP_DP, "4 6");
    expect(&l, GROUP_PP, "0 4 8 12");
    expect(&l, GROUP_PP, "1 5 9 13");
    expect(&l, GROUP_EMBEDDING, "0 12");
    l = layout(8, 1, 1, 1, 4, 1); // EP4
    expect(&l, GROUP_EP, "0 1 2 3");
    expect(&l, GROUP_EP, "4 5 6 7");
    expect(&l, GROUP_EDP, "0 4");
    expect(&l, GROUP_EDP, "3 7");
    expect(&l, GROUP_DP, "0 1 2 3 4 5 6 7");
    l = layout(8, 2, 1, 1, 4, 1); // EP crosses TP
    expect(&l, GROUP_EP, "0 1 2 3");
    expect(&l, GROUP_EP, "4 5 6 7");
    expect(&l, GROUP_TP, "0 1");
    l = layout(8, 2, 2, 1, 1, 2); // CP2
    expect(&l, GROUP_CP, "0 2");
    expect(&l, GROUP_TP_CP, "0 1 2 3");
    expect(&l, GROUP_DP, "0 4");
    expect(&l, GROUP_DP_CP, "0 2 4 6");
}

// Groups of one kind partition the ranks; index and color tell which is whose; two ranks of one group have one color, others another.
static void check_partition(const struct layout *l, enum group_kind kind)
{
    int64_t size = group_size(l, kind), ranks[WORLD_MAX], others[WORLD_MAX];
    for (int64_t rank = 0; rank < l->world; rank++) {
        assert_int_equal(group_ranks(l, kind, rank, ranks), size);
        bool found = false;
        for (int64_t i = 0; i < size; i++) {
            assert_true(i == 0 || ranks[i - 1] < ranks[i]);
            assert_true(ranks[i] >= 0 && ranks[i] < l->world);
            group_ranks(l, kind, ranks[i], others);
            assert_memory_equal(ranks, others, (size_t)size * sizeof *ranks);
            assert_int_equal(group_color(l, kind, ranks[i]), group_color(l, kind, rank));
            assert_int_equal(group_index(l, kind, ranks[i]), i);
            found = found || ranks[i] == rank;
        }
        assert_true(found);
        for (int64_t other = 0; other < l->world; other++) {
            bool together = false;
            for (int64_t i = 0; i < size; i++)
                together = together || ranks[i] == other;
            assert_int_equal(together, group_color(l, kind, other) == group_color(l, kind, rank));
        }
    }
}

static void test_every_layout_partitions(void **state)
{
    (void)state;
    static const int64_t worlds[] = {1, 2, 4, 6, 8, 12, 16, 24};
    int layouts = 0;
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (int64_t tp = 1; tp <= 4; tp++)
            for (int64_t cp = 1; cp <= 2; cp++)
                for (int64_t pp = 1; pp <= 4; pp++)
                    for (int64_t ep = 1; ep <= 8; ep *= 2)
                        for (int64_t etp = 1; etp <= 2; etp++) {
                            if (worlds[w] % (tp * cp * pp) || worlds[w] % (etp * ep * pp))
                                continue;
                            struct layout l = layout(worlds[w], tp, cp, pp, ep, etp);
                            assert_int_equal(l.tp * l.cp * l.dp * l.pp, l.world);
                            assert_int_equal(l.etp * l.ep * l.edp * l.pp, l.world);
                            for (size_t k = 0; k < KINDS; k++)
                                check_partition(&l, kinds[k]);
                            layouts++;
                        }
    assert_true(layouts > 150);
}

static void test_embedding_group(void **state)
{
    (void)state;
    struct layout l = layout(8, 1, 1, 4, 1, 1);
    int64_t ranks[WORLD_MAX];
    assert_int_equal(group_ranks(&l, GROUP_EMBEDDING, 2, ranks), 0); // second stage
    assert_int_equal(group_index(&l, GROUP_EMBEDDING, 2), -1);
    assert_int_equal(group_color(&l, GROUP_EMBEDDING, 2), -1);
    expect(&l, GROUP_EMBEDDING, "0 6");
    expect(&l, GROUP_EMBEDDING, "1 7");
    assert_int_not_equal(group_color(&l, GROUP_EMBEDDING, 0), group_color(&l, GROUP_EMBEDDING, 1));
    l = layout(4, 2, 1, 1, 1, 1);
    expect(&l, GROUP_EMBEDDING, "3");
}

static void test_impossible_layouts_say_why(void **state)
{
    (void)state;
    struct spec spec = {0};
    struct layout made;
    struct error err = {0};
    spec.resources = (struct spec_resources){.nodes = 1, .ranks_per_node = 6};
    spec.parallelism = (struct spec_parallelism){.tensor = 4, .expert = 1};
    assert_int_equal(layout_from_spec(&made, &spec, &err), -1);
    assert_non_null(strstr(err.text, "6 ranks"));
    spec.parallelism = (struct spec_parallelism){.tensor = 1, .expert = 4};
    spec.model.layers = spec.model.moe.layer_frequency = 1;
    spec.model.moe.experts = 4;
    assert_int_equal(layout_from_spec(&made, &spec, &err), -1);
    assert_non_null(strstr(err.text, "expert 4"));
    spec.parallelism.expert = 3;
    assert_int_equal(layout_from_spec(&made, &spec, &err), -1);
    assert_non_null(strstr(err.text, "4 experts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_megatron_lists), cmocka_unit_test(test_every_layout_partitions), cmocka_unit_test(test_embedding_group),
        cmocka_unit_test(test_impossible_layouts_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
