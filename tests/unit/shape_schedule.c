// Pipeline schedules: Megatron's warm-ups, its order, and that no rank ever waits for what cannot come. And the learning rate.
#include "tests/unit/shape_support.h"
#include "schema/shape/lr.h"
#include "schema/shape/schedule.h"

#include <math.h>

static void test_warmups(void **state)
{
    (void)state;
    static const struct { int64_t stages, chunks, micro_batches, group, warmup[4]; } golden[] = {
        {4, 1, 8, 0, {3, 2, 1, 0}}, {4, 2, 8, 4, {10, 8, 6, 4}}, {2, 3, 6, 2, {6, 4}}, {4, 2, 8, 0, {10, 8, 6, 4}},
        {4, 1, 2, 0, {2, 2, 1, 0}},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        for (int64_t stage = 0; stage < golden[i].stages; stage++)
            assert_int_equal(schedule_warmup(golden[i].micro_batches, golden[i].stages, stage, golden[i].chunks, golden[i].group),
                golden[i].warmup[stage]);
}

// "F0 F1 B0": the micro batches; a chunk other than 0 as F0.1
static void expect(const struct schedule *schedule, const char *text)
{
    char made[4096] = "";
    for (size_t i = 0; i < schedule->count; i++) {
        const struct schedule_item *item = &schedule->items[i];
        size_t used = strlen(made);
        snprintf(made + used, sizeof made - used, item->chunk ? "%s%c%d.%d" : "%s%c%d", i ? " " : "", item->backward ? 'B' : 'F',
            item->micro_batch, item->chunk);
    }
    assert_string_equal(made, text);
}

static void test_lists(void **state)
{
    (void)state;
    struct schedule schedule;
    schedule_init(&schedule, 3, 1, 0, 1, 0);
    expect(&schedule, "F0 B0 F1 B1 F2 B2");
    schedule_release(&schedule);
    schedule_init(&schedule, 4, 4, 0, 1, 0);
    expect(&schedule, "F0 F1 F2 F3 B0 B1 B2 B3");
    schedule_release(&schedule);
    schedule_init(&schedule, 4, 4, 2, 1, 0);
    expect(&schedule, "F0 F1 B0 F2 B1 F3 B2 B3");
    schedule_release(&schedule);
    schedule_init(&schedule, 4, 2, 1, 2, 2); // warm-up 2
    expect(&schedule, "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
    schedule_release(&schedule);
    // Megatron's table for 8 micro batches, 2 chunks, groups of 4: forward (0..3,0)(0..3,1)(4..7,0)(4..7,1).
    schedule_init(&schedule, 8, 4, 0, 2, 4);
    size_t forwards = 0;
    for (size_t i = 0; i < schedule.count; i++) {
        if (schedule.items[i].backward)
            continue;
        assert_int_equal(schedule.items[i].micro_batch, forwards / 8 * 4 + forwards % 4);
        assert_int_equal(schedule.items[i].chunk, forwards % 8 / 4);
        forwards++;
    }
    assert_int_equal(forwards, 16);
    schedule_release(&schedule);
}

enum { STAGES_MAX = 6, CHUNKS_MAX = 3, MICRO_MAX = 24 };

// Runs all stages against each other: an item goes when what it needs is there. Every item must have gone at the end.
static void simulate(int64_t micro_batches, int64_t stages, int64_t chunks, int64_t group)
{
    struct schedule schedules[STAGES_MAX];
    size_t at[STAGES_MAX] = {0};
    bool forward[STAGES_MAX * CHUNKS_MAX][MICRO_MAX] = {{false}}, backward[STAGES_MAX * CHUNKS_MAX][MICRO_MAX] = {{false}};
    int64_t last = stages * chunks - 1;
    for (int64_t s = 0; s < stages; s++) {
        schedule_init(&schedules[s], micro_batches, stages, s, chunks, group);
        assert_int_equal(schedules[s].count, 2 * micro_batches * chunks);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t s = 0; s < stages; s++) {
            if (at[s] == schedules[s].count)
                continue;
            struct schedule_item item = schedules[s].items[at[s]];
            int64_t part = item.chunk * stages + s, b = item.micro_batch; // part: place in the model's order
            bool ready = !item.backward ? part == 0 || forward[part - 1][b]
                                        : forward[part][b] && (part == last || backward[part + 1][b]);
            if (!ready)
                continue;
            bool *done = item.backward ? &backward[part][b] : &forward[part][b];
            assert_false(*done);
            *done = moved = true;
            at[s]++;
        }
    }
    for (int64_t s = 0; s < stages; s++) {
        if (at[s] != schedules[s].count)
            fail_msg("stage %lld of %lld stands still at item %zu (m %lld, chunks %lld)", (long long)s, (long long)stages, at[s],
                (long long)micro_batches, (long long)chunks);
        schedule_release(&schedules[s]);
    }
}

static void test_nothing_waits_forever(void **state)
{
    (void)state;
    for (int64_t stages = 1; stages <= STAGES_MAX; stages++)
        for (int64_t m = 1; m <= 13; m++)
            simulate(m, stages, 1, 0);
    for (int64_t stages = 2; stages <= 4; stages++)
        for (int64_t chunks = 2; chunks <= CHUNKS_MAX; chunks++)
            for (int64_t groups = 1; groups <= 4; groups++)
                simulate(groups * stages, stages, chunks, 0);
    simulate(12, 3, 2, 6);
}

static void test_bubble(void **state)
{
    (void)state;
    assert_true(schedule_bubble(8, 1, 1) == 0);
    assert_true(schedule_bubble(8, 4, 1) == 3.0 / 8);
    assert_true(schedule_bubble(8, 4, 2) == 3.0 / 16);
}

// ---- learning rate ----

static struct spec rates(enum spec_schedule schedule, enum spec_decay_style style)
{
    struct spec spec = {0};
    spec.training.iterations = 100;
    spec.training.global_batch_size = 8;
    spec.training.learning_rate = (struct spec_learning_rate){.schedule = schedule, .peak = 3e-4, .minimum = 3e-5, .warmup_iterations = 20,
        .decay_iterations = 20, .decay_style = style, .total_iterations = 100};
    return spec;
}

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%.12g is not %.12g", value, wanted);
}

