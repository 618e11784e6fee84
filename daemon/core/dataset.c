// Tokenised data, keyed by content: the same text, tokenised the same way, is made once and shared by every run that needs it.
#include "daemon/core/core.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"

#include <stdlib.h>
#include <string.h>

static void add_part(struct hash *hash, const char *part)
{
    hash_add(hash, part ? part : "", part ? strlen(part) : 0);
    hash_add(hash, "\n", 1);
}

int dataset_key(char key[33], const char *path, const char *document, const char *json_key, const char *tokenizer, struct error *err)
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

char *dataset_prefix(const struct daemon *daemon, const char *key)
{
    return string_format("%s/datasets/%s/data", daemon->home, key);
}

bool dataset_is_complete(const struct daemon *daemon, const char *key)
{
    char *path = string_format("%s/datasets/%s/" COMPLETE_FILE, daemon->home, key);
    bool complete = file_exists(path);
    free(path);
    return complete;
}
