// The reference device: plain loops, in float and in double. It is the meaning of every operation, written for reading, never for speed:
// sums and functions are computed in double whatever REAL is, and rounded once.
#include "schema/base/text.h"
#include "worker/device/device.h"
#include "worker/device/host_memory.h"
#include "worker/device/permute.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REAL float
#define NAMED(name) name##_f32
#include "worker/device/reference_dense.inc"
#include "worker/device/reference_experts.inc"
#undef REAL
#undef NAMED

#define REAL double
#define NAMED(name) name##_f64
#include "worker/device/reference_dense.inc"
#include "worker/device/reference_experts.inc"
#undef REAL
#undef NAMED

const struct device *device_reference(void)
{
    static const struct device device = {"reference", "plain", sizeof(float), &host_memory, &ops_f32};
    return &device;
}

const struct device *device_reference_f64(void)
{
    static const struct device device = {"reference_f64", "plain", sizeof(double), &host_memory, &ops_f64};
    return &device;
}
