// What a spec computes on.
#pragma once
#include "schema/spec/spec.h"
#include "worker/device/device.h"

// The device of resources.device in the format of training.precision. threads: resources.threads_per_rank, else this rank's share of the processors
// that this process may use.
int compute_device(const struct device **device, int *threads, const struct spec *spec, struct error *err);
