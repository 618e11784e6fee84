// Tokenised data, keyed by content: the same text, tokenised the same way, is made once and shared by every run that needs it.
#include "daemon/core/dataset.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MAX = 16 << 20 };

static void add_part(struct hash *hash, const char *part)
{
    hash_add(hash, part ? part : "", part ? strlen(part) : 0);
    hash_add(hash, "\n", 1);
}

int dataset_key(char key[DATASET_KEY], const char *path, const char *document, const char *json_key, const char *tokenizer, struct error *err)
{
    char content[HASH_HEX], whole[HASH_HEX];
    if (hash_file(content, path, err) != 0)
        return -1;
    struct hash *hash = hash_new();
    add_part(hash, "tokenize/1");
    add_part(hash, content);
    add_part(hash, document);
    add_part(hash, json_key);
    add_part(hash, tokenizer);
    hash_end(hash, whole);
    memcpy(key, whole, 32);
    key[32] = 0;
    return 0;
}

char *dataset_prefix(const char *home, const char *key)
{
    return string_format("%s/datasets/%s/data", home, key);
}

bool dataset_is_complete(const char *home, const char *key)
{
    char *path = string_format("%s/datasets/%s/" COMPLETE_FILE, home, key);
    bool complete = file_exists(path);
    free(path);
    return complete;
}

struct json *dataset_tokenize(const struct spec_data *data, const char *document, const char *input, const char *prefix)
{
    struct json *tokenize = js_object();
    js_set(tokenize, "input", js_string(input));
    js_set(tokenize, "prefix", js_string(prefix));
    js_set(tokenize, "document", js_string(document));
    js_set(tokenize, "json_key", js_string(data->json_key));
    js_set(tokenize, "tokenizer", js_string(data->tokenizer));
    return tokenize;
}

static void add_prefix(struct json *prefixes, const char *path, double weight)
{
    struct json *prefix = js_object();
    js_set(prefix, "path", js_string(path));
    js_set(prefix, "weight", js_real(weight));
    js_append(prefixes, prefix);
}

// A manifest has a prefix a line, after a weight if there is one; blank lines and # are skipped, relative ones are the manifest's.
static int add_manifest(struct json *prefixes, const char *path, struct error *err)
{
    struct text bytes;
    text_init(&bytes, MANIFEST_MAX);
    int status = file_read(path, &bytes, err);
    char *directory = path_join(path, "..");
    char *base = path_absolute(directory, NULL);
    char *rest = NULL;
    for (char *line = strtok_r(bytes.at, "\r\n", &rest); line && status == 0; line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, " \t");
        if (!*line || *line == '#')
            continue;
        size_t number = strspn(line, "0123456789.eE+-"), blank = strspn(line + number, " \t");
        bool weighted = number && blank;
        char *prefix = path_absolute(weighted ? line + number + blank : line, base);
        add_prefix(prefixes, prefix, weighted ? strtod(line, NULL) : 1.0);
        free(prefix);
    }
    free(base);
    free(directory);
    text_release(&bytes);
    return status;
}

struct json *dataset_prefixes(const struct spec_data *data, const char *text_prefix, struct error *err)
{
    struct json *prefixes = js_array();
    if (text_prefix || !data->manifest) {
        add_prefix(prefixes, text_prefix ? text_prefix : data->prefix, 1.0);
        return prefixes;
    }
    if (add_manifest(prefixes, data->manifest, err) == 0)
        return prefixes;
    js_free(prefixes);
    return NULL;
}
