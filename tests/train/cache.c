// Generation's way through the model is training's: whatever the model's shape, tokens fed piece by piece over kept keys and values have the
// logits of a forward pass over all of them.
#include "schema/base/text.h"
#include "tests/train/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { LENGTH = 11, PIECE = 4 };

static const size_t pieces[] = {3, 1, 4, 1, 2};

static void window(struct spec *spec)
{
    spec->model.attention_window = 3;
}

static void gpt(struct spec *spec)
{
    spec->model.norm = NORM_LAYERNORM;
    spec->model.activation = ACTIVATION_GELU;
    spec->model.position = POSITION_LEARNED;
    spec->model.bias = true;
}

static void normed_heads(struct spec *spec)
{
    spec->model.qk_norm = true;
    spec->model.qk_norm_over = QK_NORM_HEAD;
    spec->model.rope_scaling_factor = 4;
    spec->model.rope_scaling_low_freq_factor = 1;
    spec->model.rope_scaling_high_freq_factor = 4;
    spec->model.rope_scaling_original_length = 8;
}

static void normed_projection(struct spec *spec)
{
    spec->model.qk_norm = true;
    spec->model.qk_norm_over = QK_NORM_PROJECTION;
}

static void no_positions(struct spec *spec)
{
    spec->model.position = POSITION_NONE;
}

static void shared(struct spec *spec)
{
    spec->model.moe.shared_expert_size = 8;
    spec->model.moe.shared_expert_gate = true;
    spec->model.bias = true;
}

static void residual(struct spec *spec)
{
    spec->model.moe.residual = true;
    spec->model.activation = ACTIVATION_GELU;
}

static void sigmoid(struct spec *spec)
{
    spec->model.moe.score_function = SCORE_SIGMOID;
    spec->model.moe.expert_bias = true;
    spec->model.moe.scaling_factor = 2.5;
    spec->model.moe.num_groups = 2;
    spec->model.moe.group_topk = 1;
}

static void recomputed(struct spec *spec)
{
    spec->training.recompute.granularity = RECOMPUTE_FULL;
    spec->training.recompute.method = RECOMPUTE_UNIFORM;
    spec->training.recompute.layers = 1;
}

static const struct { const char *name; struct tiny tiny; } shapes[] = {
    {"dense", {0}},
    {"dense, untied, window", {.untied = true, .change = window}},
    {"layer norm, GELU, learned positions, biases", {.change = gpt}},
    {"norms of heads, scaled positions", {.change = normed_heads}},
    {"norms of projections", {.experts = 4, .top_k = 2, .pre_softmax = true, .change = normed_projection}},
    {"no positions", {.change = no_positions}},
    {"experts", {.experts = 4, .top_k = 2}},
    {"experts in one product, on some layers", {.experts = 5, .top_k = 3, .grouped_gemm = true, .layer_frequency = 2}},
    {"shared expert", {.experts = 4, .top_k = 1, .pre_softmax = true, .change = shared}},
    {"sigmoid scores, groups, a bias for choosing", {.experts = 6, .top_k = 2, .change = sigmoid}},
    {"activations made again", {.experts = 4, .top_k = 2, .change = recomputed}},
    {"residual", {.experts = 4, .top_k = 1, .pre_softmax = true, .change = residual}},
};

struct fixture {
    struct spec spec;
    struct comm *world;
    struct parallel parallel;
};

static void begin(struct fixture *f, const struct tiny *tiny, int64_t length)
{
    struct error err = {{0}};
    struct tiny one = *tiny;
    one.micro_batch = 1;
    tiny_spec(&f->spec, &one);
    f->spec.model.max_position_embeddings = LENGTH;
    f->spec.data.sequence_length = length;
    f->world = comm_self();
    assert_int_equal(parallel_init(&f->parallel, &f->spec, f->world, &err), 0);
}

static void end(struct fixture *f, struct model *model)
{
    model_free(model);
    parallel_release(&f->parallel);
    comm_finish(f->world);
}

// Biases that change who is chosen.
static void tiny_biases(struct model *model)
{
    for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
        float *bias = spec_layer_experts(model->spec, (int64_t)layer) ? model_expert_bias(model, layer) : NULL;
        for (int64_t e = 0; bias && e < model->spec->model.moe.experts; e++)
            bias[e] = (float)(tiny_random(layer + 50, (uint64_t)e) - 0.5);
    }
}

static void whole(double *logits, const int32_t *tokens, const struct tiny *tiny, const struct device *device)
{
    struct fixture f;
    struct error err = {{0}};
    struct model *model;
    int32_t targets[LENGTH] = {0};
    begin(&f, tiny, LENGTH);
    assert_int_equal(model_new(&model, &f.spec, device, &f.parallel, &err), 0);
    tiny_values(model, 0.5);
    tiny_biases(model);
    model_forward(model, &(struct micro_batch){.tokens = tokens, .targets = targets}, false, 0);
    for (size_t t = 0; t < LENGTH; t++)
        model_logits(model, t, logits + t * TINY_VOCAB);
    end(&f, model);
}

static void compare(const char *name, const struct tiny *tiny, const struct device *device, double tolerance)
{
    struct fixture f;
    struct error err = {{0}};
    struct model *model;
    int32_t tokens[LENGTH];
    double expected[LENGTH * TINY_VOCAB], logits[TINY_VOCAB], worst = 0;
    for (size_t t = 0; t < LENGTH; t++)
        tokens[t] = (int32_t)(tiny_random(3, t) * TINY_VOCAB);
    whole(expected, tokens, tiny, device);
    begin(&f, tiny, PIECE);
    assert_int_equal(model_new_for_inference(&model, &f.spec, device, &f.parallel, NULL, &err), 0);
    tiny_values(model, 0.5);
    tiny_biases(model);
    model_keep(model, LENGTH);
    for (int round = 0; round < 2; round++) {
        for (size_t p = 0, at = 0; p < sizeof pieces / sizeof *pieces; p++) {
            model_extend(model, tokens + at, pieces[p]);
            for (size_t row = 0; row < pieces[p]; row++, at++) {
                model_logits(model, row, logits);
                for (size_t v = 0; v < TINY_VOCAB; v++)
                    worst = fmax(worst, fabs(logits[v] - expected[at * TINY_VOCAB + v]));
            }
        }
        assert_int_equal(model_kept(model), LENGTH);
        model_forget(model);
    }
    if (!(worst <= tolerance))
        fail_msg("%s on %s: logits differ by %g", name, device->name, worst);
    end(&f, model);
}

static void test_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        compare(shapes[i].name, &shapes[i].tiny, device_reference_f64(), 1e-12);
        compare(shapes[i].name, &shapes[i].tiny, device_cpu(2), 2e-5);
        compare(shapes[i].name, &shapes[i].tiny, device_guard(device_reference()), 2e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
