// Checkpoints: whole logical tensors in safetensors files, named as Hugging Face's Llama and Mixtral name them, so that any layout can load what
// any other saved.
//
//   checkpoints/step-0000120/
//     model-00001-of-0000N.safetensors   1: what every rank holds (one rank writes it); 2…: each expert-parallel rank's experts.
//     model.safetensors.index.json       Hugging Face's map of tensor to file. A dense model: model.safetensors alone, without a map
//     optimizer-….safetensors            <name>.exp_avg and <name>.exp_avg_sq of the same tensors
//     extra.safetensors                  what else decides the steps to come (struct extra_states), where there is any
//     trainer.json                       step, data identity, learning-rate schedule
//     complete.json                      files, bytes, SHA-256; written last: without it the directory is no checkpoint
//
// It is written as step-N.tmp, flushed, renamed, and completed, while no newer attempt exists.
#pragma once
#include "schema/base/json.h"
#include "worker/model/model.h"
#include "worker/train/job.h"
#include "worker/train/optimizer.h"

// State beyond parameters and moments that decides the bits of the steps to come: a bias of experts, a loss scale and its counters, how
// many updates were skipped. Its owner keeps it in host memory, where it has the same value on every rank between two steps, and adds it
// once, in train.c's register_state, before anything is restored. From then on it is part of every checkpoint; a resume demands it, by
// name, kind and count, and puts it back in place. (Random numbers are counted, not drawn: they need no state.)
enum extra_kind { EXTRA_F32, EXTRA_F64, EXTRA_I64 };

struct extra_state {
    char name[128];         // as in the file, such as "loss_scale", or "model.layers.3.block_sparse_moe.gate.e_score_correction_bias"
    enum extra_kind kind;
    void *values;           // lent host memory (count)
    int64_t count;
    bool of_model;          // goes with the weights: a run that starts from this checkpoint (model.from) takes it over, where it is there
};

struct extra_states {
    struct extra_state *items;
    size_t count;
};

void extra_states_add(struct extra_states *extra, const char *name, enum extra_kind kind, void *values, int64_t count, bool of_model);
const char *extra_dtype(enum extra_kind kind); // as safetensors writes it
void extra_states_release(struct extra_states *extra);
// Reads from a checkpoint directory. of_model_only: those that go with the weights, as far as they are there; else all are demanded.
int extra_states_load(struct extra_states *extra, const char *directory, bool of_model_only, struct error *err);

struct training_state { // what is saved and restored, parameters aside
    const struct job *job;
    struct model *model;
    struct optimizer *optimizer;
    struct extra_states *extra;
    struct comm *world;
    int64_t step;               // steps done
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
