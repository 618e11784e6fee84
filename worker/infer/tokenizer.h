// The byte tokenizer as the `tokenizers` library reads it: tokenizer.json whose 256 characters have their bytes' values as ids, and the
// token that ends a document.
#pragma once
#include "schema/base/json.h"
#include <stdbool.h>

#define END_OF_DOCUMENT "<|endoftext|>"

struct json *tokenizer_of_bytes(void);                   // tokenizer.json
struct json *tokenizer_config_of_bytes(int64_t context); // tokenizer_config.json
// DIRECTORY/tokenizer.json is this one.
bool tokenizer_is_bytes(const char *directory);
