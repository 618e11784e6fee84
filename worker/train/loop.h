// The train loop and what it holds.
#pragma once
#include "schema/shape/schedule.h"
#include "worker/train/batch.h"
#include "worker/train/checkpoint.h"
#include "worker/train/journal.h"
#include "worker/train/loss_scale.h"

struct trainer {
    struct comm *world;             // lent
    struct job job;
    const struct device *device;
    int threads;
    struct parallel parallel;
    struct batches batches;
    struct json *identity;          // of the data; rank 0 only
    struct model *model;
    struct optimizer optimizer;
    struct loss_scale loss_scale;
    struct extra_states extra;      // what its owners registered
    struct saver *saver;
    struct journal journal;         // closed except on rank 0
    struct schedule schedule;       // of a step's micro batches; made again when their number changes
    struct step_result result;      // of the last step
    int64_t step;                   // steps done; those that changed the model are counted by the optimizer
    int64_t samples_run;            // of training steps in this attempt
    int64_t alltoall_bytes;         // of training steps in this attempt, this rank
    double peak_memory_bytes;       // most that a rank has held of its own after a step of this attempt; the same on every rank
};

struct training_state training_state_of(struct trainer *trainer);

// From run.json to a trainer that can take steps: all ranks agree after each stage whether it went well. The world is set before; close
// in every case. Collective.
int trainer_open(struct trainer *trainer, const char *run_directory, struct error *err);
void trainer_close(struct trainer *trainer);

// One step from the next batch, an update unless its gradients overflow (loss_scale.h); what came of it is in result, nothing is written.
// Collective.
void train_step(struct trainer *trainer);

// Trains to the last iteration, or until a stop is wished. Returns the exit code; err says why it is not 0 or 75. Collective.
int train_loop(struct trainer *trainer, struct error *err);
