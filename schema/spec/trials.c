// The trials of a sweep: each is the entry's tree with a few values laid upon it, resolved and checked like any run. What is parsed is
// shared; a trial costs its own maps and its own spec.
#include "schema/spec/load.h"
#include "schema/spec/sweep.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIAL_NAME_MAX = 56 }; // leaves room for the number of the submission in a run's name

// ---- names ----

// A number as whole digits and an exponent, without a point, and still that number: 0.25 is 25e-2, 1.50e-3 is 15e-4.
static bool add_number(struct text *name, const char *text)
{
    char digits[48];
    size_t count = 0, behind = 0;
    bool point = false, negative = *text == '-';
    const char *at = text + (*text == '-' || *text == '+');
    for (; isdigit((unsigned char)*at) || (*at == '.' && !point); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        behind += point;
        if (count < sizeof digits - 1 && (count || *at != '0'))
            digits[count++] = *at;
    }
    char *end = NULL;
    long exponent = *at == 'e' || *at == 'E' ? strtol(at + 1, &end, 10) : 0;
    if (at == text || (end ? *end : *at) || (end && end == at + 1) || exponent > 9999 || exponent < -9999)
        return false;
    exponent -= (long)behind;
    while (count > 1 && digits[count - 1] == '0' && exponent < 0) { // 1.0, 0.50
        count--;
        exponent++;
    }
    digits[count] = 0;
    text_addf(name, "%s%s", negative ? "-" : "", count ? digits : "0");
    if (count && exponent)
        text_addf(name, "e%ld", exponent);
    return true;
}

// What stands for a value in a name; false: nothing does.
static bool add_value(struct text *name, const struct setting *setting)
{
    const struct node *value = setting->value;
    if (value->kind != NODE_SCALAR)
        return false;
    if (node_is_null(value))
        text_add(name, "default");
    else if (setting->field->type == FIELD_NUMBER || setting->field->type == FIELD_SHARE)
        return add_number(name, value->text);
    else if (!name_is_valid(value->text))
        return false;
    else
        text_add(name, value->text);
    return true;
}

// The last word of the path, or the last two where another swept key ends in the same.
static const char *word_of(const struct setting *settings, size_t count, size_t index)
{
    const char *key = field_key(settings[index].field), *path = settings[index].field->path;
    for (size_t i = 0; i < count; i++)
        if (i != index && strcmp(field_key(settings[i].field), key) == 0)
            for (const char *at = key - 1; at > path && at[-1] != '.'; at--)
                key = at - 1;
    return key;
}

// "moe-top_k2-seed1"; NULL where a value cannot be written, or the name is too long or somebody else's.
static char *spoken_name(struct spec_book *book, const char *entry, const struct setting *settings, size_t count)
{
    struct text name;
    text_init(&name, 1024);
    text_add(&name, entry);
    bool good = count > 0;
    for (size_t i = 0; i < count && good; i++) {
        text_addf(&name, "-%s", word_of(settings, count, i));
        good = add_value(&name, &settings[i]);
    }
    for (char *at = name.at; *at; at++)
        if (*at == '.')
            *at = '_'; // between the words of a path
    if (good && !name.overflowed && name.length <= TRIAL_NAME_MAX && name_is_valid(name.at) && !js_get(book->names, name.at))
        return text_take(&name);
    text_release(&name);
    return NULL;
}

static void forget_names(struct spec_book *book, char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i])
            js_remove(book->names, names[i]);
        free(names[i]);
        names[i] = NULL;
    }
}

static bool speak_names(struct spec_book *book, const struct sweep *sweep, const char *entry, char **names)
{
    struct setting settings[SWEEP_SETTINGS_MAX];
    for (size_t i = 0; i < sweep->trials; i++) {
        names[i] = spoken_name(book, entry, settings, sweep_settings(sweep, i, settings));
        if (!names[i]) {
            forget_names(book, names, i);
            return false;
        }
        js_set(book->names, names[i], js_boolean(true));
    }
    return true;
}

// "moe-007": where values cannot be written, all trials of the sweep are numbered.
static bool number_names(struct spec_book *book, const struct sweep *sweep, const char *entry, char **names)
{
    int width = snprintf(NULL, 0, "%zu", sweep->trials);
    for (size_t i = 0; i < sweep->trials; i++) {
        names[i] = string_format("%.*s-%0*zu", TRIAL_NAME_MAX - 1 - width, entry, width, i + 1);
        if (js_get(book->names, names[i])) {
            problem_at(&book->problems, sweep->node, "`sweep`: trial `%s` would have the name of another run: rename that one", names[i]);
            free(names[i]);
            names[i] = NULL;
            forget_names(book, names, i);
            return false;
        }
        js_set(book->names, names[i], js_boolean(true));
    }
    return true;
}

