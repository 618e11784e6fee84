// Documents in a row of tokens: which token ends them, and where each begins.
#include "schema/base/json.h"
#include "worker/data/data.h"

#include <string.h>

void document_starts(int32_t *starts, const int32_t *tokens, int64_t count, int32_t end)
{
    for (int64_t i = 0, start = 0; i < count; i++) {
        starts[i] = (int32_t)start;
        if (tokens[i] == end)
            start = i + 1;
    }
}

// The id of a token by its text: among the tokens that were added to the model's vocabulary, then in the vocabulary.
static int64_t token_id(const struct json *tokenizer, const char *text)
{
    const struct json *added = js_get(tokenizer, "added_tokens");
    for (size_t i = 0; i < js_count(added); i++) {
        const char *content = js_string_of(js_get(js_at(added, i), "content"), NULL);
        if (content && strcmp(content, text) == 0)
            return js_integer_of(js_get(js_at(added, i), "id"), -1);
    }
    return js_integer_of(js_get(js_get(js_get(tokenizer, "model"), "vocab"), text), -1);
}

int document_end_token(int32_t *id, const char *tokenizer, const char *text, struct error *err)
{
    enum { TOKENIZER_BYTES_MAX = 256 << 20 };
    *id = BYTE_TOKEN_EOD;
    if (strcmp(tokenizer, "byte") == 0)
        return 0;
    struct json *file = js_read_file(tokenizer, TOKENIZER_BYTES_MAX, err);
    if (!file)
        return error_context(err, "data.tokenizer");
    int64_t found = token_id(file, text);
    js_free(file);
    if (found < 0 || found > INT32_MAX)
        return error_set(err, "data.eod_token: %s has no token \"%s\"", tokenizer, text);
    *id = (int32_t)found;
    return 0;
}
