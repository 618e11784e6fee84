// Trees of one load: the file and what it inherits, merged; the options. What they mean is load.c's business.
#include "schema/spec/load.h"
#include "schema/base/file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct source *add_source(struct spec_book *book, const char *path, char *directory)
{
    struct source *source = allocate(1, sizeof *source);
    source->path = string_copy(path);
    source->directory = directory;
    source->order = book->sources_count;
    text_init(&source->bytes, SPEC_BYTES_MAX);
    book->sources = reallocate(book->sources, book->sources_count + 1, sizeof *book->sources);
    book->sources[book->sources_count++] = source;
    return source;
}

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? string_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : string_copy(".");
}

// ---- a file and what it inherits ----

// Runs of two files: each run's overlays become one, in which null still removes from the common part; a run that is null is removed.
static struct node *merge_runs(struct pool *pool, const struct node *under, const struct node *over)
{
    struct node *runs = node_new(pool, NODE_MAP, over->source, over->line, over->column);
    for (size_t i = 0; i < under->count; i++) {
        const struct node *own = node_get(over, under->keys[i]->text);
        if (!own)
            node_append(pool, runs, under->keys[i], under->items[i]);
        else if (own->kind == NODE_MAP)
            node_append(pool, runs, under->keys[i], node_merge(pool, under->items[i], own, true));
        else if (!node_is_null(own))
            node_append(pool, runs, under->keys[i], (struct node *)(uintptr_t)own);
    }
    for (size_t i = 0; i < over->count; i++)
        if (!node_get(under, over->keys[i]->text))
            node_append(pool, runs, over->keys[i], over->items[i]);
    return runs;
}

// The entries of `runs` or `stages` of two files, appended to the merged one. from: whose key of that name stands there.
static void merge_section(struct pool *pool, struct node *merged, const char *name, const struct node *under, const struct node *own)
{
    const struct node *under_runs = node_get(under, name), *own_runs = node_get(own, name);
    struct node *runs = (struct node *)(uintptr_t)(own_runs ? own_runs : under_runs);
    if (!runs || node_is_null(runs))
        return;
    if (own_runs && under_runs && own_runs->kind == NODE_MAP && under_runs->kind == NODE_MAP)
        runs = merge_runs(pool, under_runs, own_runs);
    const struct node *from = own_runs ? own : under;
    for (size_t i = 0; i < from->count; i++)
        if (strcmp(from->keys[i]->text, name) == 0)
            node_append(pool, merged, from->keys[i], runs);
}

static struct node *merge_files(struct pool *pool, const struct node *under, const struct node *own)
{
    static const char *const apart[] = {"runs", "stages"};
    const struct node *common_under = under, *common_own = node_without(pool, own, "base");
    for (size_t i = 0; i < 2; i++) {
        common_under = node_without(pool, common_under, apart[i]);
        common_own = node_without(pool, common_own, apart[i]);
    }
    struct node *merged = node_merge(pool, common_under, common_own, false);
    for (size_t i = 0; i < 2; i++)
        merge_section(pool, merged, apart[i], under, own);
    return merged;
}

// The tree that `base:` names, under this file's own.
static struct node *inherit(struct spec_book *book, const struct source *source, struct node *root)
{
    const struct node *base = node_get(root, "base");
    if (base->kind != NODE_SCALAR || node_is_null(base)) {
        problem_at(&book->problems, base, "`base` expects the path of a spec");
        return NULL;
    }
    char *name = value_expand(&book->problems, base);
    if (!name)
        return NULL;
    char *directory = directory_of(source->path);
    char *path = strchr(source->path, '/') ? path_join(directory, name) : string_copy(name);
    struct node *under = NULL;
    if (book->sources_count >= SPEC_BASE_MAX)
        problem_at(&book->problems, base, "`base`: more than %d files inherit from each other", SPEC_BASE_MAX);
    else
        under = read_file(book, path, base);
    free(path);
    free(directory);
    free(name);
    return under ? merge_files(book->pool, under, root) : NULL;
}

