// Records: the writer's lines and its fence, the reader of a growing file, the exit record, the heartbeat, names in a run directory.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char root[64];
static struct error fault;

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/switchyard-record-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return directory_remove(root, NULL);
}

static void make(const char *name)
{
    char *path = path_join(root, name);
    assert_int_equal(directory_make(path, &fault), 0);
    free(path);
}

static void put(const char *name, const char *bytes, const char *mode)
{
    char *path = path_join(root, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, strlen(bytes), file), strlen(bytes));
    assert_int_equal(fclose(file), 0);
    free(path);
}

// ---- what the reader delivered, kept for looking at ----

enum { TAKEN_MAX = 64 };

struct taken {
    size_t count;
    struct json *lines[TAKEN_MAX]; // NULL: malformed
    char *raw[TAKEN_MAX];
    size_t bytes[TAKEN_MAX];
    int64_t offsets[TAKEN_MAX];
};

static void take(void *context, const struct json *line, const char *raw, size_t raw_bytes, int64_t offset)
{
    struct taken *taken = context;
    assert_true(taken->count < TAKEN_MAX);
    size_t i = taken->count++;
    taken->lines[i] = line ? js_copy(line) : NULL;
    taken->raw[i] = allocate(raw_bytes + 1, 1);
    memcpy(taken->raw[i], raw, raw_bytes);
    taken->bytes[i] = raw_bytes;
    taken->offsets[i] = offset;
}

static void forget(struct taken *taken)
{
    for (size_t i = 0; i < taken->count; i++) {
        js_free(taken->lines[i]);
        free(taken->raw[i]);
    }
    *taken = (struct taken){0};
}

static int64_t read_more(struct record_reader *reader, const char *name, int64_t most, struct taken *taken)
{
    char *path = path_join(root, name);
    int64_t lines = record_read(reader, path, most, take, taken, &fault);
    free(path);
    return lines;
}

// ---- reader ----

static void test_torn_line_waits(void **state)
{
    (void)state;
    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "absent.jsonl", 10, &taken), 0);
    put("r.jsonl", "{\"a\":1}\n{\"a\":", "w");
    assert_int_equal(read_more(&reader, "r.jsonl", 10, &taken), 1);
    assert_int_equal(reader.offset, 8);
    assert_int_equal(read_more(&reader, "r.jsonl", 10, &taken), 0);
    put("r.jsonl", "2}", "a");
    assert_int_equal(read_more(&reader, "r.jsonl", 10, &taken), 0);
    put("r.jsonl", "\n", "a");
    assert_int_equal(read_more(&reader, "r.jsonl", 10, &taken), 1);
    assert_int_equal(taken.count, 2);
    assert_int_equal(js_integer_of(js_get(taken.lines[1], "a"), 0), 2);
    assert_int_equal(taken.offsets[1], 8);
    assert_int_equal(reader.sequence, 2);
    forget(&taken);
}

static void test_malformed_line_stops_nothing(void **state)
{
    (void)state;
    struct record_reader reader = {0};
    struct taken taken = {0};
    put("m.jsonl", "{\"a\":1}\n{\"a\":NaN}\n[1]\n\n\xff\xfe\n{\"a\":1,\"a\":2}\n{\"a\":7}\n", "w");
    assert_int_equal(read_more(&reader, "m.jsonl", 100, &taken), 7);
    const char *raw[] = {"{\"a\":1}", "{\"a\":NaN}", "[1]", "", "\xff\xfe", "{\"a\":1,\"a\":2}", "{\"a\":7}"};
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(taken.raw[i], raw[i]);
        assert_int_equal(taken.bytes[i], strlen(raw[i]));
        assert_int_equal(taken.lines[i] != NULL, i == 0 || i == 6);
    }
    forget(&taken);
}

