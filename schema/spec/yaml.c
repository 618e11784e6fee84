// The door to libyaml: its events become nodes. YAML 1.2's core is what a spec may use: maps with scalar keys, lists, scalars, anchors and
// aliases within limits. Tags, merge keys, a second document and duplicate keys are refused where they stand.
#include "schema/spec/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct anchor {
    char *name;
    struct node *node; // NULL while the node that carries the anchor is still being read
};

struct builder {
    yaml_parser_t parser;
    struct pool *pool;
    const struct source *source;
    struct problems *problems;
    size_t column_offset; // of the first line
    struct anchor anchors[SPEC_ALIASES_MAX];
    size_t anchors_count, aliases;
    size_t nodes;
    bool stopped;         // after a fault that leaves no sense in going on
};

static size_t column_of(const struct builder *builder, yaml_mark_t mark)
{
    return mark.column + 1 + (mark.line == 0 ? builder->column_offset : 0);
}

__attribute__((format(printf, 3, 4))) static void fault(struct builder *builder, yaml_mark_t mark, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    problem_add(builder->problems, builder->source, mark.line + 1, column_of(builder, mark), false, "%s", message);
}

// libyaml names a wrong byte by its offset only.
static yaml_mark_t mark_of_offset(const struct builder *builder, size_t offset)
{
    yaml_mark_t mark = {0};
    const char *bytes = builder->source->bytes.at + builder->column_offset;
    for (size_t i = 0; i < offset && bytes[i]; i++) {
        mark.column += ((unsigned char)bytes[i] & 0xC0) != 0x80;
        if (bytes[i] == '\n')
            mark = (yaml_mark_t){.line = mark.line + 1};
    }
    return mark;
}

// Whether the line of a fault has a ${NAME}: inside [] and {} YAML takes its brace for a map.
static bool has_variable(const struct builder *builder, yaml_mark_t mark)
{
    const char *at = builder->source->bytes.at + builder->column_offset;
    for (size_t line = 0; line < mark.line && at; line++)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    const char *variable = at ? strstr(at, "${") : NULL;
    return variable && !memchr(at, '\n', (size_t)(variable - at));
}

static void syntax_fault(struct builder *builder)
{
    const yaml_parser_t *parser = &builder->parser;
    const char *problem = parser->problem ? parser->problem : "not YAML";
    if (parser->error == YAML_READER_ERROR) {
        fault(builder, mark_of_offset(builder, parser->problem_offset), "%s%s", strstr(problem, "UTF-8") ? "not UTF-8 text: " : "YAML: ", problem);
    } else if (parser->context) {
        bool flow = strstr(parser->context, "flow") && has_variable(builder, parser->problem_mark);
        fault(builder, parser->problem_mark, "YAML: %s %s (line %zu)%s", problem, parser->context, parser->context_mark.line + 1,
            flow ? "; inside braces a string with ${NAME} needs quotes" : "");
    } else {
        fault(builder, parser->problem_mark, "YAML: %s", problem);
    }
    builder->stopped = true;
}

static bool next(struct builder *builder, yaml_event_t *event)
{
    memset(event, 0, sizeof *event);
    if (builder->stopped)
        return false;
    if (yaml_parser_parse(&builder->parser, event))
        return true;
    syntax_fault(builder);
    return false;
}

static struct node *stop(struct builder *builder, yaml_mark_t mark, const char *message)
{
    fault(builder, mark, "%s", message);
    builder->stopped = true;
    return NULL;
}

// The slot of a new anchor, or NULL where the node has none. A name that is set again means the newer node from then on.
static struct anchor *open_anchor(struct builder *builder, const yaml_char_t *name, yaml_mark_t mark)
{
    if (!name)
        return NULL;
    if (builder->anchors_count == SPEC_ALIASES_MAX) {
        stop(builder, mark, "too many anchors (256 are allowed)");
        return NULL;
    }
    struct anchor *anchor = &builder->anchors[builder->anchors_count++];
    anchor->name = pool_string(builder->pool, (const char *)name, strlen((const char *)name));
    return anchor;
}

static struct node *resolve_alias(struct builder *builder, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    if (++builder->aliases > SPEC_ALIASES_MAX)
        return stop(builder, event->start_mark, "too many aliases (256 are allowed)");
    for (size_t i = builder->anchors_count; i-- > 0;) {
        if (strcmp(builder->anchors[i].name, name) != 0)
            continue;
        if (!builder->anchors[i].node)
            return stop(builder, event->start_mark, "this alias stands inside what it refers to");
        return builder->anchors[i].node;
    }
    fault(builder, event->start_mark, "no anchor `&%s` before this alias", name);
    builder->stopped = true;
    return NULL;
}

static void refuse_tag(struct builder *builder, const yaml_char_t *tag, yaml_mark_t mark)
{
    if (tag)
        fault(builder, mark, "tags are not used in a spec: the key decides the type (found `%.60s`)", (const char *)tag);
}

static struct node *read_scalar(struct builder *builder, const yaml_event_t *event)
{
    size_t length = event->data.scalar.length;
    const char *value = (const char *)event->data.scalar.value;
    if (length > SPEC_SCALAR_MAX)
        return stop(builder, event->start_mark, "this value is longer than 65536 bytes");
    if (memchr(value, 0, length))
        return stop(builder, event->start_mark, "a NUL character in a value");
    refuse_tag(builder, event->data.scalar.tag, event->start_mark);
    struct node *node = node_new(builder->pool, NODE_SCALAR, builder->source, event->start_mark.line + 1,
        column_of(builder, event->start_mark));
    node->text = pool_string(builder->pool, value, length);
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return node;
}

