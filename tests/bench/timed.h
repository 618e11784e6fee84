// A device that does what another does and notes how long each operation took, and which products were asked for.
#pragma once
#include "worker/device/device.h"

const struct device *timed_device(const struct device *inner);
void timed_reset(void);

// Prints a line `part NAME SECONDS` for each kind of operation since the reset, divided by steps.
void timed_print(int steps);

// Does the products noted since the reset again, each alone, for about this long in all. Prints a line
// `product NAME M N K TIMES GFLOPS SECONDS` for each shape (TIMES a step, SECONDS of one) and `rate GFLOPS` of all of a step's products.
void timed_products(int steps, double limit);
