// A trained model by the path that a person names: a run directory, a checkpoint of one, or a directory of Hugging Face's.
#pragma once
#include "worker/train/checkpoint.h"
#include "worker/train/job.h"

struct trained {
    struct job job;         // its spec is laid out for one process; of a directory of Hugging Face's, only the model section says something
    bool ours;              // a run of ours: job.run, job.parts and the data keys are there
    char *checkpoint;       // the directory that holds the weights
    int64_t step;           // of the checkpoint; -1: not known
    int64_t eod;            // the token that ends a document; -1: not known
};

// step: of a run's checkpoint, 0 for the last complete one. A checkpoint of ours that is not complete is an error; its bytes are
// trained_verify's.
int trained_open(struct trained *trained, const char *path, int64_t step, struct error *err);
void trained_release(struct trained *trained);
// Whether a checkpoint of ours has the bytes that were written; of other directories nobody knows.
int trained_verify(const struct trained *trained, enum verify_what what, struct error *err);

// What config.json of a directory of Hugging Face's says, which a spec of ours could say too. data.sequence_length: of the longest text, 0 where
// it is not told. name: of the class.
int foreign_model(struct spec *spec, const char **name, const char *directory, struct error *err);

// Whether tokens are bytes and the end of a document: of our byte tokenizer, or of one that was exported.
bool trained_is_bytes(const struct trained *trained);
