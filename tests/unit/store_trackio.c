// Trackio's databases as we write them: objects, rows and names; twice changes nothing; two writers, a killed writer, a full disk, a damaged
// file and a deleted project lose nothing. Whether the real Trackio agrees is for tests/peers to say.
#include "daemon/store/sql.h"
#include "daemon/store/trackio.h"
#include "daemon/store/trackio_inside.h"
#include "schema/base/clock.h"
#include "schema/record/record.h"
#include "tests/unit/store_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

#define RUN_ID "0123456789abcdef0123456789abcdef"

static struct trackio *open_here(void **context)
{
    struct error err;
    struct trackio *trackio = NULL;
    assert_fine(trackio_open(&trackio, *context, &err), err);
    return trackio;
}

static struct json *make_line(const char *run_id, int64_t attempt, int64_t sequence)
{
    struct json *line = js_object(), *metrics = js_object();
    char log_id[33], timestamp[CLOCK_TEXT];
    record_identifier(log_id, run_id, attempt, sequence);
    clock_text(timestamp, 1.7e9 + (double)sequence);
    js_set(metrics, "loss", js_real(4.0 / (double)(sequence + 1)));
    js_set(line, "kind", js_string("metric"));
    js_set(line, "v", js_integer(1));
    js_set(line, "project", js_string("p"));
    js_set(line, "run", js_string("moe-1"));
    js_set(line, "run_id", js_string(run_id));
    js_set(line, "metrics", metrics);
    js_set(line, "step", js_integer(sequence + 1));
    js_set(line, "timestamp", js_string(timestamp));
    js_set(line, "config", js_null());
    js_set(line, "log_id", js_string(log_id));
    return line;
}

// Rows number first to first + count - 1 of the run; the answer of trackio_write.
static int write_rows(struct trackio *trackio, const char *project, const char *run_id, int64_t attempt, int first, int count, struct error *err)
{
    struct json **lines = allocate((size_t)count, sizeof *lines);
    for (int i = 0; i < count; i++)
        lines[i] = make_line(run_id, attempt, first + i);
    int status = trackio_write(trackio, project, (const struct json *const *)lines, (size_t)count, err);
    for (int i = 0; i < count; i++)
        js_free(lines[i]);
    free(lines);
    return status;
}

static int64_t ask_number(const char *path, const char *question)
{
    struct sql *sql;
    struct error err;
    int64_t number = -1;
    assert_fine(sql_open(&sql, path, &(struct sql_options){.busy_ms = 5000}, &err), err);
    assert_fine(sql_number(sql, &number, -1, &err, question, ""), err);
    sql_close(sql);
    return number;
}

static char *ask_text(const char *path, const char *question)
{
    struct sql *sql;
    struct error err;
    assert_fine(sql_open(&sql, path, &(struct sql_options){.busy_ms = 5000}, &err), err);
    struct sql_query *query = sql_ask(sql, &err, question, "");
    assert_non_null(query);
    char *text = sql_step(query, &err) > 0 ? string_copy(sql_text(query, 0)) : NULL;
    sql_done(query);
    sql_close(sql);
    return text;
}

// What lies in the folder, apart from SQLite's sidecars.
static int count_files(const char *folder)
{
    DIR *directory = opendir(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.' && !strstr(entry->d_name, "-wal") && !strstr(entry->d_name, "-shm");
    closedir(directory);
    return count;
}

static void test_objects(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    umask(027);
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 5, &err), 0);
    umask(022);
    char *path = in_folder(context, "p.db");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(ask_number(path, "PRAGMA user_version"), 2);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"), 12);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name NOT LIKE 'sqlite_%'"), 23);
    char *mode = ask_text(path, "PRAGMA journal_mode"), *last = ask_text(path, "SELECT name FROM sqlite_master ORDER BY rowid DESC LIMIT 1");
    assert_string_equal(mode, "wal");
    assert_string_equal(last, "idx_run_artifact_links_unique");
    assert_int_equal(count_files(*context), 2); // p.db, p.lock
    trackio_close(trackio);
    free(path);
    free(mode);
    free(last);
}

