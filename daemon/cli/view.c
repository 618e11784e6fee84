#include "daemon/cli/view.h"
#include "daemon/cli/format.h"
#include "daemon/cli/swept.h"
#include "daemon/cli/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

char *view_value(const struct json *value)
{
    if (js_kind(value) == JSON_KIND_NULL)
        return string_copy("-");
    if (js_kind(value) == JSON_KIND_STRING)
        return string_copy(js_string_of(value, ""));
    struct text text;
    text_init(&text, 4096);
    js_write(&text, value);
    return text_take(&text);
}

char *view_run_name(const struct json *run)
{
    return string_format("%s/%s", js_string_of(js_get(run, "project"), "?"), js_string_of(js_get(run, "name"), "?"));
}

bool view_ended(const struct json *run)
{
    static const char *const last[] = {"succeeded", "failed", "cancelled", "timed_out", "out_of_memory", "lost"};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        if (strcmp(js_string_of(js_get(run, "state"), ""), last[i]) == 0)
            return true;
    return false;
}

static char *commit_of(const struct json *run)
{
    const char *commit = js_string_of(js_get(run, "commit"), NULL);
    return commit ? string_format("%.8s%s", commit, js_boolean_of(js_get(run, "dirty"), false) ? "+" : "") : NULL;
}

char *view_state(const struct json *run)
{
    const char *state = js_string_of(js_get(run, "state"), "?");
    int64_t diverged = js_integer_of(js_get(run, "diverged_step"), 0);
    return diverged > 0 ? string_format("%s, diverged at %lld", state, (long long)diverged) : string_copy(state);
}

static char *step_of(const struct json *run)
{
    int64_t step = js_integer_of(js_get(run, "step"), 0), iterations = js_integer_of(js_get(run, "iterations"), 0);
    return iterations > 0 ? string_format("%lld/%lld", (long long)step, (long long)iterations) : NULL;
}

// A number of the list through a format, or NULL where it is null.
static const char *number(char out[FORMAT_MAX], const struct json *run, const char *member, const char *(*format)(char *, double))
{
    const struct json *value = js_get(run, member);
    return js_kind(value) == JSON_KIND_NULL ? NULL : format(out, js_real_of(value, NAN));
}

// The columns behind the name: what sweeps vary among these runs.
static void add_swept(struct table *table, const struct json *keys, const struct json *run)
{
    for (size_t i = 0; i < js_count(keys); i++) {
        const char *key = js_string_of(js_at(keys, i), "");
        char *value = run ? swept_value(run, key) : string_copy(swept_word(key));
        table_cell(table, value);
        free(value);
    }
}

