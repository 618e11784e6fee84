// MT19937 (Matsumoto and Nishimura, 1998) and NumPy's legacy shuffle: Fisher-Yates from the end; an index in [0, i] is a 32-bit output
// cut by the smallest all-ones mask that covers i, drawn again while it is larger than i.
#include "worker/data/shuffle.h"

enum { N = 624, M = 397 };

void mt19937_seed(struct mt19937 *random, uint32_t seed)
{
    random->state[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        random->state[i] = 1812433253u * (random->state[i - 1] ^ (random->state[i - 1] >> 30)) + i;
    random->at = N;
}

static void refill(struct mt19937 *random)
{
    uint32_t *s = random->state;
    for (int i = 0; i < N; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
        s[i] = s[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    random->at = 0;
}

uint32_t mt19937_next(struct mt19937 *random)
{
    if (random->at == N)
        refill(random);
    uint32_t y = random->state[random->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static uint32_t draw(struct mt19937 *random, uint32_t largest)
{
    uint32_t mask = largest, value;
    for (int shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    while ((value = mt19937_next(random) & mask) > largest)
        continue;
    return value;
}

void shuffle_u32(struct mt19937 *random, uint32_t *items, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t j = draw(random, (uint32_t)i), kept = items[j];
        items[j] = items[i];
        items[i] = kept;
    }
}

void shuffle_i32(struct mt19937 *random, int32_t *items, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t j = draw(random, (uint32_t)i);
        int32_t kept = items[j];
        items[j] = items[i];
        items[i] = kept;
    }
}
