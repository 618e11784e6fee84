// A trained model in memory, on the device that its spec asks for, whole in one process.
#pragma once
#include "worker/infer/trained.h"
#include "worker/model/model.h"

struct loaded {
    struct comm *self;
    struct parallel parallel;
    const struct device *device;
    struct model *model;
};

// The device of resources.device; threads 0: every processor that this process may use.
int loaded_device(const struct device **device, const struct spec *spec, int64_t threads, struct error *err);
// With all weights read.
int loaded_open(struct loaded *loaded, const struct trained *trained, int64_t threads, struct error *err);
void loaded_close(struct loaded *loaded);
