// What a spec file is before it means anything: a tree of maps, lists and scalars, each with its place in its source. All nodes of one
// load live in one pool and die together; maps that overlays produce share the nodes of the files they came from, so that a fault in a
// merged value still points into the file that wrote it.
#pragma once
#include "schema/base/json.h"
#include "schema/base/text.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    SPEC_BYTES_MAX = 1 << 20,   // a file
    SPEC_NODES_MAX = 20000,     // of a file, after aliases are expanded
    SPEC_DEPTH_MAX = 32,        // of a file, after aliases are expanded
    SPEC_ALIASES_MAX = 256,
    SPEC_SCALAR_MAX = 64 << 10, // bytes
    SPEC_RUNS_MAX = 64,
    SPEC_BASE_MAX = 8           // files that inherit from each other
};

struct source {
    char *path;        // as shown in messages; of an option: its argument
    char *directory;   // absolute: what relative paths are relative to
    struct text bytes; // kept for the line under a message
    size_t order;      // messages are sorted by it
    bool option;       // --set
    bool json;         // a resolved spec: values are final, units and variables are not looked for
};

enum node_kind { NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node {
    enum node_kind kind;
    bool plain;                   // scalar without quotes
    const struct source *source;
    size_t line, column;          // from 1; line 0: no place in the source
    const char *text;             // scalar
    struct node **keys, **items;  // keys: of a map
    size_t count;
    size_t weight, height;        // nodes and depth beneath and including this one, aliases expanded
};

struct pool;
struct pool *pool_new(void);
void pool_free(struct pool *pool);
void *pool_take(struct pool *pool, size_t bytes);                           // zeroed
char *pool_string(struct pool *pool, const char *bytes, size_t count);

struct node *node_new(struct pool *pool, enum node_kind kind, const struct source *source, size_t line, size_t column);
struct node *node_scalar(struct pool *pool, const struct source *source, const char *text, bool plain);
void node_append(struct pool *pool, struct node *parent, struct node *key, struct node *item); // key NULL in a list
const struct node *node_get(const struct node *map, const char *key);       // NULL if absent, or not a map
bool node_is_null(const struct node *node);                                 // plain and empty, ~ or null

// The tree of a JSON value. NULL where it is deeper or larger than a file may be.
struct node *node_from_json(struct pool *pool, const struct source *source, const struct json *json);

// `over` laid upon `under` (a map, or NULL): maps are merged key by key, everything else is replaced, null removes. Of two overlays that
// are to become one, a null stays: it removes later.
struct node *node_merge(struct pool *pool, const struct node *under, const struct node *over, bool keep_nulls);
// A copy of a map without one of its keys (absent is fine). Children are shared.
struct node *node_without(struct pool *pool, const struct node *map, const char *key);

// ---- yaml.c: the door to libyaml ----

struct problems;
// Parses source->bytes from `offset` on (columns of the first line are counted from the start of bytes). NULL, with at least one problem
// recorded, where it is not one YAML document within the limits. Faults that leave the tree usable (duplicate keys) are recorded too.
struct node *yaml_read(struct pool *pool, const struct source *source, size_t offset, struct problems *problems);