static void test_rows(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    char *path = in_folder(context, "p.db");
    struct json *config = js_object(), *layers = js_object();
    js_set(layers, "layers", js_integer(4));
    js_set(config, "model", layers);
    assert_fine(trackio_announce(trackio, "p", "moe-1", RUN_ID, config, &err), err);
    assert_fine(trackio_announce(trackio, "p", "moe-1", RUN_ID, config, &err), err);
    for (int twice = 0; twice < 2; twice++)
        assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 20, &err), 0);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics"), 21);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM configs"), 1);
    char *metrics = ask_text(path, "SELECT metrics || ' ' || typeof(metrics) || ' ' || timestamp || ' ' || step FROM metrics WHERE step = 1");
    assert_string_equal(metrics, "{\"loss\":4.0} text 2023-11-14T22:13:20.000000+00:00 1");
    char *text = ask_text(path, "SELECT config FROM configs"), *created = ask_text(path, "SELECT created_at FROM configs");
    char *expected = string_format("{\"model\":{\"layers\":4},\"_Username\":null,\"_Created\":\"%s\",\"_Group\":null}", created);
    assert_string_equal(text, expected);
    free(metrics);
    free(text);
    free(created);
    free(expected);
    js_free(config);
    trackio_close(trackio);
    free(path);
}

static void test_kinds(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    char *path = in_folder(context, "p.db");
    const char *const texts[] = {
        "{\"kind\":\"system_metric\",\"v\":1,\"project\":\"p\",\"run\":\"a\",\"run_id\":\"r\",\"metrics\":{\"cpu/utilization\":5},\"timestamp\":"
        "\"2026-01-02T03:04:05+00:00\",\"log_id\":\"s1\"}",
        "{\"kind\":\"alert\",\"v\":1,\"project\":\"p\",\"run\":\"a\",\"run_id\":\"r\",\"title\":\"loss\",\"text\":\"NaN\",\"level\":\"error\",\"step\":7,"
        "\"timestamp\":\"2026-01-02T03:04:05.000000+00:00\",\"alert_id\":\"a1\"}",
        "{\"kind\":\"metric\",\"project\":\"p\",\"run\":\"a\",\"run_id\":\"r\",\"metrics\":{\"x\":\"NaN\",\"\xC3\xA9t\xC3\xA9\":1e-7},\"step\":null,"
        "\"timestamp\":null,\"log_id\":\"m1\"}",
        "{\"kind\":\"metric\",\"project\":\"p\",\"run\":\"a\",\"run_id\":\"r\",\"metrics\":[1],\"step\":1,\"log_id\":\"m2\"}",
        "{\"kind\":\"expert_load\",\"run_id\":\"r\"}",
        "{\"kind\":\"metric\",\"project\":\"p\",\"run\":\"a\",\"run_id\":\"r\",\"metrics\":{},\"step\":1.5,\"log_id\":\"m3\"}",
        "{\"kind\":\"metric\",\"project\":\"p\",\"run\":\"a\",\"run_id\":\"r\",\"metrics\":{},\"step\":8}",
    };
    enum { COUNT = sizeof texts / sizeof texts[0], GOOD = 3 };
    const struct json *lines[COUNT];
    for (int i = 0; i < COUNT; i++) {
        lines[i] = js_parse(texts[i], strlen(texts[i]), &err);
        assert_non_null(lines[i]);
        assert_int_equal(trackio_check_line(lines[i], &err), i < GOOD ? 0 : -1);
    }
    assert_fine(trackio_write(trackio, "p", lines, COUNT, &err), err);
    for (int i = 0; i < COUNT; i++)
        js_free((struct json *)(uintptr_t)lines[i]);
    char *system = ask_text(path, "SELECT timestamp || metrics FROM system_metrics"), *alert = ask_text(path, "SELECT title || level || step FROM alerts");
    char *metric = ask_text(path, "SELECT metrics || step FROM metrics");
    assert_string_equal(system, "2026-01-02T03:04:05.000000+00:00{\"cpu/utilization\":5}");
    assert_string_equal(alert, "losserror7");
    assert_string_equal(metric, "{\"x\":\"NaN\",\"\xC3\xA9t\xC3\xA9\":1e-07}0");
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics"), 1);
    free(system);
    free(alert);
    free(metric);
    free(path);
    trackio_close(trackio);
}

