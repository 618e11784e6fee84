// NumPy's RandomState as far as Megatron's data needs it: MT19937 with the classic seeding, and shuffle().
#pragma once
#include <stdint.h>

struct mt19937 {
    uint32_t state[624];
    int at;
};

void mt19937_seed(struct mt19937 *random, uint32_t seed);
uint32_t mt19937_next(struct mt19937 *random);
void shuffle_i32(struct mt19937 *random, int32_t *items, int64_t count); // count < 2^32
void shuffle_u32(struct mt19937 *random, uint32_t *items, int64_t count);
