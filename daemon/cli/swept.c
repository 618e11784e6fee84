#include "daemon/cli/swept.h"
#include "daemon/cli/format.h"
#include "daemon/cli/table.h"
#include "daemon/cli/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *swept_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

char *swept_value(const struct json *run, const char *key)
{
    const struct json *value = js_get(js_get(run, "sweep"), key);
    return value ? view_value(value) : NULL;
}

// ---- columns ----

struct seen { // one value of each key, and which keys have another
    struct json *first, *keys;
};

static void look(struct seen *seen, const struct json *sweep)
{
    for (void *i = js_first(sweep); i; i = js_next(sweep, i)) {
        const struct json *known = js_get(seen->first, js_key(i));
        if (!known)
            js_set(seen->first, js_key(i), js_keep(js_value(i)));
        else if (!js_get(seen->keys, js_key(i)) && !js_equal(known, js_value(i)))
            js_set(seen->keys, js_key(i), js_boolean(true));
    }
}

struct json *swept_keys(const struct json *runs)
{
    struct seen seen = {js_object(), js_object()};
    struct json *keys = js_array();
    for (size_t i = js_count(runs); i-- > 0;) // oldest first
        look(&seen, js_get(js_at(runs, i), "sweep"));
    for (void *i = js_first(seen.first); i; i = js_next(seen.first, i))
        if (js_get(seen.keys, js_key(i)) && js_count(keys) < SWEPT_SHOWN)
            js_append(keys, js_string(js_key(i)));
    js_free(seen.first);
    js_free(seen.keys);
    return keys;
}

// ---- groups ----

// The run's own name of the key: the whole path, or a path that ends in the word.
static const char *key_of(const struct json *run, const char *key)
{
    const struct json *sweep = js_get(run, "sweep");
    for (void *i = js_first(sweep); i; i = js_next(sweep, i))
        if (strcmp(js_key(i), key) == 0 || strcmp(swept_word(js_key(i)), key) == 0)
            return js_key(i);
    return NULL;
}

// index: {project, entry, key and value as text: the group}
static struct json *group_of(struct json *groups, struct json *index, const struct json *run, const char *key)
{
    const struct json *value = js_get(js_get(run, "sweep"), key);
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    text_addf(&text, "%s/%s %s ", js_string_of(js_get(run, "project"), "?"), js_string_of(js_get(run, "sweep_of"), "?"), key);
    js_write(&text, value);
    struct json *group = js_get(index, text.at);
    if (!group) {
        group = js_object();
        js_set(group, "project", js_keep(js_get(run, "project")));
        js_set(group, "entry", js_keep(js_get(run, "sweep_of")));
        js_set(group, "key", js_string(key));
        js_set(group, "value", js_keep(value));
        js_set(group, "runs", js_array());
        js_set(group, "states", js_object());
        js_set(index, text.at, js_keep(group));
        js_append(groups, group);
    }
    text_release(&text);
    return group;
}

// Mean and range of a member over the group's runs, from the members that they brought along.
static void add_spread(struct json *group, const char *member, const struct json *value)
{
    double number = js_kind(value) == JSON_KIND_NULL ? NAN : js_real_of(value, NAN);
    const struct json *old = js_get(group, member);
    if (!isfinite(number)) {
        if (!old)
            js_set(group, member, js_null());
        return;
    }
    bool first = js_kind(old) != JSON_KIND_OBJECT;
    double count = first ? 0 : js_real_of(js_get(old, "count"), 0), mean = first ? 0 : js_real_of(js_get(old, "mean"), 0);
    double least = first ? number : fmin(number, js_real_of(js_get(old, "least"), number));
    double most = first ? number : fmax(number, js_real_of(js_get(old, "most"), number));
    struct json *spread = js_object();
    js_set(spread, "mean", js_real(mean + (number - mean) / (count + 1)));
    js_set(spread, "least", js_real(least));
    js_set(spread, "most", js_real(most));
    js_set(spread, "count", js_integer((int64_t)count + 1));
    js_set(group, member, spread);
}

