// The field table for readers: Markdown for people, JSON Schema for editors.
#include "schema/spec/fields.h"
#include "schema/base/text.h"

#include <string.h>

// ---- Markdown ----

static void add_default(struct text *out, const struct field *field)
{
    if (field->required && !field->instead)
        text_add(out, "required");
    else if (field->derived)
        text_addf(out, "%s", field->derived);
    else if (field->standard)
        text_addf(out, field->type == FIELD_SPLIT ? "`[%s]`" : "`%s`", field->standard);
}

// Whether the key is of a section that this build runs nothing of.
static bool is_of_refused_section(const struct field *field)
{
    const struct field *section = field_parent(field);
    return section && (section->cannot || is_of_refused_section(section));
}

// What of the key this build runs: all, some choices, only the default, nothing.
static void add_runs(struct text *out, const struct field *field)
{
    if (is_of_refused_section(field)) {
        text_add(out, "not yet");
    } else if (!field->cannot) {
        text_add(out, "yes");
    } else if (field->choices && field->runs) {
        size_t shown = 0;
        for (size_t i = 0; field->choices[i]; i++)
            if (field->runs >> i & 1)
                text_addf(out, "%s`%s`", shown++ ? ", " : "", field->choices[i]);
    } else if (field->type == FIELD_LOSSES) {
        text_add(out, "`aux_loss`");
    } else if (field->standard) {
        text_add(out, field->refused ? "in part" : "the default");
    } else {
        text_add(out, "not yet");
    }
}

static void add_row(struct text *out, const struct field *field)
{
    text_addf(out, "| `%s` | ", field_key(field));
    field_expectation(out, field);
    text_add(out, " | ");
    add_default(out, field);
    text_add(out, " | ");
    add_runs(out, field);
    text_add(out, " | ");
    for (const char *at = field->help; *at; at++)
        text_addf(out, *at == '|' ? "\\%c" : "%c", *at);
    text_add(out, " |\n");
}

static void add_section(struct text *out, const struct field *section)
{
    const char *path = section ? section->path : "";
    size_t rows = 0;
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field_parent(field) != section || field->internal || field->type == FIELD_SECTION)
            continue;
        if (!rows++) {
            if (section)
                text_addf(out, "\n## `%s`\n\n%s%s.\n", path, section->help, section->optional ? " (optional)" : "");
            text_add(out, "\n| key | value | default | this build runs | |\n|---|---|---|---|---|\n");
        }
        add_row(out, field);
    }
    if (!rows && section)
        text_addf(out, "\n## `%s`\n\n%s.\n", path, section->help);
}

void spec_schema_markdown(struct text *out)
{
    text_add(out, "# Keys of a spec\n\n"
                  "A spec is one YAML 1.2 document. `runs:` maps names to overlays on the rest of the file; in an overlay `null` removes a key.\n"
                  "`base: other.yaml` inherits from another spec. Relative paths start at the spec's directory. `${NAME}` in a string or in `base` is the\n"
                  "environment variable NAME; `$$` is a dollar sign. `sweep:` makes a run for each of many values, `stages:` orders runs. A key that this build cannot run yet is checked and planned, and refused by\n"
                  "`run` and `submit`.\n");
    add_section(out, NULL);
    for (size_t i = 0; i < spec_fields_count; i++)
        if (spec_fields[i].type == FIELD_SECTION)
            add_section(out, &spec_fields[i]);
}

// ---- JSON Schema ----

static void set_choices(struct json *schema, const char *const *choices)
{
    struct json *list = js_array();
    for (size_t i = 0; choices[i]; i++)
        js_append(list, js_string(choices[i]));
    js_set(schema, "enum", list);
}

static void set_range(struct json *schema, const struct field *field)
{
    if (field->least == 0 && field->most == 0)
        return;
    bool whole = field->type == FIELD_INTEGER || field->type == FIELD_INTEGERS;
    js_set(schema, field->open & OPEN_LEAST ? "exclusiveMinimum" : "minimum", whole ? js_integer((int64_t)field->least) : js_real(field->least));
    js_set(schema, field->open & OPEN_MOST ? "exclusiveMaximum" : "maximum", whole ? js_integer((int64_t)field->most) : js_real(field->most));
}

// {"type": "array", "items": {"type": …}}
static void set_items(struct json *schema, const char *type)
{
    struct json *items = js_object();
    js_set(items, "type", js_string(type));
    js_set(schema, "items", items);
}

static struct json *loss_items(void)
{
    struct json *items = js_object(), *properties = js_object(), *type = js_object(), *coefficient = js_object();
    set_choices(type, moe_loss_names);
    js_set(coefficient, "type", js_string("number"));
    js_set(coefficient, "minimum", js_integer(0));
    js_set(properties, "type", type);
    js_set(properties, "coefficient", coefficient);
    js_set(items, "type", js_string("object"));
    js_set(items, "properties", properties);
    js_set(items, "additionalProperties", js_boolean(false));
    return items;
}

// The default as the type that it has, where the table has one.
static void set_default(struct json *schema, const struct field *field, const struct json *defaults)
{
    if (!field->standard)
        return;
    if (field->type == FIELD_BYTES || field->type == FIELD_DURATION || field->type == FIELD_SHARE) {
        js_set(schema, "default", js_string(field->standard));
        return;
    }
    char path[96];
    strncpy(path, field->path, sizeof path - 1);
    path[sizeof path - 1] = 0;
    const struct json *at = defaults;
    for (char *save = NULL, *word = strtok_r(path, ".", &save); word && at; word = strtok_r(NULL, ".", &save))
        at = js_get(at, word);
    if (at)
        js_set(schema, "default", js_copy(at));
}

