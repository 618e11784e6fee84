// Keys that say how runs are made: the shape of `sweep`. What comes of a sweep is in trials.c; `stages` in entries.c.
#include "schema/spec/sweep.h"
#include "schema/base/near.h"
#include "schema/base/text.h"
#include "schema/spec/elsewhere.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A key that `sweep` lacks: a slip, a key of a run that stands a level too high, a word of another tool.
static void unknown_in_sweep(struct problems *problems, const struct node *key, const char *const *names, size_t count)
{
    const char *near = near_name(key->text, names, count), *told = near ? NULL : elsewhere_told(key->text);
    const struct field *field = field_find(key->text);
    if (near)
        problem_at(problems, key, "unknown key `%.60s` in `sweep`; did you mean `%s`?", key->text, near);
    else if (field)
        problem_at(problems, key, "unknown key `%.60s` in `sweep`: write `grid: {%s: [VALUE, …]}`", key->text, field->path);
    else if (told)
        problem_at(problems, key, "unknown key `%.60s` in `sweep`: %s", key->text, told);
    else
        problem_at(problems, key, "unknown key `%.60s` in `sweep`; it has `grid`, `zip`, `list`, `limit`, `canary` and `concurrency`", key->text);
}

static bool is_known(const char *key, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

// A whole number from least to most; says where it is not.
static bool whole_number(struct check *check, const struct node *node, const char *path, double least, double most, double *value)
{
    if (value_number(value, node) && *value == (double)(long long)*value && *value >= least && *value <= most)
        return true;
    bool word = node->kind == NODE_SCALAR && !node_is_null(node);
    problem_at(check->problems, node, "`%s` expects a whole number from %.15g to %.15g, not %s%.50s%s", path, least, most, word ? "`" : "",
        word ? node->text : node->kind == NODE_LIST ? "a list" : node->kind == NODE_MAP ? "a map" : "nothing", word ? "`" : "");
    return false;
}

// ---- settings ----

static void append_setting(struct pool *pool, struct settings *settings, struct setting setting)
{
    if ((settings->count & (settings->count - 1)) == 0) { // full: twice as many, at powers of two
        struct setting *more = pool_take(pool, (settings->count ? 2 * settings->count : 1) * sizeof *more);
        if (settings->count)
            memcpy(more, settings->at, settings->count * sizeof *more);
        settings->at = more;
    }
    settings->at[settings->count++] = setting;
}

// {model.moe.top_k: …}, or {model: {moe: {top_k: …}}}: sections may be written either way.
static void collect(struct pool *pool, const struct node *map, const char *section, struct settings *settings)
{
    for (size_t i = 0; i < map->count; i++) {
        const struct node *key = map->keys[i], *value = map->items[i];
        char *path = *section ? string_format("%s.%s", section, key->text) : string_copy(key->text);
        const struct field *field = field_find(path);
        if (field && field->type == FIELD_SECTION && value->kind == NODE_MAP)
            collect(pool, value, path, settings);
        else
            append_setting(pool, settings, (struct setting){field, pool_string(pool, path, strlen(path)), key, value});
        free(path);
    }
}

// What to write instead of a path that is no key of a run.
static void refuse_path(struct problems *problems, const struct setting *setting)
{
    const char *dot = strrchr(setting->path, '.');
    char *parent = string_format("%.*s", (int)(dot ? dot - setting->path : 0), setting->path);
    const struct field *map = field_find(parent), *meant = setting->field ? NULL : unknown_path_meant(setting->path);
    if (map && map->type == FIELD_PAIRS)
        problem_at(problems, setting->key, "`%.60s`: `%s` is swept as a whole: write `%s: [{NAME: value}, …]`", setting->path, parent, parent);
    else if (meant)
        problem_at(problems, setting->key, "`%.60s` is no key of a run; did you mean `%s`?", setting->path, meant->path);
    else
        problem_at(problems, setting->key, "`%.60s` is no key of a run; write its whole path, such as `model.moe.top_k`", setting->path);
    free(parent);
}

static bool check_setting(struct problems *problems, const struct settings *settings, size_t index, const char *where)
{
    const struct setting *setting = &settings->at[index];
    const struct field *field = setting->field;
    if (!field || field->internal || field->type == FIELD_SECTION || field->type == FIELD_PLAN) {
        refuse_path(problems, setting);
        return false;
    }
    for (size_t i = 0; i < index; i++)
        if (settings->at[i].field == field) {
            problem_at(problems, setting->key, "`%s`: `%s` stands here twice (line %zu)", where, field->path, settings->at[i].key->line);
            return false;
        }
    return true;
}

// One value, tried on a spec that is thrown away. null is the key's default.
static bool try_value(struct problems *problems, struct pool *pool, const struct setting *setting, const struct node *value)
{
    if (node_is_null(value))
        return true;
    struct spec scratch;
    spec_init(&scratch);
    struct check trial = {.problems = problems, .pool = pool, .spec = &scratch};
    bool good = value_convert(&trial, setting->field, value);
    spec_release(&scratch);
    return good;
}

// ---- what a sweep says ----

// What is no list of values, as it would be one: Hydra's 1,2,3 and Weights & Biases' {values: […]} too.
static void refuse_values(struct problems *problems, const struct node *values, const char *path, const char *where)
{
    const struct node *inner = values->kind == NODE_MAP ? node_get(values, "values") : NULL;
    struct text words;
    text_init(&words, SIZE_MAX / 2);
    const char *text = values->kind == NODE_SCALAR && !node_is_null(values) ? values->text : "";
    if (*text && strlen(text) <= 60 && !strpbrk(text, "([{}])"))
        text_addf(&words, ", not %s: write `[%s]`", strchr(text, ',') ? "one string" : "one value", text);
    else if (*text)
        text_add(&words, ": write all of them, `[VALUE, VALUE, …]`");
    else if (inner)
        text_add(&words, ": write what stands in `values` without it");
    else if (values->kind == NODE_MAP)
        text_add(&words, ": no values are drawn from a range; write `[VALUE, VALUE, …]`");
    else
        text_addf(&words, ", not %s", values->kind == NODE_LIST ? "an empty one" : "nothing");
    problem_at(problems, values, "`%s`: `%.60s` expects a list of values%s", where, path, words.at);
    text_release(&words);
}

static bool read_axis(struct sweep *sweep, struct problems *problems, struct pool *pool, size_t index, const char *where)
{
    const struct setting *axis = &sweep->axes.at[index];
    const struct node *values = axis->value;
    if (!check_setting(problems, &sweep->axes, index, where))
        return false;
    if (values->kind != NODE_LIST || values->count == 0) {
        refuse_values(problems, values, axis->path, where);
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < values->count; i++)
        good &= try_value(problems, pool, axis, values->items[i]);
    size_t first = sweep->axes.at[0].value->count;
    if (!sweep->grid && values->count != first && sweep->axes.at[0].value->kind == NODE_LIST) {
        problem_at(problems, values, "`%s`: `%.60s` has %zu value%s, the first key has %zu", where, axis->path, values->count,
            values->count == 1 ? "" : "s", first);
        good = false;
    }
    return good;
}

// {path: [values…], …}; *trials: the product (grid) or the common length (zip).
static bool read_axes(struct sweep *sweep, struct problems *problems, struct pool *pool, const struct node *node, double *trials)
{
    const char *where = sweep->grid ? "sweep.grid" : "sweep.zip";
    if (node->kind == NODE_MAP)
        collect(pool, node, "", &sweep->axes);
    if (sweep->axes.count == 0) {
        problem_at(problems, node, "`%s` expects a map of keys to lists of values", where);
        return false;
    }
    if (sweep->axes.count > SWEEP_SETTINGS_MAX) {
        problem_at(problems, node, "`%s` has %zu keys; %d are the most", where, sweep->axes.count, SWEEP_SETTINGS_MAX);
        return false;
    }
    bool good = true;
    *trials = 1;
    for (size_t i = 0; i < sweep->axes.count; i++) {
        good &= read_axis(sweep, problems, pool, i, where);
        *trials = (sweep->grid ? *trials : 1) * (double)sweep->axes.at[i].value->count;
    }
    return good;
}

static bool read_point(struct settings *settings, struct problems *problems, struct pool *pool, const struct node *point)
{
    if (point->kind != NODE_MAP) {
        problem_at(problems, point, "`sweep.list`: each item is {KEY: VALUE, …}");
        return false;
    }
    collect(pool, point, "", settings);
    if (settings->count > SWEEP_SETTINGS_MAX) {
        problem_at(problems, point, "`sweep.list`: a trial has %zu keys; %d are the most", settings->count, SWEEP_SETTINGS_MAX);
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < settings->count; i++)
        good &= check_setting(problems, settings, i, "sweep.list") && try_value(problems, pool, &settings->at[i], settings->at[i].value);
    return good;
}

static bool read_points(struct sweep *sweep, struct problems *problems, struct pool *pool, const struct node *node, double *trials)
{
    if (node->kind != NODE_LIST || node->count == 0) {
        problem_at(problems, node, "`sweep.list` expects a list of {KEY: VALUE, …}");
        return false;
    }
    *trials = (double)node->count;
    sweep->points = pool_take(pool, node->count * sizeof *sweep->points);
    bool good = true;
    for (size_t i = 0; i < node->count; i++)
        good &= read_point(&sweep->points[i], problems, pool, node->items[i]);
    return good;
}

static bool read_number(struct problems *problems, const struct node *sweep, const char *key, double least, double most, int64_t *value)
{
    const struct node *node = node_get(sweep, key);
    if (!node || node_is_null(node))
        return true;
    char path[32];
    snprintf(path, sizeof path, "sweep.%s", key);
    double number;
    struct check check = {.problems = problems};
    if (!whole_number(&check, node, path, least, most, &number))
        return false;
    *value = (int64_t)number;
    return true;
}

static bool check_count(const struct sweep *sweep, struct problems *problems, double trials, int64_t limit)
{
    if (limit > 0 && trials > (double)limit)
        problem_at(problems, sweep->node, "`sweep` makes %.0f trials, more than the %lld of `limit`", trials, (long long)limit);
    else if (trials > SWEEP_TRIALS_MAX)
        problem_at(problems, sweep->node, "`sweep` makes %.0f trials; %d are the most", trials, SWEEP_TRIALS_MAX);
    else if (!limit && trials > SWEEP_TRIALS_USUAL)
        problem_at(problems, sweep->node, "`sweep` makes %.0f trials: where more than %d are meant, give it a `limit` (of at most %d)", trials,
            SWEEP_TRIALS_USUAL, SWEEP_TRIALS_MAX);
    else
        return true;
    return false;
}

bool sweep_read(struct sweep *sweep, struct problems *problems, struct pool *pool, const struct node *node, bool whole)
{
    static const char *const names[] = {"grid", "zip", "list", "limit", "canary", "concurrency"};
    enum { NAMES = sizeof names / sizeof *names };
    const struct node *grid = node_get(node, "grid"), *zip = node_get(node, "zip"), *list = node_get(node, "list");
    *sweep = (struct sweep){.node = node, .grid = grid != NULL, .concurrency_node = node_get(node, "concurrency")};
    bool good = true;
    int64_t limit = 0;
    double trials = 0;
    for (size_t i = 0; i < node->count; i++)
        if (!is_known(node->keys[i]->text, names, NAMES)) {
            unknown_in_sweep(problems, node->keys[i], names, NAMES);
            good = false;
        }
    if (whole && !grid + !zip + !list != 2) {
        problem_at(problems, node, "`sweep` needs exactly one of `grid`, `zip`, `list`, such as `grid: {model.moe.top_k: [1, 2]}`");
        good = false;
    }
    if (grid || zip)
        good &= read_axes(sweep, problems, pool, grid ? grid : zip, &trials);
    if (list)
        good &= read_points(sweep, problems, pool, list, &trials);
    good &= read_number(problems, node, "limit", 1, SWEEP_TRIALS_MAX, &limit);
    good &= read_number(problems, node, "canary", 0, 100, &sweep->canary);
    good &= read_number(problems, node, "concurrency", 1, SWEEP_TRIALS_MAX, &sweep->concurrency);
    good = (!whole || check_count(sweep, problems, trials, limit)) && good;
    sweep->trials = (size_t)(good ? trials : 0);
    return good;
}

size_t sweep_settings(const struct sweep *sweep, size_t trial, struct setting settings[SWEEP_SETTINGS_MAX])
{
    if (sweep->points) {
        const struct settings *point = &sweep->points[trial];
        if (point->count)
            memcpy(settings, point->at, point->count * sizeof *settings);
        return point->count;
    }
    for (size_t i = sweep->axes.count; i-- > 0;) {
        const struct node *values = sweep->axes.at[i].value;
        settings[i] = sweep->axes.at[i];
        settings[i].value = values->items[trial % values->count];
        trial = sweep->grid ? trial / values->count : trial;
    }
    return sweep->axes.count;
}

void check_plan_key(struct check *check, const struct field *field, const struct node *node)
{
    struct sweep sweep;
    if (node->source->json)
        problem_at(check->problems, node, "`%s` is no part of a resolved spec", field->path);
    else if (strcmp(field->path, "stages") == 0)
        problem_at(check->problems, node, "`stages` stands at the top of a file, not inside a run");
    else if (node->kind != NODE_MAP)
        value_refuse(check, field, node, NULL);
    else if (strcmp(field->path, "sweep") == 0)
        sweep_read(&sweep, check->problems, check->pool, node, false);
}
