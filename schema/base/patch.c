#include "schema/base/patch.h"

// The members of `to` that are new or differ. False: one of them is null.
static bool add_changes(struct json *patch, const struct json *from, const struct json *to)
{
    for (void *i = js_first(to); i; i = js_next(to, i)) {
        const struct json *old = js_get(from, js_key(i)), *new = js_value(i);
        if (js_kind(new) == JSON_KIND_NULL)
            return false;
        if (old && js_equal(old, new))
            continue;
        struct json *change = js_kind(new) != JSON_KIND_OBJECT ? js_keep(new) : js_patch_of(js_kind(old) == JSON_KIND_OBJECT ? old : NULL, new);
        if (!change)
            return false;
        js_set(patch, js_key(i), change);
    }
    return true;
}

struct json *js_patch_of(const struct json *from, const struct json *to)
{
    struct json *patch = js_object();
    for (void *i = js_first(from); i; i = js_next(from, i))
        if (!js_get(to, js_key(i)))
            js_set(patch, js_key(i), js_null());
    if (add_changes(patch, from, to))
        return patch;
    js_free(patch);
    return NULL;
}

struct json *js_patched(const struct json *from, const struct json *patch)
{
    if (js_kind(patch) != JSON_KIND_OBJECT)
        return js_keep(patch);
    struct json *to = js_object();
    for (void *i = js_first(from); i; i = js_next(from, i)) {
        const struct json *change = js_get(patch, js_key(i));
        if (!change)
            js_set(to, js_key(i), js_keep(js_value(i)));
        else if (js_kind(change) != JSON_KIND_NULL)
            js_set(to, js_key(i), js_patched(js_value(i), change));
    }
    for (void *i = js_first(patch); i; i = js_next(patch, i))
        if (!js_get(from, js_key(i)) && js_kind(js_value(i)) != JSON_KIND_NULL)
            js_set(to, js_key(i), js_patched(NULL, js_value(i)));
    return to;
}
