// One operation on one set of operands, run on every device and judged by reference_f64: every array afterwards, inputs too, must be the
// judge's within the tolerance, integers exactly. Beyond that the cpu device must give the same bits with one thread and two, and the
// guard those of the device within. A failing line names operation, shape, device, array and error.
#pragma once
#include "worker/device/device.h"
#include <stdbool.h>
#include <stdint.h>

enum { ARRAYS_MAX = 8, DIMS_MAX = 8 };

struct trial {
    const char *name;
    size_t dims[DIMS_MAX], dim_count;
    double *reals[ARRAYS_MAX]; // values before
    size_t real_counts[ARRAYS_MAX], real_count;
    int32_t *ints[ARRAYS_MAX];
    size_t int_counts[ARRAYS_MAX], int_count;
    double tolerance;         // largest |error| over largest |expected| of the array
    double terms[ARRAYS_MAX]; // size of the terms where a result is their difference: counts as the largest |expected| if larger
    int64_t *host;            // counts of grouped operations
};

// What a trial calls: r[] and i[] are its arrays on the device, in the order they were added.
typedef void trial_function(const struct device_ops *ops, void **r, int32_t **i, const struct trial *trial);

void trial_begin(struct trial *trial, const char *name, size_t dim_count, ...); // dims: size_t
// An array of normal numbers × scale, rounded to float, so that every device starts from the same.
double *trial_reals(struct trial *trial, size_t count, double scale);
int32_t *trial_ints(struct trial *trial, size_t count); // zeros
// Runs and judges on every device; releases the trial. Fails the running test if anything differs.
void trial_end(struct trial *trial, trial_function *function);

// Runs on one device and leaves the results in the trial's arrays.
void trial_on(struct trial *trial, const struct device *device, trial_function *function);
void trial_release(struct trial *trial);

// Runs on every cpu kernel set of this machine, one thread: `each` is called with the device and the caller's argument.
void each_cpu(void (*each)(const struct device *device));

double normal(void);        // the test's own generator, the same numbers every time
size_t below(size_t limit); // uniform
bool same_bits(const double *a, const double *b, size_t count);
