#include "worker/device/permute.h"
#include "schema/base/text.h"

#include <assert.h>
#include <stdlib.h>

void permute_plan_host(
    int32_t *row_token, int32_t *row_slot, int32_t *row_of, const int32_t *choice, const int32_t *counts, size_t T, size_t E, size_t K)
{
    enum { ON_STACK = 1024 };
    int32_t stack[ON_STACK];
    int32_t *next = E <= ON_STACK ? stack : allocate(E, sizeof *next); // next free row of each expert
    int32_t row = 0;
    for (size_t e = 0; e < E; row += counts[e++])
        next[e] = row;
    assert((size_t)row == T * K);
    for (size_t slot = 0; slot < T * K; slot++) {
        int32_t r = next[choice[slot]]++;
        row_token[r] = (int32_t)(slot / K);
        row_slot[r] = (int32_t)slot;
        row_of[slot] = r;
    }
    if (next != stack)
        free(next);
}
