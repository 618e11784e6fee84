// What has nothing to do with real numbers, for devices in host memory.
#pragma once
#include <stddef.h>
#include <stdint.h>

void router_choose_evenly_host(int32_t *choice, size_t T, size_t E, size_t K);
void router_counts_host(int32_t *counts, const int32_t *choice, size_t B, size_t S, size_t E, size_t J);
void permute_plan_host(int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T,
    size_t E, size_t J, size_t R);
