// The queue's order: who may start now, over written cases and over random queues in which everybody must come to his turn.
#include "daemon/core/room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct wish {
    int64_t cores, gpus;
};

enum { WISHES_MAX = 8 };

struct row {
    const char *what;
    struct room room;
    struct wish wishes[WISHES_MAX];
    const char *answers; // one letter a wish: n(ow), c(ores), g(pus)
};

// clang-format off
static const struct row table[] = {
    {"all fit", {.cores = 4, .gpus = 2}, {{2, 1}, {2, 1}}, "nn"},
    {"who waits for cores is overtaken by nobody", {.cores = 4, .cores_taken = 3}, {{2, 0}, {1, 0}}, "cc"},
    {"nor by one with a GPU", {.cores = 4, .cores_taken = 3, .gpus = 1}, {{2, 0}, {1, 1}}, "cc"},
    {"who waits for a GPU lets those without pass", {.cores = 4, .gpus = 1, .gpus_taken = 1}, {{1, 1}, {2, 0}, {2, 0}}, "gnn"},
    {"but no other that wants one", {.cores = 8, .gpus = 4, .gpus_taken = 2}, {{1, 3}, {1, 1}, {1, 0}, {1, 2}}, "ggng"},
    {"its GPUs are free, its cores are not: now nobody passes", {.cores = 4, .cores_taken = 2, .gpus = 1}, {{4, 1}, {1, 0}}, "cc"},
    {"more cores than there are: alone", {.cores = 2}, {{4, 0}, {1, 0}}, "nc"},
    {"more cores than there are waits for all to end", {.cores = 2, .cores_taken = 1}, {{4, 0}, {1, 0}}, "cc"},
    {"more GPUs than there are (any more) holds up nobody", {.cores = 4, .gpus = 1}, {{1, 2}, {1, 1}, {1, 0}}, "gnn"},
    {"a machine without GPUs", {.cores = 4}, {{1, 1}, {1, 0}}, "gn"},
};
// clang-format on

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct room room = table[i].room;
        for (size_t w = 0; table[i].answers[w]; w++) {
            char got = "ncg"[room_ask(&room, table[i].wishes[w].cores, table[i].wishes[w].gpus)];
            if (got != table[i].answers[w])
                fail_msg("%s: wish %zu: '%c', not '%c'", table[i].what, w, got, table[i].answers[w]);
        }
    }
}

enum { RUNS = 60, CORES = 4, GPUS = 3, ROUNDS_MAX = 10000 };

struct run {
    struct wish wish;
    int left;  // rounds that it still needs, once it runs
    int state; // 0 queued, 1 running, 2 ended
};

// What the schedule does in each round: what runs is taken, the queue is asked in order until somebody waits for cores.
static void round_of(struct run *runs)
{
    struct room room = {.cores = CORES, .gpus = GPUS};
    for (int i = 0; i < RUNS; i++)
        if (runs[i].state == 1) {
            room.cores_taken += runs[i].wish.cores;
            room.gpus_taken += runs[i].wish.gpus;
        }
    bool core_waiter = false, gpu_waiter = false;
    for (int i = 0; i < RUNS; i++) {
        if (runs[i].state != 0)
            continue;
        enum place place = room_ask(&room, runs[i].wish.cores, runs[i].wish.gpus);
        if (place == PLACE_NOW) {
            assert_false(core_waiter || (gpu_waiter && runs[i].wish.gpus > 0));
            runs[i].state = 1;
        }
        core_waiter |= place == PLACE_CORES;
        gpu_waiter |= place == PLACE_GPUS;
        assert_true(room.gpus_taken <= GPUS);
        assert_true(room.cores_taken <= CORES);
    }
}

static void test_everybody_comes_to_his_turn(void **state)
{
    (void)state;
    srandom(1);
    for (int trial = 0; trial < 300; trial++) {
        struct run runs[RUNS];
        for (int i = 0; i < RUNS; i++)
            runs[i] = (struct run){.wish = {1 + random() % CORES, random() % 2 ? random() % (GPUS + 1) : 0}, .left = 1 + (int)(random() % 9)};
        int round = 0, ended = 0;
        for (; ended < RUNS && round < ROUNDS_MAX; round++) {
            round_of(runs);
            int running = 0;
            for (int i = 0; i < RUNS; i++)
                if (runs[i].state == 1) {
                    running++;
                    if (--runs[i].left == 0) {
                        runs[i].state = 2;
                        ended++;
                    }
                }
            assert_true(running > 0); // somebody always can
        }
        assert_int_equal(ended, RUNS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_everybody_comes_to_his_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
