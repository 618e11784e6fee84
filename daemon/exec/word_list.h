// A list of strings that becomes a process's argv or environment: NULL-terminated, so that `at` is handed over as it is.
#pragma once
#include "schema/base/json.h"
#include <stddef.h>

enum { WORD_LIST_MAX = 4096 };

struct word_list {
    char **at; // NULL-terminated; NULL while there is no word
    size_t count;
};

void word_list_add(struct word_list *list, const char *word);
void word_list_addf(struct word_list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
void word_list_release(struct word_list *list);

struct json *word_list_to_json(const struct word_list *list);
// Adds the strings of an array to the list; -1 where it is none, is too long or holds anything else. What was added is the caller's to release.
int word_list_from_json(struct word_list *list, const struct json *array);
