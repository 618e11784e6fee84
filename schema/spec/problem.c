#include "schema/spec/problem.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SHOWN = 120 }; // characters of a source line

void problems_release(struct problems *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        free(problems->items[i].message);
    free(problems->items);
    *problems = (struct problems){0};
}

static bool same_place(const struct problem *a, const struct problem *b)
{
    return a->source == b->source && a->line == b->line && a->column == b->column && a->warning == b->warning;
}

// Whether two sentences are the same but for their numbers.
static bool is_alike(const char *a, const char *b)
{
    static const char number[] = "0123456789.e+-";
    for (;;) {
        size_t skipped_a = isdigit((unsigned char)*a) ? strspn(a, number) : 0, skipped_b = isdigit((unsigned char)*b) ? strspn(b, number) : 0;
        a += skipped_a;
        b += skipped_b;
        if (*a != *b || !skipped_a != !skipped_b)
            return false;
        if (!*a)
            return true;
        a++;
        b++;
    }
}

// Known already: one more run has it.
static void note_run(struct problem *known, const struct problem *fresh)
{
    if (known->affected == 0 || fresh->affected == 0) {
        known->affected = 0;
        return;
    }
    if (known->last == fresh->last)
        return;
    if (known->affected < PROBLEM_NAMED)
        known->named[known->affected] = fresh->last;
    known->last = fresh->last;
    known->affected++;
}

static void take(struct problems *problems, struct problem fresh)
{
    fresh.trial = problems->trial;
    fresh.affected = problems->run > 0;
    fresh.last = fresh.named[0] = problems->run - fresh.affected;
    for (size_t i = 0; i < problems->count; i++) {
        struct problem *known = &problems->items[i];
        if (!same_place(known, &fresh) ||
            (strcmp(known->message, fresh.message) != 0 && !(known->trial && fresh.trial && is_alike(known->message, fresh.message))))
            continue;
        note_run(known, &fresh);
        free(fresh.message);
        return;
    }
    if (problems->count == PROBLEMS_MAX) {
        ++*(fresh.warning ? &problems->dropped_warnings : &problems->dropped);
        free(fresh.message);
        return;
    }
    if (!problems->items)
        problems->items = allocate(PROBLEMS_MAX, sizeof *problems->items);
    problems->errors += !fresh.warning;
    problems->items[problems->count++] = fresh;
}

// A sentence is one line whatever the user's bytes are: control characters in it become '?'.
static char *sentence(const char *format, va_list args)
{
    char *message = NULL;
    if (vasprintf(&message, format, args) < 0)
        abort();
    for (char *at = message; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F)
            *at = '?';
    return message;
}

void problem_add(struct problems *problems, const struct source *source, size_t line, size_t column, bool warning, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    take(problems, (struct problem){.source = source, .line = line, .column = column, .warning = warning, .message = sentence(format, args)});
    va_end(args);
}

void problem_at(struct problems *problems, const struct node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    take(problems, (struct problem){.source = node->source, .line = node->line, .column = node->column, .message = sentence(format, args)});
    va_end(args);
}

size_t problems_errors(const struct problems *problems)
{
    return problems->errors + problems->dropped;
}

static int by_place(const void *left, const void *right)
{
    const struct problem *a = left, *b = right;
    if (a->source != b->source)
        return a->source->order < b->source->order ? -1 : 1;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    if (a->column != b->column)
        return a->column < b->column ? -1 : 1;
    if (a->affected && b->affected && a->named[0] != b->named[0])
        return a->named[0] < b->named[0] ? -1 : 1;
    return strcmp(a->message, b->message);
}

void problems_sort(struct problems *problems)
{
    if (problems->count)
        qsort(problems->items, problems->count, sizeof *problems->items, by_place);
}

// Adds what stands for the character at `at`: itself, or '?' for bytes that a terminal would obey (control characters, C1 too) or cannot
// show. out NULL: nowhere. Returns its length.
static size_t add_character(struct text *out, const char *at)
{
    size_t length = utf8_length(at);
    bool control = ((unsigned char)*at < 0x20 && *at != '\t') || *at == 0x7F || (length == 2 && at[0] == '\xC2' && (unsigned char)at[1] < 0xA0);
    if (!out)
        return length ? length : 1;
    if (length && !control)
        text_add_bytes(out, at, length);
    else
        text_add(out, "?");
    return length ? length : 1;
}

static const char *start_of_line(const struct source *source, size_t wanted)
{
    const char *at = source->bytes.at, *end = at + source->bytes.length;
    for (size_t line = 1; line < wanted && at < end; line++) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        at = feed ? feed + 1 : end;
    }
    return at;
}

// The line and under it a caret at the column (in characters). Of a long line only the neighbourhood is shown.
static void show_line(struct text *out, const struct problem *problem)
{
    const char *at = start_of_line(problem->source, problem->line), *end = problem->source->bytes.at + problem->source->bytes.length;
    size_t first = problem->column > LINE_SHOWN * 2 / 3 ? problem->column - LINE_SHOWN / 2 : 1, column = 1;
    char number[24] = "";
    if (!problem->source->option)
        snprintf(number, sizeof number, "%zu", problem->line);
    struct text caret;
    text_init(&caret, 4096);
    text_addf(out, "%6s | %s", number, first > 1 ? "…" : "");
    text_addf(&caret, "%6s | %s", "", first > 1 ? " " : "");
    for (; at < end && *at != '\n' && *at != '\r' && column < first + LINE_SHOWN; column++) {
        if (column >= first && column < problem->column)
            text_add(&caret, *at == '\t' ? "\t" : " ");
        at += add_character(column >= first ? out : NULL, at);
    }
    for (; column < problem->column && column < first + LINE_SHOWN; column++)
        text_add(&caret, " ");
    bool cut = at < end && *at != '\n' && *at != '\r';
    text_addf(out, "%s\n%s^\n", cut ? "…" : "", caret.at);
    text_release(&caret);
}

void problem_show(struct text *out, const struct problem *problem)
{
    const struct source *source = problem->source;
    const char *kind = problem->warning ? "warning: " : "";
    if (source->json)
        text_addf(out, "%s%s\n", kind, problem->message);
    else if (source->option)
        text_addf(out, "--set %s: %s%s\n", source->path, kind, problem->message);
    else if (problem->line)
        text_addf(out, "%s:%zu:%zu: %s%s\n", source->path, problem->line, problem->column, kind, problem->message);
    else
        text_addf(out, "%s: %s%s\n", source->path, kind, problem->message);
    if (problem->line && !source->json)
        show_line(out, problem);
}

struct json *problem_json(const struct problem *problem)
{
    struct json *item = js_object();
    if (problem->source->option)
        js_set(item, "option", js_string(problem->source->path));
    else
        js_set(item, "file", js_string(problem->source->path));
    js_set(item, "line", js_integer((int64_t)problem->line));
    js_set(item, "column", js_integer((int64_t)problem->column));
    js_set(item, "message", js_string(problem->message));
    return item;
}
