// What is wrong with a file, told: as text and as lists, each sentence with the runs that it is true of.
#include "schema/spec/load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- in which runs ----

// "(in run `b`)", "(in runs `a`, `b`, `c` and 2 more)"
static void add_runs(struct text *text, const struct spec_file *file, const struct problem *problem)
{
    size_t shown = problem->affected < PROBLEM_NAMED ? problem->affected : PROBLEM_NAMED;
    text_add(text, problem->affected > 1 ? " (in runs " : " (in run ");
    for (size_t i = 0; i < shown; i++)
        text_addf(text, "%s`%s`", i ? ", " : "", file->runs[problem->named[i]].spec.name);
    if (problem->affected > shown)
        text_addf(text, " and %zu more", problem->affected - shown);
    text_add(text, ")");
}

// Where the values of a trial stand: "`model.layers` 3 (line 7)". A value that the sentence points at itself needs no place.
static void add_settings(struct text *text, const struct spec_file *file, size_t run)
{
    enum { SHOWN = 4 };
    const struct json *sweep = file->runs[run].sweep;
    const struct check *check = &file->book->checks[run];
    size_t shown = 0;
    for (void *i = js_first(sweep); i; i = js_next(sweep, i), shown++) {
        const struct field_state *state = state_of(check, js_key(i));
        if (shown == SHOWN) {
            text_add(text, ", …");
            break;
        }
        text_addf(text, "%s`%s` ", shown ? ", " : ": ", js_key(i));
        if (state->value && state->value->kind == NODE_SCALAR)
            text_addf(text, "%.40s", state->value->text);
        else
            js_write(text, js_value(i));
        if (state->value && state->value->line)
            text_addf(text, " (line %zu)", state->value->line);
    }
}

// "(in trial `moe-layers3`: `model.layers` 3 (line 7); and in 4 more)"
static void add_trial(struct text *text, const struct spec_file *file, const struct problem *problem)
{
    text_addf(text, " (in trial `%s`", file->runs[problem->named[0]].spec.name);
    add_settings(text, file, problem->named[0]);
    if (problem->affected > 1)
        text_addf(text, "; and in %zu more", problem->affected - 1);
    text_add(text, ")");
}

// The message, and in which runs it is so, where that is not all of them: two keys may disagree in one run only. A place in a run's overlay
// says by itself which run it is.
static char *sentence_of(const struct spec_file *file, const struct problem *problem, bool at_home)
{
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    text_add(&text, problem->message);
    if (problem->affected && problem->affected < file->count && problem->trial)
        add_trial(&text, file, problem);
    else if (problem->affected && problem->affected < file->count && !at_home)
        add_runs(&text, file, problem);
    return text_take(&text);
}

// ---- all of them ----

static bool is_within(const struct problem *problem, const struct node *tree)
{
    if (!tree)
        return false;
    if (problem->source == tree->source && problem->line == tree->line && problem->column == tree->column)
        return true;
    for (size_t i = 0; i < tree->count; i++)
        if ((tree->keys && is_within(problem, tree->keys[i])) || is_within(problem, tree->items[i]))
            return true;
    return false;
}

void render(struct spec_file *file)
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
        struct problem problem = problems->items[i];
        problem.message = sentence_of(file, &problem, is_within(&problem, file->book->overlays) || is_within(&problem, file->book->stages));
        problem_show(problem.warning ? &file->warnings : &file->problems, &problem);
        js_append(problem.warning ? file->warning_list : file->problem_list, problem_json(&problem));
        free(problem.message);
    }
    if (problems->dropped)
        text_addf(&file->problems, "%s: and %zu more\n", file->path, problems->dropped);
    if (problems->dropped_warnings)
        text_addf(&file->warnings, "%s: and %zu more warnings\n", file->path, problems->dropped_warnings);
}

void spec_file_fault(struct spec_file *file, size_t run, const char *key, bool warning, const char *format, ...)
{
    char *message = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&message, format, args) < 0)
        abort();
    va_end(args);
    struct problems *problems = &file->book->problems;
    problems->run = run + 1;
    problems->trial = file->runs[run].sweep != NULL;
    check_at(&file->book->checks[run], key, warning, "%s", message);
    problems->run = 0;
    problems->trial = false;
    free(message);
}

void spec_file_faults_end(struct spec_file *file)
{
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
