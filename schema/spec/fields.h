// The field table: one row a key of a spec. Parsing, defaults, range errors, the resolved copy, what this build can run, the documentation
// and the JSON Schema are loops over it.
#pragma once
#include "schema/spec/spec.h"
#include <stddef.h>

enum field_type {
    FIELD_SECTION,   // a map of further rows
    FIELD_STRING,    // char *; ${VAR} is replaced
    FIELD_PATH,      // char *; absolute once resolved
    FIELD_TOKENIZER, // char *; "byte" or a path
    FIELD_NAME,      // char *; [A-Za-z0-9_-]{1,64}, not '-' first
    FIELD_WORD,      // char *; one of choices
    FIELD_INTEGER,   // int64_t
    FIELD_NUMBER,    // double
    FIELD_BOOLEAN,   // bool
    FIELD_CHOICE,    // an enum (int): index into choices
    FIELD_BYTES,     // int64_t; 8GiB, 80GB
    FIELD_DURATION,  // double, seconds; 2h, 1h30m
    FIELD_SHARE,     // double 0..1; 90% or 0.9
    FIELD_STRINGS,   // struct spec_list
    FIELD_INTEGERS,  // struct spec_integers; the range is each item's
    FIELD_PAIRS,     // struct spec_pairs
    FIELD_SPLIT,     // double[3]
    FIELD_LOSSES,    // losses and losses_count of struct spec_moe
    FIELD_PLAN       // sweep, stages, retry: how runs are made and ordered; no member of struct spec
};

enum field_open { OPEN_NONE = 0, OPEN_LEAST = 1, OPEN_MOST = 2 }; // ends of the range that do not belong to it

struct field {
    const char *path;            // dotted
    enum field_type type;
    size_t offset;               // in struct spec
    const char *standard;        // the default as one would write it; NULL: none (strings: absent; numbers: 0, or derived)
    double least, most;          // range; both 0: none
    unsigned open;               // enum field_open
    const char *const *choices;  // ends with NULL
    const char *letters;         // FIELD_STRING, FIELD_STRINGS: what a value may hold besides letters and digits; NULL: anything
    bool required;               // wherever its section is there
    const char *instead;         // path of a key whose presence makes up for a missing required one
    bool optional;               // FIELD_SECTION: its required keys are wanted only where it is written
    bool internal;               // no key of a file: only in a resolved spec
    const char *derived;         // where the default comes from, for the documentation
    // What this build cannot run yet. cannot completes "this build cannot … yet"; with NULL every value runs. Refused are: choices
    // without a bit in `runs`; else any value other than the default; where `refused` is given, it decides.
    const char *cannot;
    unsigned runs;
    bool (*refused)(const struct spec *spec);
    bool (*present)(const struct spec *spec); // FIELD_SECTION: whether it is in the resolved copy; NULL: always
    const char *help;
};

extern const struct field spec_fields[];
extern const size_t spec_fields_count;

const struct field *field_find(const char *path);                // NULL if there is none
static inline size_t field_index(const struct field *field)
{
    return (size_t)(field - spec_fields);
}
const char *field_key(const struct field *field);                // last word of its path
const struct field *field_parent(const struct field *field);     // its section; NULL at the top
static inline void *field_at(const struct field *field, struct spec *spec)
{
    return (char *)spec + field->offset;
}
static inline const void *field_of(const struct field *field, const struct spec *spec)
{
    return (const char *)spec + field->offset;
}
static inline bool field_is_string(const struct field *field) // a char * that the spec owns
{
    return field->type == FIELD_STRING || field->type == FIELD_PATH || field->type == FIELD_TOKENIZER || field->type == FIELD_NAME ||
        field->type == FIELD_WORD;
}
// What a value must be: "a whole number from 1 to 64", "one of `fp32`, `bf16`, `fp16`".
void field_expectation(struct text *out, const struct field *field);

// resolved.c: why this build refuses the value in spec ("this build cannot … yet"); false if it runs.
bool field_refused(struct text *out, const struct field *field, const struct spec *spec);
bool field_is_present(const struct field *field, const struct spec *spec); // whether the sections above it are in the resolved copy
struct json *field_to_json(const struct field *field, const struct spec *spec); // NULL: not set and without a default
const struct spec *spec_standards(void); // every default; never released

extern const char *const moe_loss_names[]; // choices of model.moe.losses[].type
