// The sample index and the blend against golden vectors. They were made by megatron-core 0.16.1 and 0.19.2 (both equal): GPTDataset on
// documents of the lengths given here, and its blended builder; the hashes are the first 12 hex digits of SHA-256 over the raw
// little-endian arrays (document i32, sample i32 pairs, shuffle u32).
#include "schema/base/text.h"
#include "worker/data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const int32_t eight[] = {5, 9, 3, 12, 1, 7, 20, 4};

struct golden {
    const int32_t *lengths;
    int64_t sequences, S, wanted, seed, epochs;
    bool separate;
    const char *document, *rows, *shuffle; // rows as "p,o p,o …"
};

static char *list(const void *items, size_t count, bool wide)
{
    struct text text;
    text_init(&text, 1 << 20);
    for (size_t i = 0; i < count; i++)
        text_addf(&text, "%s%lld", i ? "," : "", (long long)(wide ? ((const int64_t *)items)[i] : ((const int32_t *)items)[i]));
    return text_take(&text);
}

static char *rows_of(const struct sample_index *index)
{
    struct text text;
    text_init(&text, 1 << 20);
    for (int64_t i = 0; i <= index->count; i++)
        text_addf(&text, "(%lld,%lld)", (long long)index->start[i][0], (long long)index->start[i][1]);
    return text_take(&text);
}

static void check_golden(const struct golden *golden)
{
    struct sample_index index;
    struct error err = {0};
    assert_int_equal(sample_index_init(&index, golden->lengths, golden->sequences, golden->S, golden->wanted, golden->seed, &err), 0);
    assert_int_equal(index.epochs, golden->epochs);
    assert_int_equal(index.separate_epoch, golden->separate);
    char *document = list(index.document, (size_t)index.document_count, false);
    char *shuffle = list(index.shuffle, (size_t)index.count, false);
    char *rows = rows_of(&index);
    if (golden->document)
        assert_string_equal(document, golden->document);
    if (golden->rows)
        assert_string_equal(rows, golden->rows);
    assert_string_equal(shuffle, golden->shuffle);
    free(document);
    free(shuffle);
    free(rows);
    sample_index_release(&index);
}

#define ROWS_16 "(0,0)(1,1)(1,9)(3,0)(4,7)(4,15)(6,0)(8,1)(9,0)(9,8)(12,1)(13,2)(13,10)(13,18)(14,6)(15,2)"

