// Pairs and text files: what is written reads back, documents are cut where promised, and every kind of damage is one clear error that
// leaves nothing half-written.
#include "schema/base/file.h"
#include "schema/base/json.h"
#include "schema/base/text.h"
#include "worker/data/data.h"
#include "worker/data/sample_cache.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

static char folder[] = "/tmp/switchyard-data-XXXXXX";
#include "tests/unit/folder.h"

static char *in_folder(const char *name)
{
    return path_join(folder, name);
}

static char *put(const char *name, const char *bytes, size_t count)
{
    char *path = in_folder(name);
    struct error err = {0};
    assert_int_equal(file_write_atomic(path, bytes, count, 0644, &err), 0);
    return path;
}

static char *put_gzip(const char *name, const char *bytes, size_t count, const char *mode)
{
    char *path = in_folder(name);
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)count), (int)count);
    assert_int_equal(gzclose(file), Z_OK);
    return path;
}

// Tokenises and returns the documents joined by '|', the end-of-document token checked and left out.
static char *documents_of(const char *input, const char *document, struct error *err)
{
    char *prefix = in_folder("out");
    struct tokenize_options options = {.input = input, .prefix = prefix, .document = document, .json_key = "text", .tokenizer = "byte"};
    struct tokenize_result result;
    struct text text;
    text_init(&text, 1 << 20);
    if (tokenize_file(&result, &options, err) != 0) {
        free(prefix);
        text_release(&text);
        return NULL;
    }
    struct indexed *indexed;
    assert_int_equal(indexed_open(&indexed, prefix, err), 0);
    assert_int_equal(indexed_sequences(indexed), result.documents);
    int64_t tokens = 0;
    for (int64_t d = 0; d < result.documents; d++) {
        int64_t length = indexed_length(indexed, d);
        int32_t *row = allocate((size_t)length, sizeof *row);
        indexed_read(indexed, d, 0, length, row);
        assert_int_equal(row[length - 1], BYTE_TOKEN_EOD);
        text_add(&text, d ? "|" : "");
        for (int64_t i = 0; i + 1 < length; i++) {
            char byte = (char)row[i];
            text_add_bytes(&text, &byte, 1);
        }
        tokens += length;
        free(row);
    }
    assert_int_equal(tokens, result.tokens);
    indexed_close(indexed);
    free(prefix);
    return text_take(&text);
}

static void expect_documents(char *input, const char *document, const char *expected)
{
    struct error err = {0};
    char *actual = documents_of(input, document, &err);
    assert_string_equal(err.text, "");
    assert_string_equal(actual, expected);
    free(actual);
    free(input);
}

#define TEXT "\n\none\n  two\n \t\nthree\r\n\r\n\n\nfour\xff\n"

static void test_documents(void **state)
{
    (void)state;
    expect_documents(put("a.txt", TEXT, strlen(TEXT)), "paragraph", "one\n  two|three\r|four\xff");
    expect_documents(put("a.txt", TEXT, strlen(TEXT)), "line", "one|  two| \t|three\r|\r|four\xff");
    expect_documents(put("a.txt", TEXT, strlen(TEXT)), "file", TEXT);
    expect_documents(put("a.txt", "x", 1), "paragraph", "x");
    expect_documents(put_gzip("a.dict.dz", TEXT, strlen(TEXT), "wb"), "paragraph", "one\n  two|three\r|four\xff");
}

static void test_gzip_members(void **state)
{
    (void)state;
    free(put_gzip("two.gz", "one\n\ntw", 7, "wb"));
    expect_documents(put_gzip("two.gz", "o\n\nthree", 8, "ab"), "paragraph", "one|two|three");
}

static void test_jsonl(void **state)
{
    (void)state;
    const char *lines = "{\"text\":\"a\\nb\\u00e9\",\"id\":1}\n\n{\"text\":\"\"}\n{\"id\":2,\"text\":\"c\"}";
    expect_documents(put("a.jsonl", lines, strlen(lines)), "paragraph", "a\nb\xc3\xa9|c");
    expect_documents(put_gzip("a.jsonl.gz", lines, strlen(lines), "wb"), "file", "a\nb\xc3\xa9|c");
}

