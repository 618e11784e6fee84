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

// With all weights read. threads 0: every processor that this process may use.
int loaded_open(struct loaded *loaded, struct trained *trained, int64_t threads, struct error *err);
// Its two halves: the device, then the model and its weights, those of experts aside where there is a store.
int loaded_prepare(struct loaded *loaded, struct trained *trained, int64_t threads, struct error *err);
int loaded_read(struct loaded *loaded, const struct trained *trained, const struct expert_store *store, struct error *err);
void loaded_close(struct loaded *loaded);
