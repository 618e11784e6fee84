// Curves: points in order of step whatever order they come in, envelopes that hide no spike, and a million points in a moment.
#include "daemon/store/series.h"
#include "schema/base/clock.h"
#include "tests/unit/store_support.h"

#include <math.h>

static void add(struct series *series, const char *run, int64_t step, const char *metric, double value)
{
    struct json *metrics = js_object();
    js_set(metrics, metric, js_real(value));
    series_add(series, run, step, (double)step + 0.5, metrics);
    js_free(metrics);
}

static int64_t integer_at(const struct json *curve, const char *list, size_t index)
{
    return js_integer_of(js_at(js_get(curve, list), index), -1);
}

static double real_at(const struct json *curve, const char *list, size_t index)
{
    return js_real_of(js_at(js_get(curve, list), index), -12345);
}

static struct json *read_one(struct series *series, const char *run, const char *metric, int64_t after, int64_t points)
{
    struct json *all = series_read(series, run, &metric, 1, after, points), *curve = js_keep(js_get(all, metric));
    js_free(all);
    return curve;
}

static bool may_forget(void *context, const char *run_id)
{
    return strcmp(run_id, context) != 0;
}

// A curve that nobody has looked at is forgotten, but for those that are held, never were, or that somebody has something against.
static void test_unseen(void **context)
{
    (void)context;
    struct series *series = series_new();
    static const char *const runs[] = {"alive", "never", "old", "older", "started", "young"};
    for (size_t i = 0; i < 6; i++)
        add(series, runs[i], 1, "loss", (double)i);
    series_hold(series, "old", 10);
    series_hold(series, "older", 5);
    series_hold(series, "started", 5);
    series_hold(series, "young", 30);
    series_hold(series, "alive", 5);
    series_hold(series, "alive", INFINITY);
    series_hold(series, "nobody", 5);
    series_forget_unseen(series, 20, may_forget, (char *)(uintptr_t)"started");
    assert_true(!series_has(series, "old") && !series_has(series, "older") && !series_has(series, "nobody"));
    assert_true(series_has(series, "alive") && series_has(series, "never") && series_has(series, "started") && series_has(series, "young"));
    series_forget_unseen(series, 40, may_forget, (char *)(uintptr_t)"");
    assert_true(series_has(series, "started") && !series_has(series, "young") && series_last_value(series, "alive", "loss", -1) == 0);
    series_free(series);
}

static void test_order(void **context)
{
    (void)context;
    struct series *series = series_new();
    static const int64_t steps[] = {3, 1, 2, 10, 2, 5, 1};
    for (size_t i = 0; i < 7; i++)
        add(series, "a", steps[i], "loss", (double)i);
    struct json *curve = read_one(series, "a", "loss", 0, 100);
    static const double expected[] = {6, 4, 0, 5, 3}; // the later of equal steps
    assert_int_equal(js_get(curve, "total") ? js_integer_of(js_get(curve, "total"), 0) : -1, 5);
    assert_null(js_get(curve, "min"));
    for (size_t i = 0; i < 5; i++)
        assert_true(real_at(curve, "value", i) == expected[i]);
    assert_int_equal(integer_at(curve, "step", 4), 10);
    assert_true(real_at(curve, "time", 4) == 10.5);
    js_free(curve);
    curve = read_one(series, "a", "loss", 3, 100);
    assert_int_equal(js_count(js_get(curve, "step")), 2);
    js_free(curve);
    add(series, "a", 4, "only_here", 1);
    assert_true(series_last_value(series, "a", "loss", -1) == 3 && series_last_value(series, "a", "no", -1) == -1);
    assert_int_equal(series_last_step(series, "a"), 10);
    series_forget_from(series, "a", 5);
    assert_int_equal(series_last_step(series, "a"), 4);
    struct json *names = series_names(series, "a");
    assert_int_equal(js_count(names), 2);
    js_free(names);
    assert_true(series_has(series, "a") && !series_has(series, "b") && series_last_step(series, "b") == 0);
    series_forget(series, "a");
    assert_false(series_has(series, "a"));
    struct json *nothing = series_read(series, "a", NULL, 0, 0, 10);
    assert_int_equal(js_count(nothing), 0);
    js_free(nothing);
    series_free(series);
}

