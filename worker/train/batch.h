// Which samples a step reads, and which rank reads them. Positions are handed out as Megatron's single sampler does: a step is m chunks
// of micro-batch · DP consecutive positions, and DP rank r takes the r-th slice of each chunk. So a step's samples, as a set and in
// their global order, do not depend on the layout.
#pragma once
#include "schema/base/hash.h"
#include "schema/spec/spec.h"
#include "worker/data/data.h"
#include "worker/model/model.h"
#include "worker/train/job.h"

struct batches {
    const struct spec *spec;
    struct blend *train, *valid;   // valid NULL: no validation
    int64_t data_rank, data_size;  // this rank's place among the data parallel ranks
    int32_t *row;                  // S + 1 tokens
    int32_t *tokens, *targets, *positions, *first_key; // (B,S) of the micro batch read last; the last two where the spec asks for them
    int32_t end_token;             // that ends a document, where the spec needs to know it
};

int batches_open(struct batches *batches, const struct job *job, int64_t data_rank, int64_t data_size, struct error *err);
// One epoch of one split, in the order in which validation reads it, for a process that reads all of it (as `validation`). samples: how many.
int batches_open_split(struct batches *batches, const struct job *job, enum data_split which, int64_t *samples, struct error *err);
void batches_release(struct batches *batches);

// How many micro batches of this rank make a step of that many samples.
int64_t batches_micro_batches(const struct batches *batches, int64_t samples);

// A micro batch, lent until the next one is read. step counts from 1; a validation "step" too. Tokens outside the vocabulary are an error
// of the data.
int batches_read(struct batches *batches, bool validation, int64_t step, int64_t micro_batch, struct micro_batch *out, struct error *err);
// The same of the samples from `first` on; from `end` on the last one is repeated and does not count.
int batches_read_at(struct batches *batches, bool validation, int64_t first, int64_t end, struct micro_batch *out, struct error *err);

// SHA-256 over the token rows (S + 1 int32 each) of a training step in global sample order.
void batches_hash(const struct batches *batches, int64_t step, char hex[HASH_HEX]);

// Everything that decides which tokens are read in which order and learnt, by the names of keys: compared when a run is resumed.
struct json *batches_identity(const struct job *job, struct error *err);
