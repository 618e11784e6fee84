// What multiply-adds alone reach on one thread, in GF/s of fp32, with the widest vectors this machine has: the ceiling of any product.
#pragma once

double peak_rate(void);
