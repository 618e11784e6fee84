// The safetensors format: what is written reads back and has the format's bytes; every damaged file is an error and never a crash.
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "worker/weights/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/switchyard-tensors-XXXXXX";
#include "tests/unit/folder.h"
static const float vector[3] = {1, -2.5f, 0}, matrix[2] = {3, 4};

static char *in_folder(const char *name)
{
    return path_join(folder, name);
}

static void fetch(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes)
{
    (void)context;
    memcpy(host, (const char *)entry->source + at, bytes);
}

static void write_model(struct text *bytes)
{
    static const struct tensor_entry entries[] = {
        {.name = "norm.weight", .shape = {3, 1}, .dimensions = 1, .dtype = "F32", .source = vector},
        {.name = "gate.weight", .shape = {1, 2}, .dimensions = 2, .dtype = "F32", .source = matrix},
    };
    char *path = in_folder("model.safetensors"), hex[HASH_HEX], actual[HASH_HEX];
    struct error err = {0};
    int64_t written;
    assert_int_equal(safetensors_write(path, entries, 2, fetch, NULL, &written, hex, &err), 0);
    assert_int_equal(file_size(path), written);
    assert_int_equal(hash_file(actual, path, &err), 0);
    assert_string_equal(actual, hex);
    if (bytes)
        assert_int_equal(file_read(path, bytes, &err), 0);
    free(path);
}

static void test_bytes(void **state)
{
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"norm.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                                 "\"gate.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[12,20]}}";
    struct text bytes;
    text_init(&bytes, 1 << 16);
    write_model(&bytes);
    size_t padded = (strlen(header) + 7) / 8 * 8;
    uint64_t length;
    memcpy(&length, bytes.at, 8);
    assert_int_equal(length, padded);
    assert_memory_equal(bytes.at + 8, header, strlen(header));
    assert_int_equal(strspn(bytes.at + 8 + strlen(header), " "), padded - strlen(header));
    assert_memory_equal(bytes.at + 8 + padded, vector, 12);
    assert_memory_equal(bytes.at + 8 + padded + 12, matrix, 8);
    assert_int_equal(bytes.length, 8 + padded + 20);
    text_release(&bytes);
}

static void test_read_back(void **state)
{
    (void)state;
    struct tensor_set *set;
    struct tensor_info info;
    struct error err = {0};
    float values[3];
    write_model(NULL);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), 0);
    assert_true(tensor_set_find(set, "gate.weight", &info));
    assert_int_equal(info.shape[0], 1);
    assert_int_equal(info.shape[1], 2);
    assert_int_equal(info.dimensions, 2);
    assert_int_equal(tensor_read(&info, values, &err), 0);
    assert_memory_equal(values, matrix, sizeof matrix);
    assert_true(tensor_set_find(set, "norm.weight", &info));
    assert_int_equal(tensor_read(&info, values, &err), 0);
    assert_memory_equal(values, vector, sizeof vector);
    assert_false(tensor_set_find(set, "__metadata__", &info));
    assert_false(tensor_set_find(set, "absent", &info));
    tensor_set_close(set);
    assert_int_equal(tensor_set_open(&set, folder, "optimizer", &err), -1);
    assert_non_null(strstr(err.text, "no optimizer*.safetensors"));
}

static void put(const char *header, const void *data, size_t count)
{
    struct text bytes;
    struct error err = {0};
    text_init(&bytes, 1 << 16);
    uint64_t length = strlen(header);
    text_add_bytes(&bytes, &length, 8);
    text_add(&bytes, header);
    text_add_bytes(&bytes, data, count);
    char *path = in_folder("model.safetensors");
    assert_int_equal(file_write_atomic(path, bytes.at, bytes.length, 0644, &err), 0);
    free(path);
    text_release(&bytes);
}

// Halves and brain floats of other people's checkpoints: 1, -2, the largest, the smallest, infinity.
static void test_narrow_types(void **state)
{
    (void)state;
    static const uint16_t data[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00, 0x3f80, 0xc000, 0x7f7f, 0x0080, 0xff80};
    static const float half[] = {1, -2, 65504, 0x1p-24f, __builtin_inff()};
    static const float brain[] = {1, -2, 0x1.fep127f, 0x1p-126f, -__builtin_inff()};
    struct tensor_set *set;
    struct tensor_info info;
    struct error err = {0};
    float values[5];
    put("{\"h\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[0,10]},\"b\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[10,20]}}", data,
        sizeof data);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), 0);
    assert_true(tensor_set_find(set, "h", &info));
    assert_int_equal(tensor_read(&info, values, &err), 0);
    assert_memory_equal(values, half, sizeof half);
    assert_true(tensor_set_find(set, "b", &info));
    assert_int_equal(tensor_read(&info, values, &err), 0);
    assert_memory_equal(values, brain, sizeof brain);
    tensor_set_close(set);
}

// Tensors that nobody reads are no fault of the file.
static void test_other_types(void **state)
{
    (void)state;
    struct tensor_set *set;
    struct tensor_info info;
    struct error err = {0};
    put("{\"count\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]},\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]}}", vector, 12);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), 0);
    assert_false(tensor_set_find(set, "count", &info));
    assert_false(tensor_set_find(set, "one", &info));
    tensor_set_close(set);
}

static float read_one(const struct tensor_set *set, const char *name, int64_t rows, int64_t columns)
{
    struct tensor_info info;
    struct error err = {0};
    float values[8];
    assert_true(tensor_set_find(set, name, &info));
    assert_int_equal(info.dimensions, 2);
    assert_int_equal(info.shape[0], rows);
    assert_int_equal(info.shape[1], columns);
    assert_true(info.elements <= 8);
    assert_int_equal(tensor_read(&info, values, &err), 0);
    return values[0];
}

