// Keys that say how runs are made and ordered: sweep, stages, retry. This build checks their shape, so that a spec that has them is judged
// as a whole, and refuses to submit them.
#include "schema/spec/check.h"
#include "schema/base/near.h"

#include <stdlib.h>
#include <string.h>

enum { SWEEP_RUNS_MAX = 1000 };

static void unknown_in(struct check *check, const struct node *key, const char *section, const char *const *names, size_t count)
{
    const char *near = near_name(key->text, names, count);
    problem_at(check->problems, key, "unknown key `%.60s` in `%s`%s%s%s", key->text, section, near ? "; did you mean `" : "",
        near ? near : "", near ? "`?" : "");
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
    problem_at(check->problems, node, "`%s` expects a whole number from %.15g to %.15g", path, least, most);
    return false;
}

// One value for one key of a run, tried on a spec that is thrown away.
static void try_value(struct check *check, const struct node *key, const struct node *value)
{
    const struct field *field = field_find(key->text);
    if (!field || field->internal || field->type == FIELD_SECTION || field->type == FIELD_PLAN) {
        problem_at(check->problems, key, "`%.60s` is no key of a run; write its whole path, such as `model.moe.top_k`", key->text);
        return;
    }
    struct spec scratch;
    spec_init(&scratch);
    struct check trial = {.problems = check->problems, .pool = check->pool, .spec = &scratch};
    value_convert(&trial, field, value);
    spec_release(&scratch);
}

// {path: [values…], …}; returns how many runs come of it: the product (grid) or the common length (zip).
static double check_axes(struct check *check, const struct node *node, const char *path, bool grid)
{
    double runs = grid ? 1 : 0;
    if (node->kind != NODE_MAP || node->count == 0) {
        problem_at(check->problems, node, "`%s` expects a map of keys to lists of values", path);
        return 0;
    }
    for (size_t i = 0; i < node->count; i++) {
        const struct node *values = node->items[i];
        if (values->kind != NODE_LIST || values->count == 0) {
            problem_at(check->problems, values, "`%s`: `%.60s` expects a list of values", path, node->keys[i]->text);
            continue;
        }
        for (size_t j = 0; j < values->count; j++)
            try_value(check, node->keys[i], values->items[j]);
        if (!grid && i && (double)values->count != runs)
            problem_at(check->problems, values, "`%s`: `%.60s` has %zu values, the first key has %.0f", path, node->keys[i]->text,
                values->count, runs);
        runs = grid ? runs * (double)values->count : (double)values->count;
    }
    return runs;
}

static double check_points(struct check *check, const struct node *node)
{
    if (node->kind != NODE_LIST || node->count == 0) {
        problem_at(check->problems, node, "`sweep.list` expects a list of {KEY: VALUE, …}");
        return 0;
    }
    for (size_t i = 0; i < node->count; i++) {
        const struct node *point = node->items[i];
        if (point->kind != NODE_MAP)
            problem_at(check->problems, point, "`sweep.list`: each item is {KEY: VALUE, …}");
        for (size_t j = 0; point->kind == NODE_MAP && j < point->count; j++)
            try_value(check, point->keys[j], point->items[j]);
    }
    return (double)node->count;
}

static void check_sweep(struct check *check, const struct node *sweep)
{
    static const char *const names[] = {"grid", "zip", "list", "limit", "canary"};
    const struct node *grid = node_get(sweep, "grid"), *zip = node_get(sweep, "zip"), *list = node_get(sweep, "list");
    const struct node *limit = node_get(sweep, "limit"), *canary = node_get(sweep, "canary");
    for (size_t i = 0; i < sweep->count; i++)
        if (!is_known(sweep->keys[i]->text, names, 5))
            unknown_in(check, sweep->keys[i], "sweep", names, 5);
    if (!grid + !zip + !list != 2)
        problem_at(check->problems, sweep, "`sweep` needs exactly one of `grid`, `zip`, `list`");
    double runs = 0, most = SWEEP_RUNS_MAX, number;
    if (grid)
        runs = check_axes(check, grid, "sweep.grid", true);
    if (zip)
        runs = check_axes(check, zip, "sweep.zip", false);
    if (list)
        runs = check_points(check, list);
    if (limit && whole_number(check, limit, "sweep.limit", 1, SWEEP_RUNS_MAX, &number))
        most = number;
    if (canary)
        whole_number(check, canary, "sweep.canary", 0, 100, &number);
    if (runs > most)
        problem_at(check->problems, sweep, "`sweep` makes %.0f runs, more than the %.0f of %s", runs, most, limit ? "`limit`" : "any sweep");
}