// The same bytes whatever the file's size compared with the read block.
static void test_large(void **state)
{
    (void)state;
    struct text text, expected;
    text_init(&text, 1 << 24);
    text_init(&expected, 1 << 24);
    for (int i = 0; i < 60000; i++) {
        text_addf(&text, "paragraph %d\nline%s", i, i + 1 < 60000 ? "\n\n" : "");
        text_addf(&expected, "paragraph %d\nline%s", i, i + 1 < 60000 ? "|" : "");
    }
    char *path = put_gzip("large.gz", text.at, text.length, "wb");
    struct error err = {0};
    char *prefix = in_folder("out");
    struct tokenize_options options = {.input = path, .prefix = prefix, .document = "paragraph", .tokenizer = "byte"};
    struct tokenize_result result;
    assert_int_equal(tokenize_file(&result, &options, &err), 0);
    assert_int_equal(result.documents, 60000);
    assert_int_equal(result.tokens, (int64_t)expected.length + 1);
    assert_int_equal(result.bytes, (int64_t)text.length);
    free(path);
    free(prefix);
    text_release(&text);
    text_release(&expected);
}

static void test_complete(void **state)
{
    (void)state;
    struct error err = {0};
    expect_documents(put("a.txt", "ab\n\nc", 5), "paragraph", "ab|c");
    char *path = in_folder("complete.json"), *bin = in_folder("out.bin"), *idx = in_folder("out.idx"), hex[HASH_HEX];
    struct json *json = js_read_file(path, 1 << 16, &err);
    assert_non_null(json);
    assert_int_equal(js_integer_of(js_get(json, "documents"), 0), 2);
    assert_int_equal(js_integer_of(js_get(json, "tokens"), 0), 5);
    assert_int_equal(hash_file(hex, bin, &err), 0);
    assert_string_equal(js_string_of(js_get(json, "bin_sha256"), ""), hex);
    assert_int_equal(hash_file(hex, idx, &err), 0);
    assert_string_equal(js_string_of(js_get(json, "idx_sha256"), ""), hex);
    assert_int_equal(file_size(bin), 10); // u16
    assert_int_equal(file_size(idx), 34 + 12 * 2 + 8 * 3);
    js_free(json);
    free(path);
    free(bin);
    free(idx);
}

