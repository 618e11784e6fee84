#include "tests/ops/trial.h"
#include "schema/base/text.h"
#include "worker/device/cpu.h"
#include "worker/device/host_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

static uint64_t state = 0x9e3779b97f4a7c15u;

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

double normal(void)
{
    return sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform());
}

size_t below(size_t limit)
{
    return (size_t)(uniform() * (double)limit);
}

bool same_bits(const double *a, const double *b, size_t count)
{
    return !memcmp(a, b, count * sizeof *a);
}

void trial_begin(struct trial *trial, const char *name, size_t dim_count, ...)
{
    *trial = (struct trial){.name = name, .dim_count = dim_count, .tolerance = 4e-6};
    va_list args;
    va_start(args, dim_count);
    for (size_t i = 0; i < dim_count; i++)
        trial->dims[i] = va_arg(args, size_t);
    va_end(args);
}

double *trial_reals(struct trial *trial, size_t count, double scale)
{
    double *reals = allocate(count, sizeof *reals);
    for (size_t i = 0; i < count; i++)
        reals[i] = (float)(normal() * scale);
    trial->real_counts[trial->real_count] = count;
    return trial->reals[trial->real_count++] = reals;
}

int32_t *trial_ints(struct trial *trial, size_t count)
{
    trial->int_counts[trial->int_count] = count;
    return trial->ints[trial->int_count++] = allocate(count, sizeof(int32_t));
}

void trial_release(struct trial *trial)
{
    for (size_t a = 0; a < trial->real_count; a++)
        free(trial->reals[a]);
    for (size_t a = 0; a < trial->int_count; a++)
        free(trial->ints[a]);
    free(trial->host);
}

// Operands of devices in host memory end where a page without access begins: one element read or written too far faults.
static size_t pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static void *operand_alloc(const struct device *device, size_t bytes)
{
    if (device->memory != &host_memory)
        return device->memory->alloc(bytes);
    char *map = mmap(NULL, pages(bytes) + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED && !mprotect(map + pages(bytes), 4096, PROT_NONE));
    return map + pages(bytes) - bytes;
}

static void operand_free(const struct device *device, void *at, size_t bytes)
{
    if (device->memory != &host_memory)
        device->memory->free(at, bytes);
    else
        munmap((char *)at + bytes - pages(bytes), pages(bytes) + 4096);
}

// The arrays after the call, in fresh copies.
static struct trial outcome(const struct trial *trial, const struct device *device, trial_function *function)
{
    struct trial after = *trial;
    void *reals[ARRAYS_MAX] = {0};
    int32_t *ints[ARRAYS_MAX] = {0};
    for (size_t a = 0; a < trial->real_count; a++) {
        reals[a] = operand_alloc(device, trial->real_counts[a] * device->real_bytes);
        device->ops->from_double(reals[a], trial->reals[a], trial->real_counts[a]);
    }
    for (size_t a = 0; a < trial->int_count; a++) {
        ints[a] = operand_alloc(device, trial->int_counts[a] * sizeof(int32_t));
        device->memory->upload(ints[a], trial->ints[a], trial->int_counts[a] * sizeof(int32_t));
    }
    function(device->ops, reals, ints, trial);
    for (size_t a = 0; a < trial->real_count; a++) {
        after.reals[a] = allocate(trial->real_counts[a], sizeof(double));
        device->ops->to_double(after.reals[a], reals[a], trial->real_counts[a]);
        operand_free(device, reals[a], trial->real_counts[a] * device->real_bytes);
    }
    for (size_t a = 0; a < trial->int_count; a++) {
        after.ints[a] = allocate(trial->int_counts[a], sizeof(int32_t));
        device->memory->read_back(after.ints[a], ints[a], trial->int_counts[a] * sizeof(int32_t));
        operand_free(device, ints[a], trial->int_counts[a] * sizeof(int32_t));
    }
    after.host = NULL;
    return after;
}

void trial_on(struct trial *trial, const struct device *device, trial_function *function)
{
    struct trial after = outcome(trial, device, function);
    after.host = trial->host;
    trial->host = NULL;
    trial_release(trial);
    *trial = after;
}

static void complain(const struct trial *trial, const char *device, const char *what)
{
    char dims[128] = "";
    for (size_t i = 0; i < trial->dim_count; i++)
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%zu", i ? "×" : "", trial->dims[i]);
    fail_msg("%s %s on %s: %s", trial->name, dims, device, what);
}

static void judge(const struct trial *expected, const struct trial *actual, const char *device)
{
    char what[256];
    for (size_t a = 0; a < expected->real_count; a++) {
        double largest = fmax(1e-30, expected->terms[a]), worst = 0;
        size_t place = 0;
        for (size_t i = 0; i < expected->real_counts[a]; i++) {
            double e = expected->reals[a][i], error = fabs(actual->reals[a][i] - e);
            largest = fmax(largest, fabs(e));
            if (!(error <= worst)) {
                worst = isfinite(error) ? error : INFINITY;
                place = i;
            }
        }
        snprintf(what, sizeof what, "array %zu element %zu: expected %.9g, got %.9g (error %.2g of the largest, tolerance %.2g)", a, place,
            expected->reals[a][place], actual->reals[a][place], worst / largest, expected->tolerance);
        if (!(worst <= expected->tolerance * largest))
            complain(expected, device, what);
    }
    for (size_t a = 0; a < expected->int_count; a++)
        for (size_t i = 0; i < expected->int_counts[a]; i++) {
            snprintf(what, sizeof what, "integers %zu element %zu: expected %d, got %d", a, i, expected->ints[a][i], actual->ints[a][i]);
            if (expected->ints[a][i] != actual->ints[a][i])
                complain(expected, device, what);
        }
}

static void judge_bits(const struct trial *first, const struct trial *second, const char *device)
{
    char what[64];
    for (size_t a = 0; a < first->real_count; a++) {
        snprintf(what, sizeof what, "array %zu has other bits", a);
        if (!same_bits(first->reals[a], second->reals[a], first->real_counts[a]))
            complain(first, device, what);
    }
}

static const char *const instruction_sets[] = {"plain", "avx2", "avx512"};

void trial_end(struct trial *trial, trial_function *function)
{
    struct trial expected = outcome(trial, device_reference_f64(), function), last;
    last = outcome(trial, device_reference(), function);
    judge(&expected, &last, "reference");
    struct trial guarded = outcome(trial, device_guard(device_reference()), function);
    judge_bits(&last, &guarded, "guard(reference)");
    trial_release(&guarded);
    trial_release(&last);
    for (size_t k = 0; k < 3; k++) {
        char name[64];
        if (!cpu_has(instruction_sets[k]))
            continue;
        snprintf(name, sizeof name, "cpu, %s, 1 thread", instruction_sets[k]);
        last = outcome(trial, cpu_configure(1, instruction_sets[k]), function);
        judge(&expected, &last, name);
        snprintf(name, sizeof name, "guard(cpu), %s, 2 threads", instruction_sets[k]);
        const struct device *threaded = cpu_configure(2, instruction_sets[k]);
        cpu.least_work = 0;
        guarded = outcome(trial, device_guard(threaded), function);
        judge_bits(&last, &guarded, name);
        trial_release(&guarded);
        trial_release(&last);
    }
    trial_release(&expected);
    trial_release(trial);
}

void each_cpu(void (*each)(const struct device *device))
{
    for (size_t k = 0; k < 3; k++)
        if (cpu_has(instruction_sets[k]))
            each(cpu_configure(1, instruction_sets[k]));
}
