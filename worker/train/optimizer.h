// AdamW over the model's two segments, state in fp32 beside the parameters, and the position in the learning-rate schedule.
#pragma once
#include "worker/model/model.h"

struct optimizer {
    const struct device *device;
    struct moments { void *m, *v; size_t count; } dense, experts; // device memory, laid out as the model's segments
    // Counted by optimizer_step alone, so a step that is skipped advances nothing. Saved with the moments.
    int64_t updates;    // Adam's step: how many updates were made
    int64_t samples;    // that they were made of: where the learning-rate schedule stands
};

void optimizer_init(struct optimizer *optimizer, const struct model *model);
void optimizer_release(struct optimizer *optimizer);

enum moment { MOMENT_FIRST, MOMENT_SECOND };
void *optimizer_state(const struct optimizer *optimizer, const struct param *param, enum moment which); // NULL if not resident

// One update, made of the gradients of `samples` samples. norm: the gradients' global norm, for clipping. They hold loss_scale times the
// gradients; norm does not.
void optimizer_step(struct optimizer *optimizer, struct model *model, double norm, double loss_scale, int64_t samples);
// Factor for the gradients: most / (norm + 1e-6) where that is less than 1. An infinite norm gives 0, one that is not a number 1: training
// goes on, and the parameters show what happened.
double optimizer_clip(const struct spec *spec, double norm);
