#include "schema/shape/dropout.h"
#include "schema/shape/philox.h"

// The four words of a block: of a value at `index` and of those 16, 32 and 48 behind it.
static void draw(uint32_t words[4], const struct dropout *at, uint64_t row, uint32_t head, uint64_t index)
{
    uint64_t token = at->token + row, block = index / DROPOUT_RUN * DROPOUT_BLOCKS + index % DROPOUT_BLOCKS;
    uint32_t counter[4] = {(uint32_t)block, at->site + head, (uint32_t)token, (uint32_t)(token >> 32)};
    uint32_t key[2] = {(uint32_t)at->seed, ~(uint32_t)(at->seed >> 32)};
    philox4x32(words, counter, key);
}

double dropout_factor(const struct dropout *dropout, uint64_t row, uint32_t head, uint64_t index)
{
    uint32_t words[4];
    draw(words, dropout, row, head, index);
    return words[index / DROPOUT_BLOCKS % 4] < dropout_threshold(dropout) ? 0 : dropout_scale(dropout);
}

void jitter_factors(double *factors, const struct dropout *jitter, uint64_t row, uint64_t count)
{
    for (uint64_t run = 0; run < count; run += DROPOUT_RUN)
        for (uint64_t first = run; first < run + DROPOUT_BLOCKS && first < count; first++) {
            uint32_t words[4];
            draw(words, jitter, row, 0, first);
            for (uint64_t word = 0, i = first; word < 4 && i < count; word++, i += DROPOUT_BLOCKS)
                factors[i] = 1 + jitter->probability * (2 * ((double)words[word] + 0.5) * 0x1p-32 - 1);
        }
}
