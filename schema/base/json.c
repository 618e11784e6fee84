#include "schema/base/json.h"
#include "schema/base/file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A struct json is a json_t seen from outside; these two casts are the whole bridge.
static json_t *inner(const struct json *value)
{
    return (json_t *)(uintptr_t)value;
}

static struct json *outer(json_t *value)
{
    if (!value) {
        fprintf(stderr, "json: out of memory\n");
        abort();
    }
    return (struct json *)value;
}

struct json *js_parse(const char *bytes, size_t count, struct error *err)
{
    json_error_t fault;
    json_t *value = json_loadb(bytes, count, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &fault);
    if (!value)
        error_set(err, "%d:%d: %s", fault.line, fault.column, fault.text);
    return (struct json *)value;
}

struct json *js_read_file(const char *path, size_t limit_bytes, struct error *err)
{
    struct text bytes;
    text_init(&bytes, limit_bytes);
    struct json *value = NULL;
    if (file_read(path, &bytes, err) == 0) {
        value = js_parse(bytes.at, bytes.length, err);
        if (!value)
            error_context(err, "%s", path);
    }
    text_release(&bytes);
    return value;
}

int js_write_file(const char *path, const struct json *value, size_t limit_bytes, unsigned mode, struct error *err)
{
    struct text bytes;
    text_init(&bytes, limit_bytes);
    js_write_pretty(&bytes, value);
    int status = bytes.overflowed ? error_set(err, "%s: larger than %zu bytes", path, limit_bytes)
                                  : file_write_atomic(path, bytes.at, bytes.length, mode, err);
    text_release(&bytes);
    return status;
}

struct json *js_object(void)
{
    return outer(json_object());
}

struct json *js_array(void)
{
    return outer(json_array());
}

struct json *js_string(const char *string)
{
    if (!string)
        return js_null();
    json_t *value = json_string(string);
    if (value)
        return outer(value);
    struct text clean;
    text_init(&clean, SIZE_MAX / 2);
    for (const unsigned char *at = (const unsigned char *)string; *at;) {
        size_t length = utf8_length((const char *)at);
        if (length)
            text_add_bytes(&clean, at, length);
        else
            text_add(&clean, "\xEF\xBF\xBD");
        at += length ? length : 1;
    }
    value = json_string(clean.at);
    text_release(&clean);
    return outer(value);
}

struct json *js_integer(int64_t number)
{
    return outer(json_integer(number));
}

struct json *js_real(double number)
{
    if (isnan(number))
        return outer(json_string("NaN"));
    if (isinf(number))
        return outer(json_string(number > 0 ? "Infinity" : "-Infinity"));
    return outer(json_real(number));
}

struct json *js_boolean(bool truth)
{
    return outer(json_boolean(truth));
}

struct json *js_null(void)
{
    return outer(json_null());
}

struct json *js_keep(const struct json *value)
{
    return (struct json *)json_incref(inner(value));
}

struct json *js_copy(const struct json *value)
{
    return outer(json_deep_copy(inner(value)));
}

void js_free(struct json *value)
{
    json_decref(inner(value));
}

void js_set(struct json *object, const char *key, struct json *value)
{
    if (json_object_set_new(inner(object), key, inner(value)) != 0) {
        fprintf(stderr, "js_set: '%s' is not a valid key\n", key);
        abort();
    }
}

void js_remove(struct json *object, const char *key)
{
    json_object_del(inner(object), key);
}

void js_append(struct json *array, struct json *value)
{
    if (json_array_append_new(inner(array), inner(value)) != 0)
        abort();
}

enum json_kind js_kind(const struct json *value)
{
    if (!value)
        return JSON_KIND_NULL;
    switch (json_typeof(inner(value))) {
    case JSON_OBJECT:
        return JSON_KIND_OBJECT;
    case JSON_ARRAY:
        return JSON_KIND_ARRAY;
    case JSON_STRING:
        return JSON_KIND_STRING;
    case JSON_INTEGER:
        return JSON_KIND_INTEGER;
    case JSON_REAL:
        return JSON_KIND_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JSON_KIND_BOOLEAN;
    default:
        return JSON_KIND_NULL;
    }
}

