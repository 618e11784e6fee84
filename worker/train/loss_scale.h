// Dynamic loss scaling for fp16, as Megatron does it. The gradient of the loss (auxiliary losses included) is multiplied by the scale, so
// that small gradients do not vanish in fp16; the optimizer divides it out again. A step whose gradients overflow anywhere, on any rank, is
// skipped: neither parameters nor moments nor what the optimizer counts (updates, samples of the learning-rate schedule) change, while the
// step's number and the data go on. In other precisions the scale is 1 and no step is skipped.
//
// Each overflow uses up one of `hysteresis`; once none is left, this one and every further one halve the scale, not below the minimum.
// After `window` steps in a row without overflow the scale doubles, and only then is the hysteresis whole again.
#pragma once
#include "schema/spec/spec.h"
#include <stdbool.h>
#include <stdint.h>

struct loss_scale {
    double scale;            // of the next step
    int64_t good_steps;      // in a row, since the scale last grew
    int64_t hysteresis_left; // overflows until the scale halves; may fall below 0
    int64_t skipped_steps;   // of the whole run
};

void loss_scale_init(struct loss_scale *loss_scale, const struct spec *spec);
// After a step's gradients: whether it is skipped, and the scale of the next one.
bool loss_scale_update(struct loss_scale *loss_scale, const struct spec *spec, bool gradients_are_finite);
