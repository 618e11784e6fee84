// Strings and short lists into members of struct spec: ${VAR} replaced, paths made absolute, choices by name with a near one.
#include "schema/spec/check.h"
#include "schema/base/file.h"
#include "schema/base/near.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIST_MAX = 1024, // items of a list or a map of strings
    WORD_MAX = 4096  // bytes of a value that has an alphabet
};

// What stands for the dollar sign at *at: moves *at behind it. false, with the fault recorded.
static bool expand_dollar(struct problems *problems, const struct node *node, const char **at, struct text *out)
{
    const char *end = (*at)[1] == '{' ? strchr(*at, '}') : NULL;
    if ((*at)[1] == '$') {
        text_add(out, "$");
        *at += 2;
        return true;
    }
    if (!end) {
        problem_at(problems, node, "a lone `$`: write ${NAME} for an environment variable, $$ for a dollar sign");
        return false;
    }
    char *name = string_format("%.*s", (int)(end - *at - 2), *at + 2);
    const char *value = getenv(name);
    if (value)
        text_add(out, value);
    else
        problem_at(problems, node, "the environment has no variable `%.60s`", name);
    free(name);
    *at = end + 1;
    return value != NULL;
}

// A resolved spec's strings are final.
char *value_expand(struct problems *problems, const struct node *node)
{
    if (node->source->json)
        return string_copy(node->text);
    struct text out;
    text_init(&out, SPEC_SCALAR_MAX);
    bool good = true;
    for (const char *at = node->text; good && *at;) {
        size_t plain = strcspn(at, "$");
        text_add_bytes(&out, at, plain);
        at += plain;
        if (*at)
            good = expand_dollar(problems, node, &at, &out);
    }
    if (good && out.overflowed) {
        problem_at(problems, node, "longer than 65536 bytes once variables are replaced");
        good = false;
    }
    char *string = text_take(&out);
    if (good)
        return string;
    free(string);
    return NULL;
}

bool name_is_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 64 && *name != '-' &&
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == length;
}

// Takes the string over as the member's value.
static bool store(struct check *check, const struct field *field, char *string)
{
    char **at = field_at(field, check->spec);
    free(*at);
    *at = string;
    return true;
}

static bool convert_path(struct check *check, const struct field *field, const struct node *node)
{
    char *string = value_expand(check->problems, node);
    if (!string)
        return false;
    const char *why = !*string ? "it is empty" : string[0] == '~' ? "`~` is not replaced; write ${HOME}" : NULL;
    if (why) {
        value_refuse(check, field, node, why);
        free(string);
        return false;
    }
    if (field->type == FIELD_TOKENIZER && strcmp(string, "byte") == 0)
        return store(check, field, string);
    char *absolute = path_absolute(string, node->source->directory);
    free(string);
    return store(check, field, absolute);
}

// Why a value of a field that has an alphabet is none: it becomes a word of another program's command line. NULL if it is good.
static const char *why_no_word(const char *string, const char *letters)
{
    if (!*string)
        return "it is empty";
    if (*string == '-')
        return "it may not begin with `-`";
    if (strlen(string) > WORD_MAX)
        return "it is longer than 4096 bytes";
    for (; *string; string++)
        if (!(*string >= 'a' && *string <= 'z') && !(*string >= 'A' && *string <= 'Z') && !(*string >= '0' && *string <= '9') && !strchr(letters, *string))
            return "another character is in it";
    return NULL;
}

static bool convert_string(struct check *check, const struct field *field, const struct node *node)
{
    char *string = value_expand(check->problems, node);
    if (!string)
        return false;
    const char *why = field->letters ? why_no_word(string, field->letters) : NULL;
    if (why) {
        free(string);
        return value_refuse(check, field, node, why);
    }
    if (field->type == FIELD_NAME && !name_is_valid(string)) {
        bool option = *string == '-';
        free(string);
        return value_refuse(check, field, node, option ? "commands would take it for an option, for its `-`" : NULL);
    }
    return store(check, field, string);
}

// Index of a choice; -1 with the fault and a near name recorded.
static int find_choice(struct check *check, const struct field *field, const struct node *node)
{
    size_t count = 0;
    for (; field->choices[count]; count++)
        if (strcmp(field->choices[count], node->text) == 0)
            return (int)count;
    const char *near = near_name(node->text, field->choices, count);
    char *why = near ? string_format("did you mean `%s`?", near) : NULL;
    value_refuse(check, field, node, why);
    free(why);
    return -1;
}