struct node *read_file(struct spec_book *book, const char *path, const struct node *asked)
{
    char *absolute = path_absolute(path, NULL);
    char *directory = directory_of(absolute);
    for (size_t i = 0; i < book->sources_count; i++) {
        if (strcmp(book->files[i], absolute) != 0)
            continue;
        problem_at(&book->problems, asked, "`base`: %s inherits from itself", path);
        free(absolute);
        free(directory);
        return NULL;
    }
    struct source *source = add_source(book, path, directory);
    book->files[source->order] = absolute;
    struct error err;
    if (file_read_any(absolute, &source->bytes, &err) != 0) {
        const char *why = strncmp(err.text, absolute, strlen(absolute)) == 0 ? err.text + strlen(absolute) + 2 : err.text;
        if (asked)
            problem_at(&book->problems, asked, "`base`: %s: %s", path, why);
        else
            problem_add(&book->problems, source, 0, 0, false, "%s", why);
        return NULL;
    }
    struct node *root = yaml_read(book->pool, source, 0, &book->problems);
    if (root && root->kind != NODE_MAP) {
        problem_at(&book->problems, root, "a spec is a map of keys, such as `project: NAME`");
        return NULL;
    }
    return root && node_get(root, "base") ? inherit(book, source, root) : root;
}

char *opening_comment(const struct source *source)
{
    struct text out;
    text_init(&out, 1024);
    const char *at = source->bytes.at;
    while (*at == '#') {
        at += strspn(at, "# \t");
        size_t length = strcspn(at, "\r\n");
        if (length)
            text_addf(&out, "%s%.*s", out.length ? " " : "", (int)(length > 1024 ? 1024 : length), at);
        at += length;
        at += strspn(at, "\r") + (at[strspn(at, "\r")] == '\n');
    }
    char *question = text_take(&out);
    if (*question)
        return question;
    free(question);
    return NULL;
}

// ---- options ----

// The key words of "a.b.c" as nested maps around the value.
static struct node *nest(struct spec_book *book, const struct source *source, size_t path_length, struct node *value)
{
    const char *argument = source->path;
    struct node *tree = value;
    for (size_t end = path_length;;) {
        size_t begin = end;
        while (begin > 0 && argument[begin - 1] != '.')
            begin--;
        struct node *key = node_new(book->pool, NODE_SCALAR, source, 1, begin + 1);
        key->text = pool_string(book->pool, argument + begin, end - begin);
        struct node *map = node_new(book->pool, NODE_MAP, source, 1, begin + 1);
        node_append(book->pool, map, key, tree);
        tree = map;
        if (begin == 0)
            return tree;
        end = begin - 1;
    }
}

struct node *read_option(struct spec_book *book, const char *argument)
{
    struct source *source = add_source(book, argument, string_copy(book->sources[0]->directory));
    source->option = true;
    text_add(&source->bytes, argument);
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : 0;
    bool good = equals && length && argument[0] != '.' && equals[-1] != '.';
    for (size_t i = 0; good && i + 1 < length; i++)
        good = !(argument[i] == '.' && argument[i + 1] == '.');
    if (!good || source->bytes.overflowed) {
        problem_add(&book->problems, source, 1, 1, false, "an option is path.to.key=value");
        return NULL;
    }
    size_t first = strcspn(argument, ".=");
    static const char *const apart[] = {"runs", "base", "stages"};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (strlen(apart[i]) == first && strncmp(argument, apart[i], first) == 0) {
            problem_add(&book->problems, source, 1, 1, false, "`%s` cannot be set: options apply to each chosen run", apart[i]);
            return NULL;
        }
    struct node *value;
    if (equals[1 + strspn(equals + 1, " \t")]) {
        value = yaml_read(book->pool, source, length + 1, &book->problems);
    } else {
        value = node_new(book->pool, NODE_SCALAR, source, 1, length + 2);
        value->plain = true;
    }
    return value ? nest(book, source, length, value) : NULL;
}