static void test_names(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    char *name = trackio_canonical("my. Model_2-x!", &err);
    assert_string_equal(name, "myModel_2-x");
    free(name);
    name = trackio_canonical("..", &err);
    assert_string_equal(name, "default");
    free(name);
    assert_null(trackio_canonical("run_system", &err));
    assert_null(trackio_canonical("registry-a", &err));
    assert_null(trackio_canonical("caf\xC3\xA9", &err));
    assert_int_equal(write_rows(trackio, "a_configs", RUN_ID, 1, 0, 1, &err), -1);
    assert_int_equal(write_rows(trackio, "my.proj", RUN_ID, 1, 0, 1, &err), 0);
    char *path = in_folder(context, "myproj.db");
    assert_true(file_exists(path));
    assert_int_equal(count_files(*context), 2);
    assert_fine(trackio_each_row(trackio, "never", RUN_ID, 0, NULL, NULL, &err), err); // reading makes nothing
    assert_int_equal(count_files(*context), 2);
    free(path);
    trackio_close(trackio);
}

struct seen {
    int count;
    int64_t last_id, last_step;
    double last_time;
};

static void see(void *context, int64_t id, int64_t step, double time, const struct json *metrics)
{
    struct seen *seen = context;
    assert_int_equal(js_kind(metrics), JSON_KIND_OBJECT);
    *seen = (struct seen){seen->count + 1, id, step, time};
}

static void count_moved(void *context, int64_t step, const char *timestamp, const char *metrics)
{
    assert_true(step >= 11 && timestamp && metrics[0] == '{');
    ++*(int *)context;
}

static void test_supersede(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 1200, &err), 0);
    assert_int_equal(write_rows(trackio, "p", "another", 1, 0, 20, &err), 0);
    int moved = 0;
    assert_fine(trackio_supersede(trackio, "p", RUN_ID, 11, count_moved, &moved, &err), err);
    assert_int_equal(moved, 1190);
    assert_fine(trackio_supersede(trackio, "p", RUN_ID, 11, count_moved, &moved, &err), err);
    assert_int_equal(moved, 1190);
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 2, 10, 5, &err), 0);
    struct seen seen = {0};
    assert_fine(trackio_each_row(trackio, "p", RUN_ID, 0, see, &seen, &err), err);
    assert_true(seen.count == 15 && seen.last_step == 15 && seen.last_time == 1.7e9 + 14);
    assert_fine(trackio_each_row(trackio, "p", RUN_ID, seen.last_id, see, &seen, &err), err);
    assert_int_equal(seen.count, 15);
    char *path = in_folder(context, "p.db");
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics WHERE run_id = 'another'"), 20);
    free(path);
    trackio_close(trackio);
}

// Trackio's delete_project and rename_run, done under an open connection.
static void test_changed_under_us(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    char *path = in_folder(context, "p.db"), *log = in_folder(context, "p.db-wal"), *memory = in_folder(context, "p.db-shm");
    struct sql *sql;
    assert_fine(trackio_announce(trackio, "p", "moe-1", RUN_ID, NULL, &err), err);
    assert_fine(sql_open(&sql, path, &(struct sql_options){.busy_ms = 1000}, &err), err);
    assert_fine(sql_script(sql, "UPDATE configs SET run_name = 'better'; UPDATE metrics SET run_name = 'better'", &err), err);
    sql_close(sql);
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 3, &err), 0);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics WHERE run_name = 'better'"), 4);
    unlink(path);
    unlink(log);
    unlink(memory);
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 3, 3, &err), 0);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics"), 3);
    assert_int_equal(ask_number(path, "PRAGMA user_version"), 2);
    trackio_close(trackio);
    free(path);
    free(log);
    free(memory);
}

static void test_lock(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    char *lock = in_folder(context, "p.lock"), *path = in_folder(context, "p.db");
    int fd = open(lock, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    double begun = clock_steady();
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 3, &err), 1);
    assert_true(clock_steady() - begun < 3);
    assert_false(file_exists(path));
    close(fd);
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 3, &err), 0);
    assert_true(file_exists(lock));
    trackio_close(trackio);
    free(lock);
    free(path);
}

// Held for 60 ms, the lock is not taken again for as long.
static void test_gap(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    struct project *project = trackio_project(trackio, "p", &err);
    assert_non_null(project);
    assert_int_equal(project_lock(project, &err), 0);
    usleep(60000);
    project_unlock(project);
    double begun = clock_steady();
    assert_int_equal(project_lock(project, &err), 0);
    assert_true(clock_steady() - begun > 0.055);
    project_unlock(project);
    trackio_close(trackio);
}

