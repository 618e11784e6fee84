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
// It is written as step-N.<attempt>.tmp, flushed, renamed, and completed, while no newer attempt exists. Weights and moments are fp32
// whatever the run computes in: a checkpoint holds the master weights.
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

// What it belongs to. A checkpoint of before such a state was needed has none: where that change is accepted, the state begins anew.
enum extra_part {
    EXTRA_PROGRESS, // never absent
    EXTRA_SCHEDULE, // of how updates are made
    EXTRA_MODEL     // goes with the weights: a run that starts from this checkpoint (model.from) takes it over, where it is there
};

struct extra_state {
    char name[128];         // as in the file, such as "loss_scale", or "model.layers.3.block_sparse_moe.gate.e_score_correction_bias"
    enum extra_kind kind;
    void *values;           // lent host memory (count)
    int64_t count;
    enum extra_part part;
};

struct extra_states {
    struct extra_state *items;
    size_t count;
};

void extra_states_add(struct extra_states *extra, const char *name, enum extra_kind kind, void *values, int64_t count, enum extra_part part);
void extra_states_add_model(struct extra_states *extra, const struct model *model); // what goes with a model's weights: biases that experts are chosen with
const char *extra_dtype(enum extra_kind kind); // as safetensors writes it
void extra_states_release(struct extra_states *extra);
// Reads from a checkpoint directory all that are registered. may_lack[part]: states of that part keep the values that they begin with, where
// they are not there.
int extra_states_load(struct extra_states *extra, const char *directory, const bool may_lack[EXTRA_MODEL + 1], struct error *err);
// Those that go with the weights, as far as they are there.
int extra_states_load_model(struct extra_states *extra, const char *directory, struct error *err);

struct training_state { // what is saved and restored, parameters aside
    const struct job *job;
    struct model *model;
    struct optimizer *optimizer;
    struct extra_states *extra;
    struct comm *world;
    int64_t step;               // steps done
    bool diverged;              // the last step's loss or gradients were not finite, and neither are the weights, most likely
    struct json *identity;      // of the data, rank 0 only: batches_identity
};

// ---- saving ----

// Writes one checkpoint at a time. Behind the training: what decides the steps to come is copied into host memory that was made once, a
// thread writes and flushes, and the training thread looks in after each step; in place: nothing is copied. Either way a checkpoint is
// complete, and reported, only when all of it is on the disk and no newer attempt exists. All functions but saver_has_news are collective.
struct saver;
struct saved { int64_t step, bytes; }; // a checkpoint that has become complete; bytes 0: none has

void saver_open(struct saver **saver, const struct training_state *state); // not collective
void saver_close(struct saver *saver);       // not collective; a save that has not ended is no checkpoint
size_t saver_bytes(const struct saver *saver); // of the snapshot's memory
// Begins a save, which must be the only one. Nothing happens if that step's checkpoint is complete already.
int saver_begin(struct saver *saver, const struct training_state *state, bool behind, struct error *err);
// Removes what a save removes when it is done (checkpoint.keep), where whoever saved last may have been killed before he came to that.
void saver_tidy(struct saver *saver, const struct training_state *state);
bool saver_has_news(const struct saver *saver); // saver_advance would not wait for this rank
int saver_advance(struct saver *saver, struct saved *saved, struct error *err);
int saver_finish(struct saver *saver, struct saved *saved, struct error *err); // waits for the save's end

// ---- reading ----

struct resumed {
    int64_t step;           // -1: there is no checkpoint
    char *damaged;          // which newer checkpoints were passed over, and why; NULL: none. free()
    char *changed;          // what has changed and was accepted; NULL: nothing. free()
};

// Continues from the run's newest checkpoint that is whole: parameters, optimizer state, extra state, step. A damaged one is set aside (as
// step-….damaged). What has changed in data, schedule or model is an error that names both values, unless checkpoint.accept_changed has it.
int checkpoint_resume(struct training_state *state, struct resumed *resumed, struct error *err);

// Every resident tensor by its own name; not those of experts that lie in a store. Not collective.
int checkpoint_weights(struct model *model, const char *directory, struct error *err);
// model.from: weights only, from any checkpoint directory; a dense one becomes experts where the spec asks for it (upcycle.c). Not collective.
int checkpoint_start(struct model *model, const char *directory, struct error *err);

// The directory's complete.json names its files, with these sizes and hashes, and no others hold tensors. Not collective.
enum verify_what {
    VERIFY_ALL,
    VERIFY_WEIGHTS,             // not the optimizer's files
    VERIFY_WEIGHTS_BUT_EXPERTS, // nor the content of files of experts alone, of which few may be wanted: their sizes
};
int checkpoint_verify(const char *directory, enum verify_what what, struct error *err);

// What is compared when a run is resumed, by the keys of the field table: what decides the steps' rates and updates; the model's function.
struct json *schedule_identity(const struct spec *spec);
struct json *model_identity(const struct spec *spec);
