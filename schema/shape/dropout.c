#include "schema/shape/dropout.h"
#include "schema/shape/philox.h"

double dropout_factor(const struct dropout *dropout, uint64_t row, uint32_t head, uint64_t index)
{
    uint64_t token = dropout->token + row, block = index / DROPOUT_RUN * DROPOUT_BLOCKS + index % DROPOUT_BLOCKS;
    uint32_t counter[4] = {(uint32_t)block, dropout->site + head, (uint32_t)token, (uint32_t)(token >> 32)};
    uint32_t key[2] = {(uint32_t)dropout->seed, ~(uint32_t)(dropout->seed >> 32)}, words[4];
    philox4x32(words, counter, key);
    return words[index / DROPOUT_BLOCKS % 4] < dropout_threshold(dropout) ? 0 : dropout_scale(dropout);
}
