#include "worker/device/permute.h"
#include "schema/base/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void router_choose_evenly_host(int32_t *choice, size_t T, size_t E, size_t K)
{
    for (size_t slot = 0; slot < T * K; slot++)
        choice[slot] = (int32_t)(slot % E);
}

void router_counts_host(int32_t *counts, const int32_t *choice, size_t B, size_t S, size_t E, size_t J)
{
    memset(counts, 0, B * E * sizeof *counts);
    for (size_t b = 0; b < B; b++)
        for (size_t slot = b * S * J; slot < (b + 1) * S * J; slot++)
            if (choice[slot] >= 0)
                counts[b * E + (size_t)choice[slot]]++;
}

void permute_plan_host(int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T,
    size_t E, size_t J, size_t R)
{
    enum { ON_STACK = 1024 };
    int32_t stack[ON_STACK];
    int32_t *next = E <= ON_STACK ? stack : allocate(E, sizeof *next); // next free row of each expert
    int32_t row = 0;
    for (size_t e = 0; e < E; row += counts[e++])
        next[e] = row;
    assert((size_t)row == R);
    memset(row_token, -1, R * sizeof *row_token);
    memset(row_slot, -1, R * sizeof *row_slot);
    for (size_t slot = 0; slot < T * J; slot++) {
        int32_t r = choice[slot] < 0 ? -1 : next[choice[slot]]++;
        row_of[slot] = r;
        if (r < 0)
            continue;
        row_token[r] = (int32_t)(slot / J);
        row_slot[r] = (int32_t)slot;
    }
    if (next != stack)
        free(next);
}