static void test_offsets_resume(void **state)
{
    (void)state;
    struct text all;
    text_init(&all, 1 << 20);
    for (int i = 0; i < 40; i++)
        text_addf(&all, "{\"i\":%d,\"pad\":\"%*s\"}\n", i, 1 + i * 37 % 101, "x");
    put("o.jsonl", all.at, "w");
    struct record_reader reader = {0};
    for (int i = 0; i < 40;) {
        struct record_reader again = {.offset = reader.offset, .sequence = reader.sequence}; // as read back from a database
        struct taken taken = {0};
        int64_t most = 1 + i % 4;
        int64_t lines = read_more(&again, "o.jsonl", most, &taken);
        assert_int_equal(lines, 40 - i < most ? 40 - i : most);
        for (size_t j = 0; j < taken.count; j++, i++)
            assert_int_equal(js_integer_of(js_get(taken.lines[j], "i"), -1), i);
        reader = again;
        forget(&taken);
    }
    assert_int_equal(reader.offset, all.length);
    text_release(&all);
    put("o.jsonl", "{}\n", "w"); // cut: the cursor is beyond the end
    assert_int_equal(read_more(&reader, "o.jsonl", 1, NULL), -1);
    assert_non_null(strstr(fault.text, "cut or replaced"));
}

static void test_line_beyond_the_limit(void **state)
{
    (void)state;
    struct text all;
    text_init(&all, 3 * (size_t)RECORD_LINE_MAX);
    text_add(&all, "{\"a\":\"");
    while (all.length < (size_t)RECORD_LINE_MAX + 100)
        text_add(&all, "0123456789abcdef");
    text_add(&all, "\"}\n{\"a\":3}\n");
    put("long.jsonl", all.at, "w");
    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "long.jsonl", 10, &taken), 3);
    assert_null(taken.lines[0]);
    assert_null(taken.lines[1]);
    assert_int_equal(taken.bytes[0], RECORD_LINE_MAX);
    assert_int_equal(js_integer_of(js_get(taken.lines[2], "a"), 0), 3);
    assert_int_equal(reader.offset, all.length);
    forget(&taken);
    text_release(&all);
}

// ---- writer ----

static struct record_writer *open_writer(int64_t attempt)
{
    struct record_writer *writer = record_writer_open(root, attempt, "project", "moe-1", "0123456789abcdef0123456789abcdef", &fault);
    assert_non_null(writer);
    return writer;
}

static struct json *one_metric(const char *name, double value)
{
    struct json *metrics = js_object();
    js_set(metrics, name, js_real(value));
    return metrics;
}

static const char *string_at(const struct taken *taken, size_t line, const char *key)
{
    return js_string_of(js_get(taken->lines[line], key), "");
}

static void test_identifier_recipe(void **state)
{
    (void)state;
    char identifier[RECORD_IDENTIFIER], digest[HASH_HEX];
    record_identifier(identifier, "abc", 2, 17);
    hash_bytes(digest, "abc/2/17", 8);
    assert_int_equal(strlen(identifier), 32);
    assert_memory_equal(identifier, digest, 32);
    assert_string_equal(identifier, "224c6be6b42824b8d40b7f62c73576ed");
}

