// Attention in every shape, by what must follow from its meaning: a document is what it would be alone, a window of one token is that token
// alone, an empty table of positions is none, scale does not show behind a norm, and what is dropped depends on the place in the run only.
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "tests/train/tiny_model.h"
#include "worker/train/batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct spec spec;
    struct comm *world;
    struct parallel parallel;
    struct model *model;
};

static void start(struct fixture *f, const struct device *device)
{
    struct error err = {{0}};
    f->world = comm_self();
    assert_int_equal(parallel_init(&f->parallel, &f->spec, f->world, &err), 0);
    assert_int_equal(model_new(&f->model, &f->spec, device, &f->parallel, &err), 0);
    tiny_values(f->model, 0.5);
}

static void set_up(struct fixture *f, const struct tiny *tiny, const struct device *device)
{
    tiny_spec(&f->spec, tiny);
    start(f, device);
}

static void tear_down(struct fixture *f)
{
    model_free(f->model);
    parallel_release(&f->parallel);
    comm_finish(f->world);
}

// The logits (B·S, V) of a forward pass; free().
static double *logits_of(struct fixture *f, const struct micro_batch *batch, bool training)
{
    size_t rows = (size_t)(f->spec.training.micro_batch_size * f->spec.data.sequence_length), V = (size_t)f->spec.model.vocab_size;
    double *logits = allocate(rows * V, sizeof *logits);
    model_forward(f->model, batch, training, 1);
    for (size_t t = 0; t < rows; t++)
        model_logits(f->model, t, logits + t * V);
    return logits;
}

static double *tiny_logits(struct fixture *f, bool training)
{
    struct micro_batch *batch = tiny_batch(&f->spec, 0);
    double *logits = logits_of(f, batch, training);
    free(batch);
    return logits;
}

static void write_tensor(struct model *model, enum param_kind kind, int64_t layer, double factor)
{
    const struct param *param = param_find(&model->table, kind, layer, -1);
    size_t count = param_elements(param);
    double *values = tiny_read(model, model_param(model, param), count);
    for (size_t i = 0; i < count; i++)
        values[i] *= factor;
    model->device->ops->from_double(model_param(model, param), values, count);
    free(values);
}

// ---- documents ----

enum { BYTES_SEQUENCE = 40 };

static void bytes_spec(struct spec *spec)
{
    spec->model.vocab_size = BYTE_VOCABULARY;
    spec->data.sequence_length = BYTES_SEQUENCE;
    spec->data.split[0] = 100;
    spec->data.tokenizer = (char *)(uintptr_t)"byte";
    spec->data.reset_attention_mask = spec->data.reset_position_ids = true;
    spec->training.iterations = 3;
    spec->training.global_batch_size = spec->training.micro_batch_size;
    spec->model.bias = spec->model.qk_norm = true;
}

static void learned_bytes_spec(struct spec *spec)
{
    bytes_spec(spec);
    spec->model.position = POSITION_LEARNED;
    spec->model.max_position_embeddings = BYTES_SEQUENCE; // the same table for every length
    spec->model.attention_window = 7;
}

// The tokens of one document, in a model whose sequences are that long.
static void compare_alone(const struct fixture *whole, const struct tiny *tiny, const struct micro_batch *batch, size_t at, size_t length,
    const double *logits)
{
    struct fixture alone;
    size_t V = BYTE_VOCABULARY;
    int32_t zeros[BYTES_SEQUENCE] = {0}, positions[BYTES_SEQUENCE], targets[BYTES_SEQUENCE];
    for (size_t i = 0; i < length; i++) {
        positions[i] = (int32_t)i;
        targets[i] = -1;
    }
    tiny_spec(&alone.spec, tiny);
    alone.spec.data.sequence_length = (int64_t)length;
    alone.spec.training.micro_batch_size = 1;
    start(&alone, whole->model->device);
    struct micro_batch document = {batch->tokens + at, targets, positions, zeros, 0};
    double *own = logits_of(&alone, &document, false);
    assert_memory_equal(own, logits + at * V, length * V * sizeof *own);
    free(own);
    tear_down(&alone);
}

static void compare_documents(struct batches *batches, const struct tiny *tiny, const struct device *device)
{
    struct fixture whole;
    struct error err = {{0}};
    size_t documents = 0, T = (size_t)(2 * BYTES_SEQUENCE);
    set_up(&whole, tiny, device);
    for (int64_t step = 1; step <= whole.spec.training.iterations; step++) {
        struct micro_batch batch;
        assert_int_equal(batches_read(batches, false, step, 0, &batch, &err), 0);
        double *logits = logits_of(&whole, &batch, false);
        for (size_t at = 0, length; at < T; at += length, documents++) {
            length = 1;
            while (batch.tokens[at + length - 1] != BYTE_TOKEN_EOD && (at + length) % BYTES_SEQUENCE)
                length++;
            compare_alone(&whole, tiny, &batch, at, length, logits);
        }
        free(logits);
    }
    print_message("%zu documents or parts of them on %s\n", documents, device->name);
    assert_true(documents > 8); // more than one a sequence
    tear_down(&whole);
}

