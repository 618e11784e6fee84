#include "daemon/cli/warnings.h"

#include <stdio.h>

enum { NAMED = 4 }; // runs of a sentence; a sweep has thousands

void warnings_init(struct warnings *warnings)
{
    *warnings = (struct warnings){js_object()};
}

void warnings_add(struct warnings *warnings, const char *run, const char *sentence)
{
    if (!js_get(warnings->runs, sentence))
        js_set(warnings->runs, sentence, js_array());
    js_append(js_get(warnings->runs, sentence), js_string(run));
}

void warnings_say(const struct warnings *warnings)
{
    for (void *i = js_first(warnings->runs); i; i = js_next(warnings->runs, i)) {
        const struct json *names = js_value(i);
        fprintf(stderr, "warning: ");
        for (size_t j = 0; j < js_count(names) && j < NAMED; j++)
            fprintf(stderr, "%s%s", j ? ", " : "", js_string_of(js_at(names, j), "?"));
        fprintf(stderr, "%s: %s\n", js_count(names) > NAMED ? " and others" : "", js_key(i));
    }
}

void warnings_release(struct warnings *warnings)
{
    js_free(warnings->runs);
}
