// The entries of a file: `runs:`, which are overlays on its common part, and `stages:`, which also say their kind and what they need.
#include "schema/spec/load.h"
#include "schema/base/near.h"

#include <stdlib.h>
#include <string.h>

enum { NEEDS_MAX = 100000 }; // pairs of runs that a submission stores

enum { KINDS = 3 };
static const char *const kinds[KINDS] = {"train", "tokenize", "check"};

static struct spec_entry *add_entry(struct spec_file *file, struct entry entry, const char *name)
{
    struct spec_book *book = file->book;
    file->entries = reallocate(file->entries, file->entries_count + 1, sizeof *file->entries);
    book->entries = reallocate(book->entries, file->entries_count + 1, sizeof *book->entries);
    book->entries[file->entries_count] = entry;
    struct spec_entry *added = &file->entries[file->entries_count++];
    *added = (struct spec_entry){.name = name, .kind = kinds[0]};
    js_set(book->names, name, js_boolean(true));
    return added;
}

// The kind of a stage; train where it is wrong, with the fault recorded.
static const char *read_kind(struct problems *problems, const struct node *name, const struct node *kind)
{
    bool word = kind && kind->kind == NODE_SCALAR;
    for (size_t i = 0; word && i < KINDS; i++)
        if (strcmp(kind->text, kinds[i]) == 0)
            return kinds[i];
    const char *near = word ? near_name(kind->text, kinds, KINDS) : NULL;
    if (kind)
        problem_at(problems, kind, "`stages.%.60s.kind` expects one of `train`, `tokenize`, `check`%s%.60s%s%s%s%s", name->text, word ? ", not `" : "",
            word ? kind->text : "", word ? "`" : "", near ? ": did you mean `" : "", near ? near : "", near ? "`?" : "");
    else
        problem_at(problems, name, "`stages.%.60s` needs a `kind`: one of `train`, `tokenize`, `check`", name->text);
    return kinds[0];
}

static void read_entry(struct spec_file *file, const struct node *key, const struct node *overlay, bool stage)
{
    struct spec_book *book = file->book;
    const char *where = stage ? "stages" : "runs";
    if (!name_is_valid(key->text)) {
        problem_at(&book->problems, key, "`%s`: `%.80s` is no name of 1 to 64 letters, digits, `_` and `-`%s", where, key->text,
            *key->text == '-' ? ": commands would take it for an option" : "");
    } else if (overlay->kind != NODE_MAP) {
        if (stage)
            problem_at(&book->problems, overlay, "`stages.%s` expects {kind: …, needs: […]} and keys of its own", key->text);
        else
            problem_at(&book->problems, overlay, "`runs.%s` expects a map of keys; `%s: {}` is a run with nothing of its own", key->text, key->text);
    } else if (js_get(book->names, key->text)) {
        problem_at(&book->problems, key, "`%s` is in `runs` and in `stages`: a name stands for one of them", key->text);
    } else {
        struct entry entry = {.key = key, .overlay = node_without(book->pool, overlay, "needs"), .needs = node_get(overlay, "needs")};
        if (stage) {
            entry.kind = node_get(overlay, "kind");
            entry.overlay = node_without(book->pool, entry.overlay, "kind");
        }
        struct spec_entry *added = add_entry(file, entry, key->text);
        if (stage)
            added->kind = read_kind(&book->problems, key, entry.kind);
    }
}

// One section's entries; true where there is one.
static bool list_section(struct spec_file *file, const struct node *section, bool stage)
{
    struct problems *problems = &file->book->problems;
    const char *where = stage ? "stages" : "runs";
    if (!section)
        return false;
    if (section->kind != NODE_MAP || section->count == 0 || section->count > SPEC_RUNS_MAX) {
        if (stage)
            problem_at(problems, section, "`%s` expects a map of 1 to %d names to stages, such as `tokens: {kind: tokenize}`", where, SPEC_RUNS_MAX);
        else
            problem_at(problems, section, "`%s` expects a map of 1 to %d names to overlays, such as `dense: {}`", where, SPEC_RUNS_MAX);
        return true;
    }
    for (size_t i = 0; i < section->count; i++)
        read_entry(file, section->keys[i], section->items[i], stage);
    return true;
}

// Names and overlays. The file's only run is named after the file.
void entries_list(struct spec_file *file, const struct node *root)
{
    struct spec_book *book = file->book;
    book->overlays = node_get(root, "runs");
    book->stages = node_get(root, "stages");
    bool stages = list_section(file, book->stages, true), runs = list_section(file, book->overlays, false);
    if (!stages && !runs)
        add_entry(file, (struct entry){0}, book->stem);
}

