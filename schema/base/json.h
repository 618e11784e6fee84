// The door to JSON (jansson): values, strict parsing with limits, and writing. Objects keep the order in which keys were set. Doubles
// are written in the shortest form that reads back as the same double, always with a '.' or an exponent, so that a float stays a float.
// JSON has no NaN and no infinity: js_real() turns them into the strings "NaN", "Infinity" and "-Infinity" as Trackio does, and
// js_real_of() turns these back.
//
// Ownership: constructors return a new value owned by the caller; js_set and js_append take over the value given to them; js_get
// and js_at lend. js_keep makes one more owner, js_free ends one (NULL is fine).
#pragma once
#include "schema/base/error.h"
#include "schema/base/text.h"
#include <stdbool.h>
#include <stdint.h>

struct json; // opaque

enum json_kind { JSON_KIND_NULL, JSON_KIND_BOOLEAN, JSON_KIND_INTEGER, JSON_KIND_REAL, JSON_KIND_STRING, JSON_KIND_ARRAY, JSON_KIND_OBJECT };

// Parses exactly one value; duplicate keys, trailing text and invalid UTF-8 are errors that name line and column.
struct json *js_parse(const char *bytes, size_t count, struct error *err);
struct json *js_read_file(const char *path, size_t limit_bytes, struct error *err);

struct json *js_object(void);
struct json *js_array(void);
struct json *js_string(const char *text); // NULL gives null; bytes that are not UTF-8 become U+FFFD
struct json *js_integer(int64_t value);
struct json *js_real(double value);
struct json *js_boolean(bool value);
struct json *js_null(void);
struct json *js_keep(const struct json *value);
struct json *js_copy(const struct json *value); // deep
void js_free(struct json *value);

void js_set(struct json *object, const char *key, struct json *value); // takes value; replaces
void js_remove(struct json *object, const char *key);
void js_append(struct json *array, struct json *value);                // takes value

enum json_kind js_kind(const struct json *value);                      // NULL counts as null
struct json *js_get(const struct json *object, const char *key);       // NULL if absent or not an object
struct json *js_at(const struct json *array, size_t index);            // NULL if absent
size_t js_count(const struct json *value);                             // items of an array or object, else 0
bool js_equal(const struct json *a, const struct json *b);

// Readers with a fallback for "absent or of another kind".
const char *js_string_of(const struct json *value, const char *fallback);
int64_t js_integer_of(const struct json *value, int64_t fallback);
double js_real_of(const struct json *value, double fallback); // integers and Trackio's three strings too
bool js_boolean_of(const struct json *value, bool fallback);

// Walks an object in order: `for (void *i = js_first(o); i; i = js_next(o, i))`.
void *js_first(const struct json *object);
void *js_next(const struct json *object, void *iterator);
const char *js_key(void *iterator);
struct json *js_value(void *iterator);

void js_write(struct text *out, const struct json *value);        // compact: no blanks at all, one line
void js_write_pretty(struct text *out, const struct json *value); // indented by two, ends with a newline
// Indented, whole or not at all. More than limit_bytes are an error: nothing is written.
int js_write_file(const char *path, const struct json *value, size_t limit_bytes, unsigned mode, struct error *err);
void js_write_real(struct text *out, double value);               // the number alone, as above
