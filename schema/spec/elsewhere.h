// What other launchers' specs say, and how it is said here.
#pragma once
#include "schema/spec/fields.h"

// The sentence for a key that Hydra, submitit, sbatch, or a sweep of Weights & Biases has and that stands for no single key of ours, '-' as
// '_' and without a `slurm_` before it; NULL for any other.
const char *elsewhere_told(const char *key);

// Our key that is called so by another tool; NULL.
const struct field *elsewhere_key(const char *key);
