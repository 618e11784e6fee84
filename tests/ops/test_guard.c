// That the guard catches what it is for: each fault in a child of its own, which must not live to the end.
#include "worker/device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { COUNT = 1000 };

static const struct device *guard;
static float *memory;

static void nothing(void)
{
    guard->ops->scale(memory, 2, COUNT);
}

static void read_through_pointer(void)
{
    volatile float value = memory[COUNT - 1];
    (void)value;
}

static void write_through_pointer(void)
{
    *(volatile float *)memory = 1;
}

static void operand_too_long(void)
{
    guard->ops->scale(memory + 1, 2, COUNT);
}

static void operand_behind(void)
{
    guard->ops->scale(memory + COUNT + 10, 2, 1);
}

static void host_memory_as_operand(void)
{
    float host[8];
    guard->ops->scale(host, 2, 8);
}

static void device_memory_as_host(void)
{
    guard->memory->upload(memory, memory + 8, 8);
}

static void index_out_of_reach(void)
{
    int32_t *index = guard->memory->alloc(sizeof *index), row = COUNT / 10;
    guard->memory->upload(index, &row, sizeof row);
    guard->ops->gather_rows(memory, memory, index, 1, 10);
}

static void copy_past_the_end(void)
{
    float host[COUNT];
    guard->memory->read_back(host, memory + 1, sizeof host);
}

static bool lives(void (*act)(void))
{
    pid_t child = fork();
    if (!child) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        act();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_guard(void **test)
{
    static const struct {
        const char *name;
        void (*act)(void);
        bool lives;
    } acts[] = {
        {"a proper operation", nothing, true},
        {"a read through the pointer", read_through_pointer, false},
        {"a write through the pointer", write_through_pointer, false},
        {"an operand too long", operand_too_long, false},
        {"an operand behind the end", operand_behind, false},
        {"host memory as operand", host_memory_as_operand, false},
        {"device memory as host memory", device_memory_as_host, false},
        {"an index out of reach", index_out_of_reach, false},
        {"a copy past the end", copy_past_the_end, false},
    };
    (void)test;
    guard = device_guard(device_reference());
    memory = guard->memory->alloc(COUNT * sizeof *memory);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (lives(acts[i].act) != acts[i].lives)
            fail_msg("guard: %s %s", acts[i].name, acts[i].lives ? "was refused" : "went unnoticed");
    guard->memory->free(memory, COUNT * sizeof *memory);
}

// A communicator asks for an address that it may use itself.
static void test_host_view(void **test)
{
    (void)test;
    guard = device_guard(device_reference());
    float *at = guard->memory->alloc(64), value = 0;
    *(float *)guard->memory->host_view(at + 3) = 7;
    guard->memory->read_back(&value, at + 3, sizeof value);
    assert_true(value == 7);
    guard->memory->free(at, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_guard), cmocka_unit_test(test_host_view)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