static void a_document_is_what_it_is_alone(void **state)
{
    static const char text[] = "one\n\na second paragraph\n\nx\n\nthe third is longer than a sequence, so that parts of it stand at the begin and at "
                               "the end of rows\n\nfour\n\nfive and twenty\n\nfoo\n\nbar\n\n";
    char folder[] = "/tmp/switchyard-documents-XXXXXX";
    struct error err = {{0}};
    (void)state;
    assert_non_null(mkdtemp(folder));
    char *input = path_join(folder, "text"), *prefix = path_join(folder, "data");
    assert_int_equal(file_write_atomic(input, text, sizeof text - 1, 0644, &err), 0);
    struct tokenize_options options = {.input = input, .prefix = prefix, .document = "paragraph", .json_key = "text", .tokenizer = "byte"};
    struct tokenize_result result;
    assert_int_equal(tokenize_file(&result, &options, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        struct tiny tiny = {.change = i ? learned_bytes_spec : bytes_spec};
        struct blend_part part = {prefix, 1};
        struct job job = {.parts = &part, .part_count = 1};
        struct batches batches;
        tiny_spec(&job.spec, &tiny);
        assert_int_equal(batches_open(&batches, &job, 0, 1, &err), 0);
        compare_documents(&batches, &tiny, device_reference_f64());
        compare_documents(&batches, &tiny, device_cpu(2));
        batches_release(&batches);
    }
    char *remove = string_format("rm -r %s", folder);
    assert_int_equal(system(remove), 0);
    free(remove);
    free(input);
    free(prefix);
}

// ---- windows, positions, norms ----

static void window_of_one(struct spec *spec)
{
    spec->model.attention_window = 1;
}

static void single_tokens(struct spec *spec)
{
    spec->data.sequence_length = 1;
    spec->training.micro_batch_size = 2 * TINY_SEQUENCE;
}

static void a_window_of_one_token_is_that_token_alone(void **state)
{
    struct fixture window, single;
    (void)state;
    set_up(&window, &(struct tiny){.change = window_of_one}, device_reference_f64());
    set_up(&single, &(struct tiny){.change = single_tokens}, device_reference_f64());
    struct micro_batch *batch = tiny_batch(&window.spec, 0);
    double *a = logits_of(&window, batch, false), *b = logits_of(&single, batch, false);
    for (size_t i = 0; i < 2 * TINY_SEQUENCE * TINY_VOCAB; i++)
        assert_true(fabs(a[i] - b[i]) < 1e-13); // queries and keys were turned, by the same angle
    free(a);
    free(b);
    free(batch);
    tear_down(&window);
    tear_down(&single);
}

static void learned(struct spec *spec)
{
    spec->model.position = POSITION_LEARNED;
    spec->model.max_position_embeddings = 9;
}

static void none(struct spec *spec)
{
    spec->model.position = POSITION_NONE;
}

static void rope(struct spec *spec)
{
    spec->model.position = POSITION_ROPE;
}

static void an_empty_table_of_positions_is_none(void **state)
{
    struct fixture table, without, turned;
    (void)state;
    set_up(&table, &(struct tiny){.change = learned}, device_cpu(2));
    set_up(&without, &(struct tiny){.change = none}, device_cpu(2));
    set_up(&turned, &(struct tiny){.change = rope}, device_cpu(2));
    double *some = tiny_logits(&table, false);
    write_tensor(table.model, PARAM_POSITION, -1, 0);
    double *a = tiny_logits(&table, false), *b = tiny_logits(&without, false), *c = tiny_logits(&turned, false);
    size_t bytes = 2 * TINY_SEQUENCE * TINY_VOCAB * sizeof *a;
    assert_memory_equal(a, b, bytes);
    assert_memory_not_equal(a, some, bytes);
    assert_memory_not_equal(a, c, bytes);
    free(some), free(a), free(b), free(c);
    tear_down(&table);
    tear_down(&without);
    tear_down(&turned);
}

static void normed_heads(struct spec *spec)
{
    spec->model.qk_norm = true;
    spec->model.norm_epsilon = 1e-12;
}

static void normed_projections(struct spec *spec)
{
    normed_heads(spec);
    spec->model.qk_norm_over = QK_NORM_PROJECTION;
}

// Neither the size of the matrices nor, of one head, that of the other shows behind a norm over heads.
static void a_norm_hides_the_size_of_queries_and_keys(void **state)
{
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        struct fixture f;
        set_up(&f, &(struct tiny){.change = over ? normed_projections : normed_heads}, device_reference_f64());
        double *before = tiny_logits(&f, false);
        for (int64_t layer = 0; layer < TINY_LAYERS; layer++) {
            write_tensor(f.model, PARAM_Q, layer, 7);
            write_tensor(f.model, PARAM_K, layer, 0.3);
        }
        double *after = tiny_logits(&f, false);
        for (size_t i = 0; i < 2 * TINY_SEQUENCE * TINY_VOCAB; i++)
            assert_true(fabs(after[i] - before[i]) < 1e-9);
        // The first of two heads alone: hidden by a norm of each head, seen by one over both.
        const struct param *q = param_find(&f.model->table, PARAM_Q, 0, -1);
        f.model->device->ops->scale(model_param(f.model, q), 5, param_elements(q) / TINY_HEADS);
        double *head = tiny_logits(&f, false), worst = 0;
        for (size_t i = 0; i < 2 * TINY_SEQUENCE * TINY_VOCAB; i++)
            worst = fmax(worst, fabs(head[i] - before[i]));
        assert_true(over ? worst > 1e-3 : worst < 1e-9);
        free(before), free(after), free(head);
        tear_down(&f);
    }
}

