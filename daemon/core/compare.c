// Two runs side by side: final values at the last step that both have, what differs in their configuration, what was predicted and what
// was measured, and whether they saw the same data.
#include "daemon/core/core.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_MAX = 100000, RECENT_STEPS = 2000, PACE_STEPS = 100 }; // each look at a list asks for the pace of all that run

// ---- metrics ----

// The last step that both columns have, searched from the end; false if there is none.
static bool last_common(const struct json *a, const struct json *b, double values[2], int64_t *step)
{
    const struct json *steps_a = js_get(a, "step"), *steps_b = js_get(b, "step");
    size_t i = js_count(steps_a), j = js_count(steps_b);
    while (i > 0 && j > 0) {
        int64_t one = js_integer_of(js_at(steps_a, i - 1), -1), two = js_integer_of(js_at(steps_b, j - 1), -2);
        if (one == two) {
            values[0] = js_real_of(js_at(js_get(a, "value"), i - 1), NAN);
            values[1] = js_real_of(js_at(js_get(b, "value"), j - 1), NAN);
            *step = one;
            return true;
        }
        if (one > two)
            i--;
        else
            j--;
    }
    return false;
}

static bool common_value(struct daemon *daemon, const struct run_row rows[2], const char *name, int64_t step, double values[2], int64_t *at)
{
    bool found = false;
    for (int64_t back = RECENT_STEPS; !found; back = step + 1) { // mostly near the end; else from the beginning
        int64_t after = step - back > -1 ? step - back : -1;
        struct json *a = series_read(daemon->series, rows[0].run_id, &name, 1, after, INT64_MAX);
        struct json *b = series_read(daemon->series, rows[1].run_id, &name, 1, after, INT64_MAX);
        found = last_common(js_get(a, name), js_get(b, name), values, at);
        js_free(a);
        js_free(b);
        if (after == -1)
            break;
    }
    return found;
}

