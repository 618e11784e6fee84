#include "daemon/exec/word_list.h"
#include "schema/base/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void take(struct word_list *list, char *word)
{
    assert(list->count < WORD_LIST_MAX);
    list->at = reallocate(list->at, list->count + 2, sizeof *list->at);
    list->at[list->count++] = word;
    list->at[list->count] = NULL;
}

void word_list_add(struct word_list *list, const char *word)
{
    take(list, string_copy(word));
}

void word_list_addf(struct word_list *list, const char *format, ...)
{
    char *word = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&word, format, args) < 0)
        abort();
    va_end(args);
    take(list, word);
}

void word_list_release(struct word_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->at[i]);
    free(list->at);
    *list = (struct word_list){0};
}

struct json *word_list_to_json(const struct word_list *list)
{
    struct json *array = js_array();
    for (size_t i = 0; i < list->count; i++)
        js_append(array, js_string(list->at[i]));
    return array;
}

int word_list_from_json(struct word_list *list, const struct json *array)
{
    if (js_kind(array) != JSON_KIND_ARRAY || js_count(array) > WORD_LIST_MAX)
        return -1;
    for (size_t i = 0; i < js_count(array); i++) {
        const char *word = js_string_of(js_at(array, i), NULL);
        if (!word)
            return -1;
        word_list_add(list, word);
    }
    return 0;
}