// ---- dropout ----

static void dropped(struct spec *spec)
{
    spec->model.attention_dropout = 0.3;
    spec->model.hidden_dropout = 0.2;
}

// The same sequences by fours and by twos have the same bits; other places in the run have other ones; validation drops nothing.
static void dropout_is_of_the_place_in_the_run(const struct device *device, int64_t experts)
{
    struct fixture four, two, whole;
    size_t half = 2 * TINY_SEQUENCE * TINY_VOCAB;
    set_up(&four, &(struct tiny){.experts = experts, .top_k = 2, .micro_batch = 4, .change = dropped}, device);
    set_up(&two, &(struct tiny){.experts = experts, .top_k = 2, .micro_batch = 2, .change = dropped}, device);
    set_up(&whole, &(struct tiny){.experts = experts, .top_k = 2, .micro_batch = 2}, device);
    struct micro_batch *batch = tiny_batch(&four.spec, 10), *parts[] = {tiny_batch(&two.spec, 10), tiny_batch(&two.spec, 12)};
    double *all = logits_of(&four, batch, true);
    for (size_t i = 0; i < 2; i++) {
        double *part = logits_of(&two, parts[i], true), *again = logits_of(&two, parts[i], true);
        assert_memory_equal(part, all + i * half, half * sizeof *part);
        assert_memory_equal(part, again, half * sizeof *part);
        double *validated = logits_of(&two, parts[i], false), *plain = logits_of(&whole, parts[i], true);
        assert_memory_equal(validated, plain, half * sizeof *part);
        assert_memory_not_equal(part, plain, half * sizeof *part);
        parts[i]->first_sample += 1;
        double *moved = logits_of(&two, parts[i], true);
        assert_memory_not_equal(part, moved, half * sizeof *part);
        free(part), free(again), free(validated), free(plain), free(moved), free(parts[i]);
    }
    free(all);
    free(batch);
    tear_down(&four);
    tear_down(&two);
    tear_down(&whole);
}

static void dropout_does_not_depend_on_the_micro_batch(void **state)
{
    (void)state;
    for (int64_t experts = 0; experts <= 4; experts += 4) {
        dropout_is_of_the_place_in_the_run(device_reference(), experts);
        dropout_is_of_the_place_in_the_run(device_cpu(2), experts);
    }
}

// The cpu device drops what the reference drops.
static void devices_agree_on_what_is_dropped(void **state)
{
    struct fixture judge, cpu;
    (void)state;
    set_up(&judge, &(struct tiny){.change = dropped}, device_reference_f64());
    set_up(&cpu, &(struct tiny){.change = dropped}, device_cpu(2));
    double *a = tiny_logits(&judge, true), *b = tiny_logits(&cpu, true);
    for (size_t i = 0; i < 2 * TINY_SEQUENCE * TINY_VOCAB; i++)
        assert_true(fabs(a[i] - b[i]) < 1e-4);
    free(a), free(b);
    tear_down(&judge);
    tear_down(&cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_what_it_is_alone),
        cmocka_unit_test(a_window_of_one_token_is_that_token_alone),
        cmocka_unit_test(an_empty_table_of_positions_is_none),
        cmocka_unit_test(a_norm_hides_the_size_of_queries_and_keys),
        cmocka_unit_test(dropout_does_not_depend_on_the_micro_batch),
        cmocka_unit_test(devices_agree_on_what_is_dropped),
    };
    return cmocka_run_group_tests_name("attention of the model", tests, NULL, NULL);
}
