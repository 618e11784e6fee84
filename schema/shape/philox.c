#include "schema/shape/philox.h"

enum { ROUNDS = 10 };

void philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    uint32_t k = key[0], l = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p = (uint64_t)a * 0xD2511F53u;
        uint64_t q = (uint64_t)c * 0xCD9E8D57u;
        a = (uint32_t)(q >> 32) ^ b ^ k;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ l;
        d = (uint32_t)p;
        k += 0x9E3779B9u; // the golden ratio
        l += 0xBB67AE85u; // the square root of 3, less 1
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}
