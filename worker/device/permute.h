// The permutation of dispatch for devices in host memory: integers only, so one version serves reference and cpu (an index layout, not a
// formula, is what judge and judged may share).
#pragma once
#include <stddef.h>
#include <stdint.h>

void permute_plan_host(
    int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T, size_t E, size_t K);
