// The GPUs of this machine, each by the word that CUDA_VISIBLE_DEVICES knows it by, and lists of them that a run holds. Nothing is asked
// of a driver: a driver that hangs would hang us.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPUS_MAX = 64, GPU_WORD_MAX = 64 };
#define GPUS_VARIABLE "CUDA_VISIBLE_DEVICES"

struct gpus {
    size_t count;
    char words[GPUS_MAX][GPU_WORD_MAX];
};

// Those that `visible` names (our own CUDA_VISIBLE_DEVICES: a daemon inside an allocation gives away no more than that); where it is NULL,
// one for each nvidiaN in devices ("/dev"). An unusable word ends the list, as it does for CUDA.
void gpus_look(struct gpus *gpus, const char *devices, const char *visible);
// 0 … count - 1, as somebody has declared them.
void gpus_declare(struct gpus *gpus, int64_t count);

// Without those of other.
void gpus_remove(struct gpus *gpus, const struct gpus *other);
// The first `count` of them; there are as many.
void gpus_take(struct gpus *taken, const struct gpus *free, int64_t count);

char *gpus_text(const struct gpus *gpus); // "0,2": the variable's value; free()
struct json *gpus_to_json(const struct gpus *gpus);
int gpus_from_json(struct gpus *gpus, const struct json *json, struct error *err); // NULL: none
