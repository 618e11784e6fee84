// The reference device: plain loops, in float and in double, and in float with weights of each format of two bytes. It is the meaning of every operation, written for reading, never for speed:
// sums and functions are computed in double whatever REAL is, and rounded once.
#include "schema/base/text.h"
#include "worker/device/device.h"
#include "worker/device/host_memory.h"
#include "worker/device/permute.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/device/reference_format.inc"

#define ALL_OPERATIONS "worker/device/reference_all.inc"

#define REAL float
#define WEIGHT float
#define ROUNDED(x) ((double)(x))
#define VALUE_OF(weight) ((double)(weight))
#define BYTES_OF(x) (x)
#define NAMED(name) name##_f32
#include ALL_OPERATIONS

#define REAL double
#define WEIGHT double
#define ROUNDED(x) ((double)(x))
#define VALUE_OF(weight) ((double)(weight))
#define BYTES_OF(x) (x)
#define NAMED(name) name##_f64
#include ALL_OPERATIONS

#define REAL float
#define WEIGHT uint16_t
#define ROUNDED(x) nearest_number(x, &bf16_numbers)
#define VALUE_OF(weight) number_of_bytes(weight, &bf16_numbers)
#define BYTES_OF(x) number_as_bytes(x, &bf16_numbers)
#define NAMED(name) name##_bf16
#include ALL_OPERATIONS

#define REAL float
#define WEIGHT uint16_t
#define ROUNDED(x) nearest_number(x, &fp16_numbers)
#define VALUE_OF(weight) number_of_bytes(weight, &fp16_numbers)
#define BYTES_OF(x) number_as_bytes(x, &fp16_numbers)
#define NAMED(name) name##_fp16
#include ALL_OPERATIONS

const struct device *device_reference_in(enum format format)
{
    static const struct device devices[FORMATS] = {
        [FORMAT_FP32] = {"reference", "plain", sizeof(float), FORMAT_FP32, sizeof(float), &host_memory, &ops_f32},
        [FORMAT_BF16] = {"reference", "plain", sizeof(float), FORMAT_BF16, sizeof(uint16_t), &host_memory, &ops_bf16},
        [FORMAT_FP16] = {"reference", "plain", sizeof(float), FORMAT_FP16, sizeof(uint16_t), &host_memory, &ops_fp16},
    };
    return &devices[format];
}

const struct device *device_reference(void)
{
    return device_reference_in(FORMAT_FP32);
}

const struct device *device_reference_f64(void)
{
    static const struct device device = {
        "reference_f64", "plain", sizeof(double), FORMAT_FP32, sizeof(double), &host_memory, &ops_f64};
    return &device;
}
