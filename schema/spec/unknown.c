// Keys that no row of the table has, and what was meant by them: a slip of the fingers, a key of another section, the name that another tool
// has for it, or a part of a longer name.
#include "schema/base/near.h"
#include "schema/base/text.h"
#include "schema/spec/check.h"
#include "schema/spec/elsewhere.h"

#include <stdlib.h>
#include <string.h>

enum {
    MEANT_MAX = 3, // more keys that share a word are no hint
    LISTED_MAX = 12 // a section of more keys is not listed
};

static bool is_in_section(const struct field *field, const char *section)
{
    size_t length = strlen(section);
    return length ? strncmp(field->path, section, length) == 0 && field->path[length] == '.' && !strchr(field->path + length + 1, '.')
                  : !strchr(field->path, '.');
}

// The key whose letters are nearly these, in the section itself.
static const struct field *by_letters(const char *key, const char *section)
{
    const char **names = allocate(spec_fields_count, sizeof *names);
    size_t count = 0;
    for (size_t i = 0; i < spec_fields_count; i++)
        if (is_in_section(&spec_fields[i], section) && !spec_fields[i].internal)
            names[count++] = field_key(&spec_fields[i]);
    const char *near = near_name(key, names, count);
    free(names);
    for (size_t i = 0; near && i < spec_fields_count; i++)
        if (field_key(&spec_fields[i]) == near)
            return &spec_fields[i];
    return NULL;
}

// The key of that very name in another section.
static const struct field *by_name_elsewhere(const char *key)
{
    for (size_t i = 0; i < spec_fields_count; i++)
        if (strcmp(field_key(&spec_fields[i]), key) == 0 && !spec_fields[i].internal && strchr(spec_fields[i].path, '.'))
            return &spec_fields[i];
    return NULL;
}

// Whether every word of `some` (parted by '_') is one of all's.
static bool words_are_of(const char *some, const char *all)
{
    for (const char *word = some; *word;) {
        size_t length = strcspn(word, "_");
        bool found = false;
        for (const char *at = all; *at && !found;) {
            size_t other = strcspn(at, "_");
            found = other == length && strncmp(at, word, length) == 0;
            at += other + strspn(at + other, "_");
        }
        if (!found)
            return false;
        word += length + strspn(word + length, "_");
    }
    return *some != '\0';
}

enum where { IN_SECTION, BENEATH_SECTION, ANYWHERE };

static bool is_there(const struct field *field, const char *section, enum where where)
{
    size_t length = strlen(section);
    return where == ANYWHERE || (where == IN_SECTION ? is_in_section(field, section)
                                                     : length && strncmp(field->path, section, length) == 0 && field->path[length] == '.');
}

// Keys that have all words of this one, or of which this one has all words (farther away only if they are several: `name` is a word of much).
// Returns how many, of which at most MEANT_MAX are written.
static size_t by_words(const char *key, const char *section, enum where where, const struct field *meant[MEANT_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field->internal || !is_there(field, section, where))
            continue;
        const char *name = field_key(field);
        bool telling = where == IN_SECTION || (where == BENEATH_SECTION && strchr(name, '_'));
        if ((words_are_of(key, name) || (telling && words_are_of(name, key))) && count++ < MEANT_MAX)
            meant[count - 1] = field;
    }
    return count;
}

// What may have been meant, the surest first. Returns how many keys there are.
static size_t find_meant(const char *key, const char *section, const struct field *meant[MEANT_MAX])
{
    if ((meant[0] = elsewhere_key(key)) || (meant[0] = by_letters(key, section)) || (meant[0] = by_name_elsewhere(key)))
        return 1;
    size_t count = 0;
    for (enum where where = IN_SECTION; where <= ANYWHERE && count == 0; where++)
        count = by_words(key, section, where, meant);
    return count <= MEANT_MAX ? count : 0;
}

static void add_meant(struct text *text, const struct field *const meant[MEANT_MAX], size_t count, bool here)
{
    for (size_t i = 0; i < count; i++)
        text_addf(text, "%s`%s`", i == 0 ? here ? "; did you mean " : "; " : i + 1 < count ? ", " : here ? " or " : " and ",
            here ? field_key(meant[i]) : meant[i]->path);
    text_add(text, count == 0 ? "" : here ? "?" : count > 1 ? " are keys" : " is a key");
}

const struct field *unknown_path_meant(const char *path)
{
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    char *section = string_format("%.*s", (int)(dot ? dot - path : 0), path);
    const struct field *meant = elsewhere_key(key);
    if (!meant)
        meant = by_letters(key, section);
    if (!meant)
        meant = by_name_elsewhere(key);
    free(section);
    return meant && meant->type != FIELD_SECTION && meant->type != FIELD_PLAN ? meant : NULL;
}

// What stands for a word of another tool that is no key here; NULL. Only where jobs, files and sweeps are spoken of: elsewhere the same word
// may be anything.
static const char *told_of(const char *key, const char *section)
{
    static const char *const sections[] = {"", "sweep", "slurm", "resources", "retry", "environment", "logging"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strcmp(section, sections[i]) == 0)
            return elsewhere_told(key);
    return NULL;
}

// The keys of a small section, where nothing else is known of what was meant.
static void add_keys_of(struct text *text, const char *section)
{
    size_t count = 0;
    for (size_t i = 0; i < spec_fields_count && *section; i++)
        count += is_in_section(&spec_fields[i], section) && !spec_fields[i].internal;
    size_t left = count && count <= LISTED_MAX ? count : 0;
    for (size_t i = 0; left && i < spec_fields_count; i++)
        if (is_in_section(&spec_fields[i], section) && !spec_fields[i].internal) {
            text_addf(text, "%s`%s`", left == count ? "; it has " : left == 1 ? " and " : ", ", field_key(&spec_fields[i]));
            left--;
        }
}

void unknown_key(struct check *check, const struct node *key, const char *section)
{
    static const char *const of_file[] = {"runs", "base"};
    if (!*section && (strcmp(key->text, of_file[0]) == 0 || strcmp(key->text, of_file[1]) == 0)) {
        problem_at(check->problems, key, "`%s` stands at the top of a file, not inside a run", key->text);
        return;
    }
    const struct field *meant[MEANT_MAX];
    const char *near = *section || by_letters(key->text, section) ? NULL : near_name(key->text, of_file, 2);
    const char *told = near || elsewhere_key(key->text) ? NULL : told_of(key->text, section);
    size_t count = near || told ? 0 : find_meant(key->text, section, meant);
    if (!near && !told && !count && strcmp(section, "environment") == 0 && spec_is_variable_name(key->text))
        told = elsewhere_told("env");
    bool here = count && is_in_section(meant[0], section);
    const struct field *faulted = field_find(*section ? section : here ? field_key(meant[0]) : "");
    if (faulted)
        check->states[field_index(faulted)].faulted = true;
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    text_addf(&text, "unknown key `%.60s`", key->text);
    if (*section)
        text_addf(&text, " in `%s`", section);
    if (near)
        text_addf(&text, "; did you mean `%s`?", near);
    if (told)
        text_addf(&text, ": %s", told);
    else if (!near && !count)
        add_keys_of(&text, section);
    add_meant(&text, meant, count, here);
    problem_at(check->problems, key, "%s", text.at);
    text_release(&text);
}