static const char *const members[] = {"loss", "validation_loss", "tokens_per_second"};
enum { MEMBERS = sizeof members / sizeof *members };

struct json *swept_groups(const struct json *runs, const char *key)
{
    struct json *groups = js_array(), *index = js_object();
    for (size_t i = js_count(runs); i-- > 0;) { // oldest first
        const struct json *run = js_at(runs, i);
        const char *own = key_of(run, key), *state = js_string_of(js_get(run, "state"), "?");
        if (!own)
            continue;
        struct json *group = group_of(groups, index, run, own), *states = js_get(group, "states");
        js_append(js_get(group, "runs"), js_keep(js_get(run, "name")));
        js_set(states, state, js_integer(js_integer_of(js_get(states, state), 0) + 1));
        for (size_t j = 0; j < MEMBERS; j++)
            add_spread(group, members[j], js_get(run, members[j]));
    }
    js_free(index);
    if (js_count(groups))
        return groups;
    js_free(groups);
    return NULL;
}

// "1.576 (1.571–1.580)"
static const char *spread(char out[4 * FORMAT_MAX], const struct json *group, const char *member, const char *(*format)(char *, double))
{
    char mean[FORMAT_MAX], least[FORMAT_MAX], most[FORMAT_MAX];
    const struct json *values = js_get(group, member);
    if (js_kind(values) != JSON_KIND_OBJECT)
        return NULL;
    format(mean, js_real_of(js_get(values, "mean"), NAN));
    format(least, js_real_of(js_get(values, "least"), NAN));
    format(most, js_real_of(js_get(values, "most"), NAN));
    if (js_integer_of(js_get(values, "count"), 0) > 1)
        snprintf(out, 4 * FORMAT_MAX, "%s (%s–%s)", mean, least, most);
    else
        snprintf(out, 4 * FORMAT_MAX, "%s", mean);
    return out;
}

static char *states_of(const struct json *group)
{
    const struct json *states = js_get(group, "states");
    struct text text;
    text_init(&text, 1024);
    for (void *i = js_first(states); i; i = js_next(states, i))
        text_addf(&text, "%s%lld %s", text.length ? ", " : "", (long long)js_integer_of(js_value(i), 0), js_key(i));
    return text_take(&text);
}

void swept_show_groups(FILE *out, const struct json *groups)
{
    struct table table;
    table_init(&table, "lrrlrrr");
    const char *heading[] = {"SWEEP", swept_word(js_string_of(js_get(js_at(groups, 0), "key"), "")), "RUNS", "STATES", "LOSS", "VALIDATION", "TOKENS/S"};
    table_row(&table, heading);
    for (size_t i = 0; i < js_count(groups); i++) {
        const struct json *group = js_at(groups, i);
        char loss[4 * FORMAT_MAX], validation[4 * FORMAT_MAX], rate[4 * FORMAT_MAX];
        char *sweep = string_format("%s/%s", js_string_of(js_get(group, "project"), "?"), js_string_of(js_get(group, "entry"), "?"));
        char *value = view_value(js_get(group, "value")), *runs = string_format("%zu", js_count(js_get(group, "runs"))), *states = states_of(group);
        const char *cells[] = {sweep, value, runs, states, spread(loss, group, "loss", format_short),
            spread(validation, group, "validation_loss", format_short), spread(rate, group, "tokens_per_second", format_rate)};
        table_row(&table, cells);
        free(sweep);
        free(value);
        free(runs);
        free(states);
    }
    static const size_t less[] = {6, 2, 5, 4}; // TOKENS/S, RUNS (their states add up to it), VALIDATION, LOSS
    table_fit(&table, table_terminal(out), less, sizeof less / sizeof *less);
    table_print(&table, out, 0);
    table_release(&table);
}