struct json *js_get(const struct json *object, const char *key)
{
    return (struct json *)json_object_get(inner(object), key);
}

struct json *js_at(const struct json *array, size_t index)
{
    return (struct json *)json_array_get(inner(array), index);
}

size_t js_count(const struct json *value)
{
    return json_is_object(inner(value)) ? json_object_size(inner(value)) : json_array_size(inner(value));
}

bool js_equal(const struct json *a, const struct json *b)
{
    return json_equal(inner(a), inner(b));
}

const char *js_string_of(const struct json *value, const char *fallback)
{
    const char *string = json_string_value(inner(value));
    return string ? string : fallback;
}

int64_t js_integer_of(const struct json *value, int64_t fallback)
{
    return json_is_integer(inner(value)) ? json_integer_value(inner(value)) : fallback;
}

double js_real_of(const struct json *value, double fallback)
{
    if (json_is_number(inner(value)))
        return json_number_value(inner(value));
    const char *string = json_string_value(inner(value));
    if (string && strcmp(string, "NaN") == 0)
        return NAN;
    if (string && strcmp(string, "Infinity") == 0)
        return INFINITY;
    if (string && strcmp(string, "-Infinity") == 0)
        return -INFINITY;
    return fallback;
}

bool js_boolean_of(const struct json *value, bool fallback)
{
    return json_is_boolean(inner(value)) ? json_is_true(inner(value)) : fallback;
}

void *js_first(const struct json *object)
{
    return json_object_iter(inner(object));
}

void *js_next(const struct json *object, void *iterator)
{
    return json_object_iter_next(inner(object), iterator);
}

const char *js_key(void *iterator)
{
    return json_object_iter_key(iterator);
}

struct json *js_value(void *iterator)
{
    return (struct json *)json_object_iter_value(iterator);
}

// ---- writing ----

void js_write_real(struct text *out, double number)
{
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    text_add(out, digits);
    if (!strpbrk(digits, ".en"))
        text_add(out, ".0");
}

static void write_string(struct text *out, const char *bytes, size_t count)
{
    text_add(out, "\"");
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte == '"' || byte == '\\')
            text_addf(out, "\\%c", byte);
        else if (byte == '\n')
            text_add(out, "\\n");
        else if (byte < 0x20 || byte == 0x7F)
            text_addf(out, "\\u%04x", byte);
        else
            text_add_bytes(out, &bytes[i], 1);
    }
    text_add(out, "\"");
}

static void line_break(struct text *out, int indent)
{
    if (indent >= 0)
        text_addf(out, "\n%*s", indent * 2, "");
}

// indent < 0: compact; otherwise the depth of this value.
static void write_value(struct text *out, const json_t *value, int indent)
{
    int deeper = indent < 0 ? -1 : indent + 1;
    size_t written = 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT: {
        text_add(out, "{");
        const char *key;
        json_t *item;
        json_object_foreach((json_t *)(uintptr_t)value, key, item) {
            text_add(out, written++ ? "," : "");
            line_break(out, deeper);
            write_string(out, key, strlen(key));
            text_add(out, indent < 0 ? ":" : ": ");
            write_value(out, item, deeper);
        }
        if (written)
            line_break(out, indent);
        text_add(out, "}");
        break;
    }
    case JSON_ARRAY:
        text_add(out, "[");
        for (; written < json_array_size(value); written++) {
            text_add(out, written ? "," : "");
            line_break(out, deeper);
            write_value(out, json_array_get(value, written), deeper);
        }
        if (written)
            line_break(out, indent);
        text_add(out, "]");
        break;
    case JSON_STRING:
        write_string(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        text_addf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        js_write_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
        text_add(out, "true");
        break;
    case JSON_FALSE:
        text_add(out, "false");
        break;
    case JSON_NULL:
        text_add(out, "null");
        break;
    }
}

void js_write(struct text *out, const struct json *value)
{
    write_value(out, value ? inner(value) : json_null(), -1);
}

void js_write_pretty(struct text *out, const struct json *value)
{
    write_value(out, value ? inner(value) : json_null(), 0);
    text_add(out, "\n");
}