static void expect_fault(char *input, const char *document, const char *words)
{
    struct error err = {0};
    char *bin = in_folder("out.bin"), *idx = in_folder("out.idx"), *partial = in_folder("out.bin.tmp");
    unlink(bin);
    unlink(idx);
    assert_null(documents_of(input, document, &err));
    if (!strstr(err.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.text);
    assert_false(file_exists(bin) || file_exists(idx) || file_exists(partial));
    free(bin);
    free(idx);
    free(partial);
    free(input);
}

static void test_bad_text(void **state)
{
    (void)state;
    struct error err = {0};
    struct text gzip;
    text_init(&gzip, 1 << 20);
    char *path = put_gzip("whole.gz", TEXT, strlen(TEXT), "wb");
    assert_int_equal(file_read(path, &gzip, &err), 0);
    free(path);
    expect_fault(put("short.gz", gzip.at, gzip.length - 9), "paragraph", "it ends inside its data");
    gzip.at[gzip.length / 2] ^= 0x55;
    expect_fault(put("bad.gz", gzip.at, gzip.length), "paragraph", "corrupt gzip");
    text_release(&gzip);
    expect_fault(in_folder("missing.txt"), "paragraph", "missing.txt: No such file");
    expect_fault(string_copy(folder), "paragraph", "not a regular file");
    expect_fault(put("empty.txt", "\n \n", 3), "paragraph", "no text in it");
    expect_fault(put("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":", 21), "line", "bad.jsonl:2");
    expect_fault(put("bad.jsonl", "{\"txt\":\"a\"}\n", 12), "line", "bad.jsonl:1: no string member \"text\"");
}

static void write_pair(const char *prefix, int64_t vocabulary)
{
    struct indexed_writer *writer;
    struct indexed_written written;
    struct error err = {0};
    static const int32_t a[] = {1, 2, 3}, b[] = {64999, 5};
    assert_int_equal(indexed_writer_open(&writer, prefix, vocabulary, &err), 0);
    assert_int_equal(indexed_writer_document(writer, a, 3, &err), 0);
    assert_int_equal(indexed_writer_document(writer, b, 2, &err), 0);
    assert_int_equal(indexed_writer_finish(writer, &written, &err), 0);
    assert_int_equal(written.tokens, 5);
}

static void test_pair_widths(void **state)
{
    (void)state;
    char *prefix = in_folder("pair"), *bin = in_folder("pair.bin");
    static const int64_t vocabularies[] = {65499, 65500}, bytes[] = {10, 20};
    for (int i = 0; i < 2; i++) {
        struct indexed *indexed;
        struct error err = {0};
        int32_t row[2];
        write_pair(prefix, vocabularies[i]);
        assert_int_equal(file_size(bin), bytes[i]);
        assert_int_equal(indexed_open(&indexed, prefix, &err), 0);
        indexed_read(indexed, 1, 0, 2, row);
        assert_int_equal(row[0], 64999);
        assert_int_equal(row[1], 5);
        indexed_close(indexed);
    }
    free(prefix);
    free(bin);
}

// The bytes that a pair of these two documents must have, written down once by hand.
static void test_pair_bytes(void **state)
{
    (void)state;
    char *prefix = in_folder("pair"), *idx = in_folder("pair.idx");
    static const unsigned char expected[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,
        0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0,
        0, 0, 0, 0, 0};
    struct error err = {0};
    struct text text;
    text_init(&text, 4096);
    write_pair(prefix, 65499);
    assert_int_equal(file_read(idx, &text, &err), 0);
    assert_int_equal(text.length, sizeof expected);
    assert_memory_equal(text.at, expected, sizeof expected);
    text_release(&text);
    free(prefix);
    free(idx);
}

// Every single byte of the index, changed, is noticed, and so is every shorter length; or reads as an index that means the same.
static void test_damaged_pair(void **state)
{
    (void)state;
    char *prefix = in_folder("pair"), *idx = in_folder("pair.idx"), *bin = in_folder("pair.bin");
    struct error err = {0};
    struct text text;
    struct indexed *indexed;
    text_init(&text, 4096);
    write_pair(prefix, 65499);
    assert_int_equal(file_read(idx, &text, &err), 0);
    for (size_t i = 0; i < text.length; i++) {
        text.at[i] ^= 0x41;
        free(put("pair.idx", text.at, text.length));
        err.text[0] = 0;
        if (indexed_open(&indexed, prefix, &err) == 0)
            fail_msg("byte %zu of the index changed, and nobody noticed", i);
        assert_non_null(strstr(err.text, "pair."));
        text.at[i] ^= 0x41;
    }
    for (size_t length = 0; length < text.length; length++) {
        free(put("pair.idx", text.at, length));
        assert_int_equal(indexed_open(&indexed, prefix, &err), -1);
    }
    free(put("pair.idx", text.at, text.length));
    assert_int_equal(truncate(bin, 9), 0);
    assert_int_equal(indexed_open(&indexed, prefix, &err), -1);
    assert_non_null(strstr(err.text, "pair.bin: truncated: 9 bytes, but its index describes 10"));
    unlink(bin);
    assert_int_equal(indexed_open(&indexed, prefix, &err), -1);
    assert_non_null(strstr(err.text, "pair.bin: No such file"));
    text_release(&text);
    free(prefix);
    free(idx);
    free(bin);
}

// Samples of a real pair: neighbours share one token, and reading gathers across documents.
static void test_samples_of_pair(void **state)
{
    (void)state;
    char *prefix = in_folder("many");
    struct indexed_writer *writer;
    struct indexed_written written;
    struct error err = {0};
    assert_int_equal(indexed_writer_open(&writer, prefix, 100000, &err), 0);
    int32_t next = 0, row[64];
    for (int d = 0; d < 40; d++) {
        int count = (37 * d + 11) % 23 + 1;
        for (int i = 0; i < count; i++)
            row[i] = next++;
        assert_int_equal(indexed_writer_document(writer, row, (size_t)count, &err), 0);
    }
    assert_int_equal(indexed_writer_finish(writer, &written, &err), 0);
    struct blend_part part = {prefix, 1};
    struct blend *blend;
    static const double split[3] = {50, 50, 0};
    struct sampling sampling = {.which = SPLIT_VALID, .split = split, .sequence_length = 16, .seed = 7};
    assert_int_equal(blend_open(&blend, &part, 1, &sampling, 0, &err), 0);
    int64_t seen = 0;
    for (int64_t i = 0; i < blend_count(blend); i++) {
        blend_read(blend, i, row);
        for (int j = 0; j < 17; j++)
            assert_true(row[j] >= 220 && row[j] < next); // the second half of the documents
        seen += 16;
    }
    assert_true(seen > 0 && seen < next - 220);
    blend_close(blend);
    static const double only_train[3] = {1, 0, 0};
    sampling.split = only_train;
    assert_int_equal(blend_open(&blend, &part, 1, &sampling, 0, &err), -1);
    assert_non_null(strstr(err.text, "the validation split is empty"));
    free(prefix);
}

// Built, kept, read back; a damaged file is made anew; what cannot be written is an error only where it was asked for.
static void test_sample_cache(void **state)
{
    (void)state;
    char *directory = in_folder("cache"), *blocked = put("blocked", "x", 1);
    int32_t lengths[50];
    for (int d = 0; d < 50; d++)
        lengths[d] = (37 * d + 11) % 23 + 1;
    struct sample_index plain, index;
    struct error err = {0};
    assert_int_equal(sample_index_init(&plain, lengths, 50, 16, 100, 7, &err), 0);
    char *name = NULL;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(sample_index_cached(&index, directory, true, lengths, 50, 16, 100, 7, &err), 0);
        assert_int_equal(index.count, plain.count);
        assert_int_equal(index.separate_epoch, plain.separate_epoch);
        assert_memory_equal(index.shuffle, plain.shuffle, (size_t)plain.count * sizeof *plain.shuffle);
        assert_memory_equal(index.start, plain.start, ((size_t)plain.count + 1) * sizeof *plain.start);
        assert_memory_equal(index.document, plain.document, (size_t)plain.document_count * sizeof *plain.document);
        sample_index_release(&index);
        DIR *listing = opendir(directory);
        int files = 0;
        for (struct dirent *entry; (entry = readdir(listing));) {
            if (entry->d_name[0] == '.')
                continue;
            files++;
            free(name);
            name = path_join(directory, entry->d_name);
        }
        closedir(listing);
        assert_int_equal(files, 1);
        struct text bytes;
        text_init(&bytes, 1 << 20);
        assert_int_equal(file_read(name, &bytes, &err), 0);
        bytes.at[bytes.length / 2] ^= 1; // the next round meets a damaged file, the last a short one
        assert_int_equal(file_write_atomic(name, bytes.at, round ? bytes.length - 3 : bytes.length, 0644, &err), 0);
        text_release(&bytes);
    }
    assert_int_equal(sample_index_cached(&index, blocked, false, lengths, 50, 16, 100, 7, &err), 0);
    sample_index_release(&index);
    assert_int_equal(sample_index_cached(&index, blocked, true, lengths, 50, 16, 100, 7, &err), -1);
    assert_non_null(strstr(err.text, "blocked: not a directory"));
    sample_index_release(&index);
    sample_index_release(&plain);
    free(name);
    free(directory);
    free(blocked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents), cmocka_unit_test(test_gzip_members), cmocka_unit_test(test_jsonl), cmocka_unit_test(test_large),
        cmocka_unit_test(test_complete), cmocka_unit_test(test_bad_text), cmocka_unit_test(test_pair_widths), cmocka_unit_test(test_pair_bytes),
        cmocka_unit_test(test_damaged_pair), cmocka_unit_test(test_samples_of_pair), cmocka_unit_test(test_sample_cache),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
