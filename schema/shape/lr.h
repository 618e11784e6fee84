// The learning rate as a function of samples seen (facts: Megatron 2.4). Update number k, counted from 1, uses n = (k−1)·B samples
// (fewer while the batch ramps up).
#pragma once
#include "schema/spec/spec.h"

// The rate used by update `iteration` (from 1) of the dense parameters.
double learning_rate(const struct spec *spec, int64_t iteration);
