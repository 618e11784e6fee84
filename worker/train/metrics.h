// What a step measured, and its form as a record. Measured values (their names end in _ms, _per_second, _mb, or are tflops) differ from
// run to run; all others are the same bits when the run is.
#pragma once
#include "schema/base/json.h"
#include "worker/model/model.h"

struct step_result {
    double loss;             // cross-entropy alone, mean over micro batches and data parallel ranks
    double validation_loss;
    bool validated;
    double gradient_norm;    // before clipping, the loss scale divided out
    double loss_scale;       // the one used; 1 where the loss is not scaled
    bool skipped;            // gradients overflowed: no update was made of this step
    int64_t skipped_steps;   // so far, this step included
    int64_t gradient_zeros;
    double learning_rate;    // the one used
    double expert_learning_rate; // by routed experts; recorded where it has a peak of its own
    double seconds;          // of the step on rank 0, validation and checkpoints left out
    double memory_mb;        // most that a rank has held of its own so far, MB (10^6 bytes): mapped data and libraries left out
    int64_t samples;         // of this step
    int64_t tokens;          // seen so far, this step included
    struct moe_report routing; // of all ranks
};

void step_result_init(struct step_result *result, const struct spec *spec);
void step_result_release(struct step_result *result);

struct json *step_metrics(const struct step_result *result, const struct spec *spec);   // Trackio's metrics object
double peak_memory_bytes(void);      // highest resident size of this process, mapped files included (VmHWM)
double allocated_memory_bytes(void); // resident memory of its own now (RssAnon): what `plan` predicts, and the heap
