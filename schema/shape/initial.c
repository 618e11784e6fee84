// Initial values of tensors, by their name and the index of an element: no order of making them, and no layout, shows.
#include "schema/base/hash.h"
#include "schema/shape/params.h"
#include "schema/shape/philox.h"

#include <math.h>
#include <string.h>

// The counter's upper half: the first 16 hex digits of the name's SHA-256.
static void name_words(uint32_t words[2], const char *name)
{
    char digest[HASH_HEX];
    hash_bytes(digest, name, strlen(name));
    for (int i = 0; i < 2; i++) {
        words[i] = 0;
        for (int digit = 8 * i; digit < 8 * i + 8; digit++) {
            char c = digest[digit];
            words[i] = words[i] << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        }
    }
}

// Four normal numbers out of four uniform words.
static void normals(double out[4], const uint32_t words[4])
{
    const double two_pi = 6.283185307179586476925286766559;
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2.0 * log(((double)words[i] + 0.5) * 0x1p-32));
        double angle = two_pi * ((double)words[i + 1] * 0x1p-32);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

static void fill_normal(double *out, const struct param *param, uint64_t seed, size_t first, size_t count)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4];
    name_words(counter + 2, param->name);
    for (size_t done = 0; done < count;) {
        size_t block = (first + done) / 4;
        counter[0] = (uint32_t)block;
        counter[1] = (uint32_t)((uint64_t)block >> 32);
        uint32_t words[4];
        double four[4];
        philox4x32(words, counter, key);
        normals(four, words);
        for (size_t lane = (first + done) % 4; lane < 4 && done < count; lane++)
            out[done++] = param->init_std * four[lane];
    }
}

void param_initial(double *out, const struct param *param, uint64_t seed, size_t first, size_t count)
{
    if (param->init == INIT_NORMAL) {
        fill_normal(out, param, seed, first, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = param->init == INIT_ONES ? 1.0 : 0.0;
}
