// What multiply-adds alone reach on the calling thread, in GF/s, with the widest vectors this machine has: the ceiling of any product.
#pragma once

double peak_rate(void);      // fp32
double peak_rate_bf16(void); // pairs of bf16 into fp32; 0 where the machine has none
