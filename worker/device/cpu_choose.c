// Who goes where: choices by the size of keys, with ties to the lower index, and what full experts drop.
#include "worker/device/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { DIGIT = 256 };

struct choosing {
    int32_t *choice;
    const int32_t *chosen;
    const float *keys;
    size_t T, E, J, groups, group_topk, capacity;
};

// ---- tokens choose experts ----

// Whether what is at place comes into the K chosen so far (taken of them), and where.
static void insert(int32_t *choice, size_t *taken, size_t K, const float *keys, int32_t place)
{
    size_t at = *taken;
    while (at && keys[place] > keys[choice[at - 1]])
        at--;
    if (at == K)
        return;
    for (size_t j = *taken < K ? *taken : K - 1; j > at; j--)
        choice[j] = choice[j - 1];
    choice[at] = place;
    *taken += *taken < K;
}

static void choose(int32_t *choice, const float *keys, size_t E, size_t K)
{
    size_t taken = 0;
    for (size_t e = 0; e < E; e++)
        insert(choice, &taken, K, keys, (int32_t)e);
}

// best(group_topk) becomes the groups that are open; work holds `groups` reals and K integers.
static void choose_groups(int32_t *best, const struct choosing *c, const float *keys, float *scores, int32_t *inner)
{
    size_t each = c->E / c->groups, count = c->J / c->group_topk;
    for (size_t g = 0; g < c->groups; g++) {
        double sum = 0;
        choose(inner, keys + g * each, each, count);
        for (size_t j = 0; j < count; j++)
            sum += keys[g * each + (size_t)inner[j]];
        scores[g] = (float)sum;
    }
    choose(best, scores, c->groups, c->group_topk);
}

static void run_choose(const void *job, int thread, int threads)
{
    const struct choosing *c = job;
    struct range part = cpu_part(c->T, thread, threads);
    float *scores = cpu_scratch(thread, SCRATCH_ROUTER, 2 * c->groups + c->J);
    int32_t *best = (int32_t *)(scores + c->groups), *inner = best + c->groups;
    size_t each = c->groups > 1 ? c->E / c->groups : c->E;
    for (size_t t = part.from; t < part.to; t++) {
        const float *keys = c->keys + t * c->E;
        int32_t *choice = c->choice + t * c->J;
        if (c->groups <= 1) {
            choose(choice, keys, c->E, c->J);
            continue;
        }
        choose_groups(best, c, keys, scores, inner);
        size_t taken = 0;
        for (size_t g = 0; g < c->groups; g++)
            for (size_t i = 0; i < c->group_topk; i++)
                for (size_t e = 0; best[i] == (int32_t)g && e < each; e++)
                    insert(choice, &taken, c->J, keys, (int32_t)(g * each + e));
    }
}

void cpu_router_choose(int32_t *choice, const void *keys, size_t T, size_t E, size_t K, size_t groups, size_t group_topk)
{
    assert(K >= 1 && K <= E);
    struct choosing c = {.choice = choice, .keys = keys, .T = T, .E = E, .J = K, .groups = groups, .group_topk = group_topk};
    cpu_run(run_choose, &c, T * (E * K + 64));
}

// ---- experts choose tokens ----

// An integer that is larger where the float is; what is no number is the least, and both zeros are the same.
static uint32_t ordered(float key)
{
    uint32_t bits;
    key += 0.0f; // −0 becomes 0
    memcpy(&bits, &key, sizeof bits);
    return isnan(key) ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The k-th largest of keys, 1 ≤ k ≤ count; *above: how many are larger. Digit by digit from the top.
static uint32_t largest_but(const uint32_t *keys, size_t count, size_t k, size_t *above)
{
    uint32_t prefix = 0, mask = 0;
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t with_digit[DIGIT] = {0}, digit = DIGIT - 1;
        for (size_t i = 0; i < count; i++)
            if ((keys[i] & mask) == prefix)
                with_digit[keys[i] >> shift & (DIGIT - 1)]++;
        while (*above + with_digit[digit] < k)
            *above += with_digit[digit--];
        prefix |= (uint32_t)digit << shift;
        mask |= (uint32_t)(DIGIT - 1) << shift;
    }
    return prefix;
}

// Marks the `capacity` largest of keys in order of size and then of place: keys become 1 (taken) or 0.
static void take_largest(uint32_t *keys, size_t count, size_t capacity)
{
    if (!capacity || count <= capacity) {
        for (size_t i = 0; i < count; i++)
            keys[i] = capacity > 0;
        return;
    }
    size_t above, equal = 0;
    uint32_t least = largest_but(keys, count, capacity, &above);
    for (size_t i = 0; i < count; i++)
        keys[i] = keys[i] > least || (keys[i] == least && equal++ < capacity - above);
}

static void run_choose_tokens(const void *job, int thread, int threads)
{
    const struct choosing *c = job;
    struct range part = cpu_part(c->E, thread, threads);
    uint32_t *keys = (uint32_t *)cpu_scratch(thread, SCRATCH_ROUTER, c->T);
    for (size_t e = part.from; e < part.to; e++) {
        for (size_t t = 0; t < c->T; t++)
            keys[t] = ordered(c->keys[t * c->E + e]);
        take_largest(keys, c->T, c->capacity);
        for (size_t t = 0; t < c->T; t++)
            c->choice[t * c->E + e] = keys[t] ? (int32_t)e : -1;
    }
}

void cpu_router_choose_tokens(int32_t *choice, const void *keys, size_t T, size_t E, size_t capacity)
{
    cpu_run(run_choose_tokens, &(struct choosing){.choice = choice, .keys = keys, .T = T, .E = E, .capacity = capacity}, 8 * T * E);
}

// ---- full experts ----

static void run_drop(const void *job, int thread, int threads)
{
    const struct choosing *c = job;
    struct range part = cpu_part(c->E, thread, threads);
    uint32_t *keys = (uint32_t *)cpu_scratch(thread, SCRATCH_ROUTER, c->T); // a token chooses an expert once
    for (size_t e = part.from; e < part.to; e++) {
        size_t count = 0, next = 0;
        for (size_t slot = 0; slot < c->T * c->J; slot++)
            if (c->chosen[slot] == (int32_t)e)
                keys[count++] = c->keys ? ordered(c->keys[slot]) : 0;
        take_largest(keys, count, c->capacity);
        for (size_t slot = 0; slot < c->T * c->J; slot++)
            if (c->chosen[slot] == (int32_t)e)
                c->choice[slot] = keys[next++] ? (int32_t)e : -1;
    }
    if (thread == 0)
        for (size_t slot = 0; slot < c->T * c->J; slot++)
            if (c->chosen[slot] < 0)
                c->choice[slot] = -1;
}

void cpu_router_drop(int32_t *kept, const int32_t *choice, const void *probs, size_t T, size_t E, size_t J, size_t capacity)
{
    assert(kept != choice);
    cpu_run(run_drop, &(struct choosing){.choice = kept, .chosen = choice, .keys = probs, .T = T, .E = E, .J = J, .capacity = capacity}, T * J * E);
}
