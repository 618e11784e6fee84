// What stands between a good spec and a run: keys that this build cannot run yet, inputs that are not there, and a place where nothing can be made.
#include "schema/spec/load.h"
#include "schema/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void append(struct json *list, const struct field *field, const struct problem *problem)
{
    struct text text;
    text_init(&text, 8192);
    problem_show(&text, problem);
    struct json *item = problem_json(problem);
    js_set(item, "key", js_string(field->path));
    js_set(item, "text", js_string(text.at));
    js_append(list, item);
    text_release(&text);
}

static bool is_before(const struct problem *a, const struct problem *b)
{
    if (a->source != b->source)
        return a->source->order < b->source->order;
    return a->line != b->line ? a->line < b->line : a->column < b->column;
}

struct refusal {
    const struct field *field;
    struct problem problem;
};

struct json *list_unsupported(const struct check *check)
{
    struct refusal *refusals = allocate(spec_fields_count, sizeof *refusals);
    size_t count = 0;
    struct text message;
    text_init(&message, 1024);
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        text_clear(&message);
        bool planned = field->type == FIELD_PLAN && field->cannot && check->states[i].key;
        if (planned)
            text_addf(&message, "%s: this build cannot %s yet", field->path, field->cannot);
        if (!planned && (check->states[i].bad || !field_refused(&message, field, check->spec)))
            continue;
        struct refusal refusal = {field, check_place(check, field)};
        refusal.problem.message = string_copy(message.at);
        size_t at = count++;
        for (; at > 0 && is_before(&refusal.problem, &refusals[at - 1].problem); at--) // kept in the order of the file
            refusals[at] = refusals[at - 1];
        refusals[at] = refusal;
    }
    struct json *list = js_array();
    for (size_t i = 0; i < count; i++) {
        append(list, refusals[i].field, &refusals[i].problem);
        free(refusals[i].problem.message);
    }
    text_release(&message);
    free(refusals);
    return list;
}

void add_unsupported(struct json *list, const char *key, const struct node *place, const char *message)
{
    struct problem problem = {.source = place->source, .line = place->line, .column = place->column, .message = string_copy(message)};
    append(list, field_find(key), &problem);
    free(problem.message);
}

static bool is_there(struct seen *seen, const char *path)
{
    enum { REMEMBERED = sizeof seen->at / sizeof seen->at[0] };
    for (size_t i = 0; i < REMEMBERED && seen->at[i].path; i++)
        if (strcmp(seen->at[i].path, path) == 0)
            return seen->at[i].there;
    size_t at = seen->next++ % REMEMBERED;
    free(seen->at[at].path);
    seen->at[at].path = string_copy(path);
    return seen->at[at].there = file_exists(path);
}

struct expecting {
    struct check *check;
    struct json *list;
    struct seen *seen;
};

static bool is_good(const struct expecting *expecting, const char *key, const char *path)
{
    return path && !expecting->check->states[field_index(field_find(key))].bad;
}

static void miss(const struct expecting *expecting, const char *key, const char *path, const char *fault)
{
    const struct field *field = field_find(key);
    struct problem problem = check_place(expecting->check, field);
    problem.message = string_format("`%s`: %s %s", key, path, fault);
    append(expecting->list, field, &problem);
    check_at(expecting->check, key, true, "%s (needed to run, not to validate)", problem.message);
    free(problem.message);
}

static void expect_file(const struct expecting *expecting, const char *key, const char *path, const char *ending)
{
    if (!is_good(expecting, key, path))
        return;
    char *whole = string_format("%s%s", path, ending);
    if (!is_there(expecting->seen, whole))
        miss(expecting, key, whole, "is not there");
    free(whole);
}

// What is there of a directory that is yet to be made must be a directory to write in. Where nothing of it is, it is another machine's.
static void expect_place(const struct expecting *expecting, const char *key, const char *path)
{
    if (!is_good(expecting, key, path))
        return;
    char *there = string_copy(path), *slash;
    struct stat stat_of;
    while (lstat(there, &stat_of) != 0 && (errno == ENOENT || errno == ENOTDIR) && (slash = strrchr(there, '/')) && slash > there)
        *slash = 0;
    if (stat(there, &stat_of) == 0 && !S_ISDIR(stat_of.st_mode))
        miss(expecting, key, there, "is no directory");
    else if (strrchr(there, '/') > there && access(there, W_OK | X_OK) != 0)
        miss(expecting, key, there, "cannot be written to");
    free(there);
}

struct json *list_missing(struct check *check, struct seen *seen)
{
    const struct spec *spec = check->spec;
    struct json *list = js_array();
    const struct expecting expecting = {check, list, seen};
    expect_file(&expecting, "data.text", spec->data.text, "");
    expect_file(&expecting, "data.prefix", spec->data.prefix, ".bin");
    expect_file(&expecting, "data.prefix", spec->data.prefix, ".idx");
    expect_file(&expecting, "data.manifest", spec->data.manifest, "");
    if (spec->data.tokenizer && strcmp(spec->data.tokenizer, "byte") != 0)
        expect_file(&expecting, "data.tokenizer", spec->data.tokenizer, "");
    expect_file(&expecting, "image.path", spec->image.path, "");
    expect_file(&expecting, "code.path", spec->code.path, "");
    expect_file(&expecting, "model.from.path", spec->model.from.path, "");
    expect_place(&expecting, "output", spec->output);
    return list;
}