static void test_lines_are_trackio_fragments(void **state)
{
    (void)state;
    make("attempt-3");
    struct record_writer *writer = open_writer(3);
    assert_int_equal(record_metrics(writer, 1, one_metric("loss", 5.5), &fault), 0);
    assert_int_equal(record_metrics(writer, 2, one_metric("loss", NAN), &fault), 0);
    assert_int_equal(record_alert(writer, 2, "error", "loss is not finite", "step 2", &fault), 0);
    assert_int_equal(record_event(writer, 2, "non_finite_loss", "loss is NaN", &fault), 0);
    struct json *data = js_object();
    js_set(data, "step", js_integer(2));
    js_set(data, "samples_sha256", js_string("00"));
    assert_int_equal(record_other(writer, "data", data, &fault), 0);
    record_writer_close(writer);

    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "attempt-3/records.jsonl", 10, &taken), 5);
    const char *keys[] = {"kind", "v", "project", "run", "run_id", "metrics", "step", "timestamp", "config", "log_id"};
    size_t at = 0;
    for (void *i = js_first(taken.lines[0]); i; i = js_next(taken.lines[0], i))
        assert_string_equal(js_key(i), keys[at++]);
    assert_int_equal(at, 10);
    char identifier[RECORD_IDENTIFIER];
    record_identifier(identifier, "0123456789abcdef0123456789abcdef", 3, 1);
    assert_string_equal(string_at(&taken, 1, "log_id"), identifier);
    record_identifier(identifier, "0123456789abcdef0123456789abcdef", 3, 0);
    assert_string_equal(string_at(&taken, 2, "alert_id"), identifier);
    assert_string_equal(js_string_of(js_get(js_get(taken.lines[1], "metrics"), "loss"), ""), "NaN");
    assert_true(clock_parse(string_at(&taken, 0, "timestamp")) > 1.7e9);
    assert_string_equal(string_at(&taken, 3, "event"), "non_finite_loss");
    assert_int_equal(js_integer_of(js_get(taken.lines[4], "attempt"), 0), 3);
    forget(&taken);
}

static void test_newer_attempt_fences(void **state)
{
    (void)state;
    make("attempt-1");
    struct record_writer *writer = open_writer(1);
    assert_int_equal(record_metrics(writer, 1, one_metric("loss", 1), &fault), 0);
    assert_false(record_fenced(writer));
    make("attempt-2");
    assert_int_equal(record_metrics(writer, 2, one_metric("loss", 1), &fault), -1);
    assert_non_null(strstr(fault.text, "fenced"));
    assert_true(record_fenced(writer));
    char *newer = path_join(root, "attempt-2");
    directory_remove(newer, NULL);
    free(newer);
    assert_int_equal(record_event(writer, 2, "stopped", "", &fault), -1); // for good
    record_writer_close(writer);
    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "attempt-1/records.jsonl", 10, &taken), 1);
    forget(&taken);
}

static void test_reopened_writer_goes_on(void **state)
{
    (void)state;
    make("attempt-1");
    struct record_writer *writer = open_writer(1);
    assert_int_equal(record_metrics(writer, 1, one_metric("loss", 1), &fault), 0);
    record_writer_close(writer);
    put("attempt-1/records.jsonl", "{\"kind\":\"metric\",\"tor", "a");
    writer = open_writer(1);
    assert_int_equal(record_metrics(writer, 2, one_metric("loss", 2), &fault), 0);
    record_writer_close(writer);

    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "attempt-1/records.jsonl", 10, &taken), 3);
    assert_null(taken.lines[1]);
    char identifier[RECORD_IDENTIFIER];
    record_identifier(identifier, "0123456789abcdef0123456789abcdef", 1, 1);
    assert_string_equal(string_at(&taken, 2, "log_id"), identifier);
    forget(&taken);
}

static void test_full_disk_leaves_no_torn_line(void **state)
{
    (void)state;
    make("attempt-1");
    struct record_writer *writer = open_writer(1);
    assert_int_equal(record_event(writer, 1, "before", "", &fault), 0);
    char *path = path_join(root, "attempt-1/records.jsonl");
    int64_t whole = file_size(path);

    // A file size limit stands for the full disk: the next write is cut after ten bytes.
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){(rlim_t)whole + 10, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int status = record_event(writer, 2, "cut", "", &fault);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, -1);
    assert_int_equal(file_size(path), whole);

    assert_int_equal(record_event(writer, 3, "after", "", &fault), 0);
    record_writer_close(writer);
    free(path);
    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "attempt-1/records.jsonl", 10, &taken), 2);
    assert_string_equal(string_at(&taken, 1, "event"), "after");
    forget(&taken);
}

static void test_special_file_is_refused(void **state)
{
    (void)state;
    make("attempt-1");
    char *path = path_join(root, "attempt-1/records.jsonl");
    assert_int_equal(symlink("/dev/null", path), 0);
    free(path);
    assert_null(record_writer_open(root, 1, "p", "n", "id", &fault));
    assert_non_null(strstr(fault.text, "not a regular file"));
}

