// One resolution in progress: a tree on its way into a struct spec. Each row of the field table has a state, so that cross-field rules can
// tell what parsed and every message finds its place.
#pragma once
#include "schema/spec/fields.h"
#include "schema/spec/problem.h"

struct field_state {
    const struct node *key, *value; // NULL: not written
    bool bad;                       // written but wrong, or missing though required
    bool faulted;                   // a rule found fault with it; of a section: it has a key that is unknown
};

struct check {
    struct problems *problems;
    struct pool *pool;
    struct spec *spec;
    const struct node *root;
    struct field_state *states; // one a row
};

// ---- value.c: one value by its row's type, into spec. false, with the fault recorded at its place. ----
bool value_convert(struct check *check, const struct field *field, const struct node *node);
bool value_refuse(struct check *check, const struct field *field, const struct node *node, const char *why); // why: may be NULL
bool value_number(double *value, const struct node *node);        // a finite number of YAML 1.2's core
bool value_integer(struct check *check, const struct field *field, const struct node *node, int64_t *value); // a whole number in the row's range
// value_text.c: strings and lists
bool value_convert_text(struct check *check, const struct field *field, const struct node *node);
void value_release(const struct field *field, struct spec *spec); // frees what the row's member owns
bool name_is_valid(const char *name);
// A string with its variables replaced, free()d by the caller; NULL with the fault recorded.
char *value_expand(struct problems *problems, const struct node *node);

// ---- convert.c: a whole tree ----
// Fills spec (from spec_init) and the states. required: missing keys are faults, defaults are derived. states is free()d by the caller.
void convert(struct check *check, const struct node *root, bool required);
struct field_state *state_of(const struct check *check, const char *path);
// Records a fault (or a warning) at that key: where its value is written, else its section, else the file.
void check_at(struct check *check, const char *path, bool warning, const char *format, ...) __attribute__((format(printf, 4, 5)));
struct problem check_place(const struct check *check, const struct field *field); // source, line, column only

// ---- unknown.c ----

// The fault of a key that no row has, with what may have been meant.
void unknown_key(struct check *check, const struct node *key, const char *section);
const struct field *unknown_path_meant(const char *path); // of a whole path that is no key; NULL: nothing near

// ---- rules.c, sweep.c ----
void check_rules(struct check *check);  // what keys demand of each other
void check_plan_key(struct check *check, const struct field *field, const struct node *node); // sweep, stages
