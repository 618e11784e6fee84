// The safetensors format: what is written reads back and has the format's bytes; every damaged file is an error and never a crash.
#include "schema/base/file.h"
#include "schema/base/text.h"
#include "worker/weights/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/switchyard-tensors-XXXXXX";
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

static void test_lies(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}",            // bytes are not the shape's
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",            // beyond the file
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-4,4]}}",            // before the data
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", // a product that overflows to 0
        "{\"a\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
        "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"a\":[]}",
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

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return directory_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_read_back), cmocka_unit_test(test_narrow_types), cmocka_unit_test(test_lies),
        cmocka_unit_test(test_truncated),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
