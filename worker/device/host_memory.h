// Memory of devices that live in the host's memory: one mapping an allocation, huge pages where the system gives them (a first touch
// of a small page costs some 20 µs on virtual machines, so nothing is mapped inside a step).
#pragma once
#include "worker/device/device.h"

extern const struct device_memory host_memory;
