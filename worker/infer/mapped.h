// Experts where they lie: in the checkpoint's mapped files. A matrix is read when its expert is first chosen and never before, so a model with many
// experts needs memory for those that its tokens use.
//
// A matrix that has the device's weight format is used in place (gate and up must lie side by side, as our checkpoints have them); another is
// converted into memory of its own when first wanted.
#pragma once
#include "worker/model/model.h"
#include "worker/weights/safetensors.h"

struct mapped_experts {
    struct expert_store store;      // for model_new_for_inference
    struct tensor_set *set;
    const struct device *device;
    struct param_table table;
    struct mapped_cell { const void *at[2]; void *own[2]; } *cells; // (layers, experts) × (gate|up, down)
    size_t layers, experts;
    int64_t bytes, all_bytes;       // of the files: of matrices that were wanted, of all experts'
    int64_t chosen, all;            // experts of a layer: those that were, all
    int64_t in_place;               // matrices that were used where they lie
};

// The checkpoint must have every expert's tensors in the model's shapes.
int mapped_open(struct mapped_experts *mapped, const struct spec *spec, const struct device *device, const char *directory, struct error *err);
void mapped_close(struct mapped_experts *mapped);