// How fast a step is differs from one to the next by what else the machine does: one step says little, the median of many more.
static bool is_speed(const char *name)
{
    static const char *const names[] = {"step_time_ms", "tokens_per_second", "tflops"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// The finite values of the last `back` steps, and how many they are. free()
static double *recent_values(struct daemon *daemon, const struct run_row *row, const char *name, int64_t last, int64_t back, size_t *count)
{
    int64_t after = last > back ? last - back : -1;
    struct json *columns = series_read(daemon->series, row->run_id, &name, 1, after, INT64_MAX);
    const struct json *steps = js_get(js_get(columns, name), "step"), *all = js_get(js_get(columns, name), "value");
    double *values = allocate(js_count(all), sizeof *values);
    *count = 0;
    for (size_t i = 0; i < js_count(all); i++) {
        double value = js_real_of(js_at(all, i), NAN);
        if (isfinite(value) && js_integer_of(js_at(steps, i), INT64_MAX) <= last)
            values[(*count)++] = value;
    }
    js_free(columns);
    return values;
}

double recent_pace(struct daemon *daemon, const struct run_row *row, int64_t last)
{
    size_t count;
    double *values = recent_values(daemon, row, "step_time_ms", last, PACE_STEPS, &count), sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    free(values);
    return count ? sum / (double)count : NAN;
}

double recent_median(struct daemon *daemon, const struct run_row *row, const char *name, int64_t last, double fallback)
{
    size_t count;
    double *values = recent_values(daemon, row, name, last, RECENT_STEPS, &count);
    qsort(values, count, sizeof *values, by_value);
    double median = count ? (values[(count - 1) / 2] + values[count / 2]) / 2 : fallback;
    free(values);
    return median;
}

static bool has_name(const struct json *names, const char *name)
{
    for (size_t i = 0; i < js_count(names); i++)
        if (strcmp(js_string_of(js_at(names, i), ""), name) == 0)
            return true;
    return false;
}

static struct json *compare_metrics(struct daemon *daemon, const struct run_row rows[2], int64_t step)
{
    struct json *metrics = js_object();
    struct json *names = series_names(daemon->series, rows[0].run_id), *others = series_names(daemon->series, rows[1].run_id);
    for (size_t i = 0; i < js_count(names); i++) {
        const char *name = js_string_of(js_at(names, i), "");
        double values[2];
        int64_t at;
        if (!has_name(others, name) || !common_value(daemon, rows, name, step, values, &at))
            continue;
        for (int side = 0; side < 2 && is_speed(name); side++)
            values[side] = recent_median(daemon, &rows[side], name, at, values[side]);
        struct json *pair = js_object();
        js_set(pair, "a", js_real(values[0]));
        js_set(pair, "b", js_real(values[1]));
        js_set(pair, "difference", js_real(values[1] - values[0]));
        js_set(pair, "step", js_integer(at));
        js_set(pair, "median", js_boolean(is_speed(name)));
        js_set(metrics, name, pair);
    }
    js_free(names);
    js_free(others);
    return metrics;
}

// ---- configuration ----

static void add_difference(struct json *list, const char *key, const struct json *a, const struct json *b)
{
    struct json *difference = js_object();
    js_set(difference, "key", js_string(key));
    js_set(difference, "a", a ? js_keep(a) : js_null());
    js_set(difference, "b", b ? js_keep(b) : js_null());
    js_append(list, difference);
}

static void walk(struct json *list, const char *path, const struct json *a, const struct json *b);

static void walk_key(struct json *list, const char *path, const char *key, const struct json *a, const struct json *b)
{
    char *full = string_format("%s%s%s", path, *path ? "." : "", key);
    walk(list, full, a, b);
    free(full);
}

// Objects are walked key by key, the second's own keys last; everything else is compared whole.
static void walk(struct json *list, const char *path, const struct json *a, const struct json *b)
{
    bool objects = (js_kind(a) == JSON_KIND_OBJECT || js_kind(a) == JSON_KIND_NULL) &&
                   (js_kind(b) == JSON_KIND_OBJECT || js_kind(b) == JSON_KIND_NULL) &&
                   (js_kind(a) == JSON_KIND_OBJECT || js_kind(b) == JSON_KIND_OBJECT);
    if (!objects) {
        if (js_kind(a) != js_kind(b) || (js_kind(a) != JSON_KIND_NULL && !js_equal(a, b)))
            add_difference(list, path, a, b);
        return;
    }
    for (void *i = js_kind(a) == JSON_KIND_OBJECT ? js_first(a) : NULL; i; i = js_next(a, i))
        walk_key(list, path, js_key(i), js_value(i), js_get(b, js_key(i)));
    for (void *i = js_kind(b) == JSON_KIND_OBJECT ? js_first(b) : NULL; i; i = js_next(b, i))
        if (!js_get(a, js_key(i)))
            walk_key(list, path, js_key(i), NULL, js_value(i));
}

// What they are called and what was asked of them is no configuration.
static struct json *compare_configuration(const struct run_row rows[2])
{
    struct json *list = js_array(), *specs[2] = {js_copy(rows[0].spec), js_copy(rows[1].spec)};
    for (size_t i = 0; i < 2; i++) {
        js_remove(specs[i], "name");
        js_remove(specs[i], "question");
    }
    walk(list, "", specs[0], specs[1]);
    js_free(specs[0]);
    js_free(specs[1]);
    return list;
}

// ---- predicted and measured ----

static struct json *keep_or_null(const struct json *value)
{
    return value ? js_keep(value) : js_null();
}

static struct json *compare_predictions(struct daemon *daemon, const struct run_row rows[2])
{
    struct json *list = js_array(), *a = run_predicted(daemon, &rows[0]), *b = run_predicted(daemon, &rows[1]);
    for (size_t i = 0; i < js_count(a); i++) {
        const struct json *one = js_at(a, i), *two = js_at(b, i);
        if (js_kind(js_get(one, "predicted")) == JSON_KIND_NULL && js_kind(js_get(two, "predicted")) == JSON_KIND_NULL)
            continue;
        struct json *line = js_object();
        js_set(line, "name", keep_or_null(js_get(one, "name")));
        js_set(line, "a", keep_or_null(js_get(one, "predicted")));
        js_set(line, "b", keep_or_null(js_get(two, "predicted")));
        js_set(line, "measured_a", keep_or_null(js_get(one, "measured")));
        js_set(line, "measured_b", keep_or_null(js_get(two, "measured")));
        js_set(line, "unit", keep_or_null(js_get(one, "unit")));
        js_append(list, line);
    }
    js_free(a);
    js_free(b);
    return list;
}

// ---- data and facts ----

static const char *sample_hash(const struct json *note)
{
    return js_string_of(js_get(js_get(note, "body"), "samples_sha256"), "");
}

// Hashes of the samples of the steps that both have; null where there is no such step. A resumed attempt's later note counts.
static struct json *compare_data(struct daemon *daemon, const struct run_row rows[2])
{
    struct json *a = state_notes(daemon->state, rows[0].id, "data", -1, NOTES_MAX, NULL);
    struct json *b = state_notes(daemon->state, rows[1].id, "data", -1, NOTES_MAX, NULL);
    bool same = true, any = false;
    for (size_t i = 0, j = 0; i < js_count(a) && j < js_count(b);) {
        int64_t one = js_integer_of(js_get(js_at(a, i), "step"), 0), two = js_integer_of(js_get(js_at(b, j), "step"), 0);
        if (one == two) {
            any = true;
            same &= strcmp(sample_hash(js_at(a, i)), sample_hash(js_at(b, j))) == 0;
        }
        i += one <= two;
        j += two <= one;
    }
    js_free(a);
    js_free(b);
    return any ? js_boolean(same) : js_null();
}

static void add_fact(struct json *facts, const char *name, const struct json *a, const struct json *b)
{
    struct json *fact = js_object();
    bool known = js_kind(a) != JSON_KIND_NULL || js_kind(b) != JSON_KIND_NULL;
    js_set(fact, "same", known ? js_boolean(a && b && js_equal(a, b)) : js_null());
    js_set(fact, "a", keep_or_null(a));
    js_set(fact, "b", keep_or_null(b));
    js_set(facts, name, fact);
}

static struct json *compare_facts(const struct run_row rows[2])
{
    static const char *const names[] = {"code", "image", "data"};
    struct json *facts = js_object();
    for (size_t i = 0; i < 3; i++)
        add_fact(facts, names[i], js_get(rows[0].provenance, names[i]), js_get(rows[1].provenance, names[i]));
    return facts;
}

// Under the lock. A training run and the making of its data have nothing in common: a table of them would be all differences.
static void compare(struct daemon *daemon, const struct run_row rows[2], struct answer *answer)
{
    if (strcmp(rows[0].kind, rows[1].kind) != 0) {
        answer_fail(answer, 400, "%s is a run of kind %s and %s one of kind %s: there is nothing to compare", rows[0].name, rows[0].kind,
            rows[1].name, rows[1].kind);
        return;
    }
    struct json *body = js_object();
    series_need(daemon, &rows[0]);
    series_need(daemon, &rows[1]);
    js_set(body, "a", run_summary(daemon, &rows[0]));
    js_set(body, "b", run_summary(daemon, &rows[1]));
    int64_t last_a = series_last_step(daemon->series, rows[0].run_id), last_b = series_last_step(daemon->series, rows[1].run_id);
    int64_t step = last_a < last_b ? last_a : last_b;
    js_set(body, "step", js_integer(step));
    js_set(body, "metrics", compare_metrics(daemon, rows, step));
    js_set(body, "configuration", compare_configuration(rows));
    js_set(body, "predicted", compare_predictions(daemon, rows));
    js_set(body, "same_data", compare_data(daemon, rows));
    js_set(body, "facts", compare_facts(rows));
    answer->body = body;
    answer->status = 200;
}

void daemon_compare(struct daemon *daemon, const char *a, const char *b, struct answer *answer)
{
    struct run_row rows[2];
    pthread_mutex_lock(&daemon->lock);
    if (answer_run(daemon, a, &rows[0], answer) == 0) {
        if (answer_run(daemon, b, &rows[1], answer) == 0) {
            compare(daemon, rows, answer);
            run_row_release(&rows[1]);
        }
        run_row_release(&rows[0]);
    }
    pthread_mutex_unlock(&daemon->lock);
}
