// Curves in memory: a table of runs, each a table of columns, both sorted by name; a column is three arrays in order of step.
#include "daemon/store/series.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct column {
    char *name;
    int64_t *step;
    double *time, *value;
    size_t count, capacity;
};

struct run {
    char *name;         // run_id
    int64_t last_step;  // highest of any row, one without metrics too
    double unseen;      // since when nobody looks at it, steady seconds; 0: it is held for ever
    void **columns;     // of struct column
    size_t count, capacity;
};

struct series {
    void **runs;        // of struct run
    size_t count, capacity;
};

// ---- sorted tables: each entry is a struct whose first member is its name ----

static const char *name_of(void *entry)
{
    return *(char **)entry;
}

// Index of name, or of the place where it belongs.
static size_t find_place(void **table, size_t count, const char *name, bool *found)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name_of(table[middle]), name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

static void *find(void **table, size_t count, const char *name)
{
    bool found;
    size_t place = find_place(table, count, name, &found);
    return found ? table[place] : NULL;
}

// The entry of that name, made of so many bytes if it is new.
static void *find_or_add(void ***table, size_t *count, size_t *capacity, const char *name, size_t bytes)
{
    bool found;
    size_t place = find_place(*table, *count, name, &found);
    if (found)
        return (*table)[place];
    if (*count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 8;
        *table = reallocate(*table, *capacity, sizeof **table);
    }
    memmove(*table + place + 1, *table + place, (*count - place) * sizeof **table);
    ++*count;
    void *entry = allocate(1, bytes);
    *(char **)entry = string_copy(name);
    return (*table)[place] = entry;
}

static struct run *find_run(const struct series *series, const char *run_id)
{
    return find(series->runs, series->count, run_id);
}

static struct column *find_column(const struct run *run, const char *name)
{
    return run ? find(run->columns, run->count, name) : NULL;
}

// ---- life ----

struct series *series_new(void)
{
    return allocate(1, sizeof(struct series));
}

static void free_run(struct run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        struct column *column = run->columns[i];
        free(column->name);
        free(column->step);
        free(column->time);
        free(column->value);
        free(column);
    }
    free(run->columns);
    free(run->name);
    free(run);
}

void series_free(struct series *series)
{
    if (!series)
        return;
    for (size_t i = 0; i < series->count; i++)
        free_run(series->runs[i]);
    free(series->runs);
    free(series);
}

void series_forget(struct series *series, const char *run_id)
{
    bool found;
    size_t place = find_place(series->runs, series->count, run_id, &found);
    if (!found)
        return;
    free_run(series->runs[place]);
    series->count--;
    memmove(series->runs + place, series->runs + place + 1, (series->count - place) * sizeof *series->runs);
}

void series_hold(struct series *series, const char *run_id, double seen)
{
    struct run *run = find_run(series, run_id);
    if (run)
        run->unseen = isfinite(seen) ? seen : 0;
}

void series_forget_unseen(struct series *series, double before, bool (*may)(void *context, const char *run_id), void *context)
{
    size_t kept = 0;
    for (size_t i = 0; i < series->count; i++) {
        struct run *run = series->runs[i];
        if (run->unseen > 0 && run->unseen < before && may(context, run->name)) {
            free_run(run);
            continue;
        }
        if (run->unseen > 0 && run->unseen < before)
            run->unseen = 0;
        series->runs[kept++] = run;
    }
    series->count = kept;
}

// ---- columns ----

