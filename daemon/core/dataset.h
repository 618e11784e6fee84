// Tokenised data and where a run finds it: what a submission and `check` have in common.
#pragma once
#include "schema/spec/spec.h"

enum { DATASET_KEY = 33 };

// The key of what tokenising makes, from the text's content and how it is tokenised. data: that section of a resolved spec.
int dataset_key(char key[DATASET_KEY], const char *path, const char *document, const char *json_key, const char *tokenizer, struct error *err);
char *dataset_prefix(const char *home, const char *key); // …/datasets/KEY/data
bool dataset_is_complete(const char *home, const char *key);
// The member `tokenize` of a run.json that makes prefix of input. document: as the resolved spec has it, in words.
struct json *dataset_tokenize(const struct spec_data *data, const char *document, const char *input, const char *prefix);
// The member `data.prefixes` of a run.json: text_prefix (tokenised text), or what data.manifest or data.prefix name.
struct json *dataset_prefixes(const struct spec_data *data, const char *text_prefix, struct error *err);
