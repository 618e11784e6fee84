// A checkpoint's description for people.
#include "worker/train/inspect.h"
#include "schema/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKSUM_SHOWN = 12, VALUES_SHOWN = 8 };

static void show_value(const char *name, const struct json *value)
{
    struct text text;
    text_init(&text, 1 << 20);
    js_write(&text, value);
    printf("%s%s", name, text.at);
    text_release(&text);
}

// "model: layers 4, hidden_size 128, …": the members of an object that are no objects themselves, those behind.
static void show_members(const char *title, const struct json *object)
{
    if (js_count(object) == 0)
        return;
    const char *between = " ";
    printf("%s", title);
    for (void *i = js_first(object); i; i = js_next(object, i)) {
        if (js_kind(js_value(i)) == JSON_KIND_OBJECT)
            continue;
        printf("%s%s", between, js_key(i));
        show_value(" ", js_value(i));
        between = ", ";
    }
    printf("\n");
    for (void *i = js_first(object); i; i = js_next(object, i))
        if (js_kind(js_value(i)) == JSON_KIND_OBJECT) {
            char *whole = string_format("%.*s.%s:", (int)strcspn(title, ":"), title, js_key(i));
            show_members(whole, js_value(i));
            free(whole);
        }
}

static void show_story(const struct json *json)
{
    const char *fault = js_string_of(js_get(json, "fault"), NULL);
    printf("%s\n", js_string_of(js_get(json, "directory"), ""));
    if (fault)
        printf("DAMAGED: %s\n", fault);
    else
        printf("%s\n", js_boolean_of(js_get(json, "complete"), false) ? "complete, and every file is what complete.json says"
                                                                      : "not complete: there is no complete.json");
    if (!js_get(json, "step"))
        return;
    printf("step %lld (attempt %lld of run %s); %lld samples, %lld tokens; seed %lld\n", (long long)js_integer_of(js_get(json, "step"), 0),
        (long long)js_integer_of(js_get(json, "attempt"), 0), js_string_of(js_get(json, "run_id"), ""),
        (long long)js_integer_of(js_get(json, "samples"), 0), (long long)js_integer_of(js_get(json, "tokens"), 0),
        (long long)js_integer_of(js_get(json, "seed"), 0));
    show_members("data:", js_get(json, "data"));
    show_members("model:", js_get(json, "model"));
    show_members("schedule:", js_get(json, "schedule"));
}

static void show_tensors(const struct json *tensors)
{
    printf("\n%-72s %-5s %-16s %12s  %s\n", "tensor", "dtype", "shape", "bytes", "norm");
    for (size_t i = 0; i < js_count(tensors); i++) {
        const struct json *item = js_at(tensors, i), *shape = js_get(item, "shape");
        struct text text;
        text_init(&text, 256);
        for (size_t d = 0; d < js_count(shape); d++)
            text_addf(&text, "%s%lld", d ? " x " : "", (long long)js_integer_of(js_at(shape, d), 0));
        printf("%-72s %-5s %-16s %12lld  %.8g\n", js_string_of(js_get(item, "name"), ""), js_string_of(js_get(item, "dtype"), ""), text.at,
            (long long)js_integer_of(js_get(item, "bytes"), 0), js_real_of(js_get(item, "norm"), NAN));
        text_release(&text);
    }
}

static void show_experts(const struct json *experts)
{
    const struct json *layers = js_get(experts, "layers");
    if (js_count(layers) == 0)
        return;
    printf("\n%lld experts, %lld distinct in their layers\n", (long long)js_integer_of(js_get(experts, "count"), 0),
        (long long)js_integer_of(js_get(experts, "distinct"), 0));
    for (size_t i = 0; i < js_count(layers); i++) {
        const struct json *layer = js_at(layers, i), *hashes = js_get(layer, "sha256");
        printf("%s: %lld experts, %lld distinct:", js_string_of(js_get(layer, "layer"), ""), (long long)js_integer_of(js_get(layer, "count"), 0),
            (long long)js_integer_of(js_get(layer, "distinct"), 0));
        for (size_t e = 0; e < js_count(hashes); e++)
            printf(" %.*s", CHECKSUM_SHOWN, js_string_of(js_at(hashes, e), ""));
        printf("\n");
    }
}

static void show_extra(const struct json *extra)
{
    for (size_t i = 0; i < js_count(extra); i++) {
        const struct json *item = js_at(extra, i), *values = js_get(item, "values");
        printf("%s%-72s %-5s", i ? "" : "\n", js_string_of(js_get(item, "name"), ""), js_string_of(js_get(item, "dtype"), ""));
        for (size_t j = 0; j < js_count(values) && j < VALUES_SHOWN; j++)
            show_value(" ", js_at(values, j));
        printf("%s\n", js_count(values) > VALUES_SHOWN ? " …" : "");
    }
}

void inspect_show(const struct json *json)
{
    const struct json *optimizer = js_get(json, "optimizer");
    show_story(json);
    show_tensors(js_get(json, "tensors"));
    show_experts(js_get(json, "experts"));
    show_extra(js_get(json, "extra"));
    printf("\n%lld parameters in %zu tensors; %lld tensors of the optimizer, %lld bytes\n", (long long)js_integer_of(js_get(json, "parameters"), 0),
        js_count(js_get(json, "tensors")), (long long)js_integer_of(js_get(optimizer, "tensors"), 0), (long long)js_integer_of(js_get(optimizer, "bytes"), 0));
}