// While a large batch is written, another program asks for the lock as Trackio does, but more often, and notes how long it ever waited.
static void test_gaps(void **context)
{
    char *lock = in_folder(context, "p.lock"), *path = in_folder(context, "p.db");
    enum { ROWS = 40000 };
    pid_t child = fork();
    if (child == 0) {
        struct trackio *trackio = NULL;
        struct error err;
        int status = trackio_open(&trackio, *context, &err);
        if (status == 0)
            status = write_rows(trackio, "p", RUN_ID, 1, 0, ROWS, &err);
        trackio_close(trackio);
        _exit(status == 0 ? 0 : 1);
    }
    double longest = 0, free_since = clock_steady();
    int taken = 0, tries = 0, status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        int fd = open(lock, O_RDWR | O_CREAT, 0644);
        tries++;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            double waited = clock_steady() - free_since;
            longest = waited > longest ? waited : longest;
            taken++;
            flock(fd, LOCK_UN);
            free_since = clock_steady();
        }
        close(fd);
        usleep(2000);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("%d rows: the lock was free %d times of %d, held for at most %.0f ms\n", ROWS, taken, tries, longest * 1e3);
    assert_true(taken > 5 && longest < 1.0);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics"), ROWS);
    free(lock);
    free(path);
}

static void write_for_ever(void *context)
{
    struct trackio *trackio = NULL;
    if (trackio_open(&trackio, context, NULL) != 0)
        return;
    for (int i = 0;; i += 10)
        if (write_rows(trackio, "p", RUN_ID, 1, i, 10, NULL) < 0)
            return;
}

static void test_killed(void **context)
{
    char *path = in_folder(context, "p.db");
    int64_t last = 0;
    for (int round = 0; round < 8 || (last == 0 && round < 60); round++) { // a busy machine may take long to begin
        run_and_kill(write_for_ever, *context, 3000 + round * 17000);
        if (!file_exists(path))
            continue;
        char *check = ask_text(path, "PRAGMA integrity_check");
        assert_string_equal(check, "ok");
        free(check);
        assert_int_equal(ask_number(path, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'idx_%'"), 23);
        int64_t rows = ask_number(path, "SELECT count(*) FROM metrics");
        assert_true(rows % 10 == 0 && rows >= last); // batches are whole or absent
        last = rows;
    }
    assert_true(last > 0);
    struct trackio *trackio = open_here(context);
    struct error err;
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, (int)last + 5, &err), 0);
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics"), last + 5);
    trackio_close(trackio);
    free(path);
}

// Killed while the database is made, again and again: whatever lies there under a name ending in .db is whole, for one that is not keeps
// Trackio's server from starting.
static void test_killed_while_made(void **context)
{
    int whole = 0, round = 0;
    for (; round < 40 || (whole == 0 && round < 200); round++) {
        char *name = string_format("%d", round), *folder = in_folder(context, name);
        assert_int_equal(mkdir(folder, 0755), 0);
        run_and_kill(write_for_ever, folder, 1000 + round * 2500);
        DIR *directory = opendir(folder);
        for (struct dirent *entry; (entry = readdir(directory));) {
            size_t length = strlen(entry->d_name);
            if (length < 3 || strcmp(entry->d_name + length - 3, ".db") != 0)
                continue;
            char *path = path_join(folder, entry->d_name);
            assert_string_equal(entry->d_name, "p.db");
            assert_int_equal(ask_number(path, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'idx_%'"), 23);
            assert_int_equal(ask_number(path, "PRAGMA user_version"), 2);
            free(path);
            whole++;
        }
        closedir(directory);
        free(name);
        free(folder);
    }
    printf("killed %d times in its first moments: %d databases, all whole\n", round, whole);
    assert_true(whole > 0);
}

static void test_two_writers(void **context)
{
    enum { WRITERS = 2, BATCHES = 30, ROWS = 20 };
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] != 0)
            continue;
        struct trackio *trackio = NULL;
        struct error err = {0};
        char run_id[33];
        snprintf(run_id, sizeof run_id, "%032d", w);
        int status = trackio_open(&trackio, *context, &err);
        while (status == 0 && (status = trackio_announce(trackio, "p", "moe-1", run_id, NULL, &err)) == 1)
            status = 0;
        for (int b = 0; b < BATCHES && status == 0; b++)
            while ((status = write_rows(trackio, "p", run_id, 1, b * ROWS, ROWS, &err)) == 1)
                continue;
        if (status != 0)
            fprintf(stderr, "%s\n", err.text);
        trackio_close(trackio);
        _exit(status == 0 ? 0 : 1);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(children[w], &status, 0), children[w]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char *path = in_folder(context, "p.db");
    assert_int_equal(ask_number(path, "SELECT count(*) FROM metrics"), WRITERS * (BATCHES * ROWS + 1));
    assert_int_equal(ask_number(path, "SELECT count(*) FROM configs"), WRITERS);
    free(path);
}