// "x-runs": what of the key this build runs: "all", "default", "part", "none", or a list of choices.
static struct json *runs_of(const struct field *field)
{
    if (is_of_refused_section(field))
        return js_string("none");
    if (!field->cannot)
        return js_string("all");
    if (field->choices && field->runs) {
        struct json *list = js_array();
        for (size_t i = 0; field->choices[i]; i++)
            if (field->runs >> i & 1)
                js_append(list, js_string(field->choices[i]));
        return list;
    }
    if (field->refused)
        return js_string("part");
    return js_string(field->standard ? "default" : "none");
}

static struct json *describe(const struct field *field, const struct json *defaults)
{
    static const char *const types[] = {[FIELD_SECTION] = "object", [FIELD_STRING] = "string", [FIELD_PATH] = "string",
        [FIELD_TOKENIZER] = "string", [FIELD_NAME] = "string", [FIELD_WORD] = "string", [FIELD_INTEGER] = "integer",
        [FIELD_NUMBER] = "number", [FIELD_BOOLEAN] = "boolean", [FIELD_CHOICE] = "string", [FIELD_BYTES] = "string",
        [FIELD_DURATION] = "string", [FIELD_SHARE] = NULL, [FIELD_STRINGS] = "array", [FIELD_PAIRS] = "object",
        [FIELD_INTEGERS] = "array", [FIELD_SPLIT] = "array", [FIELD_LOSSES] = "array", [FIELD_PLAN] = "object"};
    struct json *schema = js_object();
    if (types[field->type])
        js_set(schema, "type", js_string(types[field->type]));
    js_set(schema, "description", js_string(field->help));
    if (field->choices && field->type != FIELD_STRINGS)
        set_choices(schema, field->choices);
    if (field->type == FIELD_INTEGER || field->type == FIELD_NUMBER)
        set_range(schema, field);
    if (field->type == FIELD_NAME)
        js_set(schema, "pattern", js_string("^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"));
    if (field->type == FIELD_STRINGS)
        set_items(schema, "string");
    if (field->type == FIELD_STRINGS && field->choices)
        set_choices(js_get(schema, "items"), field->choices);
    if (field->type == FIELD_INTEGERS) {
        set_items(schema, "integer");
        set_range(js_get(schema, "items"), field);
        js_set(schema, "minItems", js_integer(1));
    }
    if (field->type == FIELD_SPLIT)
        set_items(schema, "number");
    if (field->type == FIELD_LOSSES)
        js_set(schema, "items", loss_items());
    set_default(schema, field, defaults);
    js_set(schema, "x-runs", runs_of(field));
    return schema;
}

// {"type": "object", "properties": {the section's keys}, "additionalProperties": false}. overlay: nothing is required, null removes.
static struct json *describe_section(const struct field *section, const struct json *defaults, bool overlay);

static struct json *properties_of(const struct field *section, const struct json *defaults, bool overlay)
{
    struct json *properties = js_object();
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field_parent(field) != section || field->internal)
            continue;
        struct json *schema = field->type == FIELD_SECTION ? describe_section(field, defaults, overlay) : describe(field, defaults);
        if (overlay) {
            struct json *either = js_array(), *null = js_object(), *outer = js_object();
            js_set(null, "type", js_string("null"));
            js_append(either, schema);
            js_append(either, null);
            js_set(outer, "anyOf", either);
            schema = outer;
        }
        js_set(properties, field_key(field), schema);
    }
    return properties;
}

static struct json *describe_section(const struct field *section, const struct json *defaults, bool overlay)
{
    struct json *schema = js_object();
    js_set(schema, "type", js_string("object"));
    if (section)
        js_set(schema, "description", js_string(section->help));
    js_set(schema, "properties", properties_of(section, defaults, overlay));
    js_set(schema, "additionalProperties", js_boolean(false));
    return schema;
}

struct json *spec_schema_json(void)
{
    // Required keys may come from a base or an overlay, so a file alone need not have them: `validate` is the judge.
    struct spec spec;
    spec_init(&spec);
    spec.model.moe.experts = 1; // so that the defaults of optional sections are in the copy
    spec.model.from.run = string_copy("any");
    spec.preflight.alltoall.present = spec.slurm.present = spec.hf_jobs.present = spec.training.rampup_batch_size.present = true;
    struct json *defaults = spec_to_json(&spec);
    spec_release(&spec);
    struct json *schema = describe_section(NULL, defaults, false);
    struct json *runs = js_object(), *base = js_object();
    js_set(runs, "type", js_string("object"));
    js_set(runs, "description", js_string("named overlays on the rest of the file"));
    js_set(runs, "additionalProperties", describe_section(NULL, defaults, true));
    js_set(base, "type", js_string("string"));
    js_set(base, "description", js_string("another spec to inherit from"));
    js_set(js_get(schema, "properties"), "base", base);
    js_set(js_get(schema, "properties"), "runs", runs);
    js_set(schema, "$schema", js_string("https://json-schema.org/draft/2020-12/schema"));
    js_set(schema, "title", js_string("Switchyard spec"));
    js_free(defaults);
    return schema;
}
