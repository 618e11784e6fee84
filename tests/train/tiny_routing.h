// Every way of routing that a spec can ask for, on the tiny model: tests of gradients, recomputation, layouts and devices walk the same list.
#pragma once
#include "tests/train/tiny_model.h"

struct tiny_routing {
    const char *name;
    struct tiny tiny;
};

extern const struct tiny_routing tiny_routings[];
extern const size_t tiny_routings_count;
