// Checkpoints: whole logical tensors in safetensors files, named as Hugging Face's Llama and Mixtral name them, so that any layout can load what
// any other saved.
//
//   checkpoints/step-0000120/
//     model-00001-of-0000N.safetensors   1: what every rank holds (one rank writes it); 2…: each expert-parallel rank's experts.
//     model.safetensors.index.json       Hugging Face's map of tensor to file. A dense model: model.safetensors alone, without a map
//     optimizer-….safetensors            <name>.exp_avg and <name>.exp_avg_sq of the same tensors
//     trainer.json                       step, data identity, learning-rate schedule
//     complete.json                      files, bytes, SHA-256; written last: without it the directory is no checkpoint
//
// It is written as step-N.tmp, flushed, renamed, and completed, while no newer attempt exists.
#pragma once
#include "schema/base/json.h"
#include "worker/model/model.h"
#include "worker/train/job.h"
#include "worker/train/optimizer.h"

struct training_state { // what is saved and restored, parameters aside
    const struct job *job;
    struct model *model;
    struct optimizer *optimizer;
    struct comm *world;
    int64_t step;               // updates done
    struct json *identity;      // of the data, rank 0 only: batches_identity
};

// Collective. *bytes: of all files; 0 if that step was complete already.
int checkpoint_save(const struct training_state *state, int64_t *bytes, struct error *err);

// Continues from the run's last complete checkpoint, if there is one: parameters, optimizer state, step. A changed data identity or
// schedule is an error that names both values. Collective. *resumed: its step, or -1.
int checkpoint_resume(struct training_state *state, int64_t *resumed, struct error *err);

// Takes weights only, from any checkpoint directory. A dense one into a model with experts: every expert becomes a copy of the dense FFN,
// the router keeps its initial values. Not collective.
int checkpoint_weights(struct model *model, const char *directory, struct error *err);

// The directory's complete.json names files of these sizes and hashes. Not collective.
int checkpoint_verify(const char *directory, struct error *err);

struct json *schedule_identity(const struct spec *spec); // what decides the learning rate of a step
