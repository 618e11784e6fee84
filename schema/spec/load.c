// A file of runs: the file and what it inherits, overlays, options; each run resolved and checked; everything that is wrong, in order.
#include "schema/spec/load.h"
#include "schema/base/file.h"
#include "schema/base/near.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
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

static struct node *read_file(struct spec_book *book, const char *path, const struct node *asked);

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

static struct node *merge_files(struct pool *pool, const struct node *under, const struct node *own)
{
    const struct node *under_runs = node_get(under, "runs"), *own_runs = node_get(own, "runs");
    struct node *merged = node_merge(pool, node_without(pool, under, "runs"), node_without(pool, node_without(pool, own, "base"), "runs"), false);
    struct node *runs = (struct node *)(uintptr_t)(own_runs ? own_runs : under_runs);
    if (!runs || node_is_null(runs))
        return merged;
    if (own_runs && under_runs && own_runs->kind == NODE_MAP && under_runs->kind == NODE_MAP)
        runs = merge_runs(pool, under_runs, own_runs);
    const struct node *from = own_runs ? own : under;
    for (size_t i = 0; i < from->count; i++)
        if (strcmp(from->keys[i]->text, "runs") == 0)
            node_append(pool, merged, from->keys[i], runs);
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
    char *directory = directory_of(source->path);
    char *path = strchr(source->path, '/') ? path_join(directory, base->text) : string_copy(base->text);
    struct node *under = NULL;
    if (book->sources_count >= SPEC_BASE_MAX)
        problem_at(&book->problems, base, "`base`: more than %d files inherit from each other", SPEC_BASE_MAX);
    else
        under = read_file(book, path, base);
    free(path);
    free(directory);
    return under ? merge_files(book->pool, under, root) : NULL;
}

// asked: the `base:` that names this file; NULL for the first. NULL with a problem recorded.
static struct node *read_file(struct spec_book *book, const char *path, const struct node *asked)
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
    if (file_read(absolute, &source->bytes, &err) != 0) {
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

// The comment that opens the file, as one line: the question that it asks. NULL if there is none.
static char *opening_comment(const struct source *source)
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

// One path.to.key=value as a tree; NULL with the problem recorded.
static struct node *read_option(struct spec_book *book, const char *argument)
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
    if (first == 4 && (strncmp(argument, "runs", 4) == 0 || strncmp(argument, "base", 4) == 0)) {
        problem_add(&book->problems, source, 1, 1, false, "`%.4s` cannot be set: options apply to each chosen run", argument);
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

// ---- runs ----

static bool is_chosen(const char *name, const char *const *only, size_t only_count)
{
    for (size_t i = 0; i < only_count; i++)
        if (strcmp(only[i], name) == 0)
            return true;
    return !only;
}

static void check_chosen(struct spec_book *book, const struct node *root, const char *const *names, size_t count, const char *const *only,
    size_t only_count)
{
    const struct node *runs = node_get(root, "runs");
    for (size_t i = 0; only && i < only_count; i++) {
        if (is_chosen(only[i], names, count))
            continue;
        const char *near = near_name(only[i], names, count);
        problem_at(&book->problems, runs ? runs : root, "--run %s: there is no such run%s%s%s", only[i], near ? "; did you mean `" : "",
            near ? near : "", near ? "`?" : "");
    }
}

// Names and overlays of the runs. The file's only run is named after the file.
static size_t list_runs(struct spec_book *book, const struct node *root, const char **names, const struct node **overlays)
{
    const struct node *runs = node_get(root, "runs");
    size_t count = 0;
    if (!runs) {
        names[0] = book->stem;
        return 1;
    }
    if (runs->kind != NODE_MAP || runs->count == 0 || runs->count > SPEC_RUNS_MAX) {
        problem_at(&book->problems, runs, "`runs` expects a map of 1 to %d names to overlays, such as `dense: {}`", SPEC_RUNS_MAX);
        return 0;
    }
    for (size_t i = 0; i < runs->count; i++) {
        const struct node *key = runs->keys[i], *overlay = runs->items[i];
        if (!name_is_valid(key->text))
            problem_at(&book->problems, key, "`runs`: `%.80s` is no name of 1 to 64 letters, digits, `_` and `-`", key->text);
        else if (overlay->kind != NODE_MAP)
            problem_at(&book->problems, overlay, "`runs.%s` expects a map of keys; `%s: {}` is a run with nothing of its own", key->text,
                key->text);
        else
            names[count] = key->text, overlays[count++] = overlay;
    }
    return count;
}

static void resolve_run(struct spec_file *file, const struct node *tree, const char *name)
{
    struct spec_book *book = file->book;
    struct spec_run *run = &file->runs[file->count];
    struct check *check = &book->checks[file->count++];
    *check = (struct check){.problems = &book->problems, .pool = book->pool, .spec = &run->spec};
    spec_init(&run->spec);
    convert(check, tree, true);
    check_rules(check);
    run->spec.name = string_copy(name);
    run->spec.question = opening_comment(book->sources[0]);
    if (!run->spec.code.path)
        run->spec.code.path = string_copy(book->sources[0]->directory);
    run->unsupported = list_unsupported(check);
    run->missing = list_missing(check);
}

// A run that starts from another's weights, which start from … its own: none of them could begin.
static void check_circles(struct spec_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        size_t at = i, steps = 0;
        for (const char *from; steps <= file->count && (from = file->runs[at].spec.model.from.run); steps++) {
            for (at = 0; at < file->count && strcmp(file->runs[at].spec.name, from) != 0;)
                at++;
            if (at == i || at == file->count)
                break;
        }
        if (at == i && file->runs[i].spec.model.from.run)
            check_at(&file->book->checks[i], "model.from.run", false, "`model.from.run`: run `%s` would start from its own weights", file->runs[i].spec.name);
    }
}

// What is wrong in the common part although every run replaces it.
static void check_common(struct spec_book *book, const struct node *common)
{
    struct spec scratch;
    spec_init(&scratch);
    struct check check = {.problems = &book->problems, .pool = book->pool, .spec = &scratch};
    convert(&check, common, false);
    free(check.states);
    spec_release(&scratch);
}

static void resolve(struct spec_file *file, struct node *root, const char *const *only, size_t only_count, struct node **options,
    size_t option_count)
{
    struct spec_book *book = file->book;
    const char *names[SPEC_RUNS_MAX];
    const struct node *overlays[SPEC_RUNS_MAX] = {0};
    size_t count = list_runs(book, root, names, overlays);
    check_chosen(book, root, names, count, only, only_count);
    struct node *common = node_without(book->pool, root, "runs");
    check_common(book, common);
    for (size_t i = 0; i < count; i++) {
        if (!is_chosen(names[i], only, only_count))
            continue;
        struct node *tree = overlays[i] ? node_merge(book->pool, common, overlays[i], false) : common;
        for (size_t j = 0; j < option_count; j++)
            if (options[j])
                tree = node_merge(book->pool, tree, options[j], false);
        resolve_run(file, tree, names[i]);
    }
    check_circles(file);
}

// ---- the door ----

// Problems as text and as lists, anew.
static void render(struct spec_file *file)
{
    struct problems *problems = &file->book->problems;
    problems_sort(problems);
    file->errors = problems_errors(problems);
    text_clear(&file->problems);
    text_clear(&file->warnings);
    js_free(file->problem_list);
    js_free(file->warning_list);
    file->problem_list = js_array();
    file->warning_list = js_array();
    for (size_t i = 0; i < problems->count; i++) {
        const struct problem *problem = &problems->items[i];
        problem_show(problem->warning ? &file->warnings : &file->problems, problem);
        js_append(problem->warning ? file->warning_list : file->problem_list, problem_json(problem));
    }
    if (problems->dropped)
        text_addf(&file->problems, "%s: and %zu more\n", file->path, problems->dropped);
}

// "experiments/first run.yaml" names its only run first-run.
static char *stem_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *stem = string_format("%.64s", slash ? slash + 1 : path);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem)
        *dot = 0;
    for (char *at = stem; *at; at++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", *at))
            *at = '-';
    return stem;
}

