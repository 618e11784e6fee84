// Whether two resolved configurations are one: by every key of the table that is in the resolved copy, name and question aside.
#include "schema/spec/fields.h"

#include <string.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211U; // FNV-1a
    return hash;
}

static uint64_t mix_string(uint64_t hash, const char *string)
{
    return string ? mix(hash, string, strlen(string) + 1) : mix(hash, "\1", 1);
}

// Of -0 and 0, which are equal, one.
static uint64_t mix_number(uint64_t hash, double number)
{
    number = number == 0 ? 0 : number;
    return mix(hash, &number, sizeof number);
}

static uint64_t mix_list(uint64_t hash, const struct field *field, const struct spec *spec)
{
    const struct spec_list *list = field_of(field, spec);
    const struct spec_pairs *pairs = field_of(field, spec);
    const struct spec_integers *integers = field_of(field, spec);
    for (size_t i = 0; field->type == FIELD_STRINGS && i < list->count; i++)
        hash = mix_string(hash, list->items[i]);
    for (size_t i = 0; field->type == FIELD_PAIRS && i < pairs->count; i++)
        hash = mix_string(mix_string(hash, pairs->keys[i]), pairs->values[i]);
    if (field->type == FIELD_INTEGERS && integers->count)
        hash = mix(hash, integers->items, integers->count * sizeof *integers->items);
    for (size_t i = 0; field->type == FIELD_SPLIT && i < 3; i++)
        hash = mix_number(hash, ((const double *)field_of(field, spec))[i]);
    for (size_t i = 0; field->type == FIELD_LOSSES && i < spec->model.moe.losses_count; i++)
        hash = mix_number(mix_number(hash, spec->model.moe.losses[i].type), spec->model.moe.losses[i].coefficient);
    return mix(hash, "", 1);
}

static uint64_t mix_value(uint64_t hash, const struct field *field, const struct spec *spec)
{
    const void *at = field_of(field, spec);
    switch (field->type) {
    case FIELD_INTEGER:
    case FIELD_BYTES:
        return mix(hash, at, sizeof(int64_t));
    case FIELD_NUMBER:
    case FIELD_DURATION:
    case FIELD_SHARE:
        return mix_number(hash, *(const double *)at);
    case FIELD_BOOLEAN:
        return mix(hash, at, sizeof(bool));
    case FIELD_CHOICE:
        return mix(hash, at, sizeof(int));
    case FIELD_SECTION:
        return mix(hash, field->present ? "\2" : "\3", 1);
    case FIELD_PLAN:
        return hash;
    default:
        return field_is_string(field) ? mix_string(hash, *(char *const *)at) : mix_list(hash, field, spec);
    }
}

// A name says nothing about what is run.
static bool counts(const struct field *field, const struct spec *spec)
{
    return !field->internal && field_is_present(field, spec) && (field->type != FIELD_SECTION || !field->present || field->present(spec));
}

uint64_t spec_hash(const struct spec *spec)
{
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < spec_fields_count; i++) {
        if (!counts(&spec_fields[i], spec))
            continue;
        uint32_t row = (uint32_t)i;
        hash = mix_value(mix(hash, &row, sizeof row), &spec_fields[i], spec);
    }
    return hash;
}

bool spec_same(const struct spec *a, const struct spec *b)
{
    struct json *one = spec_to_json(a), *other = spec_to_json(b);
    for (size_t i = 0; i < spec_fields_count; i++)
        if (spec_fields[i].internal) {
            js_remove(one, spec_fields[i].path);
            js_remove(other, spec_fields[i].path);
        }
    bool same = js_equal(one, other);
    js_free(one);
    js_free(other);
    return same;
}
