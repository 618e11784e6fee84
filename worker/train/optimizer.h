// AdamW over the model's two segments, state in fp32 beside the parameters.
#pragma once
#include "worker/model/model.h"

struct optimizer {
    const struct device *device;
    struct moments { void *m, *v; size_t count; } dense, experts; // device memory, laid out as the model's segments
};

void optimizer_init(struct optimizer *optimizer, const struct model *model);
void optimizer_release(struct optimizer *optimizer);

enum moment { MOMENT_FIRST, MOMENT_SECOND };
void *optimizer_state(const struct optimizer *optimizer, const struct param *param, enum moment which); // NULL if not resident

// One update, number `step` from 1. norm: the gradients' global norm, for clipping.
void optimizer_step(struct optimizer *optimizer, struct model *model, double norm, int64_t step);
double optimizer_clip(const struct spec *spec, double norm); // factor for the gradients