int spec_file_load(struct spec_file *file, const char *path, const char *const *only, size_t only_count, const struct spec_option *options,
    size_t option_count)
{
    struct spec_book *book = allocate(1, sizeof *book);
    *file = (struct spec_file){.path = string_copy(path), .runs = allocate(SPEC_RUNS_MAX, sizeof *file->runs), .book = book};
    text_init(&file->problems, 4 << 20);
    text_init(&file->warnings, 4 << 20);
    book->pool = pool_new();
    book->stem = stem_of(path);
    struct node *root = read_file(book, path, NULL);
    if (root) {
        struct node **trees = allocate(option_count, sizeof *trees);
        for (size_t i = 0; i < option_count; i++)
            trees[i] = read_option(book, options[i].argument);
        resolve(file, root, only, only_count, trees, option_count);
        free(trees);
    }
    render(file);
    return file->errors ? -1 : 0;
}

void spec_file_fault(struct spec_file *file, size_t run, const char *key, bool warning, const char *format, ...)
{
    char *message = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&message, format, args) < 0)
        abort();
    va_end(args);
    check_at(&file->book->checks[run], key, warning, "%s", message);
    free(message);
    render(file);
}

void spec_file_release(struct spec_file *file)
{
    struct spec_book *book = file->book;
    for (size_t i = 0; i < file->count; i++) {
        spec_release(&file->runs[i].spec);
        js_free(file->runs[i].unsupported);
        js_free(file->runs[i].missing);
        free(book->checks[i].states);
    }
    for (size_t i = 0; i < book->sources_count; i++) {
        free(book->sources[i]->path);
        free(book->sources[i]->directory);
        text_release(&book->sources[i]->bytes);
        free(book->sources[i]);
    }
    for (size_t i = 0; i < SPEC_BASE_MAX; i++)
        free(book->files[i]);
    free(book->sources);
    free(book->stem);
    problems_release(&book->problems);
    pool_free(book->pool);
    free(book);
    free(file->runs);
    free(file->path);
    text_release(&file->problems);
    text_release(&file->warnings);
    js_free(file->problem_list);
    js_free(file->warning_list);
    *file = (struct spec_file){0};
}
