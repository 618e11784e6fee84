#include "schema/spec/node.h"

#include <stdlib.h>
#include <string.h>

enum { POOL_BLOCK = 64 << 10 }; // bytes

struct block {
    struct block *next;
    size_t used, size;
    max_align_t bytes[];
};

struct pool {
    struct block *blocks;
};

struct pool *pool_new(void)
{
    return allocate(1, sizeof(struct pool));
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    for (struct block *block = pool->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(pool);
}

void *pool_take(struct pool *pool, size_t bytes)
{
    size_t align = _Alignof(max_align_t);
    bytes = (bytes + align - 1) / align * align;
    struct block *block = pool->blocks;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > POOL_BLOCK ? bytes : POOL_BLOCK;
        block = allocate(1, sizeof *block + size);
        block->size = size;
        block->next = pool->blocks;
        pool->blocks = block;
    }
    void *at = (char *)block->bytes + block->used;
    block->used += bytes;
    return at;
}

char *pool_string(struct pool *pool, const char *bytes, size_t count)
{
    char *string = pool_take(pool, count + 1);
    if (count)
        memcpy(string, bytes, count);
    return string;
}

struct node *node_new(struct pool *pool, enum node_kind kind, const struct source *source, size_t line, size_t column)
{
    struct node *node = pool_take(pool, sizeof *node);
    *node = (struct node){.kind = kind, .source = source, .line = line, .column = column, .text = "", .weight = 1, .height = 1};
    return node;
}

struct node *node_scalar(struct pool *pool, const struct source *source, const char *text, bool plain)
{
    struct node *node = node_new(pool, NODE_SCALAR, source, 0, 0);
    node->text = pool_string(pool, text, strlen(text));
    node->plain = plain;
    return node;
}

// Room for one more pointer: arrays double at powers of two.
static struct node **grown(struct pool *pool, struct node **old, size_t count)
{
    if (count & (count - 1) || count == 1)
        return old;
    struct node **fresh = pool_take(pool, (count ? 2 * count : 2) * sizeof *fresh);
    if (count)
        memcpy(fresh, old, count * sizeof *fresh);
    return fresh;
}

void node_append(struct pool *pool, struct node *parent, struct node *key, struct node *item)
{
    parent->items = grown(pool, parent->items, parent->count);
    if (parent->kind == NODE_MAP)
        parent->keys = grown(pool, parent->keys, parent->count);
    if (key)
        parent->keys[parent->count] = key;
    parent->items[parent->count++] = item;
    parent->weight += item->weight + (key ? 1 : 0);
    if (item->height >= parent->height)
        parent->height = item->height + 1;
}

static size_t find(const struct node *map, const char *key)
{
    for (size_t i = 0; map && map->kind == NODE_MAP && i < map->count; i++)
        if (strcmp(map->keys[i]->text, key) == 0)
            return i;
    return (size_t)-1;
}

const struct node *node_get(const struct node *map, const char *key)
{
    size_t at = find(map, key);
    return at == (size_t)-1 ? NULL : map->items[at];
}

bool node_is_null(const struct node *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != NODE_SCALAR || !node->plain)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(node->text, words[i]) == 0)
            return true;
    return false;
}

static struct node *scalar_from_json(struct pool *pool, const struct source *source, const struct json *json)
{
    struct text number;
    struct node *node;
    switch (js_kind(json)) {
    case JSON_KIND_STRING:
        return node_scalar(pool, source, js_string_of(json, ""), false);
    case JSON_KIND_BOOLEAN:
        return node_scalar(pool, source, js_boolean_of(json, false) ? "true" : "false", true);
    case JSON_KIND_INTEGER:
    case JSON_KIND_REAL:
        text_init(&number, 64);
        js_write(&number, json);
        node = node_scalar(pool, source, number.at, true);
        text_release(&number);
        return node;
    default:
        return node_scalar(pool, source, "null", true);
    }
}

static struct node *from_json(struct pool *pool, const struct source *source, const struct json *json, size_t depth, size_t *budget)
{
    if (depth > SPEC_DEPTH_MAX || *budget == 0)
        return NULL;
    --*budget;
    enum json_kind kind = js_kind(json);
    if (kind != JSON_KIND_ARRAY && kind != JSON_KIND_OBJECT)
        return scalar_from_json(pool, source, json);
    struct node *node = node_new(pool, kind == JSON_KIND_ARRAY ? NODE_LIST : NODE_MAP, source, 0, 0);
    for (size_t i = 0; kind == JSON_KIND_ARRAY && i < js_count(json); i++) {
        struct node *item = from_json(pool, source, js_at(json, i), depth + 1, budget);
        if (!item)
            return NULL;
        node_append(pool, node, NULL, item);
    }
    for (void *i = kind == JSON_KIND_OBJECT ? js_first(json) : NULL; i; i = js_next(json, i)) {
        struct node *item = from_json(pool, source, js_value(i), depth + 1, budget);
        if (!item)
            return NULL;
        node_append(pool, node, node_scalar(pool, source, js_key(i), false), item);
    }
    return node;
}

struct node *node_from_json(struct pool *pool, const struct source *source, const struct json *json)
{
    size_t budget = SPEC_NODES_MAX;
    return from_json(pool, source, json, 1, &budget);
}

static void append_merged(struct pool *pool, struct node *merged, struct node *key, const struct node *under, struct node *over, bool keep_nulls)
{
    if (node_is_null(over) && !keep_nulls)
        return;
    node_append(pool, merged, key, over->kind == NODE_MAP ? node_merge(pool, under, over, keep_nulls) : over);
}

struct node *node_merge(struct pool *pool, const struct node *under, const struct node *over, bool keep_nulls)
{
    if (under && under->kind != NODE_MAP)
        under = NULL;
    const struct node *place = under ? under : over;
    struct node *merged = node_new(pool, NODE_MAP, place->source, place->line, place->column);
    for (size_t i = 0; under && i < under->count; i++) {
        size_t at = find(over, under->keys[i]->text);
        if (at == (size_t)-1) {
            node_append(pool, merged, under->keys[i], under->items[i]);
            continue;
        }
        struct node *key = over->items[at]->kind == NODE_MAP ? under->keys[i] : over->keys[at];
        append_merged(pool, merged, key, under->items[i], over->items[at], keep_nulls);
    }
    for (size_t i = 0; i < over->count; i++)
        if (find(under, over->keys[i]->text) == (size_t)-1)
            append_merged(pool, merged, over->keys[i], NULL, over->items[i], keep_nulls);
    return merged;
}

struct node *node_without(struct pool *pool, const struct node *map, const char *key)
{
    struct node *copy = node_new(pool, NODE_MAP, map->source, map->line, map->column);
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->keys[i]->text, key) != 0)
            node_append(pool, copy, map->keys[i], map->items[i]);
    return copy;
}