static void test_damaged(void **context)
{
    struct trackio *trackio = open_here(context);
    struct error err;
    char *path = in_folder(context, "p.db"), *old = in_folder(context, "old.db"), *empty = in_folder(context, "empty.db");
    char *prose = allocate(9000, 1);
    memset(prose, 'x', 8999);
    assert_fine(file_write_atomic(path, prose, 8999, 0644, &err), err);
    assert_int_equal(write_rows(trackio, "p", RUN_ID, 1, 0, 3, &err), -1);
    assert_non_null(strstr(err.text, "p.db: not an SQLite database"));
    assert_int_equal(file_size(path), 8999);
    assert_int_equal(write_rows(trackio, "good", RUN_ID, 1, 0, 3, &err), 0); // the others go on
    assert_fine(file_write_atomic(empty, "", 0, 0644, &err), err);           // Trackio fills such a file in, and so do we
    assert_int_equal(write_rows(trackio, "empty", RUN_ID, 1, 0, 3, &err), 0);
    assert_int_equal(ask_number(empty, "PRAGMA user_version"), 2);
    struct sql *sql;
    assert_fine(sql_open(&sql, old, &(struct sql_options){.create = true}, &err), err);
    assert_fine(sql_script(sql, "CREATE TABLE metrics(id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)", &err), err);
    sql_close(sql);
    assert_int_equal(write_rows(trackio, "old", RUN_ID, 1, 0, 3, &err), -1);
    assert_non_null(strstr(err.text, "old Trackio"));
    trackio_close(trackio);
    free(prose);
    free(path);
    free(old);
    free(empty);
}

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return __LINE__; \
    } while (0)

static int fill_disk(const char *folder)
{
    struct error err = {0};
    struct trackio *trackio = NULL;
    CHECK(trackio_open(&trackio, folder, &err) == 0);
    int stored = 0, status = 0;
    while (stored < 100000 && (status = write_rows(trackio, "p", RUN_ID, 1, stored, 50, &err)) == 0)
        stored += 50;
    CHECK(status == -1 && stored > 0 && strstr(err.text, "disk is full"));
    CHECK(write_rows(trackio, "another", RUN_ID, 1, 0, 1, &err) == -1); // no room for a new one: none is left behind half made
    trackio_close(trackio);
    char *path = path_join(folder, "p.db"), *another = path_join(folder, "another.db");
    CHECK(!file_exists(another));
    CHECK(ask_number(path, "SELECT count(*) FROM metrics") == stored);
    free(path);
    free(another);
    return 0;
}

static void test_full_disk(void **context)
{
    if (!run_on_mount(fill_disk, *context, 768))
        skip();
}

static int open_read_only(const char *folder)
{
    struct error err = {0};
    struct trackio *trackio = NULL;
    CHECK(trackio_open(&trackio, folder, &err) == -1);
    CHECK(strstr(err.text, "TRACKIO_DIR") && strstr(err.text, "Read-only"));
    return 0;
}

static void test_read_only(void **context)
{
    if (!run_on_mount(open_read_only, *context, 0))
        skip();
}

static void test_directory(void **context)
{
    (void)context;
    setenv("HOME", "/home/someone", 1);
    unsetenv("TRACKIO_DIR");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    char *directory = trackio_directory();
    assert_string_equal(directory, "/home/someone/.cache/huggingface/trackio");
    free(directory);
    setenv("XDG_CACHE_HOME", "/cache", 1);
    directory = trackio_directory();
    assert_string_equal(directory, "/cache/huggingface/trackio");
    free(directory);
    setenv("TRACKIO_DIR", "/data/tracks", 1);
    directory = trackio_directory();
    assert_string_equal(directory, "/data/tracks");
    free(directory);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_objects), IN_FOLDER(test_rows), IN_FOLDER(test_kinds), IN_FOLDER(test_names), IN_FOLDER(test_supersede),
        IN_FOLDER(test_changed_under_us), IN_FOLDER(test_lock), IN_FOLDER(test_gap), IN_FOLDER(test_gaps), IN_FOLDER(test_killed), IN_FOLDER(test_killed_while_made), IN_FOLDER(test_two_writers),
        IN_FOLDER(test_damaged), IN_FOLDER(test_full_disk), IN_FOLDER(test_read_only), cmocka_unit_test(test_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