// As many as there are trials, or NULL with the fault recorded.
static char **name_trials(struct spec_book *book, const struct sweep *sweep, const char *entry)
{
    char **names = allocate(sweep->trials, sizeof *names);
    if (speak_names(book, sweep, entry, names) || number_names(book, sweep, entry, names))
        return names;
    free(names);
    return NULL;
}

// ---- one trial ----

// {model: {moe: {top_k: 4}}} of "model.moe.top_k". Each key has the place of the sweep's, the value its own.
static struct node *lay_out(struct pool *pool, const struct setting *setting)
{
    struct node *tree = (struct node *)(uintptr_t)setting->value;
    const char *path = setting->field->path;
    for (size_t end = strlen(path);;) {
        size_t begin = end;
        while (begin > 0 && path[begin - 1] != '.')
            begin--;
        const struct node *place = setting->key;
        struct node *key = node_new(pool, NODE_SCALAR, place->source, place->line, place->column);
        struct node *map = node_new(pool, NODE_MAP, place->source, place->line, place->column);
        key->text = pool_string(pool, path + begin, end - begin);
        node_append(pool, map, key, tree);
        tree = map;
        if (begin == 0)
            return tree;
        end = begin - 1;
    }
}

static struct node *overlay_of(struct pool *pool, const struct node *tree, const struct setting *settings, size_t count)
{
    struct node *overlay = NULL;
    for (size_t i = 0; i < count; i++) {
        struct node *one = lay_out(pool, &settings[i]);
        overlay = overlay ? node_merge(pool, overlay, one, true) : one;
    }
    return overlay ? node_merge(pool, tree, overlay, false) : node_merge(pool, tree, node_new(pool, NODE_MAP, tree->source, tree->line, tree->column), false);
}

static struct json *swept_values(const struct spec *spec, const struct setting *settings, size_t count)
{
    struct json *values = js_object();
    for (size_t i = 0; i < count; i++) {
        struct json *value = field_is_present(settings[i].field, spec) ? field_to_json(settings[i].field, spec) : NULL;
        js_set(values, settings[i].field->path, value ? value : js_null());
    }
    return values;
}

// ---- the same twice ----

struct known { // trials by the hash of their resolved configuration
    size_t *slots; // index of a run + 1
    uint64_t *hashes;
    size_t size, repeated;
    char *first, *second; // the first pair of trials that are one
};

// Whether the file's last run is one that the sweep has already; remembered otherwise.
static bool is_repeated(struct known *known, struct spec_file *file)
{
    const struct spec_run *run = &file->runs[file->count - 1];
    uint64_t hash = spec_hash(&run->spec);
    size_t at = hash % known->size;
    for (; known->slots[at]; at = (at + 1) % known->size) {
        const struct spec_run *other = &file->runs[known->slots[at] - 1];
        if (known->hashes[at] != hash || !spec_same(&other->spec, &run->spec))
            continue;
        if (!known->repeated++) {
            known->first = string_copy(other->spec.name);
            known->second = string_copy(run->spec.name);
        }
        return true;
    }
    known->slots[at] = file->count;
    known->hashes[at] = hash;
    return false;
}

static void tell_repeated(struct spec_file *file, const struct sweep *sweep, const struct known *known)
{
    const struct node *place = sweep->node;
    if (known->repeated)
        problem_add(&file->book->problems, place->source, place->line, place->column, true,
            "`sweep`: %zu of %zu trials are left out, because another has the same configuration: `%s` is `%s`%s", known->repeated, sweep->trials,
            known->second, known->first, known->repeated > 1 ? ", …" : "");
}

// ---- all of them ----

// The key that an option would fix and the sweep would vary, whichever is laid upon the other.
static bool check_options(struct spec_book *book, const struct sweep *sweep)
{
    struct setting settings[SWEEP_SETTINGS_MAX];
    bool good = true;
    for (size_t trial = 0; trial < (sweep->points ? sweep->trials : 1); trial++) {
        size_t count = sweep_settings(sweep, trial, settings);
        for (size_t i = 0; i < count; i++) {
            const struct node *at = NULL;
            for (size_t j = 0; j < book->options_count && !at; j++) {
                char *path = string_copy(settings[i].field->path), *rest = NULL;
                at = book->options[j];
                for (char *word = strtok_r(path, ".", &rest); word && at; word = strtok_r(NULL, ".", &rest))
                    at = node_get(at, word);
                free(path);
            }
            if (at)
                problem_at(&book->problems, at, "`%s` is swept (%s:%zu): an option cannot set it for all trials", settings[i].field->path,
                    settings[i].key->source->path, settings[i].key->line);
            good &= !at;
        }
    }
    return good;
}