static void test_eight_documents(void **state)
{
    (void)state;
    static const struct golden cases[] = {
        {eight, 8, 8, 0, 1234, 1, false, "2,1,6,0,4,5,3,7", "(0,0)(1,5)(2,4)(2,12)(3,0)(5,2)(6,3)(6,11)", "5,0,3,4,2,6,1"},
        {eight, 8, 8, 12, 1234, 2, false, "5,3,0,4,6,2,2,7,1,1,0,4,5,6,3,7", ROWS_16, "9,7,4,3,11,2,13,1,12,5,0,8,14,6,10"},
        {eight, 8, 8, 17, 1234, 3, true, "5,3,0,4,6,2,2,7,1,1,0,4,5,6,3,7,5,1,3,4,0,7,6,2",
            ROWS_16 "(16,6)(17,7)(18,6)(20,1)(22,0)(22,8)(22,16)", "4,7,1,10,13,3,8,12,11,5,14,2,6,9,0,19,16,21,20,17,18,15"},
        {eight, 8, 8, 22, 1234, 3, false, NULL, NULL, "8,17,21,1,4,20,19,13,14,9,0,11,7,3,10,6,2,5,12,16,18,15"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_golden(&cases[i]);
}

static void fill_lengths(int32_t *lengths, int64_t count)
{
    for (int64_t d = 0; d < count; d++)
        lengths[d] = (int32_t)((37 * d + 11) % 23 + 1);
}

static void test_twelve_documents(void **state)
{
    (void)state;
    int32_t lengths[12];
    fill_lengths(lengths, 12);
    const struct golden cases[] = {
        {lengths, 12, 16, 20, 1234, 3, true, "7,4,2,3,1,6,5,4,0,8,1,9,10,10,8,2,11,9,5,11,0,6,7,3,4,7,1,10,9,3,8,6,11,5,0,2",
            "(0,0)(0,16)(1,14)(2,8)(3,7)(6,8)(7,11)(8,5)(10,0)(11,13)(12,6)(13,8)(15,1)(16,0)(17,11)(18,4)(20,2)(22,2)(23,0)(24,8)(25,2)"
            "(26,0)(27,13)(28,15)(30,0)(32,3)(34,1)(35,5)",
            "6,9,0,5,8,15,4,7,10,13,14,11,1,12,17,2,3,16,26,20,21,19,24,18,22,23,25"},
        {lengths, 12, 16, 20, 1, 3, true, "1,6,3,2,8,5,10,4,2,7,6,7,9,1,4,0,3,11,10,9,8,0,11,5,11,5,3,10,6,0,8,1,9,7,4,2",
            "(0,0)(3,1)(4,0)(5,7)(6,10)(7,12)(8,6)(9,5)(10,3)(11,15)(12,13)(14,3)(14,19)(16,1)(18,4)(19,6)(19,22)(21,6)(23,5)(25,3)(26,6)"
            "(28,0)(30,0)(32,4)(32,20)(33,13)(34,11)(35,5)",
            "7,2,16,4,14,5,11,6,15,9,10,3,13,8,17,12,0,1,25,23,26,18,24,20,22,21,19"},
        {lengths, 12, 16, 20, 42, 3, true, "8,4,0,6,11,9,1,1,9,5,2,0,3,3,4,10,5,8,11,7,10,2,7,6,7,4,10,3,1,6,2,0,8,5,9,11",
            "(0,0)(1,7)(2,1)(4,1)(5,12)(7,2)(8,15)(9,8)(10,11)(11,10)(13,6)(14,14)(15,8)(16,10)(18,4)(19,15)(20,13)(21,15)(22,14)(24,8)"
            "(25,6)(26,0)(27,2)(30,3)(31,2)(32,6)(34,0)(34,16)",
            "13,10,5,7,17,1,9,0,16,15,12,4,2,8,3,6,11,14,18,23,20,24,21,25,22,19,26"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_golden(&cases[i]);
}

static void check_hash(const char *expect, const void *bytes, size_t count)
{
    char hex[HASH_HEX];
    hash_bytes(hex, bytes, count);
    hex[12] = 0;
    assert_string_equal(hex, expect);
}

static void test_thousand_documents(void **state)
{
    (void)state;
    static const struct { int64_t seed, wanted, count; const char *document, *start, *shuffle; } cases[] = {
        {1234, 0, 375, "4654e92b166b", "616135aa9d58", "0e04c5c11046"}, {1234, 1500, 1501, "d505beba1526", "919de831930a", "cc2591ea0082"},
        {1234, 1700, 1876, "5609112b2a04", "174caa81f75d", "4cddce90ddbf"}, {1234, 3000, 3002, "ca48cda137c8", "568194be2f6e", "9e5e90d0d41e"},
        {1, 0, 375, "4b5e07f47d4d", "507253ac2d3a", "10a0f43d19e1"}, {1, 1500, 1501, "88b1113105e6", "4e4867cca6e4", "8d63654c9b00"},
        {1, 1700, 1876, "c5f4a29ad729", "d175cda55254", "9fb652e838c9"}, {1, 3000, 3002, "d571d8faee8e", "0a4f95796579", "be193012541e"},
        {42, 0, 375, "d32ced5c0422", "ae46e9bfe247", "99ee31bc54b1"}, {42, 1500, 1501, "18b6f41633c6", "28daa35da3e3", "c863fa1089d6"},
        {42, 1700, 1876, "1cac0953d812", "dba5cbc8eb77", "3e6266a2738e"}, {42, 3000, 3002, "8859382bd1ff", "d4a599dbf23d", "ddafd0b60300"},
    };
    int32_t lengths[1000];
    fill_lengths(lengths, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample_index index;
        struct error err = {0};
        assert_int_equal(sample_index_init(&index, lengths, 1000, 32, cases[i].wanted, cases[i].seed, &err), 0);
        assert_int_equal(index.count, cases[i].count);
        check_hash(cases[i].document, index.document, 4 * (size_t)index.document_count);
        int32_t (*narrow)[2] = allocate((size_t)index.count + 1, sizeof *narrow);
        for (int64_t row = 0; row <= index.count; row++)
            for (int column = 0; column < 2; column++)
                narrow[row][column] = (int32_t)index.start[row][column];
        check_hash(cases[i].start, narrow, 8 * ((size_t)index.count + 1));
        check_hash(cases[i].shuffle, index.shuffle, 4 * (size_t)index.count);
        free(narrow);
        sample_index_release(&index);
    }
}

static void test_blend(void **state)
{
    (void)state;
    static const struct { double weights[3]; size_t datasets; int64_t size; const char *dataset, *sample; } cases[] = {
        {{.5, .25, .25}, 3, 12, "0,1,2,0,0,1,2,0,0,1,2,0", "0,0,0,1,2,1,1,3,4,2,2,5"},
        {{.7, .3}, 2, 10, "0,1,0,0,1,0,0,1,0,0", "0,0,1,2,1,3,4,2,5,6"},
        {{.1, .2, .7}, 3, 12, "2,1,2,0,2,2,1,2,2,2,0,2", "0,0,1,0,2,3,1,4,5,6,1,7"},
        {{.3, .5, .2}, 3, 20, "1,0,2,1,0,1,2,1,0,1,0,1,2,1,0,1,2,1,0,1", "0,0,0,1,1,2,1,3,2,4,3,5,2,6,4,7,3,8,5,9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int16_t dataset[32];
        int64_t sample[32];
        int32_t wide[32];
        blend_order(dataset, sample, cases[i].weights, cases[i].datasets, cases[i].size);
        for (int64_t s = 0; s < cases[i].size; s++)
            wide[s] = dataset[s];
        char *datasets = list(wide, (size_t)cases[i].size, false), *samples = list(sample, (size_t)cases[i].size, true);
        assert_string_equal(datasets, cases[i].dataset);
        assert_string_equal(samples, cases[i].sample);
        free(datasets);
        free(samples);
    }
}

static void test_split(void **state)
{
    (void)state;
    static const double split[3] = {90, 10, 0};
    static const int64_t sequences[] = {50, 80, 30}, expected[] = {45, 72, 27};
    int64_t first, end;
    for (int i = 0; i < 3; i++) {
        assert_true(split_range(&first, &end, split, SPLIT_TRAIN, sequences[i]));
        assert_int_equal(first, 0);
        assert_int_equal(end, expected[i]);
        assert_true(split_range(&first, &end, split, SPLIT_VALID, sequences[i]));
        assert_int_equal(first, expected[i]);
        assert_int_equal(end, sequences[i]);
        assert_false(split_range(&first, &end, split, SPLIT_TEST, sequences[i]));
    }
    static const double half[3] = {1, 1, 0};
    split_range(&first, &end, half, SPLIT_TRAIN, 5); // 2.5 rounds to the even 2
    assert_int_equal(end, 2);
}

static void test_too_few_tokens(void **state)
{
    (void)state;
    struct sample_index index;
    struct error err = {0};
    assert_int_equal(sample_index_init(&index, eight, 1, 8, 0, 1, &err), -1);
    assert_non_null(strstr(err.text, "5 tokens are too few"));
    sample_index_release(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eight_documents), cmocka_unit_test(test_twelve_documents), cmocka_unit_test(test_thousand_documents),
        cmocka_unit_test(test_blend), cmocka_unit_test(test_split), cmocka_unit_test(test_too_few_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