// Index of the first point whose step is at least this one.
static size_t first_from(const struct column *column, int64_t step)
{
    size_t low = 0, high = column->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (column->step[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void make_room(struct column *column, size_t place)
{
    if (column->count == column->capacity) {
        column->capacity = column->capacity ? column->capacity * 2 : 64;
        column->step = reallocate(column->step, column->capacity, sizeof *column->step);
        column->time = reallocate(column->time, column->capacity, sizeof *column->time);
        column->value = reallocate(column->value, column->capacity, sizeof *column->value);
    }
    size_t after = column->count - place;
    memmove(column->step + place + 1, column->step + place, after * sizeof *column->step);
    memmove(column->time + place + 1, column->time + place, after * sizeof *column->time);
    memmove(column->value + place + 1, column->value + place, after * sizeof *column->value);
    column->count++;
}

static void add_point(struct column *column, int64_t step, double time, double value)
{
    size_t place = column->count;
    if (place && column->step[place - 1] >= step)
        place = first_from(column, step);
    if (place == column->count || column->step[place] != step)
        make_room(column, place);
    column->step[place] = step;
    column->time[place] = time;
    column->value[place] = value;
}

// Numbers and Trackio's three strings; anything else is not for a curve.
static bool number_of(const struct json *value, double *number)
{
    const char *text = js_string_of(value, NULL);
    bool numeric = js_kind(value) == JSON_KIND_INTEGER || js_kind(value) == JSON_KIND_REAL;
    if (!numeric && !(text && (strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0)))
        return false;
    *number = js_real_of(value, NAN);
    return true;
}

void series_add(struct series *series, const char *run_id, int64_t step, double time, const struct json *metrics)
{
    struct run *run = find_or_add(&series->runs, &series->count, &series->capacity, run_id, sizeof *run);
    if (step > run->last_step)
        run->last_step = step;
    for (void *item = js_first(metrics); item; item = js_next(metrics, item)) {
        double number;
        if (number_of(js_value(item), &number))
            add_point(find_or_add(&run->columns, &run->count, &run->capacity, js_key(item), sizeof(struct column)), step, time, number);
    }
}

void series_forget_from(struct series *series, const char *run_id, int64_t first_step)
{
    struct run *run = find_run(series, run_id);
    if (!run)
        return;
    run->last_step = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct column *column = run->columns[i];
        column->count = first_from(column, first_step);
        if (column->count && column->step[column->count - 1] > run->last_step)
            run->last_step = column->step[column->count - 1];
    }
}

// ---- questions ----

bool series_has(const struct series *series, const char *run_id)
{
    return find_run(series, run_id) != NULL;
}

struct json *series_last(const struct series *series, const char *run_id)
{
    struct json *last = js_object();
    struct run *run = find_run(series, run_id);
    for (size_t i = 0; run && i < run->count; i++) {
        const struct column *column = run->columns[i];
        if (column->count)
            js_set(last, column->name, js_real(column->value[column->count - 1]));
    }
    return last;
}

double series_last_value(const struct series *series, const char *run_id, const char *metric, double fallback)
{
    struct column *column = find_column(find_run(series, run_id), metric);
    return column && column->count ? column->value[column->count - 1] : fallback;
}

int64_t series_last_finite_step(const struct series *series, const char *run_id, const char *metric)
{
    struct column *column = find_column(find_run(series, run_id), metric);
    size_t at = column ? column->count : 0;
    while (at > 0 && !isfinite(column->value[at - 1]))
        at--;
    return at > 0 ? column->step[at - 1] : 0;
}

int64_t series_last_step(const struct series *series, const char *run_id)
{
    struct run *run = find_run(series, run_id);
    return run ? run->last_step : 0;
}

struct json *series_names(const struct series *series, const char *run_id)
{
    struct json *names = js_array();
    struct run *run = find_run(series, run_id);
    for (size_t i = 0; run && i < run->count; i++) {
        const struct column *column = run->columns[i];
        if (column->count)
            js_append(names, js_string(column->name));
    }
    return names;
}

// ---- reading ----

struct lists {
    struct json *step, *time, *value, *min, *max;
};

// One point for column[from, to): the bucket's last, and its least and greatest, to which NaN does not belong unless there is nothing else.
static void add_bucket(struct lists *lists, const struct column *column, size_t from, size_t to)
{
    js_append(lists->step, js_integer(column->step[to - 1]));
    js_append(lists->time, js_real(column->time[to - 1]));
    js_append(lists->value, js_real(column->value[to - 1]));
    if (!lists->min)
        return;
    double least = column->value[from], greatest = least;
    for (size_t i = from + 1; i < to; i++) {
        least = fmin(least, column->value[i]);
        greatest = fmax(greatest, column->value[i]);
    }
    js_append(lists->min, js_real(least));
    js_append(lists->max, js_real(greatest));
}

static int64_t bucket_of(int64_t step, int shift)
{
    return step >> shift;
}

// Buckets are a power of two of steps wide and begin at multiples of their width, so that they stay where they are while a curve grows.
static int bucket_shift(int64_t first, int64_t last, int64_t max_points)
{
    int shift = 0;
    while (shift < 62 && bucket_of(last, shift) - bucket_of(first, shift) >= max_points)
        shift++;
    return shift;
}

static struct json *read_column(const struct column *column, int64_t after_step, int64_t max_points)
{
    size_t from = after_step == INT64_MAX ? column->count : first_from(column, after_step + 1), total = column->count - from;
    bool all = total <= (size_t)max_points;
    struct lists lists = {.step = js_array(), .time = js_array(), .value = js_array(), .min = all ? NULL : js_array(), .max = all ? NULL : js_array()};
    int shift = all ? 0 : bucket_shift(column->step[from], column->step[column->count - 1], max_points);
    for (size_t end; from < column->count; from = end) {
        end = from + 1;
        while (!all && end < column->count && bucket_of(column->step[end], shift) == bucket_of(column->step[from], shift))
            end++;
        add_bucket(&lists, column, from, end);
    }
    struct json *answer = js_object();
    js_set(answer, "step", lists.step);
    js_set(answer, "time", lists.time);
    js_set(answer, "value", lists.value);
    if (!all) {
        js_set(answer, "min", lists.min);
        js_set(answer, "max", lists.max);
    }
    js_set(answer, "total", js_integer((int64_t)total));
    return answer;
}

struct json *series_read(const struct series *series, const char *run_id, const char *const *names, size_t count, int64_t after_step, int64_t max_points)
{
    struct json *answer = js_object();
    struct run *run = find_run(series, run_id);
    if (max_points < 1)
        max_points = 1;
    for (size_t i = 0; run && i < (names ? count : run->count); i++) {
        struct column *column = names ? find_column(run, names[i]) : run->columns[i];
        if (column && column->count)
            js_set(answer, column->name, read_column(column, after_step, max_points));
    }
    return answer;
}