static double rate_at(const struct spec *spec, int64_t iteration)
{
    return learning_rate(spec, samples_before(spec, iteration));
}

// What Megatron's scheduler says with batch 8: the rate before update index n is that of iteration n + 1.
static void test_wsd_golden(void **state)
{
    (void)state;
    struct spec spec = rates(SCHEDULE_WSD, DECAY_EXPONENTIAL);
    assert_true(rate_at(&spec, 1) == 0);
    near(rate_at(&spec, 2), 1.5e-5);
    assert_true(rate_at(&spec, 21) == 3e-4);
    assert_true(rate_at(&spec, 81) == 3e-4);
    near(rate_at(&spec, 82), 2.816056176e-4);
    near(rate_at(&spec, 91), 1.418376618e-4);
    near(rate_at(&spec, 101), 3e-5);
    assert_true(rate_at(&spec, 102) == 3e-5);
    spec = rates(SCHEDULE_WSD, DECAY_MINUS_SQRT);
    near(rate_at(&spec, 82), 2.396261646e-4);
    near(rate_at(&spec, 91), 1.0908116908e-4);
    spec = rates(SCHEDULE_WSD, DECAY_LINEAR);
    near(rate_at(&spec, 91), 1.65e-4);
    spec = rates(SCHEDULE_WSD, DECAY_COSINE);
    near(rate_at(&spec, 86), 3e-5 + 2.7e-4 * (0.5 + sqrt(0.5) / 2));
}