// Names of transformers: experts one by one as OLMoE has them, and all experts of a layer in one tensor, gate before up.
static void test_other_names(void **state)
{
    (void)state;
    static const float data[30] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
    struct tensor_set *set;
    struct tensor_info info;
    struct error err = {0};
    // 2 experts of width 1 over 3: gate_up (2, 2, 3), down (2, 3, 1); layer 1 has expert 1 by itself.
    put("{\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[2,2,3],\"data_offsets\":[0,48]},"
        "\"model.layers.0.mlp.experts.down_proj\":{\"dtype\":\"F32\",\"shape\":[2,3,1],\"data_offsets\":[48,72]},"
        "\"model.layers.0.mlp.gate.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[72,96]},"
        "\"model.layers.1.mlp.experts.1.up_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[96,108]},"
        "\"model.layers.1.mlp.experts.1.down_proj.weight\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[108,120]}}", data, sizeof data);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), 0);
    assert_true(read_one(set, "model.layers.0.block_sparse_moe.experts.0.w1.weight", 1, 3) == 0);
    assert_true(read_one(set, "model.layers.0.block_sparse_moe.experts.0.w3.weight", 1, 3) == 3);
    assert_true(read_one(set, "model.layers.0.block_sparse_moe.experts.1.w1.weight", 1, 3) == 6);
    assert_true(read_one(set, "model.layers.0.block_sparse_moe.experts.1.w3.weight", 1, 3) == 9);
    assert_true(read_one(set, "model.layers.0.block_sparse_moe.experts.1.w2.weight", 3, 1) == 15);
    assert_true(read_one(set, "model.layers.0.block_sparse_moe.gate.weight", 2, 3) == 18);
    assert_true(read_one(set, "model.layers.1.block_sparse_moe.experts.1.w3.weight", 1, 3) == 24);
    assert_true(read_one(set, "model.layers.1.block_sparse_moe.experts.1.w2.weight", 3, 1) == 27);
    assert_false(tensor_set_find(set, "model.layers.0.block_sparse_moe.experts.2.w1.weight", &info));
    assert_false(tensor_set_find(set, "model.layers.1.block_sparse_moe.experts.0.w3.weight", &info));
    assert_false(tensor_set_find(set, "model.layers.1.block_sparse_moe.experts.1.w3.weight.exp_avg", &info));
    tensor_set_close(set);
}

static void test_lies(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}",            // bytes are not the shape's
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",            // beyond the file
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-4,4]}}",            // before the data
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", // a product that overflows to 0
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
        "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"a\":[]}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",  // overlap
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", // twice
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",  // a gap
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",            // a gap before the first
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",             // bytes behind the last
        "{}",
        "[1]",
        "[]{}",
        "{",
    };
    struct tensor_set *set;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct error err = {0};
        put(headers[i], vector, 12);
        if (tensor_set_open(&set, folder, "model", &err) == 0)
            fail_msg("believed: %s", headers[i]);
        assert_non_null(strstr(err.text, "model.safetensors"));
    }
}

// Two files of a set that have the same tensor, a FIFO (which would be waited for), a directory.
static void test_files(void **state)
{
    (void)state;
    char *other = in_folder("model-2.safetensors"), *path = in_folder("model.safetensors");
    struct tensor_set *set;
    struct error err = {0};
    write_model(NULL);
    assert_int_equal(rename(path, other), 0);
    write_model(NULL);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), -1);
    assert_non_null(strstr(err.text, "model.safetensors: tensor norm.weight is in "));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), -1);
    assert_non_null(strstr(err.text, "model-2.safetensors: not a regular file"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), -1);
    assert_non_null(strstr(err.text, "model-2.safetensors: not a regular file"));
    assert_int_equal(rmdir(other), 0);
    free(other);
    free(path);
}

// A third dimension makes a tensor larger than the matrix that it begins as.
static void test_shapes(void **state)
{
    (void)state;
    struct tensor_set *set;
    struct tensor_info info;
    struct error err = {0};
    char text[TENSOR_SHAPE_TEXT];
    put("{\"m\":{\"dtype\":\"F32\",\"shape\":[1,1,2],\"data_offsets\":[0,8]},\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", vector, 12);
    assert_int_equal(tensor_set_open(&set, folder, "model", &err), 0);
    assert_true(tensor_set_find(set, "m", &info));
    assert_false(tensor_has_shape(&info, 1, 1));
    assert_false(tensor_has_shape(&info, 1, 2));
    assert_string_equal(tensor_shape_text(text, &info), "1 × 1 × 2");
    assert_true(tensor_set_find(set, "v", &info));
    assert_true(tensor_has_shape(&info, 1, 1));
    assert_false(tensor_has_shape(&info, 2, 1));
    tensor_set_close(set);
}

static void test_truncated(void **state)
{
    (void)state;
    struct text bytes;
    struct tensor_set *set;
    text_init(&bytes, 1 << 16);
    write_model(&bytes);
    char *path = in_folder("model.safetensors");
    for (size_t length = 0; length < bytes.length; length++) {
        struct error err = {0};
        assert_int_equal(file_write_atomic(path, bytes.at, length, 0644, &err), 0);
        assert_int_equal(tensor_set_open(&set, folder, "model", &err), -1);
        assert_non_null(strstr(err.text, "model.safetensors"));
    }
    free(path);
    text_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_read_back), cmocka_unit_test(test_narrow_types), cmocka_unit_test(test_lies),
        cmocka_unit_test(test_other_types), cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_files), cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
