// The learning rate as a function of samples that updates were made of (Megatron's OptimizerParamScheduler). The keys count iterations;
// they are turned into samples by the batches of the run's own steps, so a corner lies where its iteration does, in a batch ramp too.
#pragma once
#include "schema/spec/spec.h"

// The rate of the update that is made after `samples` samples: the first one has 0. A step that is skipped (fp16 overflow) adds none, so
// the position is part of the training state; without skipped steps it is samples_before(spec, iteration).
double learning_rate(const struct spec *spec, int64_t samples);
// The same for parameters of routed experts: the schedule with the peak `expert_peak` in place of `peak`, and the same initial and minimum
// rate (as Megatron treats its decoupled rate); without that key, the same rate.
double expert_learning_rate(const struct spec *spec, int64_t samples);