static void test_too_large_a_record_is_refused(void **state)
{
    (void)state;
    make("attempt-1");
    struct record_writer *writer = open_writer(1);
    char *huge = allocate(RECORD_LINE_MAX + 1, 1);
    memset(huge, 'x', RECORD_LINE_MAX);
    assert_int_equal(record_event(writer, 1, "huge", huge, &fault), -1);
    assert_int_equal(record_event(writer, 1, "small", "fits", &fault), 0);
    record_writer_close(writer);
    free(huge);
    struct record_reader reader = {0};
    struct taken taken = {0};
    assert_int_equal(read_more(&reader, "attempt-1/records.jsonl", 10, &taken), 1);
    assert_string_equal(string_at(&taken, 0, "event"), "small");
    forget(&taken);
}

// ---- witnesses, names ----

static void test_exit_record(void **state)
{
    (void)state;
    struct exit_record record;
    char *path = path_join(root, EXIT_FILE);
    assert_int_equal(exit_record_read(&record, path, &fault), -1);
    put(EXIT_FILE, "{\"v\":1,\"attempt\":1,\"co", "w");
    assert_int_equal(exit_record_read(&record, path, &fault), -1);
    put(EXIT_FILE, "{\"v\":1,\"attempt\":1}", "w");
    assert_int_equal(exit_record_read(&record, path, &fault), -1);
    put(EXIT_FILE, "{\"v\":1,\"attempt\":2,\"code\":137,\"signal\":9,"
        "\"started\":\"2026-11-29T23:25:21.500000+00:00\",\"ended\":1796000000,\"nodes\":[]}\n", "w");
    assert_int_equal(exit_record_read(&record, path, &fault), 0);
    assert_int_equal(record.attempt, 2);
    assert_int_equal(record.code, 137);
    assert_int_equal(record.signal, 9);
    assert_false(record.cancelled);
    assert_true(record.started == 1795994721.5);
    assert_true(record.ended == 1796000000.0);
    put(EXIT_FILE, "{\"v\":1,\"attempt\":1,\"code\":75,\"signal\":null,\"started\":1,\"ended\":2,\"cancelled\":true}", "w");
    assert_int_equal(exit_record_read(&record, path, &fault), 0);
    assert_int_equal(record.signal, 0);
    assert_true(record.cancelled);
    free(path);
}

static void test_heartbeat(void **state)
{
    (void)state;
    char *path = path_join(root, HEARTBEAT_FILE);
    assert_true(isnan(heartbeat_time(path)));
    assert_int_equal(heartbeat_step(path), -1);
    assert_int_equal(heartbeat_write(path, 12, getpid(), &fault), 0);
    assert_true(fabs(clock_wall() - heartbeat_time(path)) < 5);
    assert_int_equal(heartbeat_step(path), 12);
    struct json *beat = js_read_file(path, 1 << 16, &fault);
    assert_int_equal(strlen(js_string_of(js_get(beat, "boot"), "")), 36);
    assert_non_null(strstr(js_string_of(js_get(beat, "pid_namespace"), ""), "pid:["));
    js_free(beat);
    put(HEARTBEAT_FILE, "{\"v\":1,\"time\":1000.5,\"step\":3}", "w");
    assert_true(heartbeat_time(path) == 1000.5);
    put(HEARTBEAT_FILE, "{", "w");
    assert_true(isnan(heartbeat_time(path)));
    free(path);
}

static void set_time(const char *name, time_t seconds)
{
    char *path = run_attempt_file(root, 1, name);
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    free(path);
}

static void assert_nodes(const char *expected)
{
    struct json *nodes = attempt_nodes(root, 1);
    struct text text;
    text_init(&text, 1024);
    js_write(&text, nodes);
    assert_string_equal(text.at, expected);
    text_release(&text);
    js_free(nodes);
}

