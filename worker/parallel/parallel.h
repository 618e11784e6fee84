// The groups a rank is in, made from the world by the pure arithmetic of schema/shape/groups.h.
#pragma once
#include "schema/shape/groups.h"
#include "worker/parallel/comm.h"

struct parallel {
    struct layout layout;
    struct comm *world; // lent
    struct comm *dp;    // data parallel: dense gradients are summed here
    struct comm *ep;    // expert parallel: tokens are exchanged here
    struct comm *edp;   // replicas of this rank's experts: expert gradients are summed here
};

int parallel_init(struct parallel *parallel, const struct spec *spec, struct comm *world, struct error *err);
void parallel_release(struct parallel *parallel);