static bool convert_choice(struct check *check, const struct field *field, const struct node *node)
{
    int choice = find_choice(check, field, node);
    if (choice < 0)
        return false;
    if (field->type == FIELD_WORD)
        return store(check, field, string_copy(field->choices[choice]));
    *(int *)field_at(field, check->spec) = choice;
    return true;
}

// ---- lists ----

static bool convert_strings(struct check *check, const struct field *field, const struct node *node)
{
    bool good = true;
    struct spec_list list = {.items = allocate(node->count, sizeof *list.items)};
    for (size_t i = 0; i < node->count; i++) {
        const struct node *item = node->items[i];
        char *string = NULL;
        if (item->kind != NODE_SCALAR || node_is_null(item))
            problem_at(check->problems, item, "`%s`: each item is a string", field->path);
        else if (!field->choices || find_choice(check, field, item) >= 0)
            string = value_expand(check->problems, item);
        const char *why = string && field->letters ? why_no_word(string, field->letters) : NULL;
        if (why) {
            value_refuse(check, field, item, why);
            free(string);
            string = NULL;
        }
        if (string)
            list.items[list.count++] = string;
        else
            good = false;
    }
    value_release(field, check->spec);
    *(struct spec_list *)field_at(field, check->spec) = list;
    return good;
}

static bool convert_integers(struct check *check, const struct field *field, const struct node *node)
{
    bool good = true;
    if (node->count == 0)
        return value_refuse(check, field, node, "it is empty");
    struct spec_integers list = {.items = allocate(node->count, sizeof *list.items)};
    for (; list.count < node->count; list.count++) {
        struct field item = *field;
        char *path = string_format("%s[%zu]", field->path, list.count);
        item.path = path;
        item.type = FIELD_INTEGER;
        good = value_integer(check, &item, node->items[list.count], &list.items[list.count]) && good;
        free(path);
    }
    value_release(field, check->spec);
    *(struct spec_integers *)field_at(field, check->spec) = list;
    return good;
}

// Letters, digits and '_'; not a variable by which the daemon marks its processes, nor one that asks Slurm's commands for something past the
// keys of `slurm:`, or tells the job's script that it is a job of Slurm's, nor one of that script's own (sy_).
bool spec_is_variable_name(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    static const char *const taken[] = {"SWITCHYARD_", "SLURM_", "SBATCH_", "SRUN_", "sy_"};
    if (!*name || (*name >= '0' && *name <= '9') || name[strspn(name, letters)])
        return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strncmp(name, taken[i], strlen(taken[i])) == 0)
            return false;
    return true;
}

static bool convert_pairs(struct check *check, const struct field *field, const struct node *node)
{
    bool good = true;
    struct spec_pairs pairs = {.keys = allocate(node->count, sizeof *pairs.keys), .values = allocate(node->count, sizeof *pairs.values)};
    for (size_t i = 0; i < node->count; i++) {
        const struct node *key = node->keys[i], *item = node->items[i];
        char *string = NULL;
        if (!spec_is_variable_name(key->text))
            problem_at(check->problems, key, "`%s`: `%.60s` is no name that a job may set (" SPEC_VARIABLE_NAMES ")", field->path, key->text);
        else if (item->kind != NODE_SCALAR || node_is_null(item))
            problem_at(check->problems, item, "`%s.%.60s` expects a string", field->path, key->text);
        else
            string = value_expand(check->problems, item);
        if (string) {
            pairs.keys[pairs.count] = string_copy(key->text);
            pairs.values[pairs.count++] = string;
        } else {
            good = false;
        }
    }
    value_release(field, check->spec);
    *(struct spec_pairs *)field_at(field, check->spec) = pairs;
    return good;
}

static bool convert_split(struct check *check, const struct field *field, const struct node *node)
{
    double *parts = field_at(field, check->spec);
    if (node->count != 3)
        return value_refuse(check, field, node, "training, validation, test");
    for (size_t i = 0; i < 3; i++) {
        double value;
        if (!value_number(&value, node->items[i]) || value < field->least || value > field->most) {
            problem_at(check->problems, node->items[i], "`%s`: each part is a number from 0 to 1000", field->path);
            return false;
        }
        parts[i] = value;
    }
    return true;
}

