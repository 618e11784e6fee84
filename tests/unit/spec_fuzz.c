// Whatever the bytes of a spec are, loading it ends: with runs or with problems, within the sanitizers' eyes and in bounded time. The
// numbers are the same each time, so a fault can be met again.
#include "tests/unit/spec_support.h"
#include "schema/base/clock.h"

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static uint32_t random_number(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

static void load_bytes(const char *bytes, size_t count)
{
    FILE *out = fopen("fuzz.yaml", "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    fclose(out);
    struct spec_file file;
    double started = clock_steady();
    int status = spec_file_load(&file, "fuzz.yaml", NULL, 0, NULL, 0);
    assert_true(clock_steady() - started < 60);
    assert_int_equal(status, file.errors ? -1 : 0);
    assert_int_equal(file.problems.length > 0, file.errors > 0);
    if (status == 0) {
        struct json *json = spec_to_json(&file.runs[0].spec);
        struct spec back;
        struct error err;
        if (spec_from_json(&back, json, &err) != 0)
            fail_msg("a good spec is not good as JSON: %s", err.text);
        spec_release(&back);
        js_free(json);
    }
    spec_file_release(&file);
}

static void test_random_bytes(void **state)
{
    (void)state;
    static const char likely[] = " \n:-{}[]&*!|>'\"%@#,?~<=\t\\0123abcdefmodel${}\xC3\xA9";
    char bytes[2048];
    for (int i = 0; i < 3000; i++) {
        size_t count = random_number(i % 10 ? 200 : sizeof bytes);
        for (size_t j = 0; j < count; j++)
            bytes[j] = i % 3 ? likely[random_number(sizeof likely - 1)] : (char)random_number(256);
        load_bytes(bytes, count);
    }
}

// One change to the text: a byte, a piece removed, doubled or moved, a value that is known for trouble, a line from elsewhere.
static void mutate(struct text *text)
{
    static const char *const troubles[] = {"~", "null", "0", "-1", "1e308", "99999999999999999999", "{}", "[]", "&a", "*a", "<<: *a", "!!int",
        "---\n", "...\n", "${", "${HOME}", "$$", "\"", "'", "|", ">-\n", ": ", "? ", "\t", "\xEF\xBB\xBF", "\xFF", "runs", "base: fuzz.yaml\n",
        "9007199254740993", "1048576", "%YAML 1.1\n", "#", "\\x", "\r\n"};
    struct text old = *text;
    size_t at = random_number((uint32_t)old.length + 1), length = random_number(40);
    if (length > old.length - at)
        length = old.length - at;
    text_init(text, 1 << 16);
    text_add_bytes(text, old.at, at);
    switch (random_number(6)) {
    case 0: // removed
        break;
    case 1: // doubled
        text_add_bytes(text, old.at + at, length);
        text_add_bytes(text, old.at + at, length);
        break;
    case 2: // trouble put in
        text_add(text, troubles[random_number(sizeof troubles / sizeof troubles[0])]);
        length = 0;
        break;
    case 3: // trouble in place of a word
        length = strcspn(old.at + at, " \n,}]:");
        text_add(text, troubles[random_number(sizeof troubles / sizeof troubles[0])]);
        break;
    case 4: // a byte
        text_addf(text, "%c", 1 + random_number(255));
        length = length ? 1 : 0;
        break;
    default: { // a piece from elsewhere
        size_t from = random_number((uint32_t)old.length + 1), size = strcspn(old.at + from, "\n");
        text_add_bytes(text, old.at + from, size);
        length = 0;
    }
    }
    text_add_bytes(text, old.at + at + length, old.length - at - length);
    text_release(&old);
}

static void mutate_experiment(const char *name, int rounds)
{
    char *path = string_format("%s/experiments/%s", getenv("SWITCHYARD_SOURCE") ? getenv("SWITCHYARD_SOURCE") : ".", name);
    struct text original;
    text_init(&original, 1 << 16);
    struct error err;
    if (file_read(path, &original, &err) != 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < rounds; i++) {
        struct text text;
        text_init(&text, 1 << 16);
        text_add_bytes(&text, original.at, original.length);
        for (uint32_t j = 0, changes = 1 + random_number(4); j < changes; j++)
            mutate(&text);
        load_bytes(text.at, text.length);
        text_release(&text);
    }
    text_release(&original);
    free(path);
}

static void test_mutations(void **state)
{
    (void)state;
    setenv("SHARED_ROOT", "/shared/me", 1);
    setenv("GPU_PARTITION", "gpu", 1);
    mutate_experiment("first-run-cpu.yaml", 600);
    mutate_experiment("first-run.yaml", 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests_name("spec fuzz", tests, enter_folder, leave_folder);
}
