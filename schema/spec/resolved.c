// A resolved spec as a value: its defaults, its JSON and back, what this build can run of it. All of it is loops over the field table.
#include "schema/spec/check.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- defaults ----

// "100, 0, 0" of the table into the three parts.
static void set_split(double *parts, const char *standard)
{
    char *at = (char *)(uintptr_t)standard;
    for (size_t i = 0; i < 3; i++) {
        parts[i] = strtod(at, &at);
        at += *at == ',';
    }
}

static struct spec standards; // every default of the table; made once
static pthread_once_t standards_made = PTHREAD_ONCE_INIT;

static void make_standards(void)
{
    struct source source = {.path = (char *)(uintptr_t)"defaults", .directory = (char *)(uintptr_t)"/"};
    struct problems problems = {0};
    struct check check = {.problems = &problems, .spec = &standards};
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (!field->standard)
            continue;
        struct node node = {.kind = NODE_SCALAR, .plain = true, .source = &source, .text = field->standard};
        if (field->type == FIELD_SPLIT)
            set_split(field_at(field, &standards), field->standard);
        else if (!value_convert(&check, field, &node))
            abort(); // a row of the table whose default does not fit its own type
    }
    problems_release(&problems);
}

const struct spec *spec_standards(void)
{
    pthread_once(&standards_made, make_standards);
    return &standards;
}

void spec_init(struct spec *spec)
{
    *spec = *spec_standards();
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field->standard && field_is_string(field)) {
            char **string = field_at(field, spec);
            *string = string_copy(*string);
        }
    }
}

void spec_release(struct spec *spec)
{
    for (size_t i = 0; i < spec_fields_count; i++)
        value_release(&spec_fields[i], spec);
    *spec = (struct spec){0};
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t spec_layer_experts(const struct spec *spec, int64_t layer)
{
    const struct spec_moe *moe = &spec->model.moe;
    int64_t index = 0, every = moe->layer_frequency > 0 ? moe->layer_frequency : 1; // index: among the MoE layers
    if (moe->experts == 0)
        return 0;
    if (moe->layers.count) {
        const int64_t *at = bsearch(&layer, moe->layers.items, moe->layers.count, sizeof *at, ascending);
        if (!at)
            return 0;
        index = at - moe->layers.items;
    } else if (layer % every) {
        return 0;
    } else {
        index = layer / every;
    }
    return index < (int64_t)moe->experts_per_layer.count ? moe->experts_per_layer.items[index] : moe->experts;
}

int64_t spec_moe_layers(const struct spec *spec)
{
    int64_t count = 0;
    for (int64_t layer = 0; layer < spec->model.layers; layer++)
        count += spec_layer_experts(spec, layer) > 0;
    return count;
}

bool spec_moe_asks_for(const struct spec *spec, enum spec_moe_loss type)
{
    for (size_t i = 0; i < spec->model.moe.losses_count; i++)
        if (spec->model.moe.losses[i].type == type)
            return true;
    return false;
}

double spec_moe_coefficient(const struct spec *spec, enum spec_moe_loss type)
{
    double coefficient = 0;
    for (size_t i = 0; i < spec->model.moe.losses_count; i++)
        if (spec->model.moe.losses[i].type == type)
            coefficient += spec->model.moe.losses[i].coefficient;
    return coefficient;
}

int64_t spec_world_size(const struct spec *spec)
{
    return spec->resources.nodes * spec->resources.ranks_per_node;
}

int64_t spec_data_parallel_size(const struct spec *spec)
{
    return spec_world_size(spec) / (spec->parallelism.tensor * spec->parallelism.pipeline * spec->parallelism.context);
}

// ---- to JSON ----

static struct json *losses_to_json(const struct spec_moe *moe)
{
    struct json *list = js_array();
    for (size_t i = 0; i < moe->losses_count; i++) {
        struct json *item = js_object();
        js_set(item, "type", js_string(moe_loss_names[moe->losses[i].type]));
        js_set(item, "coefficient", js_real(moe->losses[i].coefficient));
        js_append(list, item);
    }
    return list;
}

static struct json *list_to_json(const struct field *field, const struct spec *spec)
{
    if (field->type == FIELD_PAIRS) {
        const struct spec_pairs *pairs = field_of(field, spec);
        struct json *map = js_object();
        for (size_t i = 0; i < pairs->count; i++)
            js_set(map, pairs->keys[i], js_string(pairs->values[i]));
        return map;
    }
    struct json *list = js_array();
    if (field->type == FIELD_STRINGS) {
        const struct spec_list *strings = field_of(field, spec);
        for (size_t i = 0; i < strings->count; i++)
            js_append(list, js_string(strings->items[i]));
    } else {
        for (size_t i = 0; i < 3; i++)
            js_append(list, js_real(((const double *)field_of(field, spec))[i]));
    }
    return list;
}

static struct json *integers_to_json(const struct spec_integers *integers)
{
    struct json *list = js_array();
    for (size_t i = 0; i < integers->count; i++)
        js_append(list, js_integer(integers->items[i]));
    return list;
}

struct json *field_to_json(const struct field *field, const struct spec *spec)
{
    const void *at = field_of(field, spec);
    switch (field->type) {
    case FIELD_INTEGER:
        return field->standard || *(const int64_t *)at ? js_integer(*(const int64_t *)at) : NULL;
    case FIELD_BYTES:
        return *(const int64_t *)at ? js_integer(*(const int64_t *)at) : NULL;
    case FIELD_DURATION:
        return field->standard || *(const double *)at > 0 ? js_real(*(const double *)at) : NULL;
    case FIELD_NUMBER:
    case FIELD_SHARE:
        return js_real(*(const double *)at);
    case FIELD_BOOLEAN:
        return js_boolean(*(const bool *)at);
    case FIELD_CHOICE:
        return js_string(field->choices[*(const int *)at]);
    case FIELD_LOSSES:
        return losses_to_json(&spec->model.moe);
    case FIELD_INTEGERS:
        return ((const struct spec_integers *)at)->count ? integers_to_json(at) : NULL;
    case FIELD_STRINGS:
    case FIELD_PAIRS:
    case FIELD_SPLIT:
        return list_to_json(field, spec);
    default: // strings
        return *(char *const *)at ? js_string(*(char *const *)at) : NULL;
    }
}

// Whether the sections above a row are in the resolved copy.
bool field_is_present(const struct field *field, const struct spec *spec)
{
    for (const struct field *section = field_parent(field); section; section = field_parent(section))
        if (section->present && !section->present(spec))
            return false;
    return true;
}

// The object of the row's section, made where it is not there yet.
static struct json *object_of(struct json *root, const struct field *section)
{
    if (!section)
        return root;
    struct json *parent = object_of(root, field_parent(section));
    struct json *object = js_get(parent, field_key(section));
    if (!object) {
        object = js_object();
        js_set(parent, field_key(section), object);
    }
    return object;
}

struct json *spec_to_json(const struct spec *spec)
{
    struct json *root = js_object();
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field->type == FIELD_PLAN || !field_is_present(field, spec))
            continue;
        if (field->type == FIELD_SECTION) {
            if (field->present && field->present(spec))
                object_of(root, field);
            continue;
        }
        struct json *value = field_to_json(field, spec);
        if (value)
            js_set(object_of(root, field_parent(field)), field_key(field), value);
    }
    return root;
}