static void check_stage(struct check *check, const struct node *stages, const struct node *name, const struct node *stage)
{
    static const char *const names[] = {"kind", "needs"};
    static const char *const kinds[] = {"train", "tokenize", "check"};
    if (!name_is_valid(name->text))
        problem_at(check->problems, name, "`stages`: `%.60s` is no name of 1 to 64 letters, digits, `_` and `-`", name->text);
    if (stage->kind != NODE_MAP) {
        problem_at(check->problems, stage, "`stages.%.60s` expects {kind: …, needs: […]}", name->text);
        return;
    }
    for (size_t i = 0; i < stage->count; i++)
        if (!is_known(stage->keys[i]->text, names, 2))
            unknown_in(check, stage->keys[i], "stages", names, 2);
    const struct node *kind = node_get(stage, "kind"), *needs = node_get(stage, "needs");
    if (!kind)
        problem_at(check->problems, name, "`stages.%.60s` needs a `kind`: one of `train`, `tokenize`, `check`", name->text);
    else if (kind->kind != NODE_SCALAR || !is_known(kind->text, kinds, 3))
        problem_at(check->problems, kind, "`stages.%.60s.kind` expects one of `train`, `tokenize`, `check`", name->text);
    if (needs && needs->kind != NODE_LIST)
        problem_at(check->problems, needs, "`stages.%.60s.needs` expects a list of stages", name->text);
    for (size_t i = 0; needs && needs->kind == NODE_LIST && i < needs->count; i++) {
        const struct node *need = needs->items[i];
        if (need->kind != NODE_SCALAR || !node_get(stages, need->text) || strcmp(need->text, name->text) == 0)
            problem_at(check->problems, need, "`stages.%.60s.needs`: `%.60s` is no other stage", name->text, need->text);
    }
}

static void check_retry(struct check *check, const struct node *retry)
{
    static const char *const names[] = {"limit", "on"};
    static const char *const states[] = {"failed", "timed_out", "out_of_memory", "lost"};
    double number;
    for (size_t i = 0; i < retry->count; i++)
        if (!is_known(retry->keys[i]->text, names, 2))
            unknown_in(check, retry->keys[i], "retry", names, 2);
    if (node_get(retry, "limit"))
        whole_number(check, node_get(retry, "limit"), "retry.limit", 0, 100, &number);
    const struct node *on = node_get(retry, "on");
    if (on && on->kind != NODE_LIST)
        problem_at(check->problems, on, "`retry.on` expects a list of `failed`, `timed_out`, `out_of_memory`, `lost`");
    for (size_t i = 0; on && on->kind == NODE_LIST && i < on->count; i++)
        if (on->items[i]->kind != NODE_SCALAR || !is_known(on->items[i]->text, states, 4))
            problem_at(check->problems, on->items[i], "`retry.on`: one of `failed`, `timed_out`, `out_of_memory`, `lost`");
}

void check_plan_key(struct check *check, const struct field *field, const struct node *node)
{
    if (node->source->json)
        problem_at(check->problems, node, "`%s` is no part of a resolved spec", field->path);
    else if (node->kind != NODE_MAP)
        value_refuse(check, field, node, NULL);
    else if (strcmp(field->path, "sweep") == 0)
        check_sweep(check, node);
    else if (strcmp(field->path, "retry") == 0)
        check_retry(check, node);
    else
        for (size_t i = 0; i < node->count; i++)
            check_stage(check, node, node->keys[i], node->items[i]);
}