static void test_other_schedules(void **state)
{
    (void)state;
    struct spec spec = rates(SCHEDULE_CONSTANT, DECAY_EXPONENTIAL);
    near(rate_at(&spec, 11), 1.5e-4);
    assert_true(rate_at(&spec, 22) == 3e-4);
    assert_true(rate_at(&spec, 5000) == 3e-4);
    spec.training.learning_rate.warmup_iterations = 0;
    assert_true(rate_at(&spec, 1) == 3e-4);
    spec.training.learning_rate.warmup_iterations = 20;
    spec.training.learning_rate.initial = 1e-4;
    assert_true(rate_at(&spec, 1) == 1e-4);
    near(rate_at(&spec, 11), 2e-4);
    spec = rates(SCHEDULE_COSINE, DECAY_EXPONENTIAL);
    near(rate_at(&spec, 61), 1.65e-4);
    near(rate_at(&spec, 101), 3e-5);
    spec = rates(SCHEDULE_LINEAR, DECAY_EXPONENTIAL);
    near(rate_at(&spec, 41), 3e-5 + 2.7e-4 * 0.75);
    spec = rates(SCHEDULE_INVERSE_SQUARE_ROOT, DECAY_EXPONENTIAL);
    near(rate_at(&spec, 81), 1.5e-4);
    spec.training.learning_rate.minimum = 2e-4;
    near(rate_at(&spec, 81), 2e-4);
    // total_iterations left out: the run's own length.
    spec = rates(SCHEDULE_WSD, DECAY_EXPONENTIAL);
    spec.training.learning_rate.total_iterations = 0;
    near(rate_at(&spec, 91), 1.418376618e-4);
}

// The keys count iterations and the rate counts samples: in a batch ramp the corners stay at their iterations, and between them a step
// moves the rate by its own share of samples.
static void test_rates_in_a_batch_ramp(void **state)
{
    (void)state;
    struct spec spec = rates(SCHEDULE_WSD, DECAY_LINEAR);
    spec.training.rampup_batch_size = (struct spec_rampup){.present = true, .start = 2, .increment = 2, .samples = 30};
    // 10 samples a stage: 5 steps of 2, 3 of 4, 2 of 6 (10, 22, 34 samples), then 8 each: 114 after the warm-up's 20 steps.
    assert_int_equal(samples_before(&spec, 21), 114);
    assert_true(rate_at(&spec, 1) == 0);
    near(rate_at(&spec, 2), 3e-4 * 2 / 114);
    near(rate_at(&spec, 7), 3e-4 * 14 / 114);
    assert_true(rate_at(&spec, 21) == 3e-4);
    assert_true(rate_at(&spec, 81) == 3e-4);
    near(rate_at(&spec, 86), 3e-5 + 2.7e-4 * 0.75);
    near(rate_at(&spec, 101), 3e-5);
    struct ramp_stage stages[SPEC_RAMP_STAGES_MAX + 1];
    static const struct ramp_stage expected[] = {{1, 2}, {6, 4}, {9, 6}, {11, 8}};
    assert_int_equal(ramp_stages(&spec, stages), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(stages[i].iteration, expected[i].iteration);
        assert_int_equal(stages[i].samples, expected[i].samples);
        assert_int_equal(step_samples(&spec, stages[i].iteration), expected[i].samples);
    }
    spec.training.iterations = 8; // ends inside the ramp
    assert_int_equal(ramp_stages(&spec, stages), 2);
    spec.training.rampup_batch_size.present = false;
    assert_int_equal(ramp_stages(&spec, stages), 1);
}

// Experts: the same schedule from a peak of their own, to the same minimum.
static void test_expert_rates(void **state)
{
    (void)state;
    for (enum spec_schedule schedule = SCHEDULE_CONSTANT; schedule <= SCHEDULE_INVERSE_SQUARE_ROOT; schedule++) {
        struct spec spec = rates(schedule, DECAY_COSINE), own = spec;
        spec.training.learning_rate.expert_peak = 1e-4;
        own.training.learning_rate.peak = 1e-4; // what the experts should see
        for (int64_t samples = 0; samples < 900; samples += 7) {
            assert_true(expert_learning_rate(&spec, samples) == learning_rate(&own, samples));
            assert_true(expert_learning_rate(&own, samples) == learning_rate(&own, samples));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmups), cmocka_unit_test(test_lists), cmocka_unit_test(test_nothing_waits_forever),
        cmocka_unit_test(test_bubble), cmocka_unit_test(test_wsd_golden), cmocka_unit_test(test_other_schedules),
        cmocka_unit_test(test_rates_in_a_batch_ramp), cmocka_unit_test(test_expert_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
