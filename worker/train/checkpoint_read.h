// What the files that read checkpoints share. Private to this room.
#pragma once
#include "worker/train/checkpoint.h"
#include "worker/weights/safetensors.h"

float *host_for(const struct model *model); // room for the model's largest tensor; free()
// The tensor of that name, into the model. host: from host_for.
int load_param(struct model *model, const struct tensor_set *set, const struct param *param, float *host, const char *directory,
    struct error *err);
// Compares a checkpoint's trainer.json with this run. *accepted: what has changed and checkpoint.accept_changed allows; NULL: nothing. Rank 0.
int identity_check(const struct training_state *state, const struct json *saved, const char *directory, char **accepted, struct error *err);
// Whether the run accepts that "data", "schedule" or "model" has changed.
bool change_is_accepted(const struct spec *spec, const char *what);
// First and second moments of every resident tensor. Not collective.
int checkpoint_moments(const struct training_state *state, const char *directory, struct error *err);
