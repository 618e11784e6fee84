// Philox4x32-10: a random generator without state. Four words of counter and two of key give four random words, so that any element of any
// tensor can be made anywhere, in any order.
#pragma once
#include <stdint.h>

void philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