// One limit holds for all trials of a file, because it is the submission's.
static void take_limit(struct spec_file *file, const struct sweep *sweep)
{
    if (sweep->concurrency && file->concurrency && sweep->concurrency != file->concurrency)
        problem_at(&file->book->problems, sweep->concurrency_node,
            "`sweep.concurrency` is one limit for all trials of a submission, and another run of this file says %lld", (long long)file->concurrency);
    if (sweep->concurrency)
        file->concurrency = sweep->concurrency;
}

// A sweep of the common part that gives a run of the file a section which makes another model, or another executor, of it.
static void warn_of_sections(struct spec_file *file, size_t index, const struct node *tree, const struct sweep *sweep)
{
    struct spec_book *book = file->book;
    const struct node *overlay = book->entries[index].overlay;
    struct setting settings[SWEEP_SETTINGS_MAX];
    if (file->entries_count < 2 || (overlay && node_get(overlay, "sweep")))
        return;
    size_t count = sweep_settings(sweep, 0, settings);
    for (size_t i = 0; i < count; i++) {
        const struct field *section = field_parent(settings[i].field);
        const struct node *place = settings[i].key, *at = tree;
        if (!section || !section->optional)
            continue;
        char *path = string_copy(section->path), *rest = NULL;
        for (char *word = strtok_r(path, ".", &rest); word && at; word = strtok_r(NULL, ".", &rest))
            at = node_get(at, word);
        free(path);
        if (!at)
            problem_add(&book->problems, place->source, place->line, place->column, true,
                "`sweep`: `%s` has no `%s`, and each of its trials gets one; `sweep: null` in it leaves it one run", file->entries[index].name,
                section->path);
    }
}

static void resolve_each(struct spec_file *file, size_t index, const struct node *tree, const struct sweep *sweep, char **names,
    const struct only *only)
{
    struct spec_book *book = file->book;
    struct setting settings[SWEEP_SETTINGS_MAX];
    struct known known = {.size = 2 * sweep->trials + 1};
    known.slots = allocate(known.size, sizeof *known.slots);
    known.hashes = allocate(known.size, sizeof *known.hashes);
    bool all = is_chosen(only, file->entries[index].name);
    const struct node *plain = node_without(book->pool, tree, "sweep");
    for (size_t i = 0; i < sweep->trials; i++) {
        if (!all && !is_chosen(only, names[i])) {
            free(names[i]);
            continue;
        }
        size_t count = sweep_settings(sweep, i, settings), before = problems_errors(&book->problems);
        const struct node *whole = overlay_of(book->pool, plain, settings, count);
        struct spec_run *run = resolve_run(file, index, whole, names[i], true);
        run->sweep = swept_values(&run->spec, settings, count);
        if (before == 0 && problems_errors(&book->problems) == 0 && is_repeated(&known, file))
            forget_run(file);
    }
    tell_repeated(file, sweep, &known);
    free(known.first);
    free(known.second);
    free(known.slots);
    free(known.hashes);
}

void resolve_trials(struct spec_file *file, size_t index, const struct node *tree, const struct only *only)
{
    struct spec_book *book = file->book;
    struct spec_entry *entry = &file->entries[index];
    struct sweep sweep;
    char **names = NULL;
    const struct node *node = node_get(tree, "sweep");
    bool good = node->kind == NODE_MAP && sweep_read(&sweep, &book->problems, book->pool, node, true) && check_options(book, &sweep);
    if (good && file->count + sweep.trials > SWEEP_TRIALS_MAX) {
        problem_at(&book->problems, node, "`sweep`: with these %zu trials the file makes %zu runs; %d are the most", sweep.trials,
            file->count + sweep.trials, SWEEP_TRIALS_MAX);
        good = false;
    }
    if (good)
        names = name_trials(book, &sweep, entry->name);
    if (!names) { // the run without its sweep shows what else is wrong
        resolve_run(file, index, tree, string_copy(entry->name), false);
        return;
    }
    entry->swept = true;
    take_limit(file, &sweep);
    warn_of_sections(file, index, tree, &sweep);
    resolve_each(file, index, tree, &sweep, names, only);
    free(names);
    size_t count = file->count - entry->first;
    entry->canary = (size_t)sweep.canary < count ? (size_t)sweep.canary : count;
    const struct node *canary = node_get(node, "canary");
    book->entries[index].canary = canary;
    if (count > 1 && entry->canary == count && canary && !only->names)
        problem_add(&book->problems, canary->source, canary->line, canary->column, true, "`sweep.canary` %zu is all of the %zu trials: none of them waits",
            (size_t)sweep.canary, count);
}