static bool within_limits(struct builder *builder, const struct node *node, yaml_mark_t mark, size_t depth)
{
    if (node->weight > SPEC_NODES_MAX)
        stop(builder, mark, "too large: more than 20000 values once aliases are expanded");
    else if (node->height + depth > SPEC_DEPTH_MAX + 1)
        stop(builder, mark, "nested too deeply (32 levels are allowed)");
    return !builder->stopped;
}

static struct node *read_node(struct builder *builder, yaml_event_t *event, size_t depth);

static void read_list(struct builder *builder, struct node *list, size_t depth)
{
    yaml_event_t event;
    while (next(builder, &event) && event.type != YAML_SEQUENCE_END_EVENT) {
        yaml_mark_t mark = event.start_mark;
        struct node *item = read_node(builder, &event, depth + 1);
        if (!item)
            return;
        node_append(builder->pool, list, NULL, item);
        if (!within_limits(builder, list, mark, depth))
            return;
    }
    yaml_event_delete(&event);
}

static bool is_usable_key(struct builder *builder, const struct node *map, const struct node *key)
{
    if (key->kind != NODE_SCALAR) {
        problem_at(builder->problems, key, "a key must be a word, not a list or a map");
        return false;
    }
    if (key->plain && strcmp(key->text, "<<") == 0) {
        problem_at(builder->problems, key, "merge keys (`<<`) are not YAML 1.2: use `base:` or `runs:` to share keys");
        return false;
    }
    for (size_t i = 0; i < map->count; i++) {
        if (strcmp(map->keys[i]->text, key->text) != 0)
            continue;
        problem_at(builder->problems, key, "duplicate key `%.60s`: line %zu has it already, and line %zu has it again", key->text,
            map->keys[i]->line, key->line);
        return false;
    }
    return true;
}

static void read_map(struct builder *builder, struct node *map, size_t depth)
{
    yaml_event_t event;
    while (next(builder, &event) && event.type != YAML_MAPPING_END_EVENT) {
        yaml_mark_t mark = event.start_mark;
        struct node *key = read_node(builder, &event, depth + 1);
        if (!key || !next(builder, &event))
            return;
        struct node *value = read_node(builder, &event, depth + 1);
        if (!value)
            return;
        if (is_usable_key(builder, map, key))
            node_append(builder->pool, map, key, value);
        if (!within_limits(builder, map, mark, depth))
            return;
    }
    yaml_event_delete(&event);
}

// Takes over the event. NULL after a fault that stops the parse.
static struct node *read_node(struct builder *builder, yaml_event_t *event, size_t depth)
{
    struct node *node = NULL;
    struct anchor *anchor = NULL;
    yaml_mark_t mark = event->start_mark;
    bool map = event->type == YAML_MAPPING_START_EVENT;
    if (++builder->nodes > SPEC_NODES_MAX || depth > SPEC_DEPTH_MAX) {
        stop(builder, mark, depth > SPEC_DEPTH_MAX ? "nested too deeply (32 levels are allowed)" : "too large: more than 20000 values");
    } else if (event->type == YAML_ALIAS_EVENT) {
        node = resolve_alias(builder, event);
    } else if (event->type == YAML_SCALAR_EVENT) {
        anchor = open_anchor(builder, event->data.scalar.anchor, mark);
        node = read_scalar(builder, event);
    } else {
        node = node_new(builder->pool, map ? NODE_MAP : NODE_LIST, builder->source, mark.line + 1, column_of(builder, mark));
        anchor = open_anchor(builder, map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor, mark);
        refuse_tag(builder, map ? event->data.mapping_start.tag : event->data.sequence_start.tag, mark);
        if (map)
            read_map(builder, node, depth);
        else
            read_list(builder, node, depth);
    }
    if (anchor)
        anchor->node = node;
    yaml_event_delete(event);
    return builder->stopped ? NULL : node;
}

static struct node *read_document(struct builder *builder)
{
    yaml_event_t event;
    struct node *root = NULL;
    while (next(builder, &event)) {
        yaml_event_type_t type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT && root)
            stop(builder, event.start_mark, "a second document: a spec is one document");
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_START_EVENT || type == YAML_DOCUMENT_END_EVENT ||
            type == YAML_STREAM_END_EVENT)
            yaml_event_delete(&event);
        else
            root = read_node(builder, &event, 1);
        if (type == YAML_STREAM_END_EVENT)
            break;
    }
    if (!root && !builder->stopped)
        problem_add(builder->problems, builder->source, 0, 0, false, "the file is empty");
    return builder->stopped ? NULL : root;
}

struct node *yaml_read(struct pool *pool, const struct source *source, size_t offset, struct problems *problems)
{
    struct builder *builder = allocate(1, sizeof *builder);
    builder->pool = pool;
    builder->source = source;
    builder->problems = problems;
    builder->column_offset = offset;
    struct node *root = NULL;
    if (yaml_parser_initialize(&builder->parser)) {
        yaml_parser_set_encoding(&builder->parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&builder->parser, (const unsigned char *)source->bytes.at + offset, source->bytes.length - offset);
        root = read_document(builder);
        yaml_parser_delete(&builder->parser);
    } else {
        problem_add(problems, source, 0, 0, false, "out of memory");
    }
    free(builder);
    return root;
}
