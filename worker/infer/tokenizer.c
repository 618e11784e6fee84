#include "worker/infer/tokenizer.h"
#include "schema/base/file.h"
#include "worker/data/data.h"

#include <stdio.h>
#include <stdlib.h>

// The printable character that stands for a byte in a byte-level vocabulary, as UTF-8: itself where Latin-1 prints it, else the next of
// those from U+0100 on.
static void character_of(char out[3], int byte)
{
    int code = byte, next = 0x100;
    for (int b = 0; b <= byte; b++) {
        bool prints = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        code = prints ? b : next++;
    }
    if (code < 0x80)
        snprintf(out, 3, "%c", code);
    else
        snprintf(out, 3, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

static struct json *byte_level(bool with_pattern)
{
    struct json *step = js_object();
    js_set(step, "type", js_string("ByteLevel"));
    js_set(step, "add_prefix_space", js_boolean(false));
    js_set(step, "trim_offsets", js_boolean(false));
    js_set(step, "use_regex", js_boolean(with_pattern));
    return step;
}

static struct json *model_of_bytes(void)
{
    struct json *model = js_object(), *vocabulary = js_object();
    for (int byte = 0; byte < 256; byte++) {
        char character[3];
        character_of(character, byte);
        js_set(vocabulary, character, js_integer(byte));
    }
    js_set(vocabulary, END_OF_DOCUMENT, js_integer(BYTE_TOKEN_EOD));
    js_set(model, "type", js_string("BPE"));
    js_set(model, "dropout", js_null());
    js_set(model, "unk_token", js_null());
    js_set(model, "continuing_subword_prefix", js_null());
    js_set(model, "end_of_word_suffix", js_null());
    js_set(model, "fuse_unk", js_boolean(false));
    js_set(model, "byte_fallback", js_boolean(false));
    js_set(model, "ignore_merges", js_boolean(false));
    js_set(model, "vocab", vocabulary);
    js_set(model, "merges", js_array());
    return model;
}

static struct json *end_token(void)
{
    struct json *token = js_object();
    js_set(token, "id", js_integer(BYTE_TOKEN_EOD));
    js_set(token, "content", js_string(END_OF_DOCUMENT));
    js_set(token, "single_word", js_boolean(false));
    js_set(token, "lstrip", js_boolean(false));
    js_set(token, "rstrip", js_boolean(false));
    js_set(token, "normalized", js_boolean(false));
    js_set(token, "special", js_boolean(true));
    return token;
}

struct json *tokenizer_of_bytes(void)
{
    struct json *tokenizer = js_object(), *added = js_array();
    js_append(added, end_token());
    js_set(tokenizer, "version", js_string("1.0"));
    js_set(tokenizer, "truncation", js_null());
    js_set(tokenizer, "padding", js_null());
    js_set(tokenizer, "added_tokens", added);
    js_set(tokenizer, "normalizer", js_null());
    js_set(tokenizer, "pre_tokenizer", byte_level(false));
    js_set(tokenizer, "post_processor", js_null());
    js_set(tokenizer, "decoder", byte_level(false));
    js_set(tokenizer, "model", model_of_bytes());
    return tokenizer;
}

struct json *tokenizer_config_of_bytes(int64_t context)
{
    struct json *config = js_object();
    js_set(config, "tokenizer_class", js_string("PreTrainedTokenizerFast"));
    js_set(config, "eos_token", js_string(END_OF_DOCUMENT));
    js_set(config, "model_max_length", js_integer(context));
    js_set(config, "clean_up_tokenization_spaces", js_boolean(false));
    js_set(config, "split_special_tokens", js_boolean(true)); // a text that spells the token is bytes, as when we tokenise it
    return config;
}

bool tokenizer_is_bytes(const char *directory)
{
    enum { TOKENIZER_MAX = 64 << 20 };
    struct error err;
    char *path = path_join(directory, "tokenizer.json");
    struct json *theirs = js_read_file(path, TOKENIZER_MAX, &err), *ours = tokenizer_of_bytes();
    bool same = theirs && js_equal(js_get(js_get(theirs, "model"), "vocab"), js_get(js_get(ours, "model"), "vocab")) &&
                js_count(js_get(js_get(theirs, "model"), "merges")) == 0;
    js_free(theirs);
    js_free(ours);
    free(path);
    return same;
}