// ---- from JSON ----

static int report(struct problems *problems, struct error *err)
{
    if (problems_errors(problems) == 0)
        return 0;
    struct text text;
    text_init(&text, ERROR_TEXT_MAX);
    for (size_t i = 0; i < problems->count; i++) {
        if (problems->items[i].warning)
            continue;
        text_addf(&text, "%s%s", text.length ? "\n" : "", problems->items[i].message);
    }
    error_set(err, "%s", text.at);
    text_release(&text);
    return -1;
}

int spec_from_json(struct spec *spec, const struct json *json, struct error *err)
{
    struct problems problems = {0};
    struct pool *pool = pool_new();
    struct source source = {.path = (char *)(uintptr_t)"spec", .directory = (char *)(uintptr_t)"/", .json = true};
    struct check check = {.problems = &problems, .pool = pool, .spec = spec};
    int status;
    spec_init(spec);
    struct node *root = node_from_json(pool, &source, json);
    if (root) {
        convert(&check, root, true);
        check_rules(&check);
        status = report(&problems, err);
    } else {
        status = error_set(err, "the spec is too large or nested too deeply");
    }
    free(check.states);
    problems_release(&problems);
    pool_free(pool);
    if (status != 0)
        spec_release(spec);
    return status;
}

// ---- what this build can run ----

static bool is_default(const struct field *field, const struct spec *spec, const struct spec *defaults)
{
    const void *at = field_of(field, spec), *standard = field_of(field, defaults);
    switch (field->type) {
    case FIELD_INTEGER:
    case FIELD_BYTES:
        return *(const int64_t *)at == *(const int64_t *)standard;
    case FIELD_NUMBER:
    case FIELD_DURATION:
    case FIELD_SHARE:
        return !(*(const double *)at < *(const double *)standard) && !(*(const double *)at > *(const double *)standard);
    case FIELD_BOOLEAN:
        return *(const bool *)at == *(const bool *)standard;
    case FIELD_STRINGS:
        return ((const struct spec_list *)at)->count == 0;
    case FIELD_PAIRS:
        return ((const struct spec_pairs *)at)->count == 0;
    case FIELD_INTEGERS:
        return ((const struct spec_integers *)at)->count == 0;
    default: // strings without a default
        return !*(char *const *)at;
    }
}

static int choice_of(const struct field *field, const struct spec *spec)
{
    if (field->type == FIELD_CHOICE)
        return *(const int *)field_of(field, spec);
    const char *word = *(char *const *)field_of(field, spec);
    for (int i = 0; field->choices[i]; i++)
        if (strcmp(field->choices[i], word) == 0)
            return i;
    abort(); // conversion lets no other word in
}

bool field_refused(struct text *out, const struct field *field, const struct spec *spec)
{
    bool refused = false;
    if (!field->cannot || field->type == FIELD_PLAN || !field_is_present(field, spec))
        return false;
    if (field->refused)
        refused = field->refused(spec);
    else if (field->choices)
        refused = !(field->runs >> choice_of(field, spec) & 1);
    else
        refused = !is_default(field, spec, spec_standards());
    if (!refused)
        return false;
    if (field->choices)
        text_addf(out, "%s: %s: this build cannot %s yet", field->path, field->choices[choice_of(field, spec)], field->cannot);
    else
        text_addf(out, "%s: this build cannot %s yet", field->path, field->cannot);
    return true;
}

int spec_runnable(const struct spec *spec, struct error *err)
{
    struct text all, one;
    text_init(&all, ERROR_TEXT_MAX);
    text_init(&one, 1024);
    for (size_t i = 0; i < spec_fields_count; i++) {
        text_clear(&one);
        if (field_refused(&one, &spec_fields[i], spec))
            text_addf(&all, "%s%s", all.length ? "\n" : "", one.at);
    }
    int status = all.length ? error_set(err, "%s", all.at) : 0;
    text_release(&one);
    text_release(&all);
    return status;
}
