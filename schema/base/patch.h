// What differs between two JSON objects, as a JSON Merge Patch (RFC 7396): an object of the members that changed; null takes one away.
#pragma once
#include "schema/base/json.h"

// NULL where no patch says it: a member of `to` is null.
struct json *js_patch_of(const struct json *from, const struct json *to);
// from with the patch applied. What did not change is shared with from, not copied.
struct json *js_patched(const struct json *from, const struct json *patch);
