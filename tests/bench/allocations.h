// How often the calling thread asked the C library for memory: others, such as the heartbeat's, do so in their own time. Linking this file
// replaces malloc and its sisters by counting ones.
#pragma once
#include <stdint.h>

int64_t allocations(void); // so far; −1 where a sanitizer has its own
