// What `plan` says of sweeps as a whole: how many trials, over which values, in what order.
#include "daemon/cli/format.h"
#include "daemon/cli/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 65536, VALUES_SHOWN = 8 };

struct spread { // values of the swept keys, each once, in the order of trials
    struct json *keys; // {key: [values]}
    struct json *met;  // {key and value as text: true}
};

static void add_value(struct spread *spread, const char *key, const struct json *value)
{
    struct text text;
    text_init(&text, VALUE_MAX);
    text_addf(&text, "%s ", key);
    js_write(&text, value);
    if (!js_get(spread->met, text.at)) {
        js_set(spread->met, text.at, js_boolean(true));
        if (!js_get(spread->keys, key))
            js_set(spread->keys, key, js_array());
        js_append(js_get(spread->keys, key), js_keep(value));
    }
    text_release(&text);
}

static struct json *describe_sweep(const struct spec_file *file, const struct spec_entry *entry)
{
    struct spread spread = {js_object(), js_object()};
    struct json *sweep = js_object();
    for (size_t i = entry->first; i < entry->first + entry->count; i++)
        for (void *at = js_first(file->runs[i].sweep); at; at = js_next(file->runs[i].sweep, at))
            add_value(&spread, js_key(at), js_value(at));
    js_set(sweep, "entry", js_string(entry->name));
    js_set(sweep, "trials", js_integer((int64_t)entry->count));
    js_set(sweep, "first", js_string(file->runs[entry->first].spec.name));
    js_set(sweep, "last", js_string(file->runs[entry->first + entry->count - 1].spec.name));
    js_set(sweep, "canary", js_integer((int64_t)entry->canary));
    js_set(sweep, "concurrency", file->concurrency ? js_integer(file->concurrency) : js_null());
    js_set(sweep, "keys", spread.keys);
    js_free(spread.met);
    return sweep;
}

struct json *plan_sweeps(const struct spec_file *file)
{
    struct json *sweeps = js_array();
    for (size_t i = 0; i < file->entries_count; i++)
        if (file->entries[i].swept && file->entries[i].count)
            js_append(sweeps, describe_sweep(file, &file->entries[i]));
    return sweeps;
}

// "1, 2, 4" or "1, 2, 3, 4, 5, 6, 7, 8, … 100 (100 values)"
static void show_values(const char *key, const struct json *values)
{
    size_t count = js_count(values);
    struct text text;
    text_init(&text, VALUE_MAX);
    for (size_t i = 0; i < count; i++) {
        if (count > VALUES_SHOWN + 1 && i >= VALUES_SHOWN && i + 1 < count)
            continue;
        text_add(&text, i ? ", " : "");
        if (count > VALUES_SHOWN + 1 && i + 1 == count)
            text_add(&text, "… ");
        if (js_kind(js_at(values, i)) == JSON_KIND_STRING)
            text_add(&text, js_string_of(js_at(values, i), ""));
        else
            js_write(&text, js_at(values, i));
    }
    if (count > VALUES_SHOWN + 1)
        text_addf(&text, " (%zu values)", count);
    char *line = clean_line(text.at);
    printf("  %-28s %s\n", key, line);
    free(line);
    text_release(&text);
}

void plan_show_sweeps(const struct json *sweeps)
{
    for (size_t i = 0; i < js_count(sweeps); i++) {
        const struct json *sweep = js_at(sweeps, i), *keys = js_get(sweep, "keys");
        long long trials = (long long)js_integer_of(js_get(sweep, "trials"), 0), canary = (long long)js_integer_of(js_get(sweep, "canary"), 0);
        printf("\nsweep of %s: %lld trial%s, %s", js_string_of(js_get(sweep, "entry"), "?"), trials, trials == 1 ? "" : "s",
            js_string_of(js_get(sweep, "first"), "?"));
        if (trials != 1)
            printf(" … %s", js_string_of(js_get(sweep, "last"), "?"));
        printf("\n");
        for (void *at = js_first(keys); at; at = js_next(keys, at))
            show_values(js_key(at), js_value(at));
        if (canary)
            printf("  %-28s %lld go%s first: the others begin when %s succeeded\n", "canary", canary, canary == 1 ? "es" : "", canary == 1 ? "it has" : "they have");
        if (js_integer_of(js_get(sweep, "concurrency"), 0))
            printf("  %-28s at most %lld trials of this file\n", "at once", (long long)js_integer_of(js_get(sweep, "concurrency"), 0));
    }
}