// Where it ran and when it last beat, by whichever of its files says so.
static void test_attempt(void **state)
{
    (void)state;
    char *directory = run_attempt_directory(root, 1);
    assert_nodes("[]");
    assert_true(isnan(attempt_last_beat(root, 1)));
    assert_int_equal(directory_make(directory, &fault), 0);
    assert_true(fabs(clock_wall() - attempt_last_beat(root, 1)) < 60);
    put("attempt-1/" HEARTBEAT_FILE, "{\"v\":1,\"time\":1000.5,\"step\":3,\"host\":\"n1\"}", "w");
    assert_nodes("[\"n1\"]");
    assert_true(attempt_last_beat(root, 1) == 1000.5);
    put("attempt-1/" BEGIN_FILE, "{\"v\":1,\"host\":\"n1\",\"nodes\":[\"n1\",\"n2\"]}", "w");
    assert_nodes("[\"n1\",\"n2\"]");
    put("attempt-1/" EXIT_FILE, "{\"v\":1,\"nodes\":[\"n3\"]}", "w");
    assert_nodes("[\"n3\"]");
    set_time(HEARTBEAT_FILE, 999);
    set_time(EXIT_FILE, 1000);
    assert_true(isnan(attempt_last_beat(root, 1)));
    set_time(HEARTBEAT_FILE, 1001); // its launcher ended without it
    assert_true(attempt_last_beat(root, 1) == 1000.5);
    free(directory);
}

static void test_names_in_a_run_directory(void **state)
{
    (void)state;
    char *path = run_checkpoint_directory("/r", 120);
    assert_string_equal(path, "/r/checkpoints/step-0000120");
    free(path);
    path = run_attempt_file("/r", 2, RECORDS_FILE);
    assert_string_equal(path, "/r/attempt-2/records.jsonl");
    free(path);

    assert_int_equal(run_last_attempt(root), 0);
    assert_int_equal(run_last_checkpoint(root), -1);
    make("attempt-2");
    make("attempt-10");
    make("attempt-x");
    make("attempt-11.old");
    put("attempt-99", "a file is no attempt", "w");
    assert_int_equal(run_last_attempt(root), 10);
    make("checkpoints/step-0000000");
    make("checkpoints/step-0000120");
    make("checkpoints/step-0000240");
    make("checkpoints/step-0000360.tmp");
    put("checkpoints/step-0000360.tmp/complete.json", "{}", "w");
    assert_int_equal(run_last_checkpoint(root), -1);
    put("checkpoints/step-0000000/complete.json", "{}", "w");
    assert_int_equal(run_last_checkpoint(root), 0);
    put("checkpoints/step-0000120/complete.json", "{}", "w");
    assert_int_equal(run_last_checkpoint(root), 120);
    make("checkpoints/step-360"); // another name than the one by which it would be looked for
    put("checkpoints/step-360/complete.json", "{}", "w");
    assert_int_equal(run_last_checkpoint(root), 120);
    assert_int_equal(run_checkpoint_step("step-0000120"), 120);
    assert_int_equal(run_checkpoint_step("step-12345678"), 12345678);
    assert_int_equal(run_checkpoint_step("step-00000120"), -1);
    assert_int_equal(run_checkpoint_step("step-0000120.damaged"), -1);
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOT(test_torn_line_waits), IN_ROOT(test_malformed_line_stops_nothing), IN_ROOT(test_offsets_resume),
        IN_ROOT(test_line_beyond_the_limit), IN_ROOT(test_identifier_recipe), IN_ROOT(test_lines_are_trackio_fragments),
        IN_ROOT(test_newer_attempt_fences), IN_ROOT(test_reopened_writer_goes_on), IN_ROOT(test_full_disk_leaves_no_torn_line),
        IN_ROOT(test_special_file_is_refused),
        IN_ROOT(test_too_large_a_record_is_refused), IN_ROOT(test_exit_record), IN_ROOT(test_heartbeat), IN_ROOT(test_attempt),
        IN_ROOT(test_names_in_a_run_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
