// What the files of rules share. A rule speaks only if every key it reads parsed, at the place of the key that should change.
#pragma once
#include "schema/spec/check.h"

// Whether all these keys (the list ends with NULL) parsed or stand at their defaults.
bool rule_reads(const struct check *check, ...) __attribute__((sentinel));
bool rule_written(const struct check *check, const char *path);
// "a … is not divisible by b …": the fault is shown at the first key.
void rule_divides(struct check *check, const char *path, int64_t value, const char *by, int64_t divisor);

void check_attention(struct check *check); // rules_attention.c
void check_moe(struct check *check);    // rules_moe.c
void check_upcycle(struct check *check);
void check_routing(struct check *check); // rules_routing.c
void check_inputs(struct check *check); // rules_inputs.c
void check_slurm(struct check *check); // rules_slurm.c