// Why a run does not run yet, or how it came to a bad end. NULL: there is nothing to explain.
static const char *why_of(const struct json *run)
{
    static const char *const bad[] = {"failed", "lost", "timed_out", "out_of_memory"};
    const char *state = js_string_of(js_get(run, "state"), "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (strcmp(state, bad[i]) == 0)
            return js_string_of(js_get(run, "reason"), NULL);
    return js_string_of(js_get(run, "pending_reason"), NULL);
}

// The same in a cell, with the time at which its scheduler expects to start one that waits. free()
static char *reason_of(const struct json *run)
{
    const char *why = why_of(run);
    double start = js_real_of(js_get(run, "expected_start"), 0);
    char when[FORMAT_MAX];
    return why ? string_format("%s%s%s", why, start > 0 ? "; expected to start " : "", start > 0 ? format_time(when, start) : "") : NULL;
}

static bool any_reason(const struct json *runs)
{
    for (size_t i = 0; i < js_count(runs); i++)
        if (why_of(js_at(runs, i)))
            return true;
    return false;
}

static const char *const runs_heading[] = {"STATE", "STEP", "LOSS", "VALIDATION", "TOKENS/S", "ETA", "COMMIT"};
enum { RUNS_HEADING = sizeof runs_heading / sizeof *runs_heading };

static void add_run(struct table *table, const struct json *run, const struct json *keys, bool projects, bool reasons)
{
    char loss[FORMAT_MAX], validation[FORMAT_MAX], rate[FORMAT_MAX], eta[FORMAT_MAX];
    char *name = projects ? view_run_name(run) : string_copy(js_string_of(js_get(run, "name"), "?")), *reason = reason_of(run);
    char *state = view_state(run), *step = step_of(run), *commit = commit_of(run);
    const char *cells[RUNS_HEADING] = {state, step, number(loss, run, "loss", format_short),
        number(validation, run, "validation_loss", format_short), number(rate, run, "tokens_per_second", format_rate),
        number(eta, run, "eta_seconds", format_seconds), commit};
    table_cell(table, name);
    add_swept(table, keys, run);
    for (size_t i = 0; i < RUNS_HEADING; i++)
        table_cell(table, cells[i]);
    if (reasons)
        table_cell(table, reason);
    free(reason);
    free(name);
    free(state);
    free(step);
    free(commit);
}

// projects: before each name.
static void fill_runs(struct table *table, const struct json *runs, const struct json *keys, bool projects, bool reasons)
{
    table_cell(table, "RUN");
    add_swept(table, keys, NULL);
    for (size_t i = 0; i < RUNS_HEADING; i++)
        table_cell(table, runs_heading[i]);
    if (reasons)
        table_cell(table, "REASON");
    for (size_t i = 0; i < js_count(runs); i++)
        add_run(table, js_at(runs, i), keys, projects, reasons);
}

// The project of them all; NULL: they have several.
static const char *one_project(const struct json *runs)
{
    const char *project = js_string_of(js_get(js_at(runs, 0), "project"), "?");
    for (size_t i = 1; i < js_count(runs); i++)
        if (strcmp(js_string_of(js_get(js_at(runs, i), "project"), "?"), project) != 0)
            return NULL;
    return project;
}

// Whether the name of each trial says what it has of this key: "moe-top_k2", not "moe-07".
static bool is_in_names(const struct json *runs, const char *key)
{
    for (size_t i = 0; i < js_count(runs); i++) {
        const struct json *run = js_at(runs, i);
        if (js_get(js_get(run, "sweep"), key) && !strstr(js_string_of(js_get(run, "name"), ""), swept_word(key)))
            return false;
    }
    return true;
}

// What a narrow terminal does without, the least telling first.
static void fit_runs(struct table *table, const struct json *runs, const struct json *keys, size_t width)
{
    size_t order[SWEPT_SHOWN + RUNS_HEADING], count = 0, first = 1 + js_count(keys);
    order[count++] = first + 6; // COMMIT
    order[count++] = first + 5; // ETA
    for (size_t i = js_count(keys); i > 0; i--)
        if (is_in_names(runs, js_string_of(js_at(keys, i - 1), "")))
            order[count++] = i;
    order[count++] = first + 4; // TOKENS/S
    order[count++] = first + 3; // VALIDATION
    for (size_t i = js_count(keys); i > 0; i--)
        if (!is_in_names(runs, js_string_of(js_at(keys, i - 1), "")))
            order[count++] = i;
    order[count++] = first + 1; // STEP
    order[count++] = first + 2; // LOSS
    table_fit(table, width, order, count);
}

void view_runs(FILE *out, const struct json *runs)
{
    bool reasons = any_reason(runs);
    struct json *keys = swept_keys(runs);
    size_t width = table_terminal(out);
    struct table table;
    char *align = string_format("l%.*s%s%s", (int)js_count(keys), "rrrrrrrr", "lrrrrrl", reasons ? "w" : "");
    table_init(&table, align);
    fill_runs(&table, runs, keys, true, reasons);
    const char *project = table_width(&table) > width ? one_project(runs) : NULL;
    if (project) {
        table_release(&table);
        table_init(&table, align);
        fill_runs(&table, runs, keys, false, reasons);
        fprintf(out, "project %s\n", project);
    }
    fit_runs(&table, runs, keys, width);
    table_print(&table, out, 0);
    table_release(&table);
    free(align);
    js_free(keys);
}

static void add_metric(struct table *table, const char *name, const struct json *row)
{
    char left[FORMAT_MAX], right[FORMAT_MAX], difference[FORMAT_MAX], relative[FORMAT_MAX] = "-";
    double base = js_real_of(js_get(row, "a"), NAN), apart = js_real_of(js_get(row, "difference"), NAN);
    if (isfinite(base) && isfinite(apart) && base != 0)
        snprintf(relative, sizeof relative, "%+.2f %%", 100 * apart / fabs(base));
    char *label = string_format("%s%s", name, js_boolean_of(js_get(row, "median"), false) ? ", median" : "");
    const char *cells[] = {label, format_json(left, js_get(row, "a")), format_json(right, js_get(row, "b")),
        format_json(difference, js_get(row, "difference")), relative};
    table_row(table, cells);
    free(label);
}

// The metrics that a comparison begins with; all others follow in the API's order.
static const char *const first_metrics[] = {"loss", "validation_loss", "grad_norm", "tokens_per_second", "step_time_ms"};
enum { FIRST_METRICS = sizeof first_metrics / sizeof *first_metrics };

static bool is_first(const char *metric)
{
    for (size_t i = 0; i < FIRST_METRICS; i++)
        if (strcmp(first_metrics[i], metric) == 0)
            return true;
    return false;
}

static void view_metrics(FILE *out, const struct json *metrics, const char *a, const char *b)
{
    struct table table;
    table_init(&table, "lrrrr");
    const char *heading[] = {"metric", a, b, "difference", "relative"};
    table_row(&table, heading);
    for (size_t i = 0; i < FIRST_METRICS; i++)
        if (js_get(metrics, first_metrics[i]))
            add_metric(&table, first_metrics[i], js_get(metrics, first_metrics[i]));
    for (void *i = js_first(metrics); i; i = js_next(metrics, i))
        if (!is_first(js_key(i)))
            add_metric(&table, js_key(i), js_value(i));
    table_print(&table, out, 2);
    table_release(&table);
}

static char *cell_of(const struct json *row, const char *member)
{
    const struct json *value = js_get(row, member);
    char digits[FORMAT_MAX];
    if (js_kind(value) != JSON_KIND_INTEGER && js_kind(value) != JSON_KIND_REAL)
        return view_value(value);
    bool bytes = strcmp(js_string_of(js_get(row, "unit"), ""), "bytes") == 0;
    return string_copy((bytes ? format_bytes : format_value)(digits, js_real_of(value, 0)));
}

// Rows of an array of objects; each member named in `members` is a column.
static void view_rows(FILE *out, const struct json *rows, const char *const *heading, const char *const *members, const char *align)
{
    struct table table;
    table_init(&table, align);
    table_row(&table, heading);
    for (size_t i = 0; i < js_count(rows); i++)
        for (size_t column = 0; column < table.columns; column++) {
            char *cell = cell_of(js_at(rows, i), members[column]);
            table_cell(&table, cell);
            free(cell);
        }
    table_print(&table, out, 2);
    table_release(&table);
}

// A key that only one run has, and that is off in it (false, 0, nothing), differs in letter only.
static bool at_rest(const struct json *row)
{
    const struct json *a = js_get(row, "a"), *b = js_get(row, "b"), *value = js_kind(a) == JSON_KIND_NULL ? b : a;
    if (js_kind(a) != JSON_KIND_NULL && js_kind(b) != JSON_KIND_NULL)
        return false;
    return js_kind(value) == JSON_KIND_NULL || (js_kind(value) == JSON_KIND_BOOLEAN && !js_boolean_of(value, true)) ||
        (js_kind(value) != JSON_KIND_BOOLEAN && js_real_of(value, 1) == 0);
}

static void view_configuration(FILE *out, const struct json *configuration, const char *a, const char *b)
{
    const char *heading[] = {"key", a, b}, *members[] = {"key", "a", "b"};
    struct json *telling = js_array();
    for (size_t i = 0; i < js_count(configuration); i++)
        if (!at_rest(js_at(configuration, i)))
            js_append(telling, js_keep(js_at(configuration, i)));
    size_t count = js_count(telling), more = js_count(configuration) - count;
    fprintf(out, "\nConfiguration: %zu difference%s\n", count, count == 1 ? "" : "s");
    if (count)
        view_rows(out, telling, heading, members, "lll");
    if (more)
        fprintf(out, "  (and %zu key%s that only one run has, and that %s off in it)\n", more, more == 1 ? "" : "s", more == 1 ? "is" : "are");
    js_free(telling);
}

static const char *data_sentence(const struct json *same)
{
    if (js_kind(same) != JSON_KIND_BOOLEAN)
        return "not known to have read the same samples in the same order";
    return js_boolean_of(same, false) ? "same samples in the same order at every common step" : "DIFFERENT samples at some common step";
}

void view_comparison(FILE *out, const struct json *comparison)
{
    char *a = view_run_name(js_get(comparison, "a")), *b = view_run_name(js_get(comparison, "b"));
    const struct json *predicted = js_get(comparison, "predicted");
    fprintf(out, "%s against %s at step %lld (%s)\n\n", b, a, (long long)js_integer_of(js_get(comparison, "step"), 0),
        data_sentence(js_get(comparison, "same_data")));
    view_metrics(out, js_get(comparison, "metrics"), js_string_of(js_get(js_get(comparison, "a"), "name"), "a"),
        js_string_of(js_get(js_get(comparison, "b"), "name"), "b"));
    view_configuration(out, js_get(comparison, "configuration"), a, b);
    if (js_count(predicted)) {
        const char *heading[] = {"", a, "measured", b, "measured"};
        const char *members[] = {"name", "a", "measured_a", "b", "measured_b"};
        fprintf(out, "\nPredicted against measured\n");
        view_rows(out, predicted, heading, members, "lrrrr");
    }
    free(a);
    free(b);
}