// One {type, coefficient} of model.moe.losses.
static bool convert_loss(struct check *check, const struct node *node, struct spec_moe_loss_term *term)
{
    static const char *const keys[] = {"type", "coefficient"};
    static const struct field type = {.path = "model.moe.losses.type", .type = FIELD_CHOICE, .choices = moe_loss_names};
    if (node->kind != NODE_MAP) {
        problem_at(check->problems, node, "`model.moe.losses`: each item is {type: …, coefficient: …}");
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < node->count; i++) {
        if (strcmp(node->keys[i]->text, keys[0]) == 0 || strcmp(node->keys[i]->text, keys[1]) == 0)
            continue;
        const char *near = near_name(node->keys[i]->text, keys, 2);
        problem_at(check->problems, node->keys[i], "unknown key `%.60s` in `model.moe.losses`%s%s%s", node->keys[i]->text,
            near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
        good = false;
    }
    const struct node *name = node_get(node, "type"), *coefficient = node_get(node, "coefficient");
    if (!name || !coefficient) {
        problem_at(check->problems, node, "`model.moe.losses`: an item without its `%s`", name ? "coefficient" : "type");
        return false;
    }
    int choice = name->kind == NODE_SCALAR ? find_choice(check, &type, name) : -1;
    if (name->kind != NODE_SCALAR)
        value_refuse(check, &type, name, NULL);
    if (!value_number(&term->coefficient, coefficient) || term->coefficient < 0) {
        problem_at(check->problems, coefficient, "`model.moe.losses`: `coefficient` is a number of at least 0");
        return false;
    }
    term->type = (enum spec_moe_loss)choice;
    return good && choice >= 0;
}

static bool convert_losses(struct check *check, const struct node *node)
{
    struct spec_moe *moe = &check->spec->model.moe;
    moe->losses_count = 0;
    bool good = true;
    if (node->count > SPEC_MOE_LOSSES_MAX) {
        problem_at(check->problems, node, "`model.moe.losses`: %d losses at most", SPEC_MOE_LOSSES_MAX);
        return false;
    }
    for (size_t i = 0; i < node->count; i++) {
        struct spec_moe_loss_term term = {0};
        if (!convert_loss(check, node->items[i], &term)) {
            good = false;
            continue;
        }
        for (size_t j = 0; j < moe->losses_count; j++) {
            if (moe->losses[j].type == term.type) {
                problem_at(check->problems, node->items[i], "`model.moe.losses` has `%s` twice", moe_loss_names[term.type]);
                good = false;
            }
        }
        moe->losses[moe->losses_count++] = term;
    }
    return good;
}

// A single value where a list is expected lacks its brackets.
static bool refuse_shape(struct check *check, const struct field *field, const struct node *node)
{
    bool words = field->type == FIELD_STRINGS || field->type == FIELD_INTEGERS;
    char *why = words && node->kind == NODE_SCALAR && !node_is_null(node) ? string_format("write `[%.50s]`", node->text) : NULL;
    value_refuse(check, field, node, why);
    free(why);
    return false;
}

bool value_convert_text(struct check *check, const struct field *field, const struct node *node)
{
    bool map = field->type == FIELD_PAIRS;
    bool list = field->type == FIELD_STRINGS || field->type == FIELD_SPLIT || field->type == FIELD_LOSSES ||
        field->type == FIELD_INTEGERS;
    if ((map && node->kind != NODE_MAP) || (list && node->kind != NODE_LIST))
        return refuse_shape(check, field, node);
    if ((map || list) && node->count > LIST_MAX)
        return value_refuse(check, field, node, "more than 1024 items");
    switch (field->type) {
    case FIELD_PATH:
    case FIELD_TOKENIZER:
        return convert_path(check, field, node);
    case FIELD_CHOICE:
    case FIELD_WORD:
        return convert_choice(check, field, node);
    case FIELD_STRINGS:
        return convert_strings(check, field, node);
    case FIELD_INTEGERS:
        return convert_integers(check, field, node);
    case FIELD_PAIRS:
        return convert_pairs(check, field, node);
    case FIELD_SPLIT:
        return convert_split(check, field, node);
    case FIELD_LOSSES:
        return convert_losses(check, node);
    default:
        return convert_string(check, field, node);
    }
}

void value_release(const struct field *field, struct spec *spec)
{
    if (field->type == FIELD_STRINGS) {
        struct spec_list *list = field_at(field, spec);
        for (size_t i = 0; i < list->count; i++)
            free(list->items[i]);
        free(list->items);
        *list = (struct spec_list){0};
    } else if (field->type == FIELD_INTEGERS) {
        struct spec_integers *list = field_at(field, spec);
        free(list->items);
        *list = (struct spec_integers){0};
    } else if (field->type == FIELD_PAIRS) {
        struct spec_pairs *pairs = field_at(field, spec);
        for (size_t i = 0; i < pairs->count; i++) {
            free(pairs->keys[i]);
            free(pairs->values[i]);
        }
        free(pairs->keys);
        free(pairs->values);
        *pairs = (struct spec_pairs){0};
    } else if (field_is_string(field)) {
        char **string = field_at(field, spec);
        free(*string);
        *string = NULL;
    }
}