// ---- needs ----

static size_t entry_named(const struct spec_file *file, const char *name)
{
    size_t at = 0;
    while (at < file->entries_count && strcmp(file->entries[at].name, name) != 0)
        at++;
    return at;
}

// The sweep that has a trial of that name; NULL.
static const struct spec_entry *entry_of_trial(const struct spec_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (file->entries[file->runs[i].entry].swept && strcmp(file->runs[i].spec.name, name) == 0)
            return &file->entries[file->runs[i].entry];
    return NULL;
}

static void refuse_need(struct spec_file *file, size_t index, const struct node *need)
{
    const char **names = allocate(file->entries_count, sizeof *names);
    size_t count = 0;
    for (size_t i = 0; i < file->entries_count; i++)
        if (i != index)
            names[count++] = file->entries[i].name;
    const char *text = need->kind == NODE_SCALAR ? need->text : "", *near = near_name(text, names, count);
    const char *where = file->book->entries[index].kind ? "stages" : "runs", *name = file->entries[index].name;
    const struct spec_entry *swept = entry_of_trial(file, text);
    if (strcmp(text, name) == 0)
        problem_at(&file->book->problems, need, "`%s.%s.needs`: `%s` would wait for itself", where, name, name);
    else if (swept)
        problem_at(&file->book->problems, need, "`%s.%s.needs`: `%.60s` is a trial of a sweep; write `%s`, which is all %zu of them", where, name,
            text, swept->name, swept->count);
    else
        problem_at(&file->book->problems, need, "`%s.%s.needs`: there is no run or stage `%.60s`%s%s%s", where, name, text,
            near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
    free(names);
}

static void read_needs(struct spec_file *file, size_t index)
{
    const struct node *needs = file->book->entries[index].needs;
    struct spec_entry *entry = &file->entries[index];
    if (!needs || node_is_null(needs))
        return;
    if (needs->kind != NODE_LIST) {
        bool one = needs->kind == NODE_SCALAR;
        problem_at(&file->book->problems, needs, "`needs` expects a list of runs and stages%s%.60s%s", one ? ": write `[" : "", one ? needs->text : "",
            one ? "]`" : "");
        return;
    }
    entry->needs = allocate(needs->count, sizeof *entry->needs);
    for (size_t i = 0; i < needs->count; i++) {
        const struct node *need = needs->items[i];
        size_t needed = need->kind == NODE_SCALAR ? entry_named(file, need->text) : file->entries_count;
        bool known = false;
        if (needed == file->entries_count || needed == index)
            refuse_need(file, index, need);
        for (size_t j = 0; j < entry->needs_count; j++)
            known |= entry->needs[j] == needed;
        if (needed < file->entries_count && needed != index && !known)
            entry->needs[entry->needs_count++] = needed;
    }
}

// The entry whose weights a run starts from; file->entries_count: none of this file.
static size_t entry_of_source(const struct spec_file *file, const struct spec_run *run)
{
    const char *from = run->spec.model.from.run;
    size_t named = from ? entry_named(file, from) : file->entries_count;
    for (size_t i = 0; from && named == file->entries_count && i < file->count; i++)
        if (strcmp(file->runs[i].spec.name, from) == 0)
            named = file->runs[i].entry;
    return named;
}

static bool leads_to(const struct spec_file *file, size_t at, size_t goal, bool *seen, struct text *way);

static bool leads_on(const struct spec_file *file, size_t at, size_t goal, bool *seen, struct text *way)
{
    const struct spec_entry *entry = &file->entries[at];
    for (size_t i = 0; i < entry->needs_count; i++)
        if (leads_to(file, entry->needs[i], goal, seen, way))
            return true;
    for (size_t i = entry->first; i < entry->first + entry->count; i++) {
        size_t source = entry_of_source(file, &file->runs[i]);
        if (source < file->entries_count && source != at && leads_to(file, source, goal, seen, way))
            return true;
    }
    return false;
}

// Whether a walk along needs (and along weights that runs start from) comes from `at` to `goal`. way: the names on it; seen: each entry is
// looked at once.
static bool leads_to(const struct spec_file *file, size_t at, size_t goal, bool *seen, struct text *way)
{
    size_t length = way->length;
    text_addf(way, " → `%s`", file->entries[at].name);
    if (at == goal)
        return true;
    if (!seen[at]) {
        seen[at] = true;
        if (leads_on(file, at, goal, seen, way))
            return true;
    }
    way->length = length;
    way->at[length] = 0;
    return false;
}

// A need that leads back to its own entry, named with the way round. Each circle is told once, at the first entry on it.
static void check_circles(struct spec_file *file)
{
    bool *seen = allocate(file->entries_count, sizeof *seen);
    struct text way;
    text_init(&way, 4096);
    for (size_t i = 0; i < file->entries_count; i++) {
        memset(seen, 0, file->entries_count * sizeof *seen);
        for (size_t j = 0; j < file->entries[i].needs_count; j++) {
            text_clear(&way);
            text_addf(&way, "`%s`", file->entries[i].name);
            if (!leads_to(file, file->entries[i].needs[j], i, seen, &way))
                continue;
            problem_at(&file->book->problems, file->book->entries[i].needs, "these wait for each other, so that none could begin: %s", way.at);
            file->entries[i].needs_count = 0; // the circle is open now: the others on it are not told of it again
        }
    }
    text_release(&way);
    free(seen);
}

static void check_kind(struct spec_file *file, size_t index)
{
    const struct spec_entry *entry = &file->entries[index];
    const struct node *kind = file->book->entries[index].kind;
    for (size_t i = entry->first; i < entry->first + entry->count; i++) {
        struct spec_run *run = &file->runs[i];
        if (strcmp(entry->kind, "tokenize") == 0 && !run->spec.data.text && !state_of(&file->book->checks[i], "data.text")->bad)
            problem_at(&file->book->problems, kind, "stage `%s` tokenizes, and has no `data.text` to take", entry->name);
        if (strcmp(entry->kind, "check") == 0)
            add_unsupported(run->unsupported, "stages", kind, "stages: check: this build cannot run checks as a stage yet");
    }
}

// The others need each of the canary: how many needs that is, on top of those before.
static double check_canary(struct spec_file *file, size_t index, double before)
{
    const struct spec_entry *entry = &file->entries[index];
    size_t others = entry->count - (entry->canary < entry->count ? entry->canary : entry->count);
    double pairs = (double)others * (double)entry->canary;
    if (pairs > 0 && before + pairs > NEEDS_MAX && file->book->entries[index].canary)
        problem_at(&file->book->problems, file->book->entries[index].canary, "`sweep.canary`: %zu trials that need the first %zu each: %d needs are the most",
            others, entry->canary, NEEDS_MAX);
    return pairs;
}

void entries_connect(struct spec_file *file)
{
    for (size_t i = 0; i < file->entries_count; i++)
        read_needs(file, i);
    check_circles(file);
    double pairs = 0;
    for (size_t i = 0; i < file->entries_count; i++) {
        const struct spec_entry *entry = &file->entries[i];
        check_kind(file, i);
        pairs += check_canary(file, i, pairs);
        for (size_t j = 0; j < entry->needs_count; j++) {
            const struct spec_entry *needed = &file->entries[entry->needs[j]];
            const struct node *place = file->book->entries[i].needs;
            pairs += (double)entry->count * (double)needed->count;
            if (entry->count && !needed->count)
                problem_add(&file->book->problems, place->source, place->line, place->column, true,
                    "`%s` needs `%s`, which --run leaves out: it will not wait for it", entry->name, needed->name);
            if (pairs > NEEDS_MAX)
                problem_at(&file->book->problems, place, "%zu trials that need %zu others each: %d needs are the most", entry->count, needed->count,
                    NEEDS_MAX);
        }
    }
}

size_t *spec_file_needs(const struct spec_file *file, size_t run, size_t *count)
{
    const struct spec_entry *entry = &file->entries[file->runs[run].entry];
    size_t most = entry->canary;
    for (size_t i = 0; i < entry->needs_count; i++)
        most += file->entries[entry->needs[i]].count;
    size_t *needs = allocate(most, sizeof *needs);
    *count = 0;
    for (size_t i = 0; i < entry->needs_count; i++) {
        const struct spec_entry *needed = &file->entries[entry->needs[i]];
        for (size_t j = 0; j < needed->count; j++)
            needs[(*count)++] = needed->first + j;
    }
    for (size_t i = 0; i < entry->canary && run - entry->first >= entry->canary; i++)
        needs[(*count)++] = entry->first + i;
    return needs;
}
