// Models as Hugging Face's transformers keeps them: config.json against a spec's model section, and the names of tensors.
//
// Three architectures have shapes that a spec can have: LlamaForCausalLM (dense), MixtralForCausalLM (experts, weights by a softmax over
// the chosen) and OlmoeForCausalLM (experts, queries and keys normalised; weights as model.moe.pre_softmax says). What training alone needs
// (losses, dropout, schedules) decides nothing here.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include "schema/shape/params.h"

#define HF_CONFIG_FILE "config.json"

enum hf_architecture { HF_LLAMA, HF_MIXTRAL, HF_OLMOE, HF_ARCHITECTURES };

// The architecture that computes what this spec's model does; -1 with every key that none of them can express.
int hf_architecture_of(enum hf_architecture *architecture, const struct spec *spec, struct error *err);

// config.json of that architecture. dtype: "float32" or "bfloat16". eod: the token that ends a text; -1: none is known.
struct json *hf_config_of(const struct spec *spec, enum hf_architecture architecture, const char *dtype, int64_t eod);

// A tensor's name in files of that architecture; in those of Llama and Mixtral it is our own.
void hf_tensor_name(char out[128], enum hf_architecture architecture, const struct param *param);

// The model section that DIRECTORY/config.json describes, into a spec from spec_init. What a spec cannot say is an error that names the key.
// name: of the architecture, such as "LlamaForCausalLM"; may be NULL.
int hf_config_read(struct spec *spec, const char **name, const char *directory, struct error *err);

// eos_token_id of DIRECTORY/config.json, the first where it is a list; -1: none.
int64_t hf_end_of_text(const char *directory);

// Whether the spec's model is the one that DIRECTORY/config.json describes, if there is such a file; an error names both values. A dense
// one may also become a model with experts: then what its FFN is does not matter here.
int hf_config_check(const struct spec *spec, const char *directory, struct error *err);
