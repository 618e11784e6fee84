// A file of runs: overlays and options laid on the common part, each run resolved and checked; everything that is wrong, in order.
#include "schema/spec/load.h"
#include "schema/base/near.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- runs ----

static bool is_chosen(const char *name, const char *const *only, size_t only_count)
{
    for (size_t i = 0; i < only_count; i++)
        if (strcmp(only[i], name) == 0)
            return true;
    return !only;
}

// "`dense`, `moe`", and how many more. free()
static char *listed_names(const char *const *names, size_t count)
{
    enum { NAMED_MAX = 8 };
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    for (size_t i = 0; i < count && i < NAMED_MAX; i++)
        text_addf(&text, "%s`%s`", i ? ", " : "", names[i]);
    if (count > NAMED_MAX)
        text_addf(&text, " and %zu more", count - NAMED_MAX);
    return text_take(&text);
}

static void check_chosen(struct spec_book *book, const struct node *root, const char *const *names, size_t count, const char *const *only,
    size_t only_count)
{
    const struct node *runs = node_get(root, "runs");
    for (size_t i = 0; only && i < only_count; i++) {
        if (is_chosen(only[i], names, count))
            continue;
        const char *near = near_name(only[i], names, count);
        char *listed = listed_names(names, count);
        problem_at(&book->problems, runs ? runs : root, "--run %s: there is no such run%s%s%s", only[i], near ? "; did you mean `" : ": there is ",
            near ? near : listed, near ? "`?" : "");
        free(listed);
    }
}

// Names and overlays of the runs. The file's only run is named after the file.
static size_t list_runs(struct spec_book *book, const struct node *root, const char **names, const struct node **overlays)
{
    const struct node *runs = book->overlays = node_get(root, "runs");
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
    book->problems.run = file->count;
    convert(check, tree, true);
    check_rules(check);
    book->problems.run = 0;
    run->spec.name = string_copy(name);
    run->spec.question = opening_comment(book->sources[0]);
    if (!run->spec.code.path)
        run->spec.code.path = string_copy(book->sources[0]->directory);
    run->unsupported = list_unsupported(check);
    run->missing = list_missing(check);
}

// Index of the run of this name, or file->count.
static size_t run_named(const struct spec_file *file, const char *name)
{
    size_t at = 0;
    while (at < file->count && strcmp(file->runs[at].spec.name, name) != 0)
        at++;
    return at;
}

// Judged only where both models parsed and have no fault of their own.
static void check_fit(struct spec_file *file, size_t run, size_t source)
{
    static const char *const read[] = {"model", "model.moe", "model.from", NULL};
    struct text why;
    text_init(&why, 4096);
    const struct spec *from = &file->runs[source].spec;
    if (spec_file_is_sound(file, run, read) && spec_file_is_sound(file, source, read) &&
        !spec_fits_source(&why, &file->runs[run].spec, from, from->name))
        check_at(&file->book->checks[run], "model.from.run", false, "`model.from.run`: %s", why.at);
    text_release(&why);
}

// A run that starts from another's weights, which start from … its own: none of them could begin. And one whose sibling saves none.
static void check_starts(struct spec_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const struct spec *spec = &file->runs[i].spec;
        struct check *check = &file->book->checks[i];
        if (!spec->model.from.run)
            continue;
        size_t sibling = run_named(file, spec->model.from.run), at = i, steps = 0;
        for (const char *from; steps <= file->count && (from = file->runs[at].spec.model.from.run); steps++) {
            at = run_named(file, from);
            if (at == i || at == file->count)
                break;
        }
        if (at == i)
            check_at(check, "model.from.run", false, "`model.from.run`: run `%s` would start from its own weights", spec->name);
        else if (sibling < file->count && file->runs[sibling].spec.checkpoint.interval == 0)
            check_at(check, "model.from.run", false, "`model.from.run`: run `%s` saves no weights to start from: give it a `checkpoint.interval`",
                spec->model.from.run);
        else if (sibling < file->count)
            check_fit(file, i, sibling);
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
    check_starts(file);
}

// ---- the door ----

static bool is_within(const struct problem *problem, const struct node *tree)
{
    if (problem->source == tree->source && problem->line == tree->line && problem->column == tree->column)
        return true;
    for (size_t i = 0; i < tree->count; i++)
        if ((tree->keys && is_within(problem, tree->keys[i])) || is_within(problem, tree->items[i]))
            return true;
    return false;
}

// Problems as text and as lists, anew. A place in a run's overlay says by itself which run it is.
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
    const char *names[SPEC_RUNS_MAX];
    for (size_t i = 0; i < file->count; i++)
        names[i] = file->runs[i].spec.name;
    for (size_t i = 0; i < problems->count; i++) {
        struct problem problem = problems->items[i];
        if (file->book->overlays && is_within(&problem, file->book->overlays))
            problem.runs = 0;
        problem.message = problem_sentence(&problem, names, file->count);
        problem_show(problem.warning ? &file->warnings : &file->problems, &problem);
        js_append(problem.warning ? file->warning_list : file->problem_list, problem_json(&problem));
        free(problem.message);
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

// Whether the row is the path, or within it, or holds it: an unknown key of a section may have meant any of the section's.
static bool is_of(const struct field *field, const char *path)
{
    size_t row = strlen(field->path), length = strlen(path), common = row < length ? row : length;
    if (strncmp(field->path, path, common) != 0)
        return false;
    return row == length || (row > length ? field->path[length] == '.' : field->type == FIELD_SECTION && path[row] == '.');
}

bool spec_file_is_sound(const struct spec_file *file, size_t run, const char *const *paths)
{
    const struct field_state *states = file->book->checks[run].states;
    for (size_t i = 0; i < spec_fields_count; i++)
        for (size_t j = 0; paths[j] && (states[i].bad || states[i].faulted); j++)
            if (is_of(&spec_fields[i], paths[j]))
                return false;
    return true;
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
