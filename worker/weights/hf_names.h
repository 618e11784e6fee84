// Other names of an expert's or a router's tensor, by which files of transformers hold it. Private to this room.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct hf_alias {
    char name[128];
    int64_t expert;      // of a tensor (E, …) that holds all experts; -1: the tensor is this one alone
    int64_t part, parts; // which of the parts along the second dimension: gate and up lie in one
};

// The number-th other name of one of our names; false after the last.
bool hf_alias(struct hf_alias *alias, const char *name, int number);
