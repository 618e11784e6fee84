// What the probes share: the device by its name, and numbers as JSON.
#pragma once
#include "schema/base/json.h"
#include "worker/device/device.h"

#include <string.h>

static const struct device *find_device(const char *name)
{
    if (!strcmp(name, "reference_f64"))
        return device_reference_f64();
    return !strcmp(name, "cpu") ? device_cpu(2) : device_reference();
}

static struct json *numbers(const double *values, size_t count)
{
    struct json *array = js_array();
    for (size_t i = 0; i < count; i++)
        js_append(array, js_real(values[i]));
    return array;
}