static void test_kinds(void **context)
{
    (void)context;
    struct series *series = series_new();
    struct error err;
    const char *text = "{\"a\":1,\"b\":2.5,\"c\":\"NaN\",\"d\":\"-Infinity\",\"e\":\"words\",\"f\":null,\"g\":true,\"h\":{\"x\":1}}";
    struct json *metrics = js_parse(text, strlen(text), &err);
    series_add(series, "r", 1, 0, metrics);
    js_free(metrics);
    metrics = js_object();
    series_add(series, "r", 9, 0, metrics); // no metrics: still the last step
    js_free(metrics);
    struct json *last = series_last(series, "r");
    assert_int_equal(js_count(last), 4);
    assert_string_equal(js_string_of(js_get(last, "d"), ""), "-Infinity");
    assert_int_equal(series_last_step(series, "r"), 9);
    js_free(last);
    struct json *curve = read_one(series, "r", "c", 0, 10);
    assert_string_equal(js_string_of(js_at(js_get(curve, "value"), 0), ""), "NaN");
    js_free(curve);
    series_free(series);
}

// Every bucket against a plain walk over all points.
static void test_envelope(void **context)
{
    (void)context;
    enum { COUNT = 10007, POINTS = 100 };
    struct series *series = series_new();
    static double values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = i == 5000 ? 1e6 : i == 7777 ? NAN : sin(i * 0.37) * i;
        add(series, "r", 2 * i + 1, "x", values[i]);
    }
    struct json *curve = read_one(series, "r", "x", 0, POINTS);
    size_t buckets = js_count(js_get(curve, "step"));
    assert_true(buckets <= POINTS && buckets > POINTS / 2 - 1);
    assert_int_equal(integer_at(curve, "total", 0), -1);
    assert_int_equal(js_integer_of(js_get(curve, "total"), 0), COUNT);
    size_t at = 0;
    bool spike = false;
    for (size_t b = 0; b < buckets; b++) {
        double least = INFINITY, greatest = -INFINITY;
        int64_t last_step = integer_at(curve, "step", b);
        size_t first = at;
        for (; at < COUNT && (int64_t)(2 * at + 1) <= last_step; at++)
            if (!isnan(values[at])) {
                least = fmin(least, values[at]);
                greatest = fmax(greatest, values[at]);
            }
        assert_true(at > first);
        assert_true(real_at(curve, "min", b) == least && real_at(curve, "max", b) == greatest);
        assert_true(real_at(curve, "value", b) == values[at - 1]);
        spike |= greatest == 1e6;
    }
    assert_true(at == COUNT && spike);
    js_free(curve);
    curve = read_one(series, "r", "x", 2 * (COUNT - 100) + 0, POINTS); // few enough: exact
    assert_int_equal(js_count(js_get(curve, "value")), 100);
    assert_null(js_get(curve, "max"));
    js_free(curve);
    series_free(series);
}

static void test_million(void **context)
{
    (void)context;
    struct series *series = series_new();
    for (int i = 1; i <= 1000000; i++)
        add(series, "r", i, "loss", 1.0 / i);
    double begun = clock_steady();
    struct json *curve = read_one(series, "r", "loss", 0, 2000);
    double seconds = clock_steady() - begun;
    assert_true(js_count(js_get(curve, "value")) <= 2000 && js_count(js_get(curve, "value")) >= 900);
    assert_int_equal(integer_at(curve, "step", js_count(js_get(curve, "step")) - 1), 1000000);
    js_free(curve);
    printf("a million points read as 2000: %.1f ms\n", seconds * 1e3);
    assert_true(seconds < 0.2);
    series_free(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unseen),
        cmocka_unit_test(test_order), cmocka_unit_test(test_kinds), cmocka_unit_test(test_envelope), cmocka_unit_test(test_million),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
