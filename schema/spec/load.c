// A file of runs: overlays and options laid on the common part, each run resolved and checked; everything that is wrong, in order.
#include "schema/spec/load.h"
#include "schema/base/near.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- runs ----

bool is_chosen(const struct only *only, const char *name)
{
    bool chosen = !only->names;
    for (size_t i = 0; only->names && i < only->count; i++)
        if (strcmp(only->names[i], name) == 0)
            chosen = only->used[i] = true;
    return chosen;
}

// Whether the entry is wanted, or may have a trial that is.
static bool is_wanted(const struct only *only, const char *entry)
{
    size_t length = strlen(entry);
    bool wanted = is_chosen(only, entry);
    for (size_t i = 0; !wanted && i < only->count; i++)
        wanted = strncmp(only->names[i], entry, length) == 0 && only->names[i][length] == '-';
    return wanted;
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

static void check_chosen(struct spec_file *file, const struct node *root, const struct only *only)
{
    const char **names = allocate(file->entries_count, sizeof *names);
    for (size_t i = 0; i < file->entries_count; i++)
        names[i] = file->entries[i].name;
    const struct node *place = file->book->overlays ? file->book->overlays : file->book->stages ? file->book->stages : root;
    for (size_t i = 0; only->names && i < only->count; i++) {
        if (only->used[i])
            continue;
        const char *near = near_name(only->names[i], names, file->entries_count);
        char *listed = listed_names(names, file->entries_count);
        problem_at(&file->book->problems, place, "--run %s: there is no such run%s%s%s", only->names[i],
            near ? "; did you mean `" : ": there is ", near ? near : listed, near ? "`?" : "");
        free(listed);
    }
    free(names);
}

// Room for one more run. Runs and checks move together.
static void make_room(struct spec_file *file)
{
    struct spec_book *book = file->book;
    if (file->count < book->capacity)
        return;
    book->capacity = book->capacity ? 2 * book->capacity : 16;
    file->runs = reallocate(file->runs, book->capacity, sizeof *file->runs);
    book->checks = reallocate(book->checks, book->capacity, sizeof *book->checks);
    for (size_t i = 0; i < file->count; i++)
        book->checks[i].spec = &file->runs[i].spec;
}

struct spec_run *resolve_run(struct spec_file *file, size_t entry, const struct node *tree, char *name, bool trial)
{
    struct spec_book *book = file->book;
    make_room(file);
    struct spec_run *run = &file->runs[file->count];
    struct check *check = &book->checks[file->count++];
    *run = (struct spec_run){.entry = entry};
    *check = (struct check){.problems = &book->problems, .pool = book->pool, .spec = &run->spec};
    spec_init(&run->spec);
    book->problems.run = file->count;
    book->problems.trial = trial;
    convert(check, tree, true);
    check_rules(check);
    book->problems.run = 0;
    book->problems.trial = false;
    run->spec.name = name;
    run->spec.question = string_copy(book->question);
    if (!run->spec.code.path)
        run->spec.code.path = string_copy(book->sources[0]->directory);
    run->unsupported = list_unsupported(check);
    run->missing = list_missing(check, &book->seen);
    return run;
}

static void release_run(struct spec_run *run, struct check *check)
{
    spec_release(&run->spec);
    js_free(run->unsupported);
    js_free(run->missing);
    js_free(run->sweep);
    free(check->states);
}

void forget_run(struct spec_file *file)
{
    file->count--;
    release_run(&file->runs[file->count], &file->book->checks[file->count]);
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
        size_t swept = 0;
        while (swept < file->entries_count && !(file->entries[swept].swept && strcmp(file->entries[swept].name, spec->model.from.run) == 0))
            swept++;
        if (swept < file->entries_count)
            check_at(check, "model.from.run", false, "`model.from.run`: run `%s` is a sweep of %zu trials: name one of them, such as `%s`",
                spec->model.from.run, file->entries[swept].count, file->runs[file->entries[swept].first].spec.name);
        else if (at == i)
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

// An entry without a sweep is no trial: --run must name it whole.
static void resolve_entry(struct spec_file *file, size_t index, const struct node *common, const struct only *only)
{
    struct spec_book *book = file->book;
    struct spec_entry *entry = &file->entries[index];
    entry->first = file->count;
    if (!is_wanted(only, entry->name))
        return;
    const struct node *overlay = book->entries[index].overlay;
    const struct node *tree = overlay ? node_merge(book->pool, common, overlay, false) : common;
    for (size_t i = 0; i < book->options_count; i++)
        tree = node_merge(book->pool, tree, book->options[i], false);
    if (node_get(tree, "sweep"))
        resolve_trials(file, index, tree, only);
    else if (is_chosen(only, entry->name))
        resolve_run(file, index, tree, string_copy(entry->name), false);
    entry->count = file->count - entry->first;
}

static void resolve(struct spec_file *file, const struct node *root, const struct only *only)
{
    struct spec_book *book = file->book;
    entries_list(file, root);
    const struct node *common = node_without(book->pool, node_without(book->pool, root, "runs"), "stages");
    check_common(book, common);
    for (size_t i = 0; i < file->entries_count; i++)
        resolve_entry(file, i, common, only);
    check_chosen(file, root, only);
    check_starts(file);
    entries_connect(file);
}

// ---- the door ----

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
    if (*stem == '-') // a name that begins so would be an option to every command
        *stem = '_';
    return stem;
}

// The trees of the options that could be read. free()
static const struct node **read_options(struct spec_book *book, const struct spec_option *options, size_t count)
{
    const struct node **trees = allocate(count, sizeof *trees);
    for (size_t i = 0; i < count; i++) {
        const struct node *tree = read_option(book, options[i].argument);
        if (tree)
            trees[book->options_count++] = tree;
    }
    return trees;
}

int spec_file_load(struct spec_file *file, const char *path, const char *const *only, size_t only_count, const struct spec_option *options,
    size_t option_count)
{
    struct spec_book *book = allocate(1, sizeof *book);
    *file = (struct spec_file){.path = string_copy(path), .book = book};
    text_init(&file->problems, 4 << 20);
    text_init(&file->warnings, 4 << 20);
    book->pool = pool_new();
    book->stem = stem_of(path);
    book->names = js_object();
    struct node *root = read_file(book, path, NULL);
    if (root) {
        struct only chosen = {only, only_count, allocate(only_count, sizeof(bool))};
        const struct node **trees = read_options(book, options, option_count);
        book->question = opening_comment(book->sources[0]);
        book->options = trees;
        resolve(file, root, &chosen);
        book->options = NULL;
        free(trees);
        free(chosen.used);
    }
    render(file);
    return file->errors ? -1 : 0;
}

void spec_file_release(struct spec_file *file)
{
    struct spec_book *book = file->book;
    for (size_t i = 0; i < file->count; i++)
        release_run(&file->runs[i], &book->checks[i]);
    for (size_t i = 0; i < file->entries_count; i++)
        free(file->entries[i].needs);
    for (size_t i = 0; i < book->sources_count; i++) {
        free(book->sources[i]->path);
        free(book->sources[i]->directory);
        text_release(&book->sources[i]->bytes);
        free(book->sources[i]);
    }
    for (size_t i = 0; i < SPEC_BASE_MAX; i++)
        free(book->files[i]);
    for (size_t i = 0; i < sizeof book->seen.at / sizeof book->seen.at[0]; i++)
        free(book->seen.at[i].path);
    free(book->sources);
    free(book->stem);
    free(book->question);
    free(book->entries);
    free(book->checks);
    js_free(book->names);
    problems_release(&book->problems);
    pool_free(book->pool);
    free(book);
    free(file->runs);
    free(file->entries);
    free(file->path);
    text_release(&file->problems);
    text_release(&file->warnings);
    js_free(file->problem_list);
    js_free(file->warning_list);
    *file = (struct spec_file){0};
}
